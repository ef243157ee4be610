#!/usr/bin/env python3
"""Generate the pages of docs/reference/ that have a source in the code or in the manifests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

import cli_reference  # noqa: E402 - found beside this script
import grants_page  # noqa: E402 - as above
import limits_page  # noqa: E402 - as above
import metrics_page  # noqa: E402 - as above
import reason_reference  # noqa: E402 - as above

from dayfly.spec.schema import reference  # noqa: E402 - found in this checkout, installed or not

FOLDER = ROOT / "docs" / "reference"
PAGES = {
    "cli.md": cli_reference.page,
    "files.md": reference.page,
    "grants.md": grants_page.page,
    "limits.md": limits_page.page,
    "metrics.md": metrics_page.page,
    "reasons.md": reason_reference.page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
