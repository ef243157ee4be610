#!/usr/bin/env python3
"""Generate the pages of docs/reference/ that have a source: the types of files, the lint rules."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

import lint_reference  # noqa: E402 - found beside this script

from dayfly.spec.schema import reference  # noqa: E402 - found beside this script, installed or not

PAGES = {"files.md": reference.page, "lint-rules.md": lint_reference.page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / "reference" / name).write_text(page())
