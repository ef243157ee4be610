"""The summary of a run: its selection of tests, commands that repeat failures, and the slowest files."""

from __future__ import annotations

import collections
import os
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from selection import SELECTION

SLOWEST = 10
FINDS = 10
PROCESSOR = "seconds of processor"  # the name of what a report carries to the process that sums up


class Processor:
    """In each worker: how much of a processor each test takes, with the processes that it starts and waits for."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self._before = used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        before, self._before = self._before, used()
        report.user_properties.append((PROCESSOR, str(self._before - before)))
        return report


def used() -> float:
    """Seconds of processor of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Minutes:
    """Sums over all workers what each file took, its fixtures included: by the clock, and of a processor."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.files: collections.Counter[str] = collections.Counter()
        self.processor: collections.Counter[str] = collections.Counter()
        self.failed: dict[str, None] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Not in pytest's own header, which `-q` leaves out."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        terminal.write_line(f"selection of tests: {SELECTION.variables()} (tests/selection.py)")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self.files[file] += report.duration
        self.processor[file] += sum(float(value) for name, value in report.user_properties if name == PROCESSOR)
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.slowest():
            terminalreporter.write_line(line)
        for line in self.again():
            terminalreporter.write_line(line)

    def slowest(self) -> list[str]:
        """The files that took longest, and each folder: it is the folders that CONTRIBUTING.md has minutes for."""
        if not self.files:
            return []
        rooms = {name: _folders(counted) for name, counted in (("", self.files), ("processor", self.processor))}
        told = [f"{room} {seconds:.0f} ({rooms['processor'][room]:.0f})" for room, seconds in rooms[""].most_common()]
        whole = f"{self.files.total():.0f} in all workers (and of a processor, of {self.processor.total():.0f})"
        return [
            f"slowest files, in seconds of {whole}:",
            *(f"{each:7.1f} ({self.processor[file]:.1f})  {file}" for file, each in self.files.most_common(SLOWEST)),
            f"folders: {', '.join(told)}",
        ]

    def again(self) -> list[str]:
        """Return commands that repeat the tests that failed."""
        found = [
            f"{SELECTION.variables()} .venv/bin/python -m pytest {shlex.quote(name)}"
            for name in list(self.failed)[:FINDS]
        ]
        return ["to play it again:", *(f"    {line}" for line in found)] if found else []


def _folders(files: collections.Counter[str]) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    for file, seconds in files.items():
        found[file.rpartition("/")[0]] += seconds
    return found
