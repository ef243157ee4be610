#!/usr/bin/env python3
"""Print a patch of Argo CD's ConfigMap: the health check of deploy/argocd/health.lua for each kind that users apply.

scripts/argocd.py > health.yaml && kubectl patch configmap argocd-cm -n argocd --patch-file health.yaml
"""

import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from dayfly.spec.schema import crd  # noqa: E402 - found beside this script, installed or not


def patch() -> dict[str, dict[str, str]]:
    """Return the patch."""
    check = (ROOT / "deploy" / "argocd" / "health.lua").read_text()
    return {"data": {f"resource.customizations.health.dayfly.dev_{kind}": check for kind in crd.written_by_users()}}


if __name__ == "__main__":
    yaml.safe_dump(patch(), sys.stdout, default_style="|", width=10_000)
