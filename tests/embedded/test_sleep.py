"""The machine sleeps, or the server is stopped, while the wall clock continues."""

import time

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until

from dayfly.embedded.ledger import LedgerError, SqliteLedger

HOUR = 3_600_000


@pytest.fixture
def sleep(monkeypatch):
    """Let the wall clock jump by a number of milliseconds."""
    real, slept = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: real() + slept[0] * 1_000_000)

    def jump(milliseconds):
        slept[0] += milliseconds

    return jump


def now():
    return time.time_ns() // 1_000_000


def box(script="true"):
    return doc.resource("r", [doc.step("a", script)], [doc.step("z", 'echo gone >> "$JOURNAL"')])


@pytest.fixture
def looks(monkeypatch):
    """Check the clock often."""
    monkeypatch.setattr("dayfly.embedded.engine.CLOCK_CHECK_INTERVAL_S", 0.01)


@pytest.mark.parametrize("fault", [None, LedgerError("the disk is full"), ValueError("a defect")])
async def test_run_expires_on_time_after_a_sleep(looks, machine, sleep, monkeypatch, fault):
    """Also if leases could not be read after the sleep."""
    await machine.host.offer(doc.offer(box(), expires_at=now() + HOUR))
    await machine.ready()
    has_lease_before, faults = SqliteLedger.has_lease_before, [fault] if fault else []

    def fails_once(ledger, until):
        if faults:
            raise faults.pop()
        return has_lease_before(ledger, until)

    monkeypatch.setattr(SqliteLedger, "has_lease_before", fails_once)
    sleep(HOUR)
    await machine.gone()
    assert not faults
    assert ("Close", "", 0, "Expired") in machine.history()


async def test_a_lease_is_not_held_against_the_time_of_sleep(machine, sleep):
    """The client slept as well, and another event happens before it can renew the lease."""
    wait = 'echo up >> "$JOURNAL"; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done'
    await machine.host.offer(doc.offer(box(wait), lease_until=now() + 20_000))
    await machine.wrote("up")
    sleep(HOUR)
    machine.journal.with_name("journal.go").touch()
    await until(lambda: machine.unit("r/a").state == "succeeded", machine.report)
    assert machine.report().closed is None
    assert await machine.host.lease("u", now() + 30_000)
    await machine.ready()


async def test_lease_is_extended_after_the_server_was_stopped(machine, sleep, monkeypatch):
    """For example by Ctrl-Z: clients that renew leases get no answer."""
    real, hour = time.monotonic_ns, HOUR * 1_000_000
    wait = 'echo up >> "$JOURNAL"; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done'
    await machine.host.offer(doc.offer(box(wait), lease_until=now() + 20_000))
    await machine.wrote("up")
    sleep(HOUR)
    monkeypatch.setattr(time, "monotonic_ns", lambda: real() + hour)
    machine.journal.with_name("journal.go").touch()
    await until(lambda: machine.unit("r/a").state == "succeeded", machine.report)
    assert machine.report().closed is None
    assert await machine.host.lease("u", now() + 30_000)
    await machine.ready()


async def test_unrenewed_lease_ends_after_sleep(looks, machine, sleep, monkeypatch):
    monkeypatch.setattr("dayfly.embedded.engine.LEASE_GRACE_MS", 300)
    await machine.host.offer(doc.offer(box(), lease_until=now() + HOUR))
    await machine.ready()
    sleep(HOUR)
    await machine.gone()
    assert ("Close", "", 0, "LeaseExpired") in machine.history()


@pytest.mark.parametrize(("jump", "lease", "written"), [(HOUR, True, 1), (HOUR, False, 0), (-HOUR, True, 0)])
async def test_leases_are_extended_once_and_only_if_one_would_lapse(
    looks, machine, sleep, monkeypatch, jump, lease, written
):
    await machine.host.offer(doc.offer(box(), lease_until=now() + 20_000 if lease else 0))
    await machine.ready()
    extend, asked = SqliteLedger.extend_leases, []

    def noted(ledger, lasts):
        asked.append(lasts)
        extend(ledger, lasts)

    monkeypatch.setattr(SqliteLedger, "extend_leases", noted)
    sleep(jump)
    await until(lambda: len(asked) == written)
    await machine.delete("u")
    await until(lambda: machine.report("u").closed, "a turn, which looks at the clock")
    assert len(asked) == written, "once"
