"""Orders to the host in any order and any number have the same result; and the answers to them."""

import sqlite3

import pytest
from tests.embedded import documents as doc

from dayfly.embedded.ledger import LedgerError, SqliteLedger
from dayfly.link.wire import Verdict
from dayfly.spec.run import EndRequest

RAN = doc.resource("r", [doc.step("a", 'echo ran >> "$JOURNAL"')])
ASKED = EndRequest(at=1, reason="Deleted", message="asked", by="ann")


@pytest.mark.parametrize("end", ["stop", "abandon"])
async def test_an_end_that_overtakes_its_offer_stays_an_end(machine, end):
    if end == "stop":
        assert await machine.host.stop("u", ASKED, known=False) is Verdict.OVER
    else:
        assert await machine.host.abandon("u", ASKED) is Verdict.OVER
    for _ in range(2):
        assert await machine.host.offer(doc.offer(RAN)) is Verdict.OVER
    assert list(machine.host.living_runs()) == []
    assert list(machine.host.unacknowledged_ends()) == ["u"]
    report = machine.host.run_status("u").report
    assert (report.phase, (report.closed or report.abandon).by) == ("cleaned" if end == "stop" else "abandoned", "ann")
    assert machine.lines() == []


async def test_offer_of_a_begun_run_that_is_unknown_starts_nothing(machine):
    """The host does not know what the run left behind, so the run has neither ended nor starts again."""
    assert await machine.host.stop("u", ASKED, known=True) is Verdict.UNKNOWN
    assert await machine.host.offer(doc.offer(RAN, birth=False)) is Verdict.UNKNOWN
    assert machine.host.run_status("u") is None
    assert await machine.host.lease("u", 1) is Verdict.UNKNOWN
    assert list(machine.host.unacknowledged_ends()) == []


async def test_an_older_form_of_a_wish_changes_nothing(machine):
    await machine.baseline()
    await machine.host.offer(doc.offer(generation=2, expires_at=2_000_000_000_000))
    older = doc.offer(forks=[doc.fork()], generation=1, expires_at=1)
    assert await machine.host.offer(older) is Verdict.TAKEN
    await machine.ready()
    stored = machine.stored()
    assert (stored.forks, stored.intent.expires_at, stored.generation) == ((), 2_000_000_000_000, 2)
    assert await machine.host.offer(doc.offer(generation=3)) is Verdict.TAKEN
    stored = machine.stored()
    assert (stored.intent.expires_at, stored.generation) == (0, 3)
    await machine.finish()


async def test_a_ledger_of_the_first_form_is_carried_on(machine):
    """Ended runs are reported again in the next session, as the end cannot be acknowledged in the old one."""
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    await machine.host.offer(doc.offer(RAN, uid="over"))
    await machine.ready("over")
    await machine.finish("over")
    await machine.down()
    database = sqlite3.connect(machine.home / "ledger.db")
    database.executescript(
        "ALTER TABLE run DROP COLUMN generation; DROP INDEX ended_unacknowledged;"
        "ALTER TABLE ended DROP COLUMN acknowledged; DROP TABLE life; DROP TABLE secret; PRAGMA user_version = 1;"
    )
    database.close()
    await machine.up()
    await machine.ready()
    assert (list(machine.host.living_runs()), list(machine.host.unacknowledged_ends())) == (["u"], ["over"])
    assert await machine.host.offer(doc.offer(RAN, generation=5)) is Verdict.TAKEN
    assert machine.lines() == ["ran", "ran"]
    await machine.finish()


def test_a_ledger_of_a_later_form_is_left_alone(tmp_path):
    path = tmp_path / "ledger.db"
    SqliteLedger(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(LedgerError, match="has version 99"):
        SqliteLedger(path)
