"""Who takes a turn when: places that become free, and whoever waits for one or for a path."""

import asyncio
import threading

import pytest_asyncio

from dayfly.embedded.ledger import LedgerError
from dayfly.execute.process.resident import UnansweredError
from dayfly.spec.wire import Verdict
from embedded import documents as doc
from embedded.machine import until


async def test_a_start_without_an_answer_keeps_no_place(machine):
    """It is fenced, and nothing of it was ever there."""
    await machine.down()
    await machine.up(parallel=1)
    attempts = machine.host._engine.attempts
    start, asked = attempts._starter.start, []

    async def unanswered_once(folder, unit):
        asked.append(folder.path)
        if len(asked) == 1:
            raise UnansweredError("the resident runner ended before it answered")
        return await start(folder, unit)

    attempts._starter.can_hold = lambda _: False
    attempts._starter.start = unanswered_once
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", 'echo "$DAYFLY_ATTEMPT" >> "$JOURNAL"')])))
    await until(lambda: ("Void", "r/a", 1, "Stalled") in machine.history(), machine.history)
    await machine.ready()
    assert machine.lines() == ["2"]
    assert not attempts.busy


class Gate:
    """Holds the next write of the ledger back; what comes after it goes through."""

    def __init__(self, writer, fault=None) -> None:
        self._run, self._fault = writer.run, fault
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        writer.run = self._wait

    async def _wait(self, job):
        if not self.reached.is_set():
            self.reached.set()
            await self.open.wait()
            if self._fault:
                raise self._fault
        return await self._run(job)


def waits_for(name):
    return f'while [ ! -e "$JOURNAL.{name}" ]; do sleep 0.01; done'


@pytest_asyncio.fixture
async def crowded(machine):
    """A machine that cannot keep steps apart that use one path. Its host is up and takes no turns yet."""
    await machine.down()
    await machine.up(start=False, isolation="none")
    return machine


async def test_who_waits_for_a_path_looks_again_when_it_was_not_taken_after_all(crowded, tmp_path):
    """The disk refuses the claim of the run that has the path, and then its owner deletes it."""
    engine, shared = crowded.host._engine, str(tmp_path / "shared")
    for n in range(2):
        step = doc.step(f"s{n}", f"echo x > {shared}", outputs=[("x", shared)])
        await crowded.host.offer(doc.offer(doc.resource("r", [step]), uid=f"u{n}"))
    gate = Gate(engine.writer, LedgerError("the ledger cannot be written: the disk is full"))
    crowded.host.start()
    await gate.reached.wait()
    await until(lambda: engine._blocked == {"u1"}, "the second to wait for the path")
    await crowded.delete("u0")
    gate.open.set()
    await crowded.gone("u0")
    await crowded.ready("u1")


async def test_who_has_just_begun_to_wait_for_a_path_looks_again_when_it_is_free(crowded, tmp_path):
    """It is freed while the run that will wait for it writes what it has seen before."""
    engine, shared = crowded.host._engine, str(tmp_path / "shared")
    user = doc.step("user", f"{waits_for('user')}; echo x > {shared}", outputs=[("x", shared)])
    await crowded.host.offer(doc.offer(doc.resource("r", [user]), uid="u0"))
    own = str(tmp_path / "own")
    steps = [
        doc.step("first", f"{waits_for('first')}; echo y > {own}", outputs=[("y", own)]),
        doc.step("then", f"echo x > {shared}", inputs=["y=first.y"], outputs=[("x", shared)]),
    ]
    await crowded.host.offer(doc.offer(doc.resource("r", steps), uid="u1"))
    crowded.host.start()
    await until(lambda: len(engine.attempts._watched) == 2, "two steps to run")
    gate = Gate(engine.writer)
    crowded.journal.with_name("journal.first").touch()
    await gate.reached.wait()
    crowded.journal.with_name("journal.user").touch()
    await crowded.ready("u0")
    gate.open.set()
    await crowded.ready("u1")


async def test_a_server_that_ends_while_it_starts_a_fork_does_not_wait_for_its_answer(machine):
    await machine.baseline(command=("/bin/sleep", "600"))
    starter = machine.host._engine.attempts._starter
    start, reached, answer = starter.start, asyncio.Event(), asyncio.Event()

    async def held(folder, unit):
        reached.set()
        await answer.wait()
        return await start(folder, unit)

    starter.start = held
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await reached.wait()
    down = asyncio.create_task(machine.down())
    await until(lambda: machine.host is None, "the end to begin")
    answer.set()
    await asyncio.wait_for(down, 30)


async def test_a_result_is_recorded_with_its_values_or_not_at_all(machine):
    """Two are written together; the disk has room for a result, and not for values."""
    script = f"echo up >> $JOURNAL; {waits_for('go')}; head -c 300000 /dev/zero > /tmp/big"
    step = doc.step("a", script, outputs=[("big", "/tmp/big")])
    uids = ["u0", "u1"]
    for uid in uids:
        await machine.host.offer(doc.offer(doc.resource("r", [step]), uid=uid))
    await until(lambda: len(machine.lines()) == 2, "both to run")
    writer, together = machine.host._writer, threading.Event()

    def room(pages):
        database = machine.host._ledger._db
        (now,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {now + pages}")
        together.wait()

    held = writer.run(lambda: room(0))
    machine.journal.with_name("journal.go").touch()
    await until(lambda: writer._jobs.qsize() == 2, "both to be written")
    together.set()
    await held
    await until(lambda: writer.trouble, "the refusal")
    assert [machine.host._engine.reader.load(uid).run.unit("r/a").state for uid in uids] == ["claimed", "claimed"]
    full = f"the disk of {machine.home} is full; once there is room, it goes on by itself"
    assert writer.trouble == f"the ledger cannot be written: {full}"
    await writer.run(lambda: room(1000))
    for uid in uids:
        await machine.ready(uid)
        assert [len(value) for value in machine.values(uid).values()] == [300_000]


async def test_the_trouble_with_the_disk_is_told_as_long_as_there_is_some(machine):
    """Whatever is written next tells that there is room: here, that another run is forgotten."""
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "exit 1")])))
    await machine.reason("ResourceFailed")
    ledger, refused = machine.host._ledger, []
    dissolve = ledger.dissolve

    def full_once(run, name):
        refused.append(run.uid)
        if len(refused) == 1:
            raise LedgerError("the disk is full")
        dissolve(run, name)

    ledger.dissolve = full_once
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a")]), uid="other"))
    await machine.ready("other")
    await machine.delete("other")
    await until(lambda: "the disk is full" in machine.report().message, machine.report)
    await machine.gone("other")
    await until(lambda: "the disk is full" not in machine.report().message, machine.report)


async def test_a_path_is_taken_by_a_step_of_the_server_before(crowded, tmp_path):
    """Whoever waits for it must not get a turn before that step is adopted."""
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
    await crowded.said("r/late", "PathBusy", "u0")
    await crowded.down()
    engine = (await crowded.up(isolation="none"))._engine
    await until(lambda: engine._blocked == {"u0"}, lambda: crowded.report("u0"))
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
        for _ in range(2):  # twice is once
            assert await machine.host.retry("u", {"r/z": attempt}, "ada") is Verdict.TAKEN
    await machine.gone()
    assert machine.lines() == ["drop 1", "drop 2", "drop 3"]
    asked = [entry for entry in machine.host.history("u") if entry.move == "Retry"]
    assert [(entry.unit, entry.attempt, entry.message) for entry in asked] == [
        ("r/z", 1, "its back-off was ended (by ada)"),
        ("r/z", 2, "its back-off was ended (by ada)"),
    ]
    assert await machine.host.retry("u", {"r/z": 3}, "ada") is Verdict.OVER
