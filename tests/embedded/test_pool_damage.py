"""Damaged and lost records of holders, members and pools, and a full disk: nothing is lost, and waits name the remedy."""

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.embedded.pool_documents import pool, pooled, sandbox, template
from tests.embedded.test_full_disk import disk, filled
from tests.embedded.test_full_disk import machine as small_machine
from tests.processes import processes

from dayfly.lib.clock import now_ms
from dayfly.spec.host_errors import HostUnavailableError
from dayfly.spec.identity import member_id
from dayfly.spec.run import EndRequest

__all__ = ["disk", "small_machine"]

pytestmark = pytest.mark.usefixtures("resting_pools")
STOP = EndRequest(at=1, reason="Deleted", message="asked")
DAMAGE = "UPDATE run SET ledger = CAST('{' AS BLOB) WHERE uid = ?"
DOCUMENTS = template(
    [doc.step("make", 'echo "+ make" >> "$JOURNAL"')], [doc.step("drop", 'echo "+ drop" >> "$JOURNAL"', backoff_ms=20)]
)
MEMBER = member_id("p", "1")


async def held(machine):
    """Create a pool whose only member is used by the sandbox `a`."""
    await machine.host.offer(pool("p", DOCUMENTS))
    await machine.ready("p")
    await machine.host.offer(sandbox("a", pooled("db", DOCUMENTS)))
    await machine.ready("a")


async def changed(machine, query, *values):
    """Stop the server, change its ledger, and start it again."""
    await machine.down()
    with machine.database() as db:
        db.execute(query, values)
    await machine.up()


def ledger_of(machine, uid):
    with machine.database() as db:
        return db.execute("SELECT ledger FROM run WHERE uid = ?", (uid,)).fetchone()[0]


async def test_holder_with_a_damaged_record_keeps_its_member(machine):
    await held(machine)
    whole = ledger_of(machine, "a")
    await changed(machine, DAMAGE, "a")
    await machine.host.stop("p", STOP)
    await machine.gone("p")
    assert machine.stored(MEMBER).run.holders
    await changed(machine, "UPDATE run SET ledger = ? WHERE uid = 'a'", whole)
    await machine.finish("a")
    assert machine.host.has_ended(MEMBER)


async def test_release_waits_for_a_member_with_a_damaged_record(machine):
    await held(machine)
    whole = ledger_of(machine, MEMBER)
    await changed(machine, DAMAGE, MEMBER)
    assert machine.report("a").ready
    await machine.delete("a")
    assert MEMBER in await machine.said("db/release", "Blocked", "a")
    await changed(machine, "UPDATE run SET ledger = ? WHERE uid = ?", whole, MEMBER)
    await machine.gone("a")
    assert machine.host.has_ended(MEMBER)


async def test_abandoned_holder_stays_until_its_member_can_be_read(machine):
    await held(machine)
    whole = ledger_of(machine, MEMBER)
    await changed(machine, DAMAGE, MEMBER)
    await machine.host.abandon("a", STOP)
    await until(lambda: machine.report("a").phase == "abandoned", lambda: machine.report("a"))
    assert not machine.host.has_ended("a"), "its member would be held by a run that is gone"
    await changed(machine, "UPDATE run SET ledger = ? WHERE uid = ?", whole, MEMBER)
    await machine.gone("a")
    await machine.gone(MEMBER)


async def test_lost_member_blocks_the_release_until_abandon(machine):
    await held(machine)
    await changed(machine, "DELETE FROM run WHERE uid = ?", MEMBER)
    assert machine.report("a").ready
    await machine.delete("a")
    said = await machine.said("db/release", "LedgerLost", "a")
    assert f"pool member {MEMBER}" in said
    assert "dayfly abandon a --reason" in said
    await machine.host.abandon("a", STOP)
    await machine.gone("a")


async def test_member_lost_during_a_miss_blocks_its_holder(machine):
    script = (
        'echo "+ make" >> "$JOURNAL"; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done; echo "- make" >> "$JOURNAL"'
    )
    make = doc.step("make", script)
    await machine.host.offer(sandbox("a", pooled("db", template([make], [doc.step("drop")]))))
    await machine.wrote("+ make")
    await changed(machine, "DELETE FROM run WHERE uid = ?", member_id("a", "db"))
    await machine.said("db/make", "LedgerLost", "a")
    await machine.host.abandon("a", STOP)
    await machine.gone("a")
    machine.journal.with_name("journal.go").touch()
    await machine.wrote("- make")
    await until(lambda: not processes(str(machine.journal)))


async def test_unused_members_of_a_lost_pool_are_removed(machine):
    await machine.host.offer(pool("p", DOCUMENTS))
    await machine.ready("p")
    await changed(machine, "DELETE FROM pool")
    await machine.gone(MEMBER)
    assert machine.lines() == ["+ make", "+ drop"]


async def test_pool_with_a_damaged_record_closes_no_member(machine):
    await held(machine)
    await machine.host.offer(pool("q", template([doc.step("make", "true")])))
    await changed(machine, "UPDATE pool SET ledger = CAST('{' AS BLOB) WHERE uid = 'p'")
    with pytest.raises(HostUnavailableError, match="table `pool`"):
        machine.report("p")
    await machine.ready("q")
    assert set(machine.host.living_runs()) == {"a", "p", "q"}
    await machine.finish("a")
    assert machine.host.has_ended(MEMBER)


async def test_pool_replaces_a_member_that_cannot_be_read(machine):
    await machine.host.offer(pool("p", DOCUMENTS))
    await machine.ready("p")
    await changed(machine, DAMAGE, MEMBER)
    await machine.ready("p")
    units = {unit.id: (unit.state, unit.reason) for unit in machine.report("p").units}
    assert units == {"p-2": ("succeeded", "AllDesiredWorkloadsReady"), "p-1": ("unknown", "LedgerLost")}
    await machine.host.stop("p", STOP)
    await machine.gone(member_id("p", "2"))
    assert not machine.host.has_ended("p"), "its first member may not be cleaned up"


async def test_record_of_an_ended_member_stays_while_its_holder_lives(machine):
    """Without that record, the member would count as lost."""
    await held(machine)
    holder = ledger_of(machine, "a")
    await changed(machine, DAMAGE, "a")
    await machine.host.abandon(MEMBER, STOP)
    await machine.down()
    with machine.database() as db:
        unheld = "CAST(json_remove(CAST(ledger AS TEXT), '$.holders') AS BLOB)"
        db.execute(f"UPDATE run SET ledger = {unheld} WHERE uid = ?", (MEMBER,))
    await machine.up()
    await machine.gone(MEMBER)
    with machine.database() as db:
        db.execute("UPDATE ended SET at = ?", (now_ms() - 30 * 24 * 3_600_000,))
    await machine.host.forget_old()
    await changed(machine, "UPDATE run SET ledger = ? WHERE uid = 'a'", holder)
    await machine.finish("a")
    assert "was abandoned" in machine.report("a").message


async def test_lost_member_keeps_its_pool_until_it_is_abandoned(machine):
    await machine.host.offer(pool("p", DOCUMENTS))
    await machine.ready("p")
    await changed(machine, "DELETE FROM run WHERE uid = ?", MEMBER)
    await machine.ready("p")
    await machine.host.stop("p", STOP)
    await machine.gone(member_id("p", "2"))
    assert machine.lines() == ["+ make", "+ make", "+ drop"]
    assert not machine.host.has_ended("p")
    await machine.host.abandon(MEMBER, STOP)
    await machine.gone("p")
    assert list(machine.host.unacknowledged_ends()) == ["p"]


@pytest.mark.parametrize("damaged", ["1", "2"])
async def test_abandoned_pool_keeps_only_its_damaged_member(machine, damaged):
    documents = template([doc.step("make", "true")], [doc.step("drop", "exit 1", backoff_ms=20)])
    await machine.host.offer(pool("p", documents, 2))
    await machine.ready("p")
    broken, other = member_id("p", damaged), member_id("p", str(3 - int(damaged)))
    whole = ledger_of(machine, broken)
    with machine.database() as db:
        db.execute(DAMAGE, (broken,))
    await machine.host.stop("p", STOP)
    await machine.state("postgres/drop", "retrying", other)
    await machine.host.abandon("p", STOP)
    await machine.gone(other)
    units = {unit.id: (unit.state, unit.reason) for unit in machine.report("p").units}
    assert units == {f"p-{damaged}": ("unknown", "LedgerLost")}
    assert not machine.host.has_ended("p")
    await changed(machine, "UPDATE run SET ledger = ? WHERE uid = ?", whole, broken)
    await machine.gone("p")
    assert machine.report(broken).phase == "abandoned"


@pytest.mark.root
async def test_holds_and_refill_continue_after_a_full_disk(small_machine, disk):
    machine = small_machine
    disk(machine.home, "4m")
    await machine.up()
    await machine.host.offer(pool("p", DOCUMENTS, 2))
    await machine.ready("p")
    await machine.host.offer(sandbox("a", pooled("db", DOCUMENTS)))
    await machine.ready("a")
    large = doc.resource("x", [doc.step("x", "y" * 300_000)])
    with filled(machine.home), pytest.raises(HostUnavailableError):
        await machine.host.offer(sandbox("b", pooled("db", DOCUMENTS), large))
    await machine.host.offer(sandbox("b", pooled("db", DOCUMENTS)))
    await machine.ready("b")
    await machine.ready("p")  # a member that ends while it is made may be dropped without having been made
    for name in ("a", "b"):
        await machine.finish(name)
    await machine.host.stop("p", STOP)
    await machine.gone("p")
    assert machine.lines().count("+ make") == machine.lines().count("+ drop")
