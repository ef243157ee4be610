"""The schedule of turns: free slots, and runs that wait for a slot or a path."""

import asyncio
import sqlite3
import threading

import pytest_asyncio
from tests.embedded import documents as doc
from tests.embedded.machine import until

from dayfly.embedded.ledger import LedgerError, SqliteLedger
from dayfly.embedded.writer import Writer
from dayfly.execute.process.launch import ProcessStarter
from dayfly.execute.process.resident import UnansweredError
from dayfly.lib.clock import now_ms
from dayfly.link.wire import Verdict


async def test_unanswered_start_is_fenced_and_frees_its_slot(machine, monkeypatch):
    """The step never existed."""
    await machine.down()
    await machine.up(parallel=1)
    start, asked = ProcessStarter.start, []

    async def unanswered_once(starter, folder, unit):
        asked.append(folder.path)
        if len(asked) == 1:
            raise UnansweredError("the resident runner ended before it answered")
        return await start(starter, folder, unit)

    monkeypatch.setattr(ProcessStarter, "start", unanswered_once)
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", 'echo "$DAYFLY_ATTEMPT" >> "$JOURNAL"')])))
    await until(lambda: ("Void", "r/a", 1, "StartInterrupted") in machine.history(), machine.history)
    await machine.ready()
    assert machine.lines() == ["2"]


class Gate:
    """Delay the next write of the ledger until `open`, then let it fail with `fault`; later writes succeed."""

    def __init__(self, monkeypatch, fault=None) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        run = Writer.run

        async def wait(writer, job):
            if not self.reached.is_set():
                self.reached.set()
                await self.open.wait()
                if fault:
                    raise fault
            return await run(writer, job)

        monkeypatch.setattr(Writer, "run", wait)


def waits_for(name):
    return f'while [ ! -e "$JOURNAL.{name}" ]; do sleep 0.01; done'


@pytest_asyncio.fixture
async def crowded(machine):
    """A machine that cannot separate steps with the same path. Its host takes no turns yet."""
    await machine.down()
    await machine.up(start=False, isolation="none")
    return machine


async def test_waiting_run_retries_when_path_claim_is_refused(crowded, tmp_path, monkeypatch):
    """The disk refuses the claim of the run that holds the path, and then its owner deletes it."""
    shared = str(tmp_path / "shared")
    for n in range(2):
        step = doc.step(f"s{n}", f"echo x > {shared}", outputs=[("x", shared)])
        await crowded.host.offer(doc.offer(doc.resource("r", [step]), uid=f"u{n}"))
    gate = Gate(monkeypatch, LedgerError("the ledger cannot be written: the disk is full"))
    before = crowded.host.version("u1")
    crowded.host.start()
    await gate.reached.wait()
    await until(lambda: crowded.host.version("u1") > before, "a turn of the second run")
    await crowded.said("r/s1", "PathInUse", "u1")
    await crowded.delete("u0")
    gate.open.set()
    await crowded.gone("u0")
    await crowded.ready("u1")


async def test_run_claims_path_that_is_freed_during_its_turn(crowded, tmp_path, monkeypatch):
    """The path becomes free while the waiting run writes what it has observed before."""
    shared = str(tmp_path / "shared")
    begun = 'echo + >> "$JOURNAL"'
    user = doc.step("user", f"{begun}; {waits_for('user')}; echo x > {shared}", outputs=[("x", shared)])
    await crowded.host.offer(doc.offer(doc.resource("r", [user]), uid="u0"))
    own = str(tmp_path / "own")
    steps = [
        doc.step("first", f"{begun}; {waits_for('first')}; echo y > {own}", outputs=[("y", own)]),
        doc.step("then", f"echo x > {shared}", inputs=["y=first.y"], outputs=[("x", shared)]),
    ]
    await crowded.host.offer(doc.offer(doc.resource("r", steps), uid="u1"))
    crowded.host.start()
    await until(lambda: len(crowded.lines()) == 2, "two steps to run")
    gate = Gate(monkeypatch)
    crowded.journal.with_name("journal.first").touch()
    await gate.reached.wait()
    crowded.journal.with_name("journal.user").touch()
    await crowded.ready("u0")
    gate.open.set()
    await crowded.ready("u1")


async def test_server_ends_though_a_fork_it_starts_never_answers(machine, monkeypatch):
    await machine.baseline(command=("/bin/sleep", "600"))
    start, reached, answer = ProcessStarter.start, asyncio.Event(), asyncio.Event()

    async def held(starter, folder, unit):
        reached.set()
        await answer.wait()
        return await start(starter, folder, unit)

    monkeypatch.setattr(ProcessStarter, "start", held)
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await reached.wait()
    down = asyncio.create_task(machine.down())
    await until(lambda: machine.host is None, "the end to begin")
    answer.set()
    async with asyncio.timeout(30):
        await down


async def test_results_are_recorded_with_their_values_or_not_at_all(machine, monkeypatch):
    """Two results are written together; the disk has space for a result, but not for values."""
    opened, full, hold, held, go = [], *(threading.Event() for _ in range(4))
    connect = sqlite3.connect

    def noted(*given, **more):
        opened.append(connect(*given, **more))
        return opened[-1]

    def hook(name):
        if name != "before commit":
            return
        if hold.is_set():
            held.set()
            go.wait()
        (pages,) = opened[0].execute("PRAGMA page_count").fetchone()
        opened[0].execute(f"PRAGMA max_page_count = {pages if full.is_set() else 1_000_000}")

    monkeypatch.setattr(sqlite3, "connect", noted)
    await machine.down()
    await machine.up(hook=hook)
    script = f"echo up >> $JOURNAL; {waits_for('go')}; head -c 300000 /dev/zero > /tmp/big"
    step = doc.step("a", script, outputs=[("big", "/tmp/big")])
    uids, lease = ["u0", "u1"], now_ms() + 3_600_000
    for uid in uids:
        await machine.host.offer(doc.offer(doc.resource("r", [step]), uid=uid, lease_until=lease))
    await until(lambda: len(machine.lines()) == 2, "both to run")
    hold.set()
    renewed = asyncio.create_task(machine.host.lease("u0", lease + 1))
    await until(held.is_set, "a write that takes long")
    hold.clear()
    machine.journal.with_name("journal.go").touch()
    await until(lambda: len(list(machine.work.glob("*/receipt"))) == 2, "both to end")
    await asyncio.sleep(0.1)  # both results must be in the next transaction
    full.set()
    go.set()
    assert await renewed is Verdict.TAKEN
    said = (
        f"the ledger cannot be written: the disk of {machine.home} is full; writing continues as soon as there is space"
    )
    await until(lambda: said in machine.report("u0").message, lambda: machine.report("u0"))
    assert [machine.stored(uid).run.unit("r/a").state for uid in uids] == ["claimed", "claimed"]
    full.clear()
    for uid in uids:
        await machine.ready(uid)
        assert [len(value) for value in machine.values(uid).values()] == [300_000]


async def test_full_disk_is_reported_until_a_write_succeeds(machine, monkeypatch):
    """The next write deletes another run. The report of a ready run does not mention the disk."""
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "exit 1")])))
    await machine.reason("ResourceFailed")
    dissolve, refused = SqliteLedger.dissolve, []

    def full_once(ledger, run, name):
        refused.append(run.uid)
        if len(refused) == 1:
            raise LedgerError("the disk is full")
        dissolve(ledger, run, name)

    monkeypatch.setattr(SqliteLedger, "dissolve", full_once)
    for uid in ("other", "ready"):
        await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a")]), uid=uid))
        await machine.ready(uid)
    await machine.delete("other")
    await until(lambda: "the disk is full" in machine.report().message, machine.report)
    assert "the disk is full" not in machine.report("ready").message
    await machine.gone("other")
    await until(lambda: "the disk is full" not in machine.report().message, machine.report)


async def test_path_stays_taken_by_step_of_former_server(crowded, tmp_path):
    """A waiting run must not get a turn before that step is adopted."""
    shared, own = str(tmp_path / "shared"), str(tmp_path / "own")

    def user(name, **more):
        script = (
            f'echo "+ {name}" >> "$JOURNAL"; {waits_for("go")}; printf {name} > {shared}; echo "- {name}" >> "$JOURNAL"'
        )
        return doc.step(name, script, outputs=[("x", shared)], **more)

    first = doc.step("first", f"{waits_for('first')}; echo y > {own}", outputs=[("y", own)])
    waiting = doc.resource("r", [first, user("late", inputs=["y=first.y"])])
    await crowded.host.offer(doc.offer(waiting, uid="u0"))
    await crowded.host.offer(doc.offer(doc.resource("r", [user("early")]), uid="u1"))
    crowded.host.start()
    await crowded.wrote("+ early")
    crowded.journal.with_name("journal.first").touch()
    await crowded.said("r/late", "PathInUse", "u0")
    await crowded.down()
    await crowded.up(isolation="none")
    before = crowded.host.version("u0")
    await until(lambda: crowded.host.version("u0") > before, "a turn of the run that waits")
    await crowded.said("r/late", "PathInUse", "u0")
    crowded.journal.with_name("journal.go").touch()
    await crowded.ready("u0")
    await crowded.ready("u1")
    assert crowded.lines() == ["+ early", "- early", "+ late", "- late"]
    assert crowded.values("u1") == {"r/early.x": b"early"}


async def test_a_back_off_is_ended_for_that_attempt_alone(machine):
    script = 'echo "drop $DAYFLY_ATTEMPT" >> "$JOURNAL"; [ "$DAYFLY_ATTEMPT" = 3 ]'
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a")], [doc.step("z", script, backoff_ms=600_000)])))
    await machine.ready()
    await machine.delete()
    for attempt in (1, 2):
        await until(lambda n=attempt: machine.unit("r/z").state == "retrying" and machine.unit("r/z").attempt == n)
        for _ in range(2):  # a repetition has no effect
            assert await machine.host.retry("u", {"r/z": attempt}, "ada") is Verdict.TAKEN
    await machine.gone()
    assert machine.lines() == ["drop 1", "drop 2", "drop 3"]
    asked = [entry for entry in machine.host.history("u") if entry.move == "Retry"]
    assert [(entry.unit, entry.attempt, entry.message) for entry in asked] == [
        ("r/z", 1, "back-off ended by ada"),
        ("r/z", 2, "back-off ended by ada"),
    ]
    assert await machine.host.retry("u", {"r/z": 3}, "ada") is Verdict.OVER
