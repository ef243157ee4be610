"""Holds of pool members: hit, miss, join of a member that is being created, release, and cancelled holds."""

import asyncio

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.embedded.pool_documents import pool, pooled, sandbox, template

from dayfly.lib.clock import now_ms
from dayfly.spec.identity import member_id, resource_id
from dayfly.spec.run import EndRequest

pytestmark = pytest.mark.usefixtures("no_errors", "resting_pools")
MAKE = 'echo "+ make $DAYFLY_RESOURCE_ID" >> "$JOURNAL"; printf db://1 > /tmp/url'
DROP = 'echo "+ drop $URL" >> "$JOURNAL"'


def database(make=MAKE, drop=DROP):
    create = doc.step("make", make, outputs=[("url", "/tmp/url")])
    seed = doc.step("seed", 'echo "+ seed $URL" >> "$JOURNAL"', inputs=["url=make.url"])
    return template([create, seed], [doc.step("drop", drop, inputs=["url=make.url"], backoff_ms=20)])


def grant(name="grant"):
    return doc.step(name, f'echo "+ {name} $URL $DAYFLY_RESOURCE_ID" >> "$JOURNAL"', inputs=["url=make.url"])


def box(name="a", member=None):
    """The offer of a sandbox with a resource `db` that a pool member provides."""
    return sandbox(name, pooled("db", member or database(), [grant()], [grant("revoke")]))


def slow(mark):
    """Return a script that ends once the file `mark` exists beside the journal."""
    return f'{MAKE}; while [ ! -e "$JOURNAL.{mark}" ]; do sleep 0.01; done'


def moves(machine, uid, name):
    return [entry for entry in machine.history(uid) if entry[0] == name]


async def filled(machine, number=1, member=None):
    """Offer a pool and wait until it is full."""
    await machine.host.offer(pool("p", member or database(), number))
    await machine.ready("p")


async def test_miss_creates_a_member_and_release_removes_it(machine):
    await machine.host.offer(box())
    await machine.ready("a")
    member = member_id("a", "db")
    identity = resource_id(member, "postgres")
    assert machine.lines() == [f"+ make {identity}", "+ seed db://1", f"+ grant db://1 {identity}"]
    assert machine.values("a") == {"db/make.url": b"db://1"}
    assert machine.stored(member).run.holders[0].key == ("a", "db")
    await machine.finish("a")
    assert machine.lines()[3:] == [f"+ revoke db://1 {identity}", "+ drop db://1"]
    assert machine.host.has_ended(member)


async def test_hit_runs_no_step_of_the_member_again(machine):
    await filled(machine)
    member = member_id("p", "1")
    identity = resource_id(member, "postgres")
    assert machine.lines() == [f"+ make {identity}", "+ seed db://1"]
    await machine.host.offer(box())
    await machine.ready("a")
    await machine.wrote(f"+ grant db://1 {identity}")
    assert machine.values("a") == {"db/make.url": b"db://1"}
    assert len(moves(machine, member, "Join")) == 1
    await machine.ready("p")  # its second member
    assert [line for line in machine.lines() if "make" in line and identity in line] == [f"+ make {identity}"]
    await machine.finish("a")
    assert machine.host.has_ended(member)
    assert [line for line in machine.lines() if "drop" in line] == ["+ drop db://1"]


async def test_hit_of_two_steps_is_one_commit_of_the_holder(machine):
    await filled(machine)
    await machine.host.offer(sandbox("a", pooled("db", database())))
    await machine.ready("a")
    assert machine.stored("a").run.seq == 1


async def test_concurrent_holders_share_no_member(machine):
    await filled(machine, 10)
    names = [f"a{number}" for number in range(50)]
    await asyncio.gather(*(machine.host.offer(sandbox(name, pooled("db", database()))) for name in names))
    for name in names:
        await machine.ready(name)
    refs = [machine.stored(name).run.unit("db/make").ref for name in names]
    assert len(set(refs)) == 50
    assert {machine.stored(ref).run.holders[0].run for ref in refs} == set(names)
    assert {ref for ref in refs if ref in {member_id("p", str(n)) for n in range(1, 11)}} == {
        member_id("p", str(n)) for n in range(1, 11)
    }


async def test_holder_joins_a_member_that_is_being_created(machine):
    member = database(slow("go"))
    await machine.host.offer(pool("p", member, 1))
    await until(lambda: len(machine.lines()) == 1)
    await machine.host.offer(sandbox("a", pooled("db", member)))
    await machine.state("db/make", "running", "a")
    assert machine.stored("a").run.unit("db/make").ref == member_id("p", "1")
    machine.journal.with_name("journal.go").touch()
    await machine.ready("a")
    assert machine.values("a") == {"db/make.url": b"db://1"}


async def test_member_that_takes_longer_than_usual_is_not_joined(machine):
    member = database(slow("go"))
    machine.journal.with_name("journal.go").touch()
    await filled(machine, 1, member)
    machine.journal.with_name("journal.go").unlink()
    await machine.host.offer(sandbox("a", pooled("db", member)))
    await machine.ready("a")
    await until(lambda: machine.report(member_id("p", "2")))
    await machine.state("postgres/make", "running", member_id("p", "2"))
    usual = max(record.ended_at for record in machine.stored(member_id("p", "1")).run.units.values())
    usual -= machine.stored(member_id("p", "1")).run.born_at
    await until(lambda: now_ms() - machine.stored(member_id("p", "2")).run.born_at > usual)
    await machine.host.offer(sandbox("b", pooled("db", member)))
    await machine.state("db/make", "running", "b")
    assert machine.stored("b").run.unit("db/make").ref == member_id("b", "db")
    machine.journal.with_name("journal.go").touch()
    await machine.ready("b")


async def test_release_waits_for_the_cleanup_of_the_member(machine):
    drop = f'{DROP}; [ -e "$JOURNAL.go" ]'
    await filled(machine, 1, database(drop=drop))
    await machine.host.offer(sandbox("a", pooled("db", database(drop=drop))))
    await machine.ready("a")
    await machine.delete("a")
    await until(lambda: machine.lines().count("+ drop db://1") > 1)
    said = await machine.said("db/release", "Deleting", "a")
    assert "p-1" in said
    assert "postgres/drop" in said
    machine.journal.with_name("journal.go").touch()
    await machine.gone("a")
    assert machine.host.has_ended(member_id("p", "1"))
    assert machine.report("a").message == "every delete step has succeeded; nothing is left"


async def test_retry_of_release_ends_the_back_off_of_the_member(machine):
    drop = doc.step("drop", '[ -e "$JOURNAL.go" ]', backoff_ms=600_000)
    member = template([doc.step("make", MAKE, outputs=[("url", "/tmp/url")])], [drop])
    await machine.host.offer(sandbox("a", pooled("db", member)))
    await machine.ready("a")
    await machine.delete("a")
    await machine.state("postgres/drop", "retrying", member_id("a", "db"))
    await machine.state("db/release", "retrying", "a")
    machine.journal.with_name("journal.go").touch()
    await machine.host.retry("a", {"db/release": 1}, "ann")
    await machine.gone("a")


async def test_holder_deleted_during_a_miss_removes_the_member(machine):
    await machine.host.offer(sandbox("a", pooled("db", database(slow("never")))))
    await until(lambda: len(machine.lines()) == 1)
    member = member_id("a", "db")
    await machine.delete("a")
    await machine.gone("a")
    assert machine.host.has_ended(member)
    assert [line.split()[1] for line in machine.lines()] == ["make", "drop"]
    assert ("Record", "db/make", 1, "Cancelled") in machine.history("a")


async def test_failed_step_of_a_member_fails_its_holder(machine):
    await machine.host.offer(sandbox("a", pooled("db", database("echo no luck; exit 3"))))
    report = await machine.reason("ResourceFailed", "a")
    assert report.message.startswith("db/make: exit code 3")
    assert machine.log("db/make", uid="a") == b"no luck\n"
    await machine.finish("a")
    assert machine.host.has_ended(member_id("a", "db"))


async def test_member_waits_for_its_holder_and_names_it(machine):
    await filled(machine)
    await machine.host.offer(sandbox("a", pooled("db", database())))
    await machine.ready("a")
    member = member_id("p", "1")
    await machine.host.stop(member, EndRequest(at=1, reason="Deleted"))
    await until(lambda: "WaitingForHolder" in {unit.reason for unit in machine.report("p").units})
    [unit] = [unit for unit in machine.report("p").units if unit.id == "p-1"]
    assert (unit.holder, unit.message) == ("a/db", "ends once Sandbox a no longer uses it")
    assert machine.report("a").ready
    await machine.finish("a")
    assert machine.host.has_ended(member)


async def test_logs_and_units_of_a_holder_follow_its_member(machine):
    member = template([doc.step("make", "echo made")], [doc.step("drop", "echo dropped")])
    await filled(machine, 1, member)
    await machine.host.offer(sandbox("a", pooled("db", member, [doc.step("grant", "echo granted")])))
    await machine.ready("a")
    assert machine.log("db/make", uid="a") == b"made\n"
    assert machine.log("db/grant", uid="a") == b"granted\n"
    assert {info.unit for info in machine.host.logs("a")} == {"db/make", "db/grant"}
    assert machine.unit("db/make", "a").member == "p-1"
    await machine.finish("a")
    assert machine.log("db/drop", uid="a") == b"dropped\n"
    assert machine.log("db/make", uid="a") == b"made\n"


class TestAbandon:
    async def test_abandoned_holder_releases_its_member(self, machine):
        undo = doc.step("revoke", "exit 1", backoff_ms=60_000)
        await filled(machine)
        await machine.host.offer(sandbox("a", pooled("db", database(), [], [undo])))
        await machine.ready("a")
        await machine.delete("a")
        await machine.state("db/revoke", "retrying", "a")
        await machine.host.abandon("a", EndRequest(at=1, reason="Abandoned", message="gone"))
        await machine.gone("a")
        await machine.gone(member_id("p", "1"))
        assert machine.lines()[-1] == "+ drop db://1" or "+ drop db://1" in machine.lines()

    async def test_abandon_during_a_miss_removes_the_member(self, machine):
        await machine.host.offer(sandbox("a", pooled("db", database(slow("never")))))
        await until(lambda: len(machine.lines()) == 1)
        await machine.host.abandon("a", EndRequest(at=1, reason="Abandoned", message="gone"))
        await machine.gone("a")
        await machine.gone(member_id("a", "db"))
        assert [line.split()[1] for line in machine.lines()] == ["make", "drop"]

    async def test_abandon_during_the_release_does_not_wait_for_the_member(self, machine):
        member = database(drop=f'{DROP}; [ -e "$JOURNAL.go" ]')
        await filled(machine, 1, member)
        await machine.host.offer(sandbox("a", pooled("db", member)))
        await machine.ready("a")
        await machine.delete("a")
        await machine.state("postgres/drop", "retrying", member_id("p", "1"))
        await machine.host.abandon("a", EndRequest(at=1, reason="Abandoned", message="gone"))
        await machine.gone("a")
        said = "pool member is still being cleaned up: postgres/drop"
        # Until the host has forgotten the living run, its report has no remark.
        await until(lambda: said in machine.report("a").message, lambda: machine.report("a"))
        left = machine.report("a")
        assert (left.phase, left.done, left.total) == ("abandoned", 0, 1)
        machine.journal.with_name("journal.go").touch()
        await machine.gone(member_id("p", "1"))
        gone = machine.report("a")
        assert (gone.total, "still being cleaned up" in gone.message) == (0, False)

    async def test_abandoned_member_completes_the_release_with_a_remark(self, machine):
        member = database(drop="exit 1")
        await filled(machine, 1, member)
        await machine.host.offer(sandbox("a", pooled("db", member)))
        await machine.ready("a")
        await machine.delete("a")
        await machine.state("postgres/drop", "retrying", member_id("p", "1"))
        await machine.host.abandon(member_id("p", "1"), EndRequest(at=1, reason="Abandoned", message="dropped by hand"))
        await machine.gone("a")
        assert machine.report("a").phase == "cleaned"
        said = "pool member p-1 was abandoned (dropped by hand)"
        # Until the host has forgotten the living run, its report has no remark.
        await until(lambda: said in machine.report("a").message, lambda: machine.report("a"))

    async def test_abandon_of_a_lost_holder_frees_its_member(self, machine):
        await filled(machine)
        await machine.host.offer(sandbox("a", pooled("db", database())))
        await machine.ready("a")
        await machine.down()
        with machine.database() as db:
            db.execute("DELETE FROM run WHERE uid = 'a'")
        await machine.up()
        member = member_id("p", "1")
        await machine.ready("p")
        assert machine.stored(member).run.holders, "a holder whose ledger is lost keeps its member"
        await machine.host.abandon("a", EndRequest(at=1, reason="Abandoned", message="gone"))
        await machine.gone(member)
