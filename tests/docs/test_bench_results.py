"""The pages below bench/results have the form that `bench.report` writes."""

import pytest
from bench import report
from bench.rows import Row, Table
from tests.docs.conftest import ROOT


@pytest.mark.parametrize("name", report.GROUPS)
def test_each_group_has_a_page_and_a_make_target(name: str):
    group = report.GROUPS[name]
    page = (report.FOLDER / f"{name}.md").read_text()
    assert page.startswith(f"<!-- Written by `make {group.target}` -->\n# {group.title}\n\n20")
    assert page.count(report.HEADER) == 1
    assert f"{group.target}: " in (ROOT / "Makefile").read_text()
    assert f"$(PY) -m bench.report {name}\n" in (ROOT / "Makefile").read_text()


def test_page_has_rows_in_one_table_and_further_tables_below():
    group = report.Group("Results", "bench", lambda: ())
    rows = [
        Row("(a) one", "1 ms", "2 ms", "0.5 x", "1 x", met=True),
        Row("(b) two", "3 ms", "-", "3 ms", "1 ms", met=False),
    ]
    page = report.page(group, "today\n", [rows[0], Table("Parts", "| a |\n"), rows[1]])
    assert page.endswith(
        f"{report.HEADER}"
        "| (a) one | 1 ms | 2 ms | 0.5 x | 1 x | yes |\n"
        "| (b) two | 3 ms | - | 3 ms | 1 ms | **no** |\n"
        "\n## Parts\n\n| a |\n"
    )
