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


async def test_older_generation_of_an_offer_changes_nothing(machine):
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


@pytest.mark.parametrize("version", [1, 99])
def test_ledger_of_another_version_is_refused_unchanged(tmp_path, version):
    path = tmp_path / "ledger.db"
    SqliteLedger(path).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=f"has version {version}"):
        SqliteLedger(path)
    assert path.read_bytes() == before
