"""Holds of pool members: hit, miss, join of a member that is being created, release, and cancelled holds."""

import asyncio

from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.embedded.pool_documents import pool, pooled, sandbox, template

from dayfly.spec.identity import member_id, resource_id
from dayfly.spec.run import EndRequest

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
