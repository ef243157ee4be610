"""Counts of the exhaustive tests in a run, and the table of tests/proof.md, which `make proof` writes.

A proof takes hours and can be interrupted. A journal for each commit records the tests that have passed, and the next proof of
that commit skips them. The table is updated during the run; rows of an incomplete run say `so far`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

# Properties of a report, which workers send to the main process.
PLAYED, SAID = "played", "said"
# An input of the workers, and the plugin of the main process.
BEFORE, PLUGIN = "proven", "dayfly-proof"
BEGIN, END = "<!-- the proof's own table: `make proof` writes it -->\n", "<!-- end of the table -->\n"
HEAD = ("| what | played | found | took | at |", "|---|---|---|---|---|")
ALL = "every test"
PAGE_INTERVAL_S = 60.0
# Exit codes of a complete run. It collects no tests if all have passed before.
COMPLETE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
# The proof writes this page, so a change of it does not change the journal.
PAGE = "tests/proof.md"
ROOT = Path(__file__).parents[1]


@dataclasses.dataclass
class Row:
    """A row of the table: members of one family, failures, and the time of its tests in all workers."""

    played: int = 0
    found: int = 0
    seconds: float = 0.0
    said: str = ""  # a figure of the test, shown instead of "nothing"

    def line(self, what: str, at: str, *, is_complete: bool = True) -> str:
        """Return the row as Markdown."""
        found = f"**{self.found} failed**" if self.found else self.said or "nothing"
        played = f"{self.played:,}{'' if is_complete else ' so far'}"
        return f"| {what} | {played} | {found} | {_time(self.seconds)} | `{at}` |"


@dataclasses.dataclass(frozen=True)
class Played:
    """The counts of one test, by family."""

    test: str
    kinds: dict[str, int]
    said: dict[str, str]
    seconds: float
    failed: bool = False


class Journal:
    """A file with a line for each test that has passed in proofs of one commit."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.before = list(self._read())

    @classmethod
    def of_checkout(cls, folder: Path) -> Journal:
        """Return the journal of the current commit with its uncommitted changes."""
        changes = git("diff", "HEAD", "--", ".", f":!{PAGE}")
        state = hashlib.sha256(changes.encode()).hexdigest()[:12] if changes else "clean"
        return cls(folder / f"{commit()}-{state}.jsonl")

    def add(self, played: Played) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(f"{json.dumps(dataclasses.asdict(played))}\n")

    def _read(self) -> Iterator[Played]:
        for line in self._file.read_text().splitlines() if self._file.exists() else ():
            try:
                yield Played(**json.loads(line))
            except ValueError:
                continue  # the process was killed while it wrote the line


class Proof:
    """Adds up the counts of all workers and writes them to a page, if there is one. A row stays until its next proof."""

    def __init__(
        self, page: Path | None, *, whole: bool, journal: Journal | None = None, parts: Sequence[str] = ("tests",)
    ) -> None:
        """Create the plugin.

        Args:
            page: The page with the table.
            whole: Whether the run has all tests.
            journal: Tests that have passed before; they count and are not repeated.
            parts: The files and folders of the run.
        """
        self._page, self._whole, self._journal = page, whole, journal
        self._written_at = time.monotonic()
        before = journal.before if journal else []
        self.before = frozenset(each.test for each in before)
        # By test; the last result counts.
        self._played = {each.test: each for each in before if any(_is_of(each.test, part) for part in parts)}
        self._setup_s: dict[str, float] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send each worker the tests to skip, also to workers that start later."""
        node.workerinput[BEFORE] = sorted(self.before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        one = self._played.get(report.nodeid)
        if report.when == "setup":
            self._setup_s[report.nodeid] = report.duration
        if report.when == "call":
            # In some tests, the set-up does the work.
            self._played[report.nodeid] = _counts(report, self._setup_s.pop(report.nodeid, 0.0))
        elif report.failed:
            self._played[report.nodeid] = dataclasses.replace(one or _counts(report), failed=True)
        elif report.when == "teardown" and one and not one.failed:
            if self._journal:
                self._journal.add(one)
            if time.monotonic() - self._written_at > PAGE_INTERVAL_S:
                self._write(is_complete=False)

    @property
    def rows(self) -> dict[str, Row]:
        """The rows by family."""
        found: dict[str, Row] = {}
        for one in self._played.values():
            for what, count in (({ALL: 1} if self._whole else {}) | one.kinds).items():
                row = found.setdefault(what, Row())
                row.said = one.said.get(what, row.said)
                row.played += count
                row.found += one.failed
                row.seconds += one.seconds
        return found

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write(is_complete=exitstatus in COMPLETE)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if counts := [f"{row.played:,} {what}" for what, row in self.rows.items()]:
            terminalreporter.write_line(f"played: {'; '.join(counts)}")

    def _write(self, *, is_complete: bool) -> None:
        self._written_at = time.monotonic()
        if self._page and self._played:
            self._page.write_text(written(self._page.read_text(), self.rows, commit(), is_complete=is_complete))


def proven(items: Iterable[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """Return the tests that have passed in a proof of this commit.

    A class counts only as a whole, because its tests may depend on each other.
    """
    if hasattr(config, "workerinput"):
        before = frozenset(config.workerinput[BEFORE])
    else:
        before = config.pluginmanager.get_plugin(PLUGIN).before
    units: dict[Any, list[pytest.Item]] = {}
    for item in items if before else ():
        units.setdefault(item.getparent(pytest.Class) or item, []).append(item)
    return [item for its in units.values() if all(each.nodeid in before for each in its) for item in its]


def _is_of(test: str, part: str) -> bool:
    return test == part or test.startswith((f"{part.rstrip('/')}/", f"{part}::"))


def _counts(report: pytest.TestReport, setup_s: float = 0.0) -> Played:
    kinds: dict[str, int] = {}
    for name, value in report.user_properties if report.when == "call" else ():
        if name == PLAYED:
            kinds |= json.loads(value)
    said = dict(value.split("\n") for name, value in report.user_properties if name == SAID)
    return Played(report.nodeid, kinds, said, setup_s + report.duration, report.failed)


def written(page: str, rows: dict[str, Row], at: str, *, is_complete: bool = True) -> str:
    """Return the page with these rows in its table. Rows of other families stay."""
    before, mark, rest = page.partition(BEGIN)
    table, closing, after = rest.partition(END)
    assert mark, f"the page has no line {BEGIN!r}"
    assert closing, f"the page has no line {END!r}"
    lines = {found[1]: found[0] for found in re.finditer(r"^\| (.*?) \| .*\|$", table, re.MULTILINE)}
    lines = {what: line for what, line in lines.items() if line not in HEAD}
    lines |= {what: row.line(what, at, is_complete=is_complete) for what, row in rows.items()}
    ordered = [lines[what] for what in sorted(lines, key=lambda what: (what == ALL, what))]
    return "".join((before, BEGIN, *(f"{line}\n" for line in (*HEAD, *ordered)), END, after))


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def commit() -> str:
    """Return the short hash of the checked out commit, or `unversioned` without git or history."""
    return git("rev-parse", "--short=12", "HEAD").strip() or "unversioned"


def git(*words: str) -> str:
    """Return what git prints; nothing if it fails or does not exist."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
