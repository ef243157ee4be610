#!/usr/bin/env python3
"""Generate docs/reference.md from the types that parse files."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from dayfly.spec.schema import reference  # noqa: E402 - found beside this script, installed or not

PAGE = ROOT / "docs" / "reference.md"

if __name__ == "__main__":
    PAGE.write_text(reference.render_page())
