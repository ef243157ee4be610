"""What a run has played of the exhaustive, and the table of docs/reliability.md that `make proof` writes of it.

A proof takes hours, and may be ended before it is through. What has passed stands in a journal of the commit, so the next
one goes on from there; the table is written as it goes, and says `so far` until a run has come to its end.
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

# The names of what a report carries to the process that sums up.
PLAYED, SAID = "played", "said"
# And of what the process that sums up tells the others; the plugin is known there alone.
BEFORE, PLUGIN = "proven", "dayfly-proof"
BEGIN, END = "<!-- the proof's own table: `make proof` writes it -->\n", "<!-- end of the table -->\n"
HEAD = ("| what | played | found | took | at |", "|---|---|---|---|---|")
ALL = "every test"
PAGES_EVERY_S = 60.0
# How a run ends that has come to its end. It collects nothing where all was played before.
THROUGH = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
# What the proof itself writes is no other state of the tests.
PAGE = "docs/reliability.md"
ROOT = Path(__file__).parents[1]


@dataclasses.dataclass
class Row:
    """What was played of one kind, what it found, and how long its tests took in all workers."""

    played: int = 0
    found: int = 0
    seconds: float = 0.0
    said: str = ""  # a figure that says more than that nothing failed

    def line(self, what: str, at: str, *, through: bool = True) -> str:
        """One of the table; without `through` more of this kind is to come."""
        found = f"**{self.found} failed**" if self.found else self.said or "nothing"
        played = f"{self.played:,}{'' if through else ' so far'}"
        return f"| {what} | {played} | {found} | {_time(self.seconds)} | `{at}` |"


@dataclasses.dataclass(frozen=True)
class Played:
    """What one test has played."""

    test: str
    kinds: dict[str, int]
    said: dict[str, str]
    seconds: float
    failed: bool = False


class Journal:
    """The tests that have passed in proofs of this commit: a line for each, whoever is ended in the midst of the next."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.before = list(self._read())

    @classmethod
    def of_checkout(cls, folder: Path) -> Journal:
        """Of the commit, and of what was changed since."""
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
                continue  # who wrote it was ended while it did


class Proof:
    """Sums up over all workers; with a page it writes there, each kind in a line that stays until it is played again."""

    def __init__(
        self, page: Path | None, *, whole: bool, journal: Journal | None = None, parts: Sequence[str] = ("tests",)
    ) -> None:
        """`whole` is a run of all tests; what the journal has of these parts is summed up, and is not played again."""
        self._page, self._whole, self._journal = page, whole, journal
        self._written_at = time.monotonic()
        before = journal.before if journal else []
        self.before = frozenset(each.test for each in before)
        # By test: what is played again, or fails as it ends, counts as it was last.
        self._played = {each.test: each for each in before if any(_is_of(each.test, part) for part in parts)}
        self._begun: dict[str, float] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """All workers leave out the same, whenever they begin."""
        node.workerinput[BEFORE] = sorted(self.before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        one = self._played.get(report.nodeid)
        if report.when == "setup":
            self._begun[report.nodeid] = report.duration
        if report.when == "call":
            # Some play all that they judge as they are set up.
            self._played[report.nodeid] = _of(report, self._begun.pop(report.nodeid, 0.0))
        elif report.failed:
            self._played[report.nodeid] = dataclasses.replace(one or _of(report), failed=True)
        elif report.when == "teardown" and one and not one.failed:
            if self._journal:
                self._journal.add(one)
            if time.monotonic() - self._written_at > PAGES_EVERY_S:
                self._write(through=False)

    @property
    def rows(self) -> dict[str, Row]:
        """What was played of each kind."""
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
        self._write(through=exitstatus in THROUGH)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        said = [f"{row.played:,} {what}" for what, row in self.rows.items()]
        if said:
            terminalreporter.write_line(f"played: {'; '.join(said)}")

    def _write(self, *, through: bool) -> None:
        self._written_at = time.monotonic()
        if self._page and self._played:
            self._page.write_text(written(self._page.read_text(), self.rows, commit(), through=through))


def proven(items: Iterable[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """Those that a proof of this commit has seen pass before; of a class all or none, for its tests may go on where the
    one before has ended.
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


def _of(report: pytest.TestReport, before: float = 0.0) -> Played:
    kinds: dict[str, int] = {}
    for name, value in report.user_properties if report.when == "call" else ():
        if name == PLAYED:
            kinds |= json.loads(value)
    said = dict(value.split("\n") for name, value in report.user_properties if name == SAID)
    return Played(report.nodeid, kinds, said, before + report.duration, report.failed)


def written(page: str, rows: dict[str, Row], at: str, *, through: bool = True) -> str:
    """The page with these lines in its table, beside what it has of other kinds."""
    before, mark, rest = page.partition(BEGIN)
    table, closing, after = rest.partition(END)
    assert mark, f"the page has no line {BEGIN!r}"
    assert closing, f"the page has no line {END!r}"
    lines = {found[1]: found[0] for found in re.finditer(r"^\| (.*?) \| .*\|$", table, re.MULTILINE)}
    lines = {what: line for what, line in lines.items() if line not in HEAD}
    lines |= {what: row.line(what, at, through=through) for what, row in rows.items()}
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
