"""The record of deletions by leak checks: each has an entry before its first step, and no more than a limit is kept."""

from __future__ import annotations

import contextlib
import shutil

from tests.embedded.clock import Clock
from tests.embedded.leak_cloud import SWEEP, Cloud
from tests.embedded.machine import Machine, until
from tests.embedded.test_leaks import abandoned, checked, clock, cloud, state, swept

from dayfly.embedded import leak_tables
from dayfly.embedded.ledger import SqliteLedger
from dayfly.lib.clock import now_ms
from dayfly.link import wire
from dayfly.spec.leak_report import LeakDeletion

__all__ = ["clock", "cloud"]
GRACE_MS = 1_000


def deletion(id_: str, at: int = 1) -> LeakDeletion:
    return LeakDeletion(sequence=0, id=id_, plugin="item@1.0.0", at=at)


async def test_deletion_by_the_check_is_recorded_as_done(machine: Machine, cloud: Cloud, clock: Clock):
    name = await abandoned(machine, cloud)
    cloud.age()
    await checked(machine, cloud, "delete")
    (made,) = (await swept(machine, clock)).deletions
    assert (made.id, made.plugin, made.plan, made.done) == (name.removeprefix("item-"), "item@1.0.0", "", True)


async def test_deletion_by_a_plan_has_its_digest(machine: Machine, cloud: Cloud, clock: Clock):
    await abandoned(machine, cloud)
    cloud.age()
    await checked(machine, cloud)
    plan = (await swept(machine, clock)).plan
    report = await swept(machine, clock, wire.SweepLeaks(uid=SWEEP.uid, name=SWEEP.name, plan=plan))
    assert [(each.plan, each.done) for each in report.deletions] == [(plan, True)]


async def test_damaged_check_is_reported_until_it_is_applied_again(machine: Machine, cloud: Cloud, clock: Clock):
    await abandoned(machine, cloud)
    cloud.age()
    await checked(machine, cloud, "delete")
    made = (await swept(machine, clock)).deletions
    await machine.down()
    with machine.database() as db:
        db.execute("UPDATE leak_check SET definition = x'00'")
    await machine.up()
    report = state(machine)
    assert (report.name, report.deletions) == (SWEEP.name, made)
    assert "cannot be read" in report.error
    assert "apply it again" in report.error
    await machine.host.leak_checks.execute(cloud.check("report"))
    assert (state(machine).error, state(machine).deletions) == ("", made)


async def test_deletion_is_recorded_if_the_host_stops_during_its_steps(machine: Machine, cloud: Cloud):
    name = await abandoned(machine, cloud)
    cloud.age()
    cloud.fault("stuck")
    await checked(machine, cloud, "delete")
    await until(lambda: now_ms() - state(machine).listed_at > GRACE_MS)
    await machine.host.leak_checks.execute(SWEEP)
    await until(lambda: state(machine).deletions)
    await machine.down()
    cloud.heal("stuck")
    await machine.up()
    (made,) = state(machine).deletions
    assert (made.id, made.done) == (name.removeprefix("item-"), False)


def test_only_the_latest_deletions_of_a_check_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(leak_tables, "KEPT_DELETIONS", 3)
    leaks = SqliteLedger(tmp_path / "ledger.db").leaks
    leaks.begin_deletion("other", deletion("z"))
    for id_ in "abcda":
        leaks.begin_deletion("items", deletion(id_))
    leaks.end_deletion("items", "a")
    assert [(each.id, each.done) for each in leaks.deletions("items")] == [("c", False), ("d", False), ("a", True)]
    assert [each.sequence for each in leaks.deletions("items")] == [4, 5, 6]
    assert [each.id for each in leaks.deletions("other")] == ["z"]


def test_restored_ledger_assigns_no_sequence_again(tmp_path):
    def begin(name: str, *deletions: LeakDeletion) -> list[int]:
        with contextlib.closing(SqliteLedger(tmp_path / name)) as ledger:
            for each in deletions:
                with ledger.transaction("a deletion"):
                    ledger.leaks.begin_deletion("items", each)
            return [each.sequence for each in ledger.leaks.deletions("items")]

    begin("ledger.db", deletion("a", at=1_000))
    shutil.copy(tmp_path / "ledger.db", tmp_path / "backup.db")
    lost = begin("ledger.db", *(deletion(id_, at=2_000) for id_ in "bcd"))
    assert lost == [1_000, 2_000, 2_001, 2_002]
    restored = begin("backup.db", deletion("e", at=3_000), deletion("f", at=500))
    assert restored == [1_000, 3_000, 3_001], "they rise also if the clock is set back"
