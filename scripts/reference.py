#!/usr/bin/env python3
"""Generate the pages of docs/reference/ that have a source in the code or in the manifests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

import cli_reference  # noqa: E402 - found beside this script
import client_reference  # noqa: E402 - as above
import grants_reference  # noqa: E402 - as above
import kube_reference  # noqa: E402 - as above
import limits_reference  # noqa: E402 - as above
import lint_reference  # noqa: E402 - as above
import metrics_reference  # noqa: E402 - as above
import reason_reference  # noqa: E402 - as above
import rest_reference  # noqa: E402 - as above

from dayfly.spec.schema import reference  # noqa: E402 - found in this checkout, installed or not

FOLDER = ROOT / "docs" / "reference"
PAGES = {
    "cli.md": cli_reference.render_page,
    "files.md": reference.render_page,
    "grants.md": grants_reference.render_page,
    "kube-client.md": kube_reference.render_page,
    "limits.md": limits_reference.render_page,
    "lint-rules.md": lint_reference.render_page,
    "metrics.md": metrics_reference.render_page,
    "python-client.md": client_reference.render_page,
    "reasons.md": reason_reference.render_page,
    "rest.md": rest_reference.render_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
