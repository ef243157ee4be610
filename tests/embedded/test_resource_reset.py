"""The reset of a resource: it gets another pool member, and the former one is removed."""

import pytest
from tests.embedded import documents as doc
from tests.embedded import parent_documents
from tests.embedded.machine import until
from tests.embedded.pool_documents import pool, pooled, sandbox, template

from dayfly.link.wire import Verdict
from dayfly.spec.identity import member_id, resource_id
from dayfly.spec.run import EndRequest

pytestmark = pytest.mark.usefixtures("no_errors", "resting_pools")
MAKE = 'echo "+ make $DAYFLY_RESOURCE_ID" >> "$JOURNAL"; printf "%s" "$DAYFLY_RESOURCE_ID" > /tmp/url'
DROP = 'echo "+ drop $URL" >> "$JOURNAL"'


def database(make=MAKE):
    create = doc.step("make", make, outputs=[("url", "/tmp/url")])
    seed = doc.step("seed", "true", inputs=["url=make.url"])
    return template([create, seed], [doc.step("drop", DROP, inputs=["url=make.url"], backoff_ms=20)])


def box(name="a", member=None, create=()):
    return sandbox(name, pooled("db", member or database(), create))


def identity(member):
    return resource_id(member, "postgres")


def makes(machine):
    return [line for line in machine.lines() if line.startswith("+ make")]


def drops(machine):
    return [line for line in machine.lines() if line.startswith("+ drop")]


async def fill(machine, number=2):
    await machine.host.offer(pool("p", database(), number))
    await machine.ready("p")


async def reset(machine, uid="a", name=""):
    """Request another member for `db`, in place of the current one or the one with this name."""
    name = name or machine.stored(member(machine, uid)).run.target.name
    return await machine.host.reset(uid, "db", name, "ann")


def member(machine, uid="a"):
    run = machine.stored(uid).run
    refs = {run.unit(name).ref for name in ("db/make", "db/seed")}
    assert len(refs) == 1
    return refs.pop()


async def replaced(machine, former, uid="a"):
    """Wait until the sandbox is ready with another member; return that member."""
    await until(lambda: member(machine, uid) != former)
    other = member(machine, uid)
    await until(lambda: machine.values(uid) == {"db/make.url": identity(other).encode()})
    await machine.ready(uid)
    return other


async def test_ready_member_replaces_the_former_one_in_one_commit(machine):
    await fill(machine)
    await machine.host.offer(box())
    await machine.ready("a")
    before = machine.stored("a").run
    former = member(machine)
    assert await reset(machine) is Verdict.TAKEN
    other = await replaced(machine, former)
    run = machine.stored("a").run
    assert run.seq == before.seq + 1
    assert [run.unit(name).attempt for name in ("db/make", "db/seed")] == [2, 2]
    assert machine.values("a") == {"db/make.url": identity(other).encode()}
    await machine.gone(former)
    assert machine.lines().count(f"+ drop {identity(former)}") == 1
    assert [each.key for each in machine.stored(other).run.holders] == [("a", "db")]
    await machine.finish("a")
    assert machine.host.has_ended(other)
    assert machine.lines().count(f"+ drop {identity(other)}") == 1


async def test_member_is_created_if_none_is_ready(machine):
    await machine.host.offer(box())
    await machine.ready("a")
    former = member(machine)
    await reset(machine)
    other = await replaced(machine, former)
    assert former == member_id("a", "db")
    await machine.gone(former)
    await reset(machine)
    third = await replaced(machine, other)
    assert machine.values("a") == {"db/make.url": identity(third).encode()}
    await machine.finish("a")
    assert makes(machine) == [f"+ make {identity(each)}" for each in (former, other, third)]
    assert sorted(drops(machine)) == sorted(f"+ drop {identity(each)}" for each in (former, other, third))


async def test_new_member_is_never_the_parent_of_the_former_one(machine):
    """The former member has created its parent for a resource of the same name."""
    documents = parent_documents.member(parent_documents.server())
    await machine.host.offer(sandbox("a", pooled("db", documents)))
    await machine.ready("a")
    former = machine.stored("a").run.unit("db/clone").ref
    parent = machine.stored(former).run.unit("db/parent.start").ref
    await machine.host.reset("a", "db", machine.stored(former).run.target.name, "ann")
    await until(lambda: machine.stored("a").run.unit("db/clone").ref != former)
    other = machine.stored("a").run.unit("db/clone").ref
    assert machine.stored(other).run.is_member
    await machine.ready("a")
    await machine.gone(former)
    assert [each.run for each in machine.stored(parent).run.holders] == [other]
    await machine.finish("a")


async def test_reset_before_the_resource_is_ready_takes_effect_later(machine):
    """No error is logged, although the reset begins with the end of the last step."""
    await machine.host.offer(box(member=database("sleep 0.5; " + MAKE)))
    await until(lambda: machine.stored("a") and machine.stored("a").run.unit("db/make").ref)
    former = machine.stored("a").run.unit("db/make").ref
    assert await reset(machine, name=machine.stored(former).run.target.name) is Verdict.TAKEN
    await machine.gone(former)
    await machine.ready("a")
    other = member(machine)
    assert other != former
    await machine.finish("a")
    assert machine.host.has_ended(other)


async def test_repeated_reset_of_one_member_replaces_it_once(machine):
    await machine.host.offer(box())
    await machine.ready("a")
    former = member(machine)
    name = machine.stored(former).run.target.name
    await reset(machine)
    other = await replaced(machine, former)
    assert await reset(machine, name=name) is Verdict.TAKEN
    await machine.finish("a")
    assert await reset(machine, name=name) is Verdict.OVER
    assert makes(machine) == [f"+ make {identity(each)}" for each in (former, other)]


async def test_retry_of_the_steps_of_a_member_does_not_replace_it(machine):
    await machine.host.offer(box())
    await machine.ready("a")
    former = member(machine)
    await machine.host.retry("a", {"db/make": 1, "db/seed": 1}, "ann")
    await machine.finish("a")
    assert makes(machine) == [f"+ make {identity(former)}"]


@pytest.mark.parametrize("reader", ["step", "hook", "resource"])
async def test_member_whose_outputs_are_read_is_not_replaced(machine, reader):
    grant = [doc.step("grant", "true", inputs=["url=make.url"])] if reader == "step" else []
    offer = sandbox("a", pooled("db", database(), grant))
    if reader == "resource":
        other = doc.resource("copy", [doc.step("copy", "true", inputs=["url=db:make.url"])])
        offer = sandbox("a", pooled("db", database()), other)
    if reader == "hook":
        hook = doc.step("notify", "true", inputs=["url=db:make.url"])
        offer = sandbox("a", pooled("db", database()), doc.hooks(pre_start=(hook,)))
    await machine.host.offer(offer)
    await machine.ready("a")
    former = member(machine)
    await reset(machine)
    await machine.finish("a")
    assert makes(machine) == [f"+ make {identity(former)}"]


async def test_sandbox_that_ends_during_a_replacement_leaves_nothing(machine):
    await fill(machine)
    await machine.host.offer(box())
    await machine.ready("a")
    former = member(machine)
    await reset(machine)
    await machine.host.stop("a", EndRequest(at=1, reason="Deleted"), known=True)
    await machine.gone("a")
    await machine.gone(former)
    assert len(drops(machine)) == len(set(drops(machine)))
