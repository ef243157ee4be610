"""Pools of the embedded host: their size, changes, requests of people, failures, age, end, reports and slots."""

import asyncio
import hashlib

import msgspec
import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.embedded.pool_documents import pool, pooled, sandbox, template
from tests.embedded.test_webhooks import hook
from tests.webhook.server import Server, answer

from dayfly.link.wire import PoolAction, Verdict
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.identity import member_id
from dayfly.spec.lifecycle import Kind
from dayfly.spec.run import EndRequest

pytestmark = pytest.mark.usefixtures("no_errors", "resting_pools")
STOP = EndRequest(at=1, reason="Deleted", message="asked")


def member(make="true", drop='echo "- $DAYFLY_RESOURCE_ID" >> "$JOURNAL"', **limits):
    make = doc.step("make", f'echo "+ $DAYFLY_RESOURCE_ID" >> "$JOURNAL"; {make}', **limits)
    return template([make], [doc.step("drop", drop, backoff_ms=20)])


def box(name, documents):
    return sandbox(name, pooled("db", documents))


def names(machine, uid="p"):
    """Return the members in the report of a pool, with their states."""
    return {unit.id: unit.state for unit in machine.report(uid).units}


def starts(machine):
    return [line for line in machine.lines() if line[0] == "+"]


async def count(machine, number, uid="p"):
    """Wait until a pool wants, has and reports this number of ready members."""

    def reached():
        report = machine.report(uid)
        return (report.pool.ready, report.pool.wanted, len(report.units)) == (number, number, number)

    await until(reached, lambda: f"{number} ready members; now {machine.report(uid)}")


async def test_pool_has_ready_members_and_ends_with_them(machine):
    await machine.host.offer(pool("p", member(), 3))
    await count(machine, 3)
    assert names(machine) == {f"p-{number}": "succeeded" for number in (1, 2, 3)}
    assert machine.host.living_runs() == ["p"]
    assert await machine.host.stop("p", STOP) is Verdict.TAKEN
    await machine.gone("p")
    assert machine.report("p").closed == STOP
    assert sorted(line[0] for line in machine.lines()) == ["+", "+", "+", "-", "-", "-"]
    assert (machine.host.living_runs(), list(machine.host.unacknowledged_ends())) == ([], ["p"])
    await machine.host.acknowledge(("p",))
    assert list(machine.host.unacknowledged_ends()) == []
    assert await machine.host.offer(pool("p", member(), 3)) is Verdict.OVER


async def test_deleted_pool_leaves_its_used_members(machine):
    documents = member()
    await machine.host.offer(pool("p", documents, 2))
    await count(machine, 2)
    await machine.host.offer(box("a", documents))
    await machine.ready("a")
    await machine.host.stop("p", STOP)
    await machine.gone("p")
    used = machine.stored("a").run.unit("db/make").ref
    assert machine.stored(used).run.holders
    assert machine.report("a").ready
    await machine.finish("a")
    await machine.gone(used)


async def test_pool_deleted_during_a_claim_loses_no_member(machine):
    documents = member()
    await machine.host.offer(pool("p", documents, 10))
    await count(machine, 10)
    boxes = [machine.host.offer(box(f"a{number}", documents)) for number in range(20)]
    await asyncio.gather(*boxes[:5], machine.host.stop("p", STOP), *boxes[5:])
    for number in range(20):
        await machine.ready(f"a{number}")
    await machine.gone("p")
    refs = {machine.stored(f"a{number}").run.unit("db/make").ref for number in range(20)}
    assert len(refs) == 20
    for number in range(20):
        await machine.finish(f"a{number}")
    assert sorted(line[2:] for line in starts(machine)) == sorted(
        line[2:] for line in machine.lines() if line[0] == "-"
    ), "a member is left, or was removed twice"


async def test_newer_spec_changes_the_size_and_an_older_one_does_not(machine):
    await machine.host.offer(pool("p", member(), 1, generation=2))
    await count(machine, 1)
    await machine.host.offer(pool("p", member(), 3, generation=3, birth=False))
    await count(machine, 3)
    assert await machine.host.offer(pool("p", member(), 9, generation=1)) is Verdict.TAKEN
    await count(machine, 3)


async def test_newer_template_replaces_unused_members(machine):
    await machine.host.offer(pool("p", member(), 2))
    await count(machine, 2)
    newer = member("true # newer")
    await machine.host.offer(pool("p", newer, 2, generation=1))
    await until(lambda: names(machine) == {"p-3": "succeeded", "p-4": "succeeded"}, lambda: machine.report("p"))
    await machine.host.offer(box("a", member()))
    await machine.ready("a")
    assert machine.stored("a").run.unit("db/make").ref == member_id("a", "db"), "only the digest counts"


async def test_unknown_pool_is_not_born_late(machine):
    assert await machine.host.offer(pool("p", member(), birth=False)) is Verdict.UNKNOWN
    assert await machine.host.stop("p", STOP, known=False) is Verdict.OVER
    assert await machine.host.offer(pool("p", member())) is Verdict.OVER
    assert await machine.host.control_pool("p", PoolAction.PAUSE, "ann") is Verdict.OVER


async def test_pool_with_a_step_that_cannot_run_here_is_refused(machine):
    thing = msgspec.structs.replace(doc.step("make"), kind="thing")
    with pytest.raises(DocumentsRefusedError, match="postgres/make"):
        await machine.host.offer(pool("p", template([thing])))
    with pytest.raises(DocumentsRefusedError, match="postgres/make"):
        machine.host.admit((pooled("db", template([thing])),), ())
    assert machine.report("p") is None


async def test_paused_pool_creates_no_member_until_it_is_resumed(machine):
    documents = member()
    await machine.host.offer(pool("p", documents, 1))
    await count(machine, 1)
    assert await machine.host.control_pool("p", PoolAction.PAUSE, "ann") is Verdict.TAKEN
    await machine.reason("Paused", "p")
    assert machine.report("p").pool.paused_at > 0
    await machine.host.offer(box("a", documents))
    await machine.ready("a")
    await until(lambda: machine.report("p").pool.hits == 1)
    assert machine.report("p").pool.creating == 0
    await machine.host.control_pool("p", PoolAction.RESUME, "ann")
    await until(lambda: names(machine).get("p-2") == "succeeded")


async def test_drained_pool_removes_its_unused_members(machine):
    documents = member()
    await machine.host.offer(pool("p", documents, 2))
    await count(machine, 2)
    await machine.host.offer(box("a", documents))
    await machine.ready("a")
    await count_unused(machine, 2)
    await machine.host.control_pool("p", PoolAction.DRAIN, "ann")
    await until(lambda: len(names(machine)) == 1, lambda: machine.report("p"))
    [unit] = machine.report("p").units
    assert unit.holder == "a/db"
    assert machine.report("a").ready


async def count_unused(machine, number, uid="p"):
    await until(lambda: machine.report(uid).pool.ready == number, lambda: machine.report(uid))


async def test_three_failures_in_a_row_pause_the_pool(machine):
    await machine.host.offer(pool("p", member("echo no luck; exit 3"), 1))
    await machine.reason("Failing", "p")
    await until(lambda: not [uid for uid in (member_id("p", str(n)) for n in (1, 2, 3)) if machine.stored(uid)])
    assert len(starts(machine)) == 3
    await until(lambda: names(machine) == {"p-3": "failed"}, lambda: machine.report("p"))
    assert machine.log("p-3/make", uid="p") == b"no luck\n"
    await machine.host.offer(pool("p", member(), 1, generation=1))
    await count_unused(machine, 1)


async def test_member_is_replaced_after_its_age(machine):
    await machine.host.offer(pool("p", member(), 1, max_age="2s"))
    await count(machine, 1)
    await until(lambda: names(machine) == {"p-2": "succeeded"}, lambda: machine.report("p"))
    assert machine.lines()[:2] == starts(machine)[:2], "the new one is ready before the old one is removed"


async def test_restarted_server_continues_with_its_pools(machine):
    documents = member()
    await machine.host.offer(pool("p", documents, 2))
    await count(machine, 2)
    await machine.host.offer(box("a", documents))
    await machine.ready("a")
    await count_unused(machine, 2)
    await machine.down()
    await machine.up()
    await count_unused(machine, 2)
    await machine.host.offer(box("b", documents))
    await machine.ready("b")
    members = {member_id("p", str(number)) for number in (1, 2, 3)}
    assert machine.stored("b").run.unit("db/make").ref in members
    await machine.finish("a")
    await machine.finish("b")


async def test_report_of_a_pool_counts_hits_and_misses(machine):
    documents = member('while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done')
    machine.journal.with_name("journal.go").touch()
    await machine.host.offer(pool("p", documents, 1))
    await count(machine, 1)
    machine.journal.with_name("journal.go").unlink()
    await machine.host.offer(box("hit", documents))
    await machine.ready("hit")
    await until(lambda: "p-2" in names(machine))
    await machine.host.offer(box("miss", documents))
    await machine.state("db/make", "running", "miss")
    machine.journal.with_name("journal.go").touch()
    await machine.ready("miss")
    await until(lambda: machine.report("p").pool.misses == 1, lambda: machine.report("p"))
    assert machine.report("p").pool.hits == 1
    (hit,), (miss,) = (
        [unit for unit in machine.report(uid).units if unit.event == "preStart" and unit.kind == Kind.ACQUIRE]
        for uid in ("hit", "miss")
    )
    assert (hit.member, hit.hit, miss.hit) == ("p-1", True, False)
    assert miss.member in ("p-2", "miss-db"), "it waits for a member only if that will soon be ready"


async def test_refill_uses_at_most_half_of_the_slots(machine):
    await machine.down()
    await machine.up(parallel=4)
    slow = member(
        'echo > "$JOURNAL.seen"; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done; echo "= end" >> "$JOURNAL"'
    )
    await machine.host.offer(pool("p", slow, 6))
    await until(lambda: len(starts(machine)) == 2)
    await until(lambda: sum(unit.reason == "WaitingForSlot" for unit in _steps(machine)) == 4, lambda: _steps(machine))
    for number in range(2):
        step = doc.step("a", 'while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done')
        await machine.host.offer(doc.offer(doc.resource("r", [step]), uid=f"u{number}"))
        await machine.state("r/a", "running", f"u{number}")
    assert len(starts(machine)) == 2
    machine.journal.with_name("journal.go").touch()
    await count(machine, 6)
    running = most = 0
    for line in machine.lines():
        running += 1 if line[0] == "+" else -1
        most = max(most, running)
    assert most == 2


def _steps(machine, number=6):
    uids = [member_id("p", str(each)) for each in range(1, number + 1)]
    return [unit for uid in uids if machine.report(uid) for unit in machine.report(uid).units if unit.name == "make"]


async def test_abandoned_pool_gives_up_the_cleanup_of_members(machine):
    documents = member(drop="exit 1")
    await machine.host.offer(pool("p", documents, 2))
    await machine.ready("p")
    await machine.host.offer(box("a", documents))
    await machine.ready("a")
    held = {unit.name for unit in machine.report("p").units if unit.holder}
    unused = member_id("p", "1" if held == {"p-2"} else "2")
    await machine.host.stop("p", STOP)
    await machine.state("postgres/drop", "retrying", unused)
    assert await machine.host.abandon("p", STOP) is Verdict.TAKEN
    await machine.gone("p")
    assert machine.report("p").phase == machine.report(unused).phase == "abandoned"
    assert machine.report("a").ready, "used members outlive their pool"


async def test_abandoned_pool_ends_without_a_lost_member(machine):
    await machine.host.offer(pool("p", member()))
    await machine.ready("p")
    await machine.down()
    with machine.database() as db:
        db.execute("DELETE FROM run WHERE uid = ?", (member_id("p", "1"),))
    await machine.up()
    await machine.host.abandon("p", STOP)
    await machine.gone("p")


async def test_report_of_a_pool_has_all_that_predicts_misses(machine):
    documents = member()
    await machine.host.offer(pool("p", documents, 2))
    await machine.ready("p")
    await machine.host.offer(box("a", documents))
    await machine.ready("a")
    await until(lambda: machine.report("p").pool.hits == 1)
    seen = machine.report("p").pool
    assert seen.rate > 0
    assert seen.refill_ms > 0
    assert seen.idle_ms > 0
    assert seen.batch >= 1
    assert seen.spread >= 0


async def test_members_are_replaced_after_a_change_of_their_secret(machine, monkeypatch):
    headers = {"Authorization": {"$secret": {"name": "dns", "key": "token"}}}

    async def restart(server, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        await machine.down()
        await machine.up(webhooks=[server.name])

    async def fill(size):
        """Change the size; wait until no member is being created."""
        await machine.host.offer(pool("p", documents, size, generation=size))
        await until(lambda: (machine.report("p").pool.ready, machine.report("p").pool.creating) == (size, 0))
        return set(names(machine))

    with Server(lambda *_: answer(201)) as server:
        documents = template([hook("make", server.url, headers=headers)], [doc.step("drop", "true")])
        await restart(server, DNS_TOKEN="hunter2")
        await fill(1)
        await machine.host.offer(box("a", documents))
        await machine.ready("a")
        assert await fill(2) == {"p-1", "p-2", "p-3"}
        await restart(server, OTHER="x")
        assert await fill(3) == {"p-1", "p-2", "p-3", "p-4"}, "no member reads the other variable"
        await restart(server, DNS_TOKEN="correct-horse")
        await until(lambda: {"p-2", "p-3", "p-4"}.isdisjoint(names(machine)))
        replaced = await fill(4)
        assert "p-1" in replaced, "a held member is not replaced"
        assert {seen.headers["authorization"] for seen in server.seen[4:]} == {"correct-horse"}
        await restart(server)
        assert await fill(5) > replaced
        stored = b"".join(path.read_bytes() for path in machine.home.glob("ledger.db*"))
        for form in (b"hunter2", hashlib.sha256(b"hunter2").hexdigest().encode(), hashlib.sha256(b"hunter2").digest()):
            assert form not in stored
