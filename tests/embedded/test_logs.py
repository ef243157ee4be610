"""Which logs there are, and which of them are kept; what else lies there is nobody's attempt."""

import pytest

from dayfly.execute.process import run as process
from embedded import documents as doc
from embedded.machine import until


@pytest.mark.parametrize(
    "name", [".r.a.1.log.swp", ".r.a.1.log", "r.a.1.log~", "notes", "notes.txt", "r.a.x.log", "r.a.0.log"]
)
async def test_what_people_leave_beside_logs_is_no_log(machine, name):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "echo said")])))
    await machine.ready()
    (machine.home / "logs/u" / name).write_text("a copy, or what an editor keeps")
    assert [(info.unit, info.attempt, info.size) for info in machine.host.logs("u")] == [("r/a", 1, 5)]


async def test_a_step_that_says_nothing_has_an_empty_log_and_no_file(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "true"), doc.step("b", "echo said")])))
    await machine.ready()
    logs = machine.home / "logs"
    assert [entry.name for entry in (logs / "u").iterdir()] == ["r.b.1.log"]
    assert [(info.unit, info.size, info.sealed) for info in machine.host.logs("u")] == [
        ("r/a", 0, True),
        ("r/b", 5, True),
    ]
    await machine.finish()
    assert [info.unit for info in machine.host.logs("u")] == ["r/a", "r/b"], "also once it is over"
    assert [entry.name for entry in (logs / ".begun").iterdir()] == ["none"], "no trace of an attempt outlives it"


async def test_what_people_leave_in_the_work_folder_keeps_no_server_from_starting(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "echo said")])))
    await machine.ready()
    await machine.down()
    for name in ("copies", "copies.of.yesterday", ".trash.r.1"):
        (machine.work / name).mkdir()
    await machine.up()
    await machine.ready()


@pytest.fixture
def few(monkeypatch):
    """No more than three logs are kept, and what failed is tried again at once."""
    monkeypatch.setattr(process, "KEPT_LOGS", 3)
    monkeypatch.setattr("dayfly.plan.opening.FORK_BACKOFF_MS", 1)
    monkeypatch.setattr("dayfly.plan.opening.FORK_BACKOFF_MAX_MS", 1)


AGAIN = 'echo x >> "$JOURNAL"; echo said; [ "$(wc -l < "$JOURNAL")" -ge 6 ]'
GONE = b"[dayfly: the last 3 logs are kept; those before attempt 4 are gone]\n"


async def test_a_fork_that_keeps_ending_does_not_fill_the_disk_with_its_logs(few, machine):
    await machine.baseline(command=("/bin/sh", "-c", f"{AGAIN} && exec sleep 600; exit 3"), port=None)
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    name = "fork:default/app"
    await until(lambda: len(machine.lines()) == 6, machine.lines)
    await machine.ready()
    assert [(info.unit, info.attempt) for info in machine.host.logs("u")] == [(name, n) for n in (4, 5, 6)]
    assert machine.log(name, 6).startswith(GONE)
    await machine.finish()


async def test_neither_does_a_step_that_keeps_failing(few, machine):
    """Nor does it touch the logs of others."""
    steps = [doc.step("a", "true"), doc.step("b", AGAIN, idempotent=True, limit=9, backoff_ms=1)]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    await machine.ready()
    there = [(info.unit, info.attempt) for info in machine.host.logs("u")]
    assert there == [("r/a", 1), ("r/b", 4), ("r/b", 5), ("r/b", 6)]
    assert machine.log("r/b", 6) == GONE + b"said\n"


async def test_a_log_that_cannot_be_removed_keeps_no_step_from_starting(few, machine):
    (machine.home / "logs/u/r.a.1.log").mkdir(parents=True)
    step = doc.step("a", AGAIN, idempotent=True, limit=9, backoff_ms=1)
    await machine.host.offer(doc.offer(doc.resource("r", [step])))
    await until(lambda: len(machine.lines()) == 6, machine.lines)
    await machine.ready()
