"""Shared parents of the embedded host: one for many holders, their limits, their end, and their failures."""

import asyncio

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.embedded.parent_documents import START, STOP, database, member, parent, server, with_parent
from tests.embedded.pool_documents import pool, pooled, sandbox

from dayfly.embedded import host as host_module
from dayfly.lib.clock import now_ms
from dayfly.spec.identity import member_id, resource_id
from dayfly.spec.run import EndRequest, Phase

pytestmark = pytest.mark.usefixtures("no_errors")
ABANDON = EndRequest(at=1, reason="Abandoned")


def box(name="a", above=None, **more):
    return sandbox(name, database(above or server(), **more))


def words(machine):
    """Return the second words of the journal: the names of the steps that ran, in order."""
    return [line.split()[1] for line in machine.lines()]


def until_file(script, mark):
    """Return a script that waits for a file beside the journal first."""
    return f'while [ ! -e "$JOURNAL.{mark}" ]; do sleep 0.01; done; {script}'


async def all_ended(machine):
    with machine.database() as db:
        await until(lambda: db.execute("SELECT count(*) FROM run").fetchone() == (0,), "all runs to end")


def touch(machine, mark):
    machine.journal.with_name(f"journal.{mark}").touch()


async def test_first_child_creates_the_parent_and_the_last_one_deletes_it(machine):
    await machine.host.offer(box("a"))
    await machine.ready("a")
    await machine.host.offer(box("b"))
    await machine.ready("b")
    assert words(machine) == ["start", "clone", "clone"]
    await machine.finish("a")
    assert words(machine)[3:] == ["drop"]
    await machine.finish("b")
    await machine.gone(member_id("a", "db"))
    assert words(machine)[4:] == ["drop", "stop"]
    with machine.database() as db:
        assert db.execute("SELECT count(*) FROM parent").fetchone() == (0,)


async def test_child_has_its_own_id_and_the_outputs_of_its_parent(machine):
    await machine.host.offer(box("a"))
    await machine.ready("a")
    identity = resource_id("a", "db")
    assert f"+ clone {identity} server://1" in machine.lines()
    assert machine.values("a") == {"db/clone.name": b"db"}
    assert machine.unit("db/parent.start", "a").parent.startswith("server-")


async def test_concurrent_children_create_one_parent(machine):
    names = [f"a{number}" for number in range(30)]
    await asyncio.gather(*(machine.host.offer(box(name)) for name in names))
    for name in names:
        await machine.ready(name)
    assert words(machine).count("start") == 1
    (uid,) = {machine.stored(name).run.unit("db/parent.start").ref for name in names}
    assert {each.run for each in machine.stored(uid).run.holders} == set(names)
    await asyncio.gather(*(machine.finish(name) for name in names))
    await machine.gone(uid)
    assert words(machine)[-1] == "stop"
    assert words(machine).count("drop") == 30


async def test_two_resources_of_a_sandbox_share_a_parent(machine):
    above = server()
    both = sandbox("a", database(above, name="db"), database(above, name="more"))
    await machine.host.offer(both)
    await machine.ready("a")
    run = machine.stored("a").run
    uid = run.unit("db/parent.start").ref
    assert run.unit("more/parent.start").ref == uid
    assert {each.resource for each in machine.stored(uid).run.holders} == {"db", "more"}
    await machine.host.offer(sandbox("b", database(above, name="db"), database(above, name="more")))
    await machine.ready("b")
    assert {each.run for each in machine.stored(uid).run.holders} == {"a", "b"}
    assert len(machine.stored(uid).run.holders) == 4
    await machine.finish("a")
    await machine.finish("b")
    await machine.gone(uid)
    assert sorted(words(machine)) == ["clone"] * 4 + ["drop"] * 4 + ["start", "stop"]


@pytest.mark.parametrize(("limits", "count"), [({"capacity": 1, "max_parents": 2}, 2), ({"capacity": 2}, 1)])
async def test_two_resources_of_a_sandbox_keep_the_capacity(machine, limits, count):
    above = server(**limits)
    await machine.host.offer(sandbox("a", database(above, name="db"), database(above, name="more")))
    await machine.ready("a")
    run = machine.stored("a").run
    assert len({run.unit(f"{name}/parent.start").ref for name in ("db", "more")}) == count
    await machine.finish("a")
    await all_ended(machine)
    assert words(machine).count("start") == words(machine).count("stop") == count


async def test_second_resource_waits_if_the_first_fills_the_parent(machine):
    above = server(capacity=1)
    await machine.host.offer(sandbox("a", database(above, name="db"), database(above, name="more")))
    states = []

    def waiting():
        states[:] = [machine.unit(f"{name}/parent.start", "a").reason for name in ("db", "more")]
        return states.count("WaitingForParent") == 1

    await until(waiting, "one resource waits")
    await machine.finish("a")
    await all_ended(machine)


async def test_different_templates_have_different_parents(machine):
    await machine.host.offer(box("a"))
    await machine.host.offer(box("b", server(START + "; true")))
    await machine.ready("a")
    await machine.ready("b")
    assert words(machine).count("start") == 2


async def test_lingering_parent_serves_the_next_child(machine):
    above = server(linger_ms=600_000)
    await machine.host.offer(box("a", above))
    await machine.ready("a")
    await machine.finish("a")
    parent_run = machine.stored(member_id("a", "db")).run
    assert (parent_run.phase, parent_run.holders) == (Phase.OPEN, ())
    assert parent_run.idle_since
    await machine.host.offer(box("b", above))
    await machine.ready("b")
    assert words(machine).count("start") == 1
    assert machine.stored(member_id("a", "db")).run.idle_since == 0


async def test_parent_closes_after_its_linger_time(machine):
    await machine.host.offer(box("a", server(linger_ms=200)))
    await machine.ready("a")
    await machine.finish("a")
    await machine.gone(member_id("a", "db"))
    assert words(machine)[-1] == "stop"


async def test_parent_that_lingers_over_a_restart_closes_at_its_time(machine):
    await machine.host.offer(box("a", server(linger_ms=1_000)))
    await machine.ready("a")
    await machine.finish("a")
    await machine.down()
    await machine.up()
    await machine.gone(member_id("a", "db"))
    assert words(machine)[-1] == "stop"


async def test_full_parent_makes_a_child_wait_until_another_leaves(machine):
    above = server(capacity=1)
    await machine.host.offer(box("a", above))
    await machine.ready("a")
    await machine.host.offer(box("b", above))
    assert "1 of 1 holders" in await machine.said("db/parent.start", "WaitingForParent", "b")
    assert machine.unit("db/clone", "b").state == "waiting"
    await machine.delete("a")
    await machine.ready("b")


async def test_second_parent_begins_when_the_first_one_is_full(machine):
    above = server(capacity=1, max_parents=2)
    for name in ("a", "b"):
        await machine.host.offer(box(name, above))
        await machine.ready(name)
    assert words(machine).count("start") == 2
    names = {machine.unit("db/parent.start", name).parent[-2:] for name in ("a", "b")}
    assert names == {"-1", "-2"}


async def test_child_waits_while_the_former_parent_is_deleted(machine):
    above = server(stop=until_file(STOP, "stop"))
    await machine.host.offer(box("a", above))
    await machine.ready("a")
    await machine.finish("a")
    await machine.host.offer(box("b", above))
    assert "is being deleted" in await machine.said("db/parent.start", "WaitingForParent", "b")
    touch(machine, "stop")
    await machine.ready("b")
    assert words(machine) == ["start", "clone", "drop", "stop", "start", "clone"]


async def test_failed_parent_fails_its_children_and_frees_its_place(machine):
    above = server(until_file("exit 3", "go"))
    for name in ("a", "b"):
        await machine.host.offer(box(name, above))
        await machine.state("db/parent.start", "running", name)
    touch(machine, "go")
    for name in ("a", "b"):
        failed = await machine.state("db/parent.start", "failed", name)
        assert failed.reason == "ExitCode"
    await machine.gone(member_id("a", "db"))
    for name in ("a", "b"):
        await machine.finish(name)
    assert "drop" not in words(machine), "a child that was never created has nothing to drop"


async def test_failed_parent_frees_its_place_before_its_children_end(machine):
    mark = machine.journal.with_name("journal.broken")
    mark.touch()
    above = server(f'test ! -e "$JOURNAL.broken"; {START}'.replace("; ", " || exit 3; ", 1))
    await machine.host.offer(box("a", above))
    await machine.state("db/parent.start", "failed", "a")
    mark.unlink()
    await machine.gone(member_id("a", "db"))
    await machine.host.offer(box("b", above))
    await machine.ready("b")
    await machine.finish("a")
    assert machine.report("b").ready


async def test_record_of_a_failed_parent_stays_while_its_child_exists(machine, monkeypatch):
    await machine.host.offer(box("a", server("exit 3")))
    await machine.state("db/parent.start", "failed", "a")
    await machine.gone(member_id("a", "db"))
    later = now_ms() + 2 * host_module.KEEP_ENDED_MS
    monkeypatch.setattr(host_module, "now_ms", lambda: later)
    await machine.host.forget_old()
    assert machine.host.has_ended(member_id("a", "db"))
    await machine.finish("a")
    await machine.host.acknowledge(("a",))
    await machine.host.forget_old()
    assert not machine.host.has_ended(member_id("a", "db"))


async def test_child_that_ends_before_its_parent_is_ready_leaves_it(machine):
    above = server(until_file(START, "go"))
    await machine.host.offer(box("a", above))
    await machine.state("db/parent.start", "running", "a")
    await machine.host.offer(box("b", above))
    await machine.state("db/parent.start", "running", "b")
    await machine.finish("a")
    touch(machine, "go")
    await machine.ready("b")
    assert words(machine) == ["start", "clone"]


async def test_abandoned_child_leaves_its_parent(machine):
    await machine.host.offer(box("a", drop="exit 1"))
    await machine.ready("a")
    await machine.delete("a")
    await machine.state("db/drop", "retrying", "a")
    assert words(machine) == ["start", "clone"]
    await machine.host.abandon("a", ABANDON)
    await machine.gone("a")
    await machine.gone(member_id("a", "db"))
    assert words(machine)[-1] == "stop"


async def test_child_of_a_lost_parent_blocks_until_it_is_abandoned(machine):
    await machine.host.offer(box("a"))
    await machine.ready("a")
    await machine.down()
    with machine.database() as db:
        db.execute("DELETE FROM run WHERE uid = ?", (member_id("a", "db"),))
    await machine.up()
    await machine.delete("a")
    await machine.said("db/release", "LedgerLost", "a")
    await machine.host.offer(box("b"))
    assert "lost" in await machine.said("db/parent.start", "WaitingForParent", "b")
    await machine.host.abandon("a", ABANDON)
    await machine.gone("a")


async def test_parent_of_a_child_with_a_lost_ledger_stays(machine):
    await machine.host.offer(box("a"))
    await machine.ready("a")
    await machine.down()
    with machine.database() as db:
        db.execute("DELETE FROM run WHERE uid = 'a'")
    await machine.up()
    await machine.host.offer(box("b"))
    await machine.ready("b")
    await machine.finish("b")
    assert machine.stored(member_id("a", "db")).run.phase is Phase.OPEN


async def test_chain_of_parents_ends_from_the_child_to_the_top(machine):
    top = parent(
        [doc.step("boot", 'echo "+ boot" >> "$JOURNAL"')], [doc.step("halt", 'echo "+ halt" >> "$JOURNAL"')], "host"
    )
    middle = with_parent(server(), top)
    await machine.host.offer(box("a", middle))
    await machine.ready("a")
    await machine.host.offer(box("b", middle))
    await machine.ready("b")
    await machine.finish("a")
    await machine.finish("b")
    await all_ended(machine)
    assert words(machine) == ["boot", "start", "clone", "clone", "drop", "drop", "stop", "halt"]


async def test_pool_members_share_a_parent_with_their_holders(machine):
    above = server(capacity=5)
    made = member(above)
    await machine.host.offer(pool("p", made, 2))
    await machine.ready("p")
    assert words(machine) == ["start", "clone", "clone"]
    grant = doc.step("grant", 'echo "+ grant $DAYFLY_RESOURCE_ID $URL" >> "$JOURNAL"', inputs=["url=parent.start.url"])
    await machine.host.offer(sandbox("a", pooled("db", made, [grant])))
    await machine.ready("a")
    held = machine.stored("a").run.unit("db/clone").ref
    assert f"+ grant {resource_id(held, 'db')} server://1" in machine.lines()
    await machine.finish("a")
    await machine.host.stop("p", ABANDON)
    await machine.gone("p")
    await all_ended(machine)
    assert words(machine).count("start") == words(machine).count("stop") == 1
    assert words(machine)[-1] == "stop"


async def test_logs_of_a_child_include_those_of_its_parent(machine):
    await machine.host.offer(box("a", server("echo hello; " + START)))
    await machine.ready("a")
    assert machine.log("db/parent.start", uid="a") == b"hello\n"


async def test_logs_of_a_child_include_those_of_all_parents_of_a_chain(machine):
    top = parent([doc.step("boot", "echo boots")], name="host")
    await machine.host.offer(box("a", with_parent(server("echo starts; " + START), top)))
    await machine.ready("a")
    logs = {info.unit: machine.log(info.unit, uid="a") for info in machine.host.logs("a")}
    assert logs == {"db/parent.parent.boot": b"boots\n", "db/parent.start": b"starts\n", "db/clone": b""}


async def test_logs_of_a_pool_include_those_of_its_parent(machine):
    made = member(server("echo starts; " + START), clone="echo clones; printf db > /tmp/clone")
    await machine.host.offer(pool("p", made, 1))
    await machine.ready("p")
    logs = {info.unit: machine.log(info.unit, uid="p") for info in machine.host.logs("p")}
    assert logs == {"p-1/parent.start": b"starts\n", "p-1/clone": b"clones\n"}
    await machine.host.offer(sandbox("a", pooled("db", made)))
    await machine.ready("a")
    assert machine.log("db/parent.start", uid="a") == b"starts\n"


async def test_server_learns_nothing_of_parents(machine):
    await machine.host.offer(box("a"))
    await machine.ready("a")
    assert list(machine.host.living_runs()) == ["a"]
    await machine.finish("a")
    await machine.gone(member_id("a", "db"))
    assert list(machine.host.unacknowledged_ends()) == ["a"]
