#!/usr/bin/env python3
"""Generate the pages of docs/reference/ from the types of files, the commands and the catalogue of reasons."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

import cli_reference  # noqa: E402 - found beside this script
import reason_reference  # noqa: E402 - as above

from dayfly.spec.schema import reference  # noqa: E402 - found beside this script, installed or not

PAGES = {"files.md": reference.page, "cli.md": cli_reference.page, "reasons.md": reason_reference.page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / "reference" / name).write_text(page())
