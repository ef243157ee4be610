"""The summary of a run: its selection of tests, the slowest files, and commands that repeat failed tests."""

from __future__ import annotations

import collections
import os
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from tests import fork_server
from tests.selection import SELECTION

SLOWEST_FILES = 10
MAX_REPEATED = 10
CPU_TIME = "CPU seconds"  # a property of a report: workers send it to the process that prints the summary


class CpuTimer:
    """A plugin for workers: the CPU time of each test, including processes that it starts and waits for."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self._before = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        before, self._before = self._before, cpu_seconds()
        report.user_properties.append((CPU_TIME, str(self._before - before)))
        return report


def cpu_seconds() -> float:
    """Return the CPU time of this process, of its children that have ended, and of forked commands."""
    return sum(os.times()[:4]) + fork_server.cpu_seconds()


class RunSummary:
    """Adds up the elapsed and the CPU time of each file, fixtures included, over all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.files: collections.Counter[str] = collections.Counter()
        self.cpu: collections.Counter[str] = collections.Counter()
        self.failed: dict[str, None] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Print the selection here: `-q` omits pytest's header."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        terminal.write_line(f"selection of tests: {SELECTION.variables()} (tests/selection.py)")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self.files[file] += report.duration
        self.cpu[file] += sum(float(value) for name, value in report.user_properties if name == CPU_TIME)
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.slowest_files():
            terminalreporter.write_line(line)
        for line in self.repeat_commands():
            terminalreporter.write_line(line)

    def slowest_files(self) -> list[str]:
        """Return lines with the slowest files and with the time of each folder."""
        if not self.files:
            return []
        elapsed, cpu = _by_folder(self.files), _by_folder(self.cpu)
        folders = [f"{folder} {seconds:.0f} ({cpu[folder]:.0f})" for folder, seconds in elapsed.most_common()]
        return [
            f"slowest files, in seconds (CPU seconds); all workers: {self.files.total():.0f} ({self.cpu.total():.0f})",
            *(f"{each:7.1f} ({self.cpu[file]:.1f})  {file}" for file, each in self.files.most_common(SLOWEST_FILES)),
            f"folders: {', '.join(folders)}",
        ]

    def repeat_commands(self) -> list[str]:
        """Return lines with commands that repeat the failed tests."""
        found = [
            f"{SELECTION.variables()} .venv/bin/python -m pytest {shlex.quote(name)}"
            for name in list(self.failed)[:MAX_REPEATED]
        ]
        return ["to repeat a failed test:", *(f"    {line}" for line in found)] if found else []


def _by_folder(files: collections.Counter[str]) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    for file, seconds in files.items():
        found[file.rpartition("/")[0]] += seconds
    return found
