"""The page on guarantees has the ledger's moves and the default timeouts of the code."""

import runpy

import pytest
from tests.docs.conftest import ROOT

PAGE = ROOT / "docs" / "explanation/guarantees.md"
DIAGRAMS = runpy.run_path(str(ROOT / "scripts" / "diagrams.py"))


@pytest.mark.parametrize("name", DIAGRAMS["PARTS"])
def test_each_generated_part_is_current(name: str):
    assert DIAGRAMS["PARTS"][name]() in PAGE.read_text(), "run .venv/bin/python scripts/diagrams.py"


def test_generating_a_current_page_changes_nothing():
    page = PAGE.read_text()
    assert DIAGRAMS["updated_page"](page) == page


@pytest.mark.parametrize("page", ["", "<!-- drawn: units -->\n", "<!-- drawn: units -->\n" * 2 + "<!-- end -->"])
def test_page_without_marks_is_refused(page: str):
    with pytest.raises(ValueError, match="drawn: units"):
        DIAGRAMS["updated_page"](page)
