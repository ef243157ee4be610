"""A new server finds running steps, receipts, deleted folders, and another boot of the machine."""

import asyncio
import fcntl
import os
import shutil
import signal
import stat
import time
from pathlib import Path

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until

from dayfly.embedded.executors import ProcessStepExecutor
from dayfly.embedded.ledger import LedgerError, SqliteLedger
from dayfly.embedded.startup import HomeBusyError
from dayfly.execute.process import run as process
from dayfly.execute.process.attempt_storage import open_storage
from dayfly.plan.world import Running, Stalled

SLOW = 'echo "+ $DAYFLY_ATTEMPT" >> "$JOURNAL"; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done; printf v > /tmp/v'


def slow(then="true", **limits):
    script = SLOW + f'; echo "- $DAYFLY_ATTEMPT" >> "$JOURNAL"; {then}'
    step = doc.step("a", script, outputs=[("v", "/tmp/v")], **limits)
    return doc.resource("r", [step], [doc.step("z", 'echo "z [$V]" >> "$JOURNAL"', inputs=["v=a.v"])])


def go(machine):
    machine.journal.with_name("journal.go").touch()


async def test_a_running_step_goes_on_while_there_is_no_server(machine):
    await machine.host.offer(doc.offer(slow()))
    await machine.wrote("+ 1")
    await machine.down()
    await machine.up()
    await machine.said("r/a", "Running")
    go(machine)
    await machine.ready()
    assert machine.lines() == ["+ 1", "- 1"]
    assert machine.values() == {"r/a.v": b"v"}


async def test_next_server_reads_receipt_of_step_that_ended_before(machine):
    await machine.host.offer(doc.offer(slow()))
    await machine.wrote("+ 1")
    await machine.down()
    go(machine)
    await until(lambda: list(machine.work.glob("*/receipt")), "a receipt")
    await machine.up()
    await machine.ready()
    assert machine.values() == {"r/a.v": b"v"}
    await until(lambda: not machine.folders(), machine.folders)


async def test_a_step_of_an_earlier_server_is_ended_on_delete(machine):
    await machine.host.offer(doc.offer(slow(grace_ms=100)))
    await machine.wrote("+ 1")
    await machine.down()
    await machine.up()
    await machine.finish()
    assert machine.lines() == ["+ 1", "z []"]


async def test_claimed_step_that_never_started_is_fenced(machine, monkeypatch):
    """The server dies between the claim and the start of the runner."""
    await machine.down()
    await machine.up(start=False)

    async def nothing(*_):
        pass

    monkeypatch.setattr(ProcessStepExecutor, "launch", nothing)
    machine.host.start()
    await machine.host.offer(doc.offer(slow()))
    await until(lambda: ("Claim", "r/a", 1, "") in machine.history(), "the claim")
    await machine.down()
    monkeypatch.undo()
    await machine.up()
    await machine.wrote("+ 2")
    go(machine)
    await machine.ready()
    assert ("Void", "r/a", 1, "StartInterrupted") in machine.history()
    assert machine.lines() == ["+ 2", "- 2"]


async def test_a_runner_that_comes_after_its_fence_starts_nothing(machine, tmp_path, monkeypatch):
    monkeypatch.setattr("dayfly.embedded.engine.STOP_TIMEOUT_S", 0.1)
    # The folder exists when the server starts.
    monkeypatch.setattr(process.AttemptFolder, "release", lambda _: False)
    stuck = tmp_path / "stuck"
    stuck.write_text(f'#!/bin/sh\n[ "$1" = probe ] || exec sleep 600\nexec {machine.runner} "$@"\n')
    stuck.chmod(stuck.stat().st_mode | stat.S_IXUSR)
    await machine.down()
    await machine.up(runner=str(stuck))
    await machine.host.offer(doc.offer(slow()))
    first = (await until(lambda: list(machine.work.glob("*/order")), "an order"))[0].parent
    await machine.down()
    await machine.up()
    await machine.wrote("+ 2")
    late = await asyncio.create_subprocess_exec(machine.runner, "host", str(first))
    assert await late.wait() == 0
    assert b"void" in (first / "receipt").read_bytes()
    go(machine)
    await machine.ready()
    assert machine.lines() == ["+ 2", "- 2"]
    monkeypatch.undo()
    await until(lambda: not machine.folders(), "no folders")


async def test_a_folder_is_not_removed_under_a_runner(machine):
    folder = process.AttemptFolder(open_storage(machine.home), "x", "r/a", 1)
    folder.write_order(b"nothing")
    assert folder.fence()
    held = os.open(f"{folder.path}/lock", os.O_RDWR | os.O_CREAT)
    process.fcntl.flock(held, process.fcntl.LOCK_EX)
    assert not folder.release()
    assert {"marker", "order"} <= _names(folder)
    os.close(held)
    assert folder.release()
    assert not folder.exists()
    assert folder.release()


async def test_folders_that_a_killed_server_left_are_removed(machine):
    await machine.host.offer(doc.offer(slow()))
    go(machine)
    await machine.ready()
    await machine.down()
    process.AttemptFolder(open_storage(machine.home), "u", "r/a", 1).write_order(b"recorded long ago")
    process.AttemptFolder(open_storage(machine.home), "nobody", "r/a", 1).write_order(b"of a run that is over")
    await machine.up()
    await until(lambda: not machine.folders(), "no folders")


async def test_a_home_without_runs_leaves_nothing_in_memory(machine):
    await machine.host.offer(doc.offer(slow()))
    go(machine)
    await machine.ready()
    await machine.down()
    assert machine.work.exists()
    await machine.up()
    await machine.finish()
    await until(lambda: not machine.host.living_runs(), "no run")
    await machine.down()
    assert not machine.work.exists()
    await machine.up()
    await machine.host.offer(doc.offer(slow(), uid="second"))
    await machine.ready("second")


async def test_a_runner_that_was_killed_makes_a_lost_step(machine):
    await machine.host.offer(doc.offer(slow()))
    await machine.wrote("+ 1")
    [marker] = machine.work.glob("*/marker")
    os.kill(int(marker.read_text().split("\n")[1]), signal.SIGKILL)
    await machine.reason("ResourceFailed")
    assert machine.unit("r/a").reason == "ResultLost"
    await machine.finish()
    assert machine.lines() == ["+ 1", "z []"]


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().split()


async def test_a_step_is_not_over_while_its_first_process_dies(machine):
    """The lock is free: the kernel releases it before it kills processes that closed its descriptor."""
    place = open_storage(machine.home)
    folder = process.AttemptFolder(place, "x", "r/a", 1)
    folder.write_order(b"nothing")
    dying = await asyncio.create_subprocess_exec("sleep", "100")
    began = _stat(dying.pid)[21]

    def marked(boot: str, since: str) -> None:
        Path(folder.path, "marker").write_text(f"started\n1\n{dying.pid}\n{boot}\n1\n1\n{since}\n")

    marked(place.boot, began)
    assert folder.is_locked()
    marked(place.boot, str(int(began) + 1))
    assert not folder.is_locked(), "another process has the number now"
    marked("another", began)
    assert not folder.is_locked(), "it has ended with its boot"
    marked(place.boot, began)
    dying.kill()
    await dying.wait()
    assert not folder.is_locked()
    assert folder.release()


async def test_delete_waits_for_processes_of_a_killed_runner(machine):
    await machine.down()
    await machine.up(isolation="none")
    await machine.host.offer(doc.offer(slow()))
    await machine.wrote("+ 1")
    [marker] = machine.work.glob("*/marker")
    runner, first = map(int, marker.read_text().split("\n")[1:3])
    # Stopped, because otherwise the end of the runner would end the other processes.
    os.kill(first, signal.SIGSTOP)
    await until(lambda: _stat(first)[2] == "T", "the first process's halt")
    for pid in (runner, first):
        os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.3)
    assert machine.unit("r/a").state == "running"
    await machine.finish()
    assert machine.lines() == ["+ 1", "z []"], "its processes must be killed before the delete step"


async def test_a_removed_folder_is_lost_and_not_tried_again(machine):
    await machine.host.offer(doc.offer(slow()))
    await machine.wrote("+ 1")
    [folder] = machine.folders()
    shutil.rmtree(folder)
    go(machine)
    await machine.reason("ResourceFailed")
    assert machine.unit("r/a").reason == "ResultLost"
    assert machine.lines() == ["+ 1", "- 1"]


async def test_lost_work_folder_leaves_outcome_unknown_until_deadline(machine, monkeypatch):
    limits = {"schedule_ms": 1000, "pull_ms": 1000, "run_ms": 1500, "grace_ms": 100}
    monkeypatch.setattr(process, "MARGIN_MS", 1000)
    await machine.host.offer(doc.offer(slow(**limits)))
    await machine.wrote("+ 1")
    await machine.down()
    shutil.rmtree(machine.work)
    await machine.up()
    report = await machine.reason("OutcomeUnknown")
    assert "folder was removed" in report.message
    await machine.delete()
    await machine.gone()
    assert machine.lines() == ["+ 1", "z []"]
    claims = {entry.unit: entry.at for entry in machine.host.history("u") if entry.move == "Claim"}
    assert claims["r/z"] - claims["r/a"] >= 4600, "a cleanup while the step may be running"
    assert ("Record", "r/a", 1, "ResultLost") in machine.history()


async def test_old_runs_are_forgotten_once_the_ledger_can_be_written(machine, monkeypatch):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "true")])))
    await machine.finish()
    await machine.host.acknowledge(("u",))
    await machine.down()
    tries = []
    forget = SqliteLedger.forget

    def refused_once(self, before, kept):
        tries.append(before)
        if len(tries) == 1:
            raise LedgerError("the ledger cannot be written: the disk is full")
        return forget(self, before, kept)

    monkeypatch.setattr(SqliteLedger, "forget", refused_once)
    monkeypatch.setattr("dayfly.embedded.host.SWEEP_INTERVAL_S", 0.05)
    monkeypatch.setattr("dayfly.embedded.host.KEEP_ENDED_MS", -60_000)
    await machine.up()
    await until(lambda: not machine.host.has_ended("u"), "the record to go")
    assert len(tries) > 1


async def test_ended_run_is_kept_until_its_end_is_acknowledged(machine, monkeypatch):
    """The server died between the end of the run and the store's record of it, and none started for a week."""
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", 'echo ran >> "$JOURNAL"')])))
    await machine.ready()
    await machine.finish()
    await machine.down()
    monkeypatch.setattr("dayfly.embedded.host.KEEP_ENDED_MS", -60_000)
    await machine.up()
    assert await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", 'echo ran >> "$JOURNAL"')]))) == "over"
    await machine.host.forget_old()
    assert machine.host.has_ended("u")
    await machine.host.acknowledge(("u",))
    await machine.host.forget_old()
    assert not machine.host.has_ended("u")
    assert machine.lines() == ["ran"]


async def test_step_of_an_earlier_boot_is_lost(machine, monkeypatch):
    await machine.host.offer(doc.offer(slow(run_ms=0)))
    await machine.wrote("+ 1")
    [marker] = machine.work.glob("*/marker")
    pid = int(marker.read_text().split("\n")[1])
    await machine.down()
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not _lives(pid), "the runner's end")
    shutil.rmtree(machine.work)

    def rebooted(home):
        place = open_storage(home)
        return place._replace(boot="another", ref=place.ref.replace(place.boot, "another"))

    monkeypatch.setattr("dayfly.embedded.host.open_storage", rebooted)
    await machine.up()
    await machine.reason("ResourceFailed")
    assert machine.unit("r/a").reason == "ResultLost"
    assert "machine was restarted" in machine.unit("r/a").message
    await machine.finish()
    assert machine.lines() == ["+ 1", "z []"]


async def test_a_home_has_one_server(machine):
    with pytest.raises(HomeBusyError, match=rf"process {os.getpid()}\) uses .*dayfly down"):
        await type(machine.host).open(machine.home, runner=machine.runner)


async def test_shared_lock_of_status_does_not_block_a_server(machine):
    """`dayfly status`, and `dayfly up --detach` while it waits, share the lock for a moment."""
    await machine.down()
    with (machine.home / "lock").open("r+") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        asyncio.get_running_loop().run_in_executor(None, _let_go, looking.fileno())
        await machine.up()
        with pytest.raises(HomeBusyError):
            await type(machine.host).open(machine.home, runner=machine.runner)


def _let_go(descriptor):
    time.sleep(0.1)
    fcntl.flock(descriptor, fcntl.LOCK_UN)


async def test_observing_an_attempt_changes_nothing(machine):
    await machine.host.offer(doc.offer(slow()))
    await machine.wrote("+ 1")
    stored, place = machine.stored(), open_storage(machine.home)
    record, unit = stored.run.unit("r/a"), stored.plan().steps["r/a"].unit
    folder = process.AttemptFolder(place, "u", "r/a", 1)
    for _ in range(3):
        assert isinstance(folder.observe(record, unit=unit, nonce="", now=1), Running)
    other = process.AttemptFolder(place, "u", "r/a", 2)
    assert isinstance(other.observe(record, unit=unit, nonce="", now=1), Stalled)
    assert not other.exists()
    go(machine)
    await machine.ready()


async def test_logs_and_history_of_ended_run_stay_a_week(machine, monkeypatch):
    await machine.host.offer(doc.offer(slow("echo said")))
    go(machine)
    await machine.ready()
    await machine.finish()
    assert machine.log("r/a") == b"said\n"
    await machine.host.acknowledge(("u",))
    await machine.down()
    week = 7 * 24 * 3_600_000
    from dayfly.lib import clock as real

    for late, kept in ((week - 60_000, True), (week + 60_000, False)):
        monkeypatch.setattr("dayfly.embedded.host.now_ms", lambda late=late: real.now_ms() + late)
        await machine.up()
        await machine.host.forget_old()
        assert machine.host.has_ended("u") == kept
        assert (machine.home / "logs/u").exists() == kept
        assert bool(machine.history()) == kept
        await machine.down()


def _names(folder):
    return {entry.name for entry in Path(folder.path).iterdir()}


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # before the open, or between the open and the read
        return False


async def test_work_folder_of_a_deleted_home_is_removed_if_unused(machine, tmp_path):
    """A deleted home leaves a folder in memory, which the next server removes."""
    shared = Path("/dev/shm")
    gone, alive = (shared / f"dayfly-{os.geteuid()}-test{word}{os.getpid()}" for word in ("gone", "alive"))
    try:
        for folder in (gone, alive):
            (folder / "u.r.a.1").mkdir(parents=True, mode=0o700)
            folder.chmod(0o700)
        with (alive / "u.r.a.1" / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for folder in (gone, alive):  # the next server of another test removes them too
                (folder / "home").write_text(str(tmp_path / "deleted"))
            await machine.down()
            await machine.up()
            assert not gone.exists()
            assert alive.exists()
    finally:
        for folder in (gone, alive):
            shutil.rmtree(folder, ignore_errors=True)
