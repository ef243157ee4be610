"""Existing and kept logs; files of other programs in their folder are ignored."""

import contextlib
import os
import shutil

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until

from dayfly.embedded.ledger import LedgerError, SqliteLedger
from dayfly.embedded.step_logs import StepLogFiles
from dayfly.execute.process import run as process
from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.run import AttemptFolder, list_runs_logged_before
from dayfly.lib.clock import now_ms
from dayfly.spec.log_times import LineSplitter, entries_between

STEP_MS = 10  # runner/log_times.h: output within this time counts as printed at once


@pytest.mark.parametrize(
    "name", [".r.a.1.log.swp", ".r.a.1.log", "r.a.1.log~", "notes", "notes.txt", "r.a.x.log", "r.a.0.log"]
)
async def test_foreign_files_beside_logs_are_ignored(machine, name):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "echo said")])))
    await machine.ready()
    (machine.home / "logs/u" / name).write_text("a copy, or what an editor keeps")
    assert [(info.unit, info.attempt, info.size) for info in machine.host.logs("u")] == [("r/a", 1, 5)]


async def test_a_step_that_says_nothing_has_an_empty_log_and_no_file(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "true"), doc.step("b", "echo said")])))
    await machine.ready()
    logs = machine.home / "logs"
    assert {entry.name for entry in (logs / "u").iterdir()} == {"r.b.1.log", "r.b.1.times"}
    assert [(info.unit, info.size, info.sealed) for info in machine.host.logs("u")] == [
        ("r/a", 0, True),
        ("r/b", 5, True),
    ]
    await machine.finish()
    assert [info.unit for info in machine.host.logs("u")] == ["r/a", "r/b"], "also once it is over"
    # The markers of attempts are removed after the end of their runs.
    await until(lambda: [entry.name for entry in (logs / ".begun").iterdir()] == ["none"], "marks of attempts removed")


async def test_foreign_folders_in_the_work_folder_are_ignored(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "echo said")])))
    await machine.ready()
    await machine.down()
    for name in ("copies", "copies.of.yesterday", ".trash.r.1"):
        (machine.work / name).mkdir()
    await machine.up()
    await machine.ready()


@pytest.fixture
def few(monkeypatch):
    """Keep three logs, and retry failures at once."""
    monkeypatch.setattr(process, "KEPT_LOGS", 3)
    monkeypatch.setattr("dayfly.plan.retry.FORK_BACKOFF_MS", 1)
    monkeypatch.setattr("dayfly.plan.retry.FORK_BACKOFF_MAX_MS", 1)


AGAIN = 'echo x >> "$JOURNAL"; echo said; [ "$(wc -l < "$JOURNAL")" -ge 6 ]'
GONE = b"[dayfly: the last 3 logs are kept; logs before attempt 4 are deleted]\n"


async def test_restarting_fork_keeps_only_its_last_logs(few, machine):
    await machine.baseline(command=("/bin/sh", "-c", f"{AGAIN} && exec sleep 600; exit 3"), port=None)
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    name = "fork:default/app"
    await until(lambda: len(machine.lines()) == 6, machine.lines)
    await machine.ready()
    assert [(info.unit, info.attempt) for info in machine.host.logs("u")] == [(name, n) for n in (4, 5, 6)]
    assert machine.log(name, 6).startswith(GONE)
    await machine.finish()


async def test_failing_step_keeps_only_its_last_logs(few, machine):
    steps = [doc.step("a", "true"), doc.step("b", AGAIN, idempotent=True, limit=9, backoff_ms=1)]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    await machine.ready()
    there = [(info.unit, info.attempt) for info in machine.host.logs("u")]
    assert there == [("r/a", 1), ("r/b", 4), ("r/b", 5), ("r/b", 6)]
    assert machine.log("r/b", 6) == GONE + b"said\n"


async def test_unremovable_log_does_not_block_a_step(few, machine):
    (machine.home / "logs/u/r.a.1.log").mkdir(parents=True)
    step = doc.step("a", AGAIN, idempotent=True, limit=9, backoff_ms=1)
    await machine.host.offer(doc.offer(doc.resource("r", [step])))
    await until(lambda: len(machine.lines()) == 6, machine.lines)
    await machine.ready()


def told(machine, unit, attempt=1):
    """Return the lines of a log with their times, as a server gets them."""
    log, entries = machine.log(unit, attempt), machine.host.log_times("u", unit, attempt)
    lines = LineSplitter()
    return [*lines.feed(0, log, entries_between(entries, 0, len(log))), *lines.flush()]


async def test_log_lines_have_times_during_and_after_a_run(machine):
    began = now_ms()
    await machine.baseline(command=("/bin/sh", "-c", "echo serving; exec sleep 600"), port=None)
    gate = machine.home / "gate"
    step = doc.step("a", f"echo one; until [ -e {gate} ]; do sleep 0.01; done; echo two")
    await machine.host.offer(doc.offer(doc.resource("r", [step]), forks=[doc.fork()]))
    await until(lambda: machine.log("r/a") == b"one\n")
    seen = now_ms()
    gate.touch()
    await machine.ready()
    await until(lambda: machine.log("fork:default/app") == b"serving\n")
    await machine.finish()
    (first, one), (second, two) = told(machine, "r/a")
    assert (one, two) == (b"one", b"two")
    assert began <= first <= seen < second + STEP_MS
    [(fork, said)] = told(machine, "fork:default/app")
    assert said == b"serving"
    assert second <= fork <= now_ms()


async def test_notices_in_a_log_have_times_too(few, machine):
    """The times of a log are removed with it."""
    step = doc.step("b", AGAIN, idempotent=True, limit=9, backoff_ms=1)
    await machine.host.offer(doc.offer(doc.resource("r", [step])))
    await machine.ready()
    (noted, line), (printed, said) = told(machine, "r/b", 6)
    assert (line + b"\n", said) == (GONE, b"said")
    assert 0 < noted <= printed
    kept = {entry.name for entry in (machine.home / "logs/u").iterdir()}
    assert kept == {f"r.b.{number}.{kind}" for number in (4, 5, 6) for kind in ("log", "times")}


async def test_log_without_a_times_file_has_no_times(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "echo one; echo two")])))
    await machine.ready()
    times = machine.home / "logs/u/r.a.1.times"
    times.unlink()
    assert told(machine, "r/a") == [(0, b"one"), (0, b"two")]
    times.mkdir()
    assert told(machine, "r/a") == [(0, b"one"), (0, b"two")], "nor if the path is something else"


def uid(number: int) -> str:
    return f"{number:08}-0000-4000-8000-000000000000"


async def test_logs_of_a_forgotten_run_are_removed_at_the_next_start(machine, monkeypatch):
    """The server was killed after it had deleted the rows, and before it removed the logs."""
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "echo said")]), uid=uid(1)))
    await machine.ready(uid(1))
    await machine.finish(uid(1))
    await machine.host.acknowledge((uid(1),))
    await machine.down()
    with contextlib.closing(SqliteLedger(machine.home / "ledger.db")) as ledger, ledger.transaction("test"):
        assert ledger.forget(now_ms() + 1) == [uid(1)]
    folder = machine.home / "logs" / uid(1)
    assert folder.exists()
    monkeypatch.setattr("dayfly.embedded.host.KEEP_ENDED_MS", -60_000)
    await machine.up()
    await until(lambda: not folder.exists(), "the logs to go")


class Known:
    """A ledger that knows these runs. A run is born between the list of logs and the read of the ledger."""

    def __init__(self, place: AttemptStorage, *uids: str) -> None:
        self.place, self.uids = place, uids

    def known_uids(self) -> set[str]:
        AttemptFolder(self.place, uid(9), "r/a", 1).append_log_line("it begins")
        return {*self.uids, uid(9)} if self.uids else raised(LedgerError("it cannot be read"))


def raised(error: Exception):
    raise error


@pytest.fixture
def place(tmp_path):
    (tmp_path / "work").mkdir(mode=0o700)
    made = AttemptStorage(str(tmp_path / "work"), str(tmp_path / "logs"), "boot", "boot 1", str(tmp_path / "steps"))
    for name in (uid(1), uid(2), uid(3), "saved", "of-" + uid(4)):
        AttemptFolder(made, name, "r/a", 1).append_log_line("it begins")
        os.utime(tmp_path / "logs" / name, (100, 100))
    AttemptFolder(made, uid(1), "r/a", 1).write_order(b"")
    return made


def left(place: AttemptStorage) -> set[str]:
    return {entry.name for entry in os.scandir(place.logs)}


@pytest.mark.parametrize(("before", "gone"), [(100_000, set()), (100_001, {uid(3)})])
def test_old_logs_of_unknown_runs_are_removed(place, before, gone):
    """A young log may be of a run that a restored ledger does not know; other names are not logs."""
    there = left(place)
    StepLogFiles(place, Known(place, uid(1))).forget([uid(2)], before)
    assert left(place) == there - {uid(2)} - gone | {uid(9)}


def test_logs_of_a_run_born_during_cleanup_are_kept(place):
    reader = Known(place, uid(1))
    reader.known_uids = lambda: (Known.known_uids(reader), {uid(1)})[1]  # as before the birth
    StepLogFiles(place, reader).forget([], now_ms() + 60_000)
    assert left(place) == {uid(1), uid(9), "saved", "of-" + uid(4), ".begun"}


def test_unreadable_ledger_keeps_all_but_forgotten_logs(place, caplog):
    there = left(place)
    StepLogFiles(place, Known(place)).forget([uid(2)], now_ms() + 60_000)
    assert left(place) == there - {uid(2)} | {uid(9)}
    assert "kept until the next sweep: it cannot be read" in caplog.text


def test_missing_logs_folder_has_nothing_to_forget(place):
    shutil.rmtree(place.logs)
    assert list_runs_logged_before(place, now_ms()) == set()
