"""The thread that writes the ledger: results of jobs, and its work while idle."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from tests.embedded.machine import until

from dayfly.embedded import ledger as ledgers
from dayfly.embedded import writer
from dayfly.embedded.ledger import LedgerError
from dayfly.embedded.writer import MAX_GROUP_SIZE, Writer


class Ledger:
    """Records transactions; `needs_truncation` is scripted."""

    def __init__(self, *, remains: bool = False) -> None:
        self.needs_truncation = remains
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
        self.needs_truncation = False


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "ledger"]


@pytest.fixture
def held():
    """A job that starts, and ends only when the event is set."""
    return threading.Event()


@pytest.mark.parametrize("remains", [True, False])
async def test_old_values_are_wiped_once_when_there_is_no_work(monkeypatch, remains):
    monkeypatch.setattr(writer, "IDLE_BEFORE_TRUNCATE_S", 0.001)
    ledger = Ledger(remains=remains)
    made = Writer(ledger)
    assert await made.run(lambda: "next") == "next"
    await until(lambda: not ledger.needs_truncation)
    await asyncio.sleep(0.02)
    assert ledger.wiped == int(remains)
    await made.close()


async def test_error_of_a_job_reaches_its_own_caller_only(held):
    ledger = Ledger()
    made = Writer(ledger)
    [thread] = threads()
    assert thread.daemon, "it does not block the end of a server"

    def wrong():
        raise ValueError("a defect")

    first = made.run(held.wait)
    await until(lambda: ledger.groups == 1)
    failing, other = made.run(wrong), made.run(lambda: "two")
    held.set()
    await first
    with pytest.raises(ValueError, match="a defect"):
        await failing
    assert await other == "two"
    assert ledger.groups == 2
    await made.close()
    assert threads() == []


async def test_disk_error_reaches_all_callers_until_a_write_succeeds():
    ledger = Ledger()
    made = Writer(ledger)
    ledger.fault = LedgerError("full")
    with pytest.raises(LedgerError):
        await made.run(lambda: 1)
    await until(lambda: made.write_error == "full")
    ledger.fault = None
    assert await made.run(lambda: 2) == 2
    assert made.write_error == ""
    await made.close()


@pytest.mark.parametrize("fault", [MemoryError(), RuntimeError("a hook's own")])
async def test_any_error_reaches_all_callers_and_later_jobs_succeed(fault):
    ledger = Ledger()
    made = Writer(ledger)
    ledger.fault = fault
    with pytest.raises(type(fault)):
        async with asyncio.timeout(10):
            await made.run(lambda: 1)
    assert repr(fault) in made.write_error
    ledger.fault = None
    async with asyncio.timeout(10):
        assert await made.run(lambda: 2) == 2
    assert made.write_error == ""
    await made.close()


async def test_job_that_runs_out_of_memory_changes_nothing(tmp_path):
    """SQLite can fail in the middle of a change, and half of it would be committed."""
    ledger = ledgers.SqliteLedger(tmp_path / "ledger.db")
    made = Writer(ledger)

    def half():
        ledger.begin_life(7)
        raise MemoryError

    with pytest.raises(LedgerError, match="no memory is left"):
        await made.run(half)
    assert await made.run(lambda: ledger.begin_life(0)) == 1, "nothing of it was written"
    await made.close()
    ledger.close()


async def test_cancelled_caller_keeps_no_other_from_its_answer(held):
    made = Writer(Ledger())
    first, gone, left = made.run(held.wait), made.run(lambda: "one"), made.run(lambda: "two")
    gone.cancel()
    held.set()
    assert (await first, await left) == (True, "two")
    await made.close()


async def test_one_transaction_has_a_bounded_number_of_jobs(held):
    ledger = Ledger()
    made = Writer(ledger)
    jobs = [made.run(held.wait)]
    await until(lambda: ledger.groups == 1)
    jobs += [made.run(lambda: 1) for _ in range(MAX_GROUP_SIZE + 3)]
    held.set()
    await asyncio.gather(*jobs)
    assert ledger.groups == 3
    await made.close()
