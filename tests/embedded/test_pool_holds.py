"""Holds of pool members: hit, miss, join of a member that is being created, release, and cancelled holds."""

from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.embedded.pool_documents import pooled, sandbox, template

from dayfly.spec.identity import member_id, resource_id

MAKE = 'echo "+ make $DAYFLY_RESOURCE_ID" >> "$JOURNAL"; printf db://1 > /tmp/url'


def database(make=MAKE, drop='echo "+ drop $URL" >> "$JOURNAL"'):
    create = doc.step("make", make, outputs=[("url", "/tmp/url")])
    seed = doc.step("seed", 'echo "+ seed $URL" >> "$JOURNAL"', inputs=["url=make.url"])
    return template([create, seed], [doc.step("drop", drop, inputs=["url=make.url"], backoff_ms=20)])


def grant(name="grant", word="grant"):
    return doc.step(name, f'echo "+ {word} $URL $DAYFLY_RESOURCE_ID" >> "$JOURNAL"', inputs=["url=make.url"])


async def test_miss_creates_a_member_and_release_removes_it(machine):
    revoke = grant("revoke", "revoke")
    await machine.host.offer(sandbox("a", pooled("db", database(), [grant()], [revoke])))
    await machine.ready("a")
    member = member_id("a", "db")
    identity = resource_id(member, "postgres")
    assert machine.lines() == [f"+ make {identity}", "+ seed db://1", f"+ grant db://1 {identity}"]
    assert machine.values("a") == {"db/make.url": b"db://1"}
    assert machine.stored(member).run.holders[0].key == ("a", "db")
    await machine.finish("a")
    assert machine.lines()[3:] == [f"+ revoke db://1 {identity}", "+ drop db://1"]
    assert machine.host.has_ended(member)
    await until(lambda: machine.stored(member) is None)
