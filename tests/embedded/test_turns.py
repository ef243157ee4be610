"""Who takes a turn when: places that become free, and whoever waits for one or for a path."""

from dayfly.execute.process.resident import UnansweredError
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

    attempts._starter.start = unanswered_once
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", 'echo "$DAYFLY_ATTEMPT" >> "$JOURNAL"')])))
    await until(lambda: ("Void", "r/a", 1, "Stalled") in machine.history(), machine.history)
    await machine.ready()
    assert machine.lines() == ["2"]
    assert not attempts.busy
