"""The table that the proof writes of itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests import proof
from tests.proof import Journal, Played, Proof, Row, commit, written

ROOT = Path(__file__).parents[1]
OK = pytest.ExitCode.OK
PAGE = f"before\n{proof.BEGIN}{proof.END}after\n"


class Report:
    """As pytest's."""

    def __init__(
        self, test: str = "a", *, when: str = "call", failed: bool = False, played: str = "", said: str = ""
    ) -> None:
        self.nodeid, self.when, self.duration = test, when, 70.0
        self.failed, self.passed = failed, not failed
        self.user_properties = [("other", "1"), *([(proof.PLAYED, played)] if played else [])]
        self.user_properties += [(proof.SAID, said)] if said else []


def test_kinds_are_summed_up_over_their_tests():
    told = Proof(None, whole=False)
    tests = (("a", '{"lives": 3}', False), ("b", '{"lives": 4, "guards": 1}', True), ("c", "", False))
    for test, played, failed in tests:
        for when in ("setup", "call", "teardown"):
            told.pytest_runtest_logreport(Report(test, when=when, failed=failed and when == "call", played=played))
    assert told.rows == {"lives": Row(7, 1, 280.0), "guards": Row(1, 1, 140.0)}, "their setup is part of it, too"


def test_a_figure_stands_where_nothing_failed():
    told = Proof(None, whole=False)
    told.pytest_runtest_logreport(Report(played='{"mutants": 100}', said="mutants\n97.0 % noticed"))
    assert told.rows["mutants"].line("mutants", "aaa") == "| mutants | 100 | 97.0 % noticed | 70 s | `aaa` |"
    told.pytest_runtest_logreport(Report("b", failed=True, played='{"mutants": 100}', said="mutants\n90.0 % noticed"))
    assert told.rows["mutants"].line("mutants", "aaa") == "| mutants | 200 | **1 failed** | 2 min | `aaa` |"


def test_a_run_of_everything_has_a_line_of_its_own():
    """A test that fails before it begins is a find as well."""
    told = Proof(None, whole=True)
    told.pytest_runtest_logreport(Report(when="setup"))
    told.pytest_runtest_logreport(Report())
    told.pytest_runtest_logreport(Report("b", when="setup", failed=True))
    assert told.rows == {"every test": Row(2, 1, 210.0)}


def test_failure_at_teardown_counts_as_a_finding():
    told = Proof(None, whole=True)
    told.pytest_runtest_logreport(Report(played='{"lives": 3}'))
    told.pytest_runtest_logreport(Report(when="teardown", failed=True))
    assert told.rows == {"every test": Row(1, 1, 70.0), "lives": Row(3, 1, 70.0)}


class Item:
    """An item like pytest's: with or without a class."""

    def __init__(self, nodeid: str, of: str = "") -> None:
        self.nodeid, self.of = nodeid, of

    def getparent(self, kind: type) -> str:
        assert kind is pytest.Class
        return self.of


def test_class_is_skipped_only_if_all_its_tests_passed():
    """The tests of a class may continue from the state of the one before."""
    items = [Item("a"), Item("b"), Item("C::a", "C"), Item("C::b", "C"), Item("D::a", "D"), Item("D::b", "D")]
    config = SimpleNamespace(workerinput={proof.BEFORE: ["a", "C::a", "C::b", "D::a"]})
    assert [each.nodeid for each in proof.proven(items, config)] == ["a", "C::a", "C::b"]


def test_repeated_test_counts_once(tmp_path: Path):
    file = tmp_path / "journal"
    Journal(file).add(Played("tests/a.py::D::a", {"lives": 3}, {}, 1.0))
    told = Proof(None, whole=False, journal=Journal(file))
    told.pytest_runtest_logreport(Report("tests/a.py::D::a", played='{"lives": 4}'))
    assert told.rows == {"lives": Row(4, 0, 70.0)}


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


def test_page_is_written_at_the_end_of_a_run(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    told = Proof(page, whole=False)
    told.pytest_sessionfinish(OK)
    assert page.read_text() == PAGE, "nothing was played"
    told.pytest_runtest_logreport(Report(played='{"lives": 3}'))
    told.pytest_sessionfinish(OK)
    assert f"| lives | 3 | nothing | 70 s | `{commit()}` |\n" in page.read_text()


@pytest.mark.parametrize("status", [pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR])
def test_a_run_that_was_ended_says_that_there_is_more(tmp_path: Path, status: pytest.ExitCode):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    told = Proof(page, whole=False)
    told.pytest_runtest_logreport(Report(played='{"lives": 3}'))
    told.pytest_sessionfinish(status)
    assert f"| lives | 3 so far | nothing | 70 s | `{commit()}` |\n" in page.read_text()


def test_page_is_updated_during_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    now = 1000.0
    monkeypatch.setattr(proof.time, "monotonic", lambda: now)
    told = Proof(page, whole=False)
    for test in "abc":
        now += proof.PAGE_INTERVAL_S / 2
        told.pytest_runtest_logreport(Report(test, played='{"lives": 3}'))
        told.pytest_runtest_logreport(Report(test, when="teardown"))
        assert ("| lives | 9 so far |" in page.read_text()) == (test == "c")


def test_passed_tests_are_added_to_the_next_run(tmp_path: Path):
    file = tmp_path / "some" / "journal"
    told = Proof(None, whole=True, journal=Journal(file))
    for test, failed in (("tests/a", False), ("tests/b", True), ("tests/c", False)):
        told.pytest_runtest_logreport(Report(test, failed=failed, played='{"lives": 3}', said="lives\nmany"))
        told.pytest_runtest_logreport(Report(test, when="teardown", failed=test == "tests/c"))
    with file.open("a") as open_file:
        open_file.write('{"test": "d", "kin')  # its writer was killed
    again = Proof(None, whole=True, journal=Journal(file))
    assert again.before == {"tests/a"}, "failed tests and failed cleanups are played again"
    assert again.rows == {"lives": Row(3, 0, 70.0, "many"), "every test": Row(1, 0, 70.0)}
    again.pytest_runtest_logreport(Report("tests/b", played='{"lives": 4}'))
    assert again.rows["lives"] == Row(7, 0, 140.0, "many")


def test_passed_tests_outside_this_run_are_not_added(tmp_path: Path):
    """If a run has no test of a kind, it does not know whether that kind is complete."""
    file = tmp_path / "journal"
    for test, kind in (
        ("tests/a/test_x.py::one", "lives"),
        ("tests/a/test_y.py::two", "guards"),
        ("tests/ab.py::c", "x"),
    ):
        Journal(file).add(Played(test, {kind: 1}, {}, 1.0))

    def rows(*parts: str) -> set[str]:
        told = Proof(None, whole=False, journal=Journal(file), parts=parts)
        assert len(told.before) == 3
        return set(told.rows)

    assert rows("tests") == {"lives", "guards", "x"}
    assert rows("tests/a/") == rows("tests/a") == {"lives", "guards"}
    assert rows("tests/a/test_x.py") == rows("tests/a/test_x.py::one") == {"lives"}
    assert rows("tests/a/test_x.py::on") == set()


def test_run_without_remaining_tests_counts_as_complete(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(written(PAGE, {"lives": Row(3)}, "aaa", is_complete=False))
    Journal(tmp_path / "journal").add(Played("tests/a.py::one", {"lives": 3}, {}, 1.0))
    told = Proof(page, whole=False, journal=Journal(tmp_path / "journal"))
    told.pytest_sessionfinish(pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "| lives | 3 | nothing |" in page.read_text()


def test_journal_belongs_to_one_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A fixed fault may be in tests that have already passed."""
    said = {"diff": ""}
    monkeypatch.setattr(proof, "git", lambda *words: said[words[0]])
    monkeypatch.setattr(proof, "commit", lambda: "aaa")
    one = Played("a", {}, {}, 1.0)
    Journal.of_checkout(tmp_path).add(one)
    assert Journal.of_checkout(tmp_path).before == [one]
    said["diff"] = "a line more"
    assert Journal.of_checkout(tmp_path).before == []
    monkeypatch.setattr(proof, "commit", lambda: "bbb")
    said["diff"] = ""
    assert Journal.of_checkout(tmp_path).before == []


def test_the_page_has_its_marks():
    page = (ROOT / "tests" / "proof.md").read_text()
    assert written(page, {}, "a") == page


def test_played_count_is_in_the_test_report(request: pytest.FixtureRequest, played):
    played("nothing of the exhaustive", 0, "of none")
    assert (proof.PLAYED, '{"nothing of the exhaustive": 0}') in request.node.user_properties
    assert (proof.SAID, "nothing of the exhaustive\nof none") in request.node.user_properties
    request.node.user_properties.clear()
