"""The table that the proof writes of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import proof
from proof import Proof, Row, written
from share import commit

ROOT = Path(__file__).parents[1]
PAGE = f"before\n{proof.BEGIN}{proof.END}after\n"


class Report:
    """As pytest's."""

    def __init__(self, *, when: str = "call", failed: bool = False, played: str = "", said: str = "") -> None:
        self.when, self.failed, self.duration = when, failed, 70.0
        self.user_properties = [("other", "1"), *([(proof.PLAYED, played)] if played else [])]
        self.user_properties += [(proof.SAID, said)] if said else []


def test_kinds_are_summed_up_over_their_tests():
    told = Proof(None, whole=False)
    for played, failed in (('{"lives": 3}', False), ('{"lives": 4, "guards": 1}', True), ("", False)):
        for when in ("setup", "call", "teardown"):
            told.pytest_runtest_logreport(Report(when=when, failed=failed and when == "call", played=played))
    assert told.rows == {"lives": Row(7, 1, 140.0), "guards": Row(1, 1, 70.0)}


def test_a_figure_stands_where_nothing_failed():
    told = Proof(None, whole=False)
    told.pytest_runtest_logreport(Report(played='{"mutants": 100}', said="mutants\n97.0 % noticed"))
    assert told.rows["mutants"].line("mutants", "aaa") == "| mutants | 100 | 97.0 % noticed | 70 s | `aaa` |"
    told.pytest_runtest_logreport(Report(failed=True, played='{"mutants": 100}', said="mutants\n90.0 % noticed"))
    assert told.rows["mutants"].line("mutants", "aaa") == "| mutants | 200 | **1 failed** | 2 min | `aaa` |"


def test_a_run_of_everything_has_a_line_of_its_own():
    """A test that fails before it begins is a find as well."""
    told = Proof(None, whole=True)
    told.pytest_runtest_logreport(Report(when="setup"))
    told.pytest_runtest_logreport(Report())
    told.pytest_runtest_logreport(Report(when="setup", failed=True))
    assert told.rows == {"every test": Row(2, 1, 140.0)}


def test_a_line_stays_until_it_is_played_again():
    first = written(PAGE, {"lives": Row(7_000, 0, 70.0), "guards": Row(8, 1, 700.0)}, "aaa")
    assert first.splitlines() == [
        "before",
        proof.BEGIN.strip(),
        *proof.HEAD,
        "| guards | 8 | **1 failed** | 12 min | `aaa` |",
        "| lives | 7,000 | nothing | 70 s | `aaa` |",
        proof.END.strip(),
        "after",
    ]
    again = written(first, {"every test": Row(9, 0, 1.0), "guards": Row(9, 0, 1.0), "overlays": Row(1)}, "bbb")
    assert again.splitlines()[4:8] == [
        "| guards | 9 | nothing | 1 s | `bbb` |",
        "| lives | 7,000 | nothing | 70 s | `aaa` |",
        "| overlays | 1 | nothing | 0 s | `bbb` |",
        "| every test | 9 | nothing | 1 s | `bbb` |",
    ]
    assert written(again, {}, "ccc") == again


@pytest.mark.parametrize("page", ["nothing", proof.BEGIN])
def test_a_page_without_its_marks_is_refused(page: str):
    with pytest.raises(AssertionError, match="the page has no line"):
        written(page, {}, "a")


def test_it_is_written_at_the_end_of_a_run(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    told = Proof(page, whole=False)
    told.pytest_sessionfinish()
    assert page.read_text() == PAGE, "nothing was played"
    told.pytest_runtest_logreport(Report(played='{"lives": 3}'))
    told.pytest_sessionfinish()
    assert f"| lives | 3 | nothing | 70 s | `{commit()}` |\n" in page.read_text()


def test_the_page_has_its_marks():
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert written(page, {}, "a") == page


def test_what_a_test_plays_reaches_its_report(request: pytest.FixtureRequest, played):
    played("nothing of the exhaustive", 0, "of none")
    assert (proof.PLAYED, '{"nothing of the exhaustive": 0}') in request.node.user_properties
    assert (proof.SAID, "nothing of the exhaustive\nof none") in request.node.user_properties
    request.node.user_properties.clear()
