"""Leftovers of an engine beside an attempt folder are removed until the engine reports that none are left."""

from __future__ import annotations

import errno
import os
import signal
import stat

import pytest
from tests.embedded import documents as doc
from tests.embedded.attempts_bench import KEY, UNIT, bench
from tests.embedded.machine import until

from dayfly.embedded import attempt_sweeper
from dayfly.execute.process import run
from dayfly.execute.process.launch import ContainerStarter, ProcessStarter

__all__ = ["bench"]


class Refusing:
    """A `clear` of a starter that fails a number of times, then succeeds."""

    def __init__(self, starter, times: int) -> None:
        self.left, self.asked = times, 0
        starter.is_slow = True
        starter.clear = self

    def __call__(self, _folder) -> None:
        self.asked += 1
        if self.asked <= self.left:
            raise OSError("the engine is away")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(attempt_sweeper, "CLEANUP_RETRY_S", 0.01)


def recorded(bench):
    """An attempt of an earlier server whose result is in the ledger; return its folder."""
    folder = bench.attempts.folder(KEY)
    folder.write_order(b"order")
    bench.attempts.remove_recorded(KEY)
    return folder


async def test_refused_clearing_is_retried_and_keeps_the_folder(bench):
    clear = Refusing(bench.starter, 2)
    folder = recorded(bench)
    await until(lambda: clear.asked == 2)
    assert folder.exists(), "the next server finds it by the folder"
    await until(lambda: not folder.exists())
    assert clear.asked == 3
    await bench.attempts.finish_removals()
    assert clear.asked == 3, "the server has nothing left to clear"


async def test_unreadable_folder_is_checked_again(bench, monkeypatch, caplog):
    """For a moment, the process has too many open files."""
    monkeypatch.setattr(attempt_sweeper, "DISK_RETRY_S", 0.01)
    clear, looks = Refusing(bench.starter, 0), []

    def locked(_folder):
        looks.append(clear.asked)
        if len(looks) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return False

    monkeypatch.setattr(run.AttemptFolder, "is_locked", locked)
    folder = recorded(bench)
    await until(lambda: not folder.exists())
    assert (looks, clear.asked) == ([0, 0], 1)
    assert [text.split(": ", 1)[1] for text in caplog.messages] == ["[Errno 24] Too many open files"]


async def test_closing_server_retries_clearing_once(bench, monkeypatch):
    monkeypatch.setattr(attempt_sweeper, "CLEANUP_RETRY_S", 3600)
    clear = Refusing(bench.starter, 2)
    folder = recorded(bench)
    await until(lambda: clear.asked == 1)
    await bench.attempts.finish_removals()
    assert (clear.asked, folder.exists()) == (2, True), "left to the next server"
    await bench.attempts.finish_removals()
    assert (clear.asked, folder.exists()) == (3, False)


async def test_clearing_that_fails_while_closing_is_retried_once(bench, monkeypatch):
    monkeypatch.setattr(attempt_sweeper, "CLEANUP_RETRY_S", 3600)
    clear = Refusing(bench.starter, 1)
    folder = recorded(bench)
    await bench.attempts.finish_removals()
    assert (clear.asked, folder.exists()) == (2, False), "the engine first answered while the server was stopping"


async def test_container_is_cleared_if_the_engine_ended_too_early(bench, monkeypatch):
    clear = Refusing(bench.starter, 0)
    child = os.posix_spawnp("sleep", ["sleep", "600"], os.environ)  # noqa: ASYNC221 -- begun, not waited for

    async def start(_folder, _unit):
        return child

    monkeypatch.setattr(bench.starter, "start", start)
    await bench.attempts.launch(KEY, UNIT, bench.record, b"order")
    os.kill(child, signal.SIGKILL)
    await until(lambda: bench.changes)
    bench.attempts.release(KEY)
    await bench.attempts.finish_removals()
    assert clear.asked == 1


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("kill -9 $$", "it was killed"),
        ("exit 1", "exit code 1"),
        ("echo its disk is full >&2; exit 125", "its disk is full"),
    ],
)
def test_failed_engine_removal_names_the_cause(bench, tmp_path, does, says):
    engine = tmp_path / "docker"
    engine.write_text(f"#!/bin/sh\n{does}\n")
    engine.chmod(stat.S_IRWXU)
    starter = ContainerStarter(str(engine), "runner", ProcessStarter("runner", "none", {}))
    with pytest.raises(OSError, match=rf"^docker cannot remove the container dayfly-run[.]db[.]a[.]1: {says}$"):
        starter.clear(bench.attempts.folder(KEY))


async def test_folders_made_beside_the_script_are_removed_with_it(machine, caplog):
    """A script that changes to its own directory, as many do."""
    step = doc.step("a", 'cd "$(dirname "$0")" && mkdir made && touch made/file && pwd >> "$JOURNAL"')
    await machine.host.offer(doc.offer(doc.resource("r", [step])))
    await machine.ready()
    await until(lambda: not machine.folders())
    assert machine.lines()[0].startswith(str(machine.work))
    assert caplog.messages == []
