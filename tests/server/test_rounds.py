"""The intervals of a server's rounds, in virtual time: they depend on the CPU time of the rounds only."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.kube.fake import run
from tests.server import stored_records

from dayfly.link.server_end import Links
from dayfly.server import cpu_timer
from dayfly.server.cpu_timer import CpuTimer
from dayfly.server.runs import group_sweep
from dayfly.server.sync import host_sync


class Thread:
    """A thread clock that a test advances."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def thread_time(self) -> float:
        return self.seconds


@pytest.fixture
def thread(monkeypatch) -> Thread:
    made = Thread()
    monkeypatch.setattr(cpu_timer, "time", made)
    return made


def sync() -> host_sync.HostSync:
    return host_sync.HostSync(None, Links())


def groups() -> group_sweep.GroupSweep:
    return stored_records.group_sweep(None, sync())


def begun(monkeypatch, of, sweep) -> list[float]:
    """Return when the first four rounds start."""
    rounds: list[float] = []

    async def begin(_self) -> None:
        rounds.append(asyncio.get_running_loop().time())
        await sweep()

    async def play() -> None:
        keeping = asyncio.create_task(of().run())
        await asyncio.sleep(200)
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping

    whose = type(of())
    monkeypatch.setattr(whose, "sweep", begin)
    run(play())
    return rounds[:4]


both = pytest.mark.parametrize("of", [sync, groups])


@both
def test_slow_disk_does_not_delay_the_next_round(monkeypatch, thread, of):
    """The pause depends on the CPU time of a round, not on the time that it waits for a disk."""
    assert begun(monkeypatch, of, lambda: asyncio.sleep(0.5)) == [0, 2.5, 5, 7.5]


@both
def test_busy_thread_does_not_delay_the_next_round(monkeypatch, thread, of):
    """Requests and steps use much CPU time, and orders must be sent nevertheless."""

    async def others() -> None:
        thread.seconds += 0.15

    async def waits() -> None:
        await asyncio.create_task(others())

    assert begun(monkeypatch, of, waits) == [0, 2, 4, 6]


@both
def test_expensive_round_delays_the_next(monkeypatch, thread, of):
    async def works() -> None:
        thread.seconds += 0.05
        await asyncio.sleep(0)
        thread.seconds += 0.05

    assert begun(monkeypatch, of, works) == pytest.approx([0, 9.9, 19.8, 29.7])


async def test_cpu_time_is_counted_by_thread():
    def work() -> None:
        sum(range(3_000_000))

    elsewhere, here = CpuTimer(asyncio.to_thread(work)), CpuTimer(_at_once(work))
    await elsewhere
    await here
    assert elsewhere.seconds < here.seconds


async def _at_once(work) -> None:
    work()


async def test_cancelled_round_handles_its_cancellation():
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    begun = CpuTimer(work())
    task = asyncio.create_task(begun.wait())
    await asyncio.sleep(0)
    begun.close()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended
