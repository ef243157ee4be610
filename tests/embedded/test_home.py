"""The start of a server: it takes the lock of its home and opens the ledger."""

import fcntl
import os
import sqlite3
import subprocess
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.embedded import documents as doc

from dayfly.embedded import host, startup
from dayfly.embedded.ledger import LedgerError, SqliteLedger, StoredRun
from dayfly.spec.run import Run

RAN = doc.resource("r", [doc.step("a", 'echo ran >> "$JOURNAL"')])


def test_lock_file_holds_only_the_current_process_id(tmp_path):
    home = tmp_path / "new" / "home"
    os.close(startup.lock_home(home))
    (home / "lock").write_text("123456789012345")
    descriptor = startup.lock_home(home)
    assert (home / "lock").read_text() == str(os.getpid())
    assert (home / "lock").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    os.close(descriptor)


def test_waiting_for_a_shared_lock_does_not_block_others(monkeypatch, tmp_path):
    """Otherwise two servers that start at once would take each other for a mere check, and both would fail."""
    looks, other = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    fcntl.flock(looks, fcntl.LOCK_SH)
    waited = []

    def wait(seconds):
        waited.append(seconds)
        fcntl.flock(looks, fcntl.LOCK_UN)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_UN)

    monkeypatch.setattr(startup.time, "sleep", wait)
    taken = startup.lock_home(tmp_path)
    assert len(waited) == 1
    for descriptor in (looks, other, taken):
        os.close(descriptor)


def test_home_of_another_server_is_refused_at_once(monkeypatch, tmp_path):
    other = startup.lock_home(tmp_path)
    monkeypatch.setattr(startup.time, "sleep", lambda _seconds: pytest.fail("it waits for the end of a server"))
    opened = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(startup.HomeBusyError, match=rf"\(process {os.getpid()}\) uses {tmp_path}"):
        startup.lock_home(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
    os.close(other)


def test_shared_lock_is_awaited_for_a_bounded_time(monkeypatch, tmp_path):
    with (tmp_path / "lock").open("w") as looks:
        fcntl.flock(looks, fcntl.LOCK_SH)
        waited: list[float] = []
        clock = SimpleNamespace(monotonic=lambda: float(len(waited)), sleep=waited.append)
        monkeypatch.setattr(startup, "time", clock)
        with pytest.raises(startup.HomeBusyError):
            startup.lock_home(tmp_path)
    assert len(waited) == startup.LOCK_TIMEOUT_S + 1


def test_unexpected_runner_probe_is_an_error(tmp_path):
    runner = tmp_path / "runner"
    for said, found in (("isolation=user", "user"), ("version=1 isolation=none", "none"), ("usage: x", None)):
        runner.write_text(f"#!/bin/sh\necho {said}\n")
        runner.chmod(0o700)
        if found:
            assert startup.isolation(str(runner)) == found
        else:
            with pytest.raises(AssertionError, match="probe printed 'usage: x"):
                startup.isolation(str(runner))
    runner.write_text("#!/bin/sh\necho isolation=user\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError):
        startup.isolation(str(runner))


def test_full_disk_numbers_servers_by_the_clock(monkeypatch, tmp_path):
    def full(_ledger, _least):
        raise LedgerError("the disk is full")

    ledger = SqliteLedger(tmp_path / "ledger.db")
    assert startup.begin_life(ledger, 77) == 77
    assert startup.begin_life(ledger, 5) == 78
    monkeypatch.setattr(SqliteLedger, "begin_life", full)
    assert startup.begin_life(ledger, 99) == 99
    ledger.close()


def test_full_disk_delays_the_extension_of_leases(monkeypatch, tmp_path):
    opened = startup.open_ledgers(tmp_path, None, 10, 100)
    assert not opened.leases_unextended
    wish = host.TargetIntent(lease_until=50)
    run = Run(uid="u", target=doc.TARGET, plan="")
    opened.ledger.create(StoredRun(run=run, name="box", documents=(), forks=(), intent=wish))

    def full(_ledger, _until):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(SqliteLedger, "extend_leases", full)
    again = startup.open_ledgers(tmp_path, None, 10, 100)
    assert again.leases_unextended
    for each in (opened, again):
        each.ledger.close()
        each.reader.close()


async def test_a_lease_lasts_a_while_after_the_server_has_begun(machine):
    await machine.host.offer(doc.offer(RAN, lease_until=host.now_ms() + 3_600_000))
    await machine.ready()
    await machine.down()
    ledger = SqliteLedger(machine.home / "ledger.db")
    with ledger.transaction("test"):
        ledger.set_intent("u", msgspec.structs.replace(ledger.load("u").intent, lease_until=1))
    ledger.close()
    before = host.now_ms()
    await machine.up(start=False)
    found = machine.stored().intent.lease_until
    assert before + host.LEASE_GRACE_MS <= found <= host.now_ms() + host.LEASE_GRACE_MS
    machine.host.start()
    await machine.finish()


def test_a_runner_that_says_nothing_is_given_up(monkeypatch):
    def run(command, *, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(startup.subprocess, "run", run)
    with pytest.raises(subprocess.TimeoutExpired, match="after 10 seconds"):
        startup.isolation("/bin/runner")
