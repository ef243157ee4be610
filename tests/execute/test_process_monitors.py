"""Cleanup after a killed podman: only the monitors of one container and their descendants are ended."""

from __future__ import annotations

import shutil
import signal
from types import SimpleNamespace

import pytest

from dayfly.execute.process import podman_monitors

PATH = "/home/attempts/u/r.a.1"


class Machine:
    """A machine with simulated processes and clock."""

    def __init__(self, folder, monkeypatch) -> None:
        self.proc, self.bundles = folder / "proc", folder / "bundles"
        self.proc.mkdir()
        self.now = self.began = 1000.0
        self.looks = 0
        self.killed: list[tuple[int, int]] = []
        self.stubborn: set[int] = set()
        self.later: dict[int, list] = {}  # by the number of polls
        (self.proc / "self").mkdir()
        monkeypatch.setattr(podman_monitors, "os", SimpleNamespace(kill=self._kill))
        monkeypatch.setattr(podman_monitors, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))

    def _sleep(self, seconds):
        self.now += seconds
        self.looks += 1
        for what in self.later.pop(self.looks, ()):
            what()

    def _kill(self, pid, number):
        self.killed.append((pid, number))
        if not (self.proc / str(pid)).exists():
            raise ProcessLookupError
        if pid not in self.stubborn:
            self.gone(pid)

    def gone(self, pid):
        shutil.rmtree(self.proc / str(pid))

    def process(self, pid, *words, parent=1, threads=1):
        (self.proc / str(pid)).mkdir()
        for thread in range(threads):
            (self.proc / str(pid) / "task" / str(pid + thread)).mkdir(parents=True)
        (self.proc / str(pid) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
        (self.proc / str(pid) / "stat").write_text(f"{pid} (a ) b) S {parent} 1 1")

    def monitor(self, pid, container="dayfly-a", path=PATH, program="/usr/bin/conmon"):
        """Add a monitor whose container has a mount of `path`. None: its bundle is gone."""
        bundle = self.bundles / str(pid)
        bundle.mkdir(parents=True)
        if path is not None:
            (bundle / "config.json").write_text(f'{{"source": "{path}"}}')
        self.process(pid, program, "--full", "-n", container, "-b", str(bundle))

    def end(self):
        podman_monitors.end_monitors("dayfly-a", PATH, self.proc)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def test_search_without_a_monitor_polls_three_times(machine):
    machine.process(7, "sleep", "60")
    machine.end()
    assert (machine.looks, machine.killed) == (3, [])
    assert machine.now - machine.began == pytest.approx(0.15)


def test_monitor_that_ends_in_time_is_not_killed(machine):
    machine.monitor(7)
    machine.later[20] = [lambda: machine.gone(7)]
    machine.end()
    assert (machine.looks, machine.killed) == (23, [])


def test_monitor_that_forks_is_found_and_killed(machine):
    machine.monitor(7)
    machine.later |= {1: [lambda: machine.gone(7)], 3: [lambda: machine.monitor(8)]}
    machine.end()
    assert [pid for pid, _ in machine.killed] == [8]


def test_child_of_podman_that_becomes_the_monitor_is_awaited(machine):
    machine.process(7, "podman", "run", "--name", "dayfly-a", "image", "host", PATH)
    machine.later[4] = [lambda: machine.gone(7), lambda: machine.monitor(7)]
    machine.end()
    assert [pid for pid, _ in machine.killed] == [7]


def test_podman_that_pulls_an_image_is_left_running(machine):
    machine.process(7, "podman", "run", "--name", "dayfly-a", "image", "host", PATH, threads=9)
    machine.process(27, "podman", "run", "--name", "dayfly-a", "image", "host", "/home/other/u/r.a.1")
    machine.end()
    assert (machine.looks, machine.killed) == (3, [])


def test_stuck_monitor_is_killed_with_its_descendants(machine):
    machine.monitor(7)
    machine.process(8, "sh", parent=7)
    machine.process(9, "sleep", parent=8)
    machine.process(10, "sleep", parent=1)
    machine.process(11, "sh", parent=7)
    machine.end()
    assert machine.killed == [(pid, signal.SIGKILL) for pid in (8, 11, 9, 7)]
    assert machine.now - machine.began == pytest.approx(podman_monitors.MONITOR_TIMEOUT_S + 0.2, abs=0.06)


def test_foreign_monitors_are_left_running(machine):
    machine.monitor(7, container="dayfly-b")
    machine.monitor(8, path="/home/other/u/r.a.1")
    machine.monitor(9, program="/usr/bin/common")
    machine.process(10, "conmon", "-n")
    (machine.proc / "12").mkdir()  # it has just ended
    machine.monitor(11)
    (machine.bundles / "11" / "config.json").unlink()
    (machine.bundles / "11" / "config.json").mkdir()  # unreadable, as those of other users
    machine.end()
    assert (machine.looks, machine.killed) == (3, [])


def test_monitor_of_a_vanished_container_is_killed(machine):
    machine.monitor(7, path=None)
    machine.end()
    assert [pid for pid, _ in machine.killed] == [7]


def test_unkillable_monitor_raises_an_error(machine):
    machine.monitor(7)
    machine.stubborn.add(7)
    with pytest.raises(TimeoutError, match=r"monitor of container dayfly-a does not end: process 7"):
        machine.end()
    assert machine.now - machine.began == pytest.approx(podman_monitors.TIMEOUT_S, abs=0.06)


def test_slow_end_of_a_monitor_is_awaited(machine):
    machine.monitor(7)
    machine.stubborn.add(7)
    machine.later[int(podman_monitors.TIMEOUT_S / 0.05) - 1] = [lambda: machine.gone(7)]
    machine.end()
    assert {pid for pid, _ in machine.killed} == {7}
