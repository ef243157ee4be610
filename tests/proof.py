"""What a run has played of the exhaustive, and the table of docs/reliability.md that `make proof` writes of it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from share import commit

# The names of what a report carries to the process that sums up.
PLAYED, SAID = "played", "said"
BEGIN, END = "<!-- the proof's own table: `make proof` writes it -->\n", "<!-- end of the table -->\n"
HEAD = ("| what | played | found | took | at |", "|---|---|---|---|---|")
ALL = "every test"


@dataclasses.dataclass
class Row:
    """What was played of one kind, what it found, and how long its tests took in all workers."""

    played: int = 0
    found: int = 0
    seconds: float = 0.0
    said: str = ""  # a figure that says more than that nothing failed

    def line(self, what: str, at: str) -> str:
        found = f"**{self.found} failed**" if self.found else self.said or "nothing"
        return f"| {what} | {self.played:,} | {found} | {_time(self.seconds)} | `{at}` |"


class Proof:
    """Sums up over all workers; with a page it writes there, each kind in a line that stays until it is played again."""

    def __init__(self, page: Path | None, *, whole: bool) -> None:
        """`whole` is a run of all tests."""
        self._page, self._whole = page, whole
        self.rows: dict[str, Row] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kinds = dict.fromkeys([ALL], 1) if self._whole and (report.when == "call" or report.failed) else {}
        if report.when == "call":
            for name, value in report.user_properties:
                if name == PLAYED:
                    kinds |= json.loads(value)
        said = dict(value.split("\n") for name, value in report.user_properties if name == SAID)
        for what, count in kinds.items():
            row = self.rows.setdefault(what, Row())
            row.said = said.get(what, row.said)
            row.played += count
            row.found += report.failed
            row.seconds += report.duration

    def pytest_sessionfinish(self) -> None:
        if self._page and self.rows:
            self._page.write_text(written(self._page.read_text(), self.rows, commit()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        said = [f"{row.played:,} {what}" for what, row in self.rows.items()]
        if said:
            terminalreporter.write_line(f"played: {'; '.join(said)}")


def written(page: str, rows: dict[str, Row], at: str) -> str:
    """The page with these lines in its table, beside what it has of other kinds."""
    before, mark, rest = page.partition(BEGIN)
    table, closing, after = rest.partition(END)
    assert mark, f"the page has no line {BEGIN!r}"
    assert closing, f"the page has no line {END!r}"
    lines = {found[1]: found[0] for found in re.finditer(r"^\| (.*?) \| .*\|$", table, re.MULTILINE)}
    lines = {what: line for what, line in lines.items() if line not in HEAD}
    lines |= {what: row.line(what, at) for what, row in rows.items()}
    ordered = [lines[what] for what in sorted(lines, key=lambda what: (what == ALL, what))]
    return "".join((before, BEGIN, *(f"{line}\n" for line in (*HEAD, *ordered)), END, after))


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
