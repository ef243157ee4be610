"""The thread that writes the ledger: what it does while nobody asks for anything, and what it answers to whom."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from types import SimpleNamespace

import pytest

from dayfly.embedded import ledger as ledgers
from dayfly.embedded import writer
from dayfly.embedded.ledger import LedgerError
from dayfly.embedded.writer import MOST_AT_ONCE, Writer
from embedded.machine import until


class Ledger:
    """Notes transactions; `remains` is whether there is something to wipe."""

    def __init__(self, *, remains: bool = False) -> None:
        self.remains = remains
        self.groups = self.wiped = 0
        self.fault: Exception | None = None

    @contextlib.contextmanager
    def transaction(self, what):
        assert what == "commit"
        self.groups += 1
        if self.fault:
            raise self.fault
        yield

    def wipe(self):
        self.wiped += 1
        self.remains = False


@pytest.mark.parametrize("remains", [True, False])
def test_in_a_quiet_moment_what_is_left_of_old_values_is_wiped_once(monkeypatch, remains):
    monkeypatch.setattr(writer, "QUIET_S", 0.001)
    made, ledger = Writer.__new__(Writer), Ledger(remains=remains)
    jobs: queue.Queue = queue.Queue()
    made._ledger, made._jobs = ledger, jobs
    if remains:
        wipe = ledger.wipe
        ledger.wipe = lambda: (wipe(), jobs.put("next"))
    else:
        jobs.put("next")
    assert made._next() == "next"
    assert ledger.wiped == int(remains)


async def test_what_is_asked_for_together_is_written_together_and_answered_one_by_one():
    ledger = Ledger()
    made = Writer(ledger)
    assert await made.run(lambda: "one") == "one"
    assert made._thread.daemon, "a server that dies is not kept by it"

    def wrong():
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await made.run(wrong)
    assert ledger.groups == 2
    await made.close()
    assert not made._thread.is_alive()


async def test_of_a_disk_that_refuses_all_are_told_and_then_nobody():
    ledger = Ledger()
    made = Writer(ledger)
    ledger.fault = LedgerError("full")
    with pytest.raises(LedgerError):
        await made.run(lambda: 1)
    await until(lambda: made.trouble == "full")
    ledger.fault = None
    assert await made.run(lambda: 2) == 2
    assert made.trouble == ""
    await made.close()


@pytest.mark.parametrize("fault", [MemoryError(), RuntimeError("a hook's own")])
async def test_whatever_fails_all_are_told_and_the_next_are_written(fault):
    ledger = Ledger()
    made = Writer(ledger)
    ledger.fault = fault
    with pytest.raises(type(fault)):
        await asyncio.wait_for(made.run(lambda: 1), 10)
    assert repr(fault) in made.trouble
    ledger.fault = None
    assert await asyncio.wait_for(made.run(lambda: 2), 10) == 2
    assert made.trouble == ""
    await made.close()


async def test_of_a_job_that_memory_ran_out_for_nothing_stays(tmp_path):
    """SQLite says so in the middle of a change, too, and then half of it would be written."""
    ledger = ledgers.Ledger(tmp_path / "ledger.db")
    made = Writer(ledger)

    def half():
        ledger.begin_life(7)
        raise MemoryError

    with pytest.raises(LedgerError, match="no memory is left"):
        await made.run(half)
    assert await made.run(lambda: ledger.begin_life(0)) == 1, "nothing of it was written"
    await made.close()
    ledger.close()


async def test_who_waits_no_more_keeps_nobody_from_an_answer():
    loop = asyncio.get_running_loop()
    gone, left = loop.create_future(), loop.create_future()
    gone.cancel()
    writer._answer([gone, left], ["one", "two"])
    assert await left == "two"


def test_a_group_has_a_bound():
    ledger = Ledger()
    made = Writer.__new__(Writer)
    made._ledger, made._jobs, sizes = ledger, queue.Queue(), []
    made._commit = lambda group: sizes.append(len(group))
    for number in range(MOST_AT_ONCE + 3):
        made._jobs.put((number, SimpleNamespace()))
    made._jobs.put(None)
    made._work()
    assert sizes == [MOST_AT_ONCE, 3]
