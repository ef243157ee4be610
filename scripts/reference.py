#!/usr/bin/env python3
"""Generate the pages of docs/reference that have a source."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import client_reference  # noqa: E402 - found beside this script, and its imports in src
import kube_reference  # noqa: E402
import rest_reference  # noqa: E402

from dayfly.spec.schema import reference  # noqa: E402 - found beside this script, installed or not

PAGES = {
    "files.md": reference.page,
    "kube-client.md": kube_reference.page,
    "python-client.md": client_reference.page,
    "rest.md": rest_reference.page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / "reference" / name).write_text(page())
