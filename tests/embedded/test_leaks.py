"""Leak checks of the embedded host, with real steps in a fake cloud: verdicts, deletions, and what is never deleted."""

from __future__ import annotations

import gc
import json

import msgspec
import pytest
from tests.embedded.clock import Clock
from tests.embedded.leak_cloud import SWEEP, Cloud
from tests.embedded.machine import Machine, until

from dayfly.embedded.leak_tables import LeakDefinition
from dayfly.embedded.ledger import SqliteLedger
from dayfly.link.wire import DropLeakCheck, Verdict
from dayfly.plan.leaks.sweep import LeakState
from dayfly.spec.leak_report import LeakReport
from dayfly.spec.resource_token import resource_token
from dayfly.spec.run import EndRequest

pytestmark = pytest.mark.usefixtures("no_errors")
GIVE_UP = EndRequest(at=1, reason="Abandoned", message="asked", by="ann")
OTHER = "0123456789abcdef0123456789"


@pytest.fixture
def cloud(tmp_path):
    return Cloud(tmp_path / "cloud")


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def state(machine: Machine) -> LeakReport:
    (report,) = machine.host.leak_checks.reports()
    return report


async def swept(machine: Machine, clock: Clock, order=SWEEP) -> LeakReport:
    """Sweep more than a second after the last list, and return the result."""
    await until(lambda: not state(machine).is_sweeping)
    number = state(machine).number
    clock.advance(1.1)
    assert await machine.host.leak_checks.execute(order) is Verdict.TAKEN
    await until(lambda: state(machine).number > number, lambda: state(machine))
    return state(machine)


async def checked(machine: Machine, cloud: Cloud, action: str = "report", **options) -> LeakReport:
    """Create the check and wait for its first sweep."""
    assert await machine.host.leak_checks.execute(cloud.check(action, **options)) is Verdict.TAKEN
    await until(lambda: state(machine).number, lambda: state(machine))
    return state(machine)


async def abandoned(machine: Machine, cloud: Cloud, uid: str = "u", **options) -> str:
    """Create an item whose run ends without its deletion; return its name."""
    before = cloud.names()
    await machine.host.offer(cloud.offer(uid, **options))
    await machine.ready(uid)
    (name,) = cloud.names() - before
    await machine.host.abandon(uid, GIVE_UP)
    await machine.gone(uid)
    return name


def verdicts(report: LeakReport) -> dict[str, str]:
    return {each.name: each.verdict for each in report.findings}


async def test_item_of_abandoned_run_is_orphan_and_of_open_run_held(machine, cloud, clock):
    await machine.host.offer(cloud.offer("held"))
    await machine.ready("held")
    name = await abandoned(machine, cloud)
    cloud.age()
    first = await checked(machine, cloud)
    assert (first.error, first.counts) == ("", {"held": 1, "unknown": 1})
    second = await swept(machine, clock)
    assert second.counts == {"held": 1, "orphan": 1}
    assert verdicts(second) == {name: "orphan"}
    assert second.findings[0].plugin == "item@1.0.0"
    assert second.plan
    assert (cloud.journal(), len(cloud.names())) == ([], 2), "a check that only reports deletes nothing"
    await machine.finish("held")


async def test_check_deletes_orphan_with_steps_of_its_plugin(machine, cloud, clock):
    await machine.host.offer(cloud.offer("held"))
    await machine.ready("held")
    kept = cloud.names()
    name = await abandoned(machine, cloud)
    cloud.age()
    await checked(machine, cloud, "delete")
    report = await swept(machine, clock)
    identity = name.removeprefix("item-")
    assert (report.deleted, report.counts) == ((identity,), {"held": 1})
    assert cloud.journal() == [f"drop {identity} none"]
    assert cloud.names() == kept
    await machine.finish("held")
    assert (await swept(machine, clock)).counts == {}


async def test_item_of_inline_steps_is_held_and_never_deleted(machine, cloud, clock):
    """Its steps get a valid token, but no plugin is known whose delete steps fit."""
    await machine.host.offer(cloud.offer("held", inline=True))
    await machine.ready("held")
    cloud.age()
    await checked(machine, cloud, "delete")
    assert (await swept(machine, clock)).counts == {"held": 1}
    name = await abandoned(machine, cloud, inline=True)
    cloud.age()
    await swept(machine, clock)
    report = await swept(machine, clock)
    assert (report.counts, verdicts(report), report.plan) == ({"held": 1, "orphan": 1}, {name: "orphan"}, "")
    assert "by hand" in report.findings[0].reason
    assert cloud.journal() == []
    await machine.finish("held")


async def test_orphan_needs_delete_steps_of_its_version(machine, cloud, clock):
    name = await abandoned(machine, cloud, version="2.0.0")
    cloud.age()
    await checked(machine, cloud, "delete")
    report = await swept(machine, clock)
    assert "no delete steps of item@2.0.0" in report.findings[0].reason
    assert cloud.names() == {name}
    await machine.host.leak_checks.execute(cloud.check("delete", versions=("1.0.0", "2.0.0")))
    assert (await swept(machine, clock)).counts == {}
    assert cloud.names() == set()


async def test_resource_that_two_lists_lack_is_missing(machine, cloud, clock):
    await machine.host.offer(cloud.offer("u"))
    await machine.ready()
    await checked(machine, cloud)
    (name,) = cloud.names()
    cloud.heal(name)
    assert (await swept(machine, clock)).counts == {}, "one list proves nothing"
    report = await swept(machine, clock)
    assert verdicts(report) == {"u/it": "missing"}
    await machine.finish()


@pytest.mark.parametrize(
    ("fault", "text", "error"),
    [
        ("fail", "", "AccessDenied"),
        ("half", "", "incomplete"),
        ("list", "not a list", "it is empty"),
        ("list", '{"name": "item-1"}\n{"complete": true, "count": 2}', "count 2"),
        ("list", '{"complete": false, "count": 0}', "complete: false"),
    ],
)
async def test_bad_list_changes_no_verdict_and_deletes_nothing(machine, cloud, clock, fault, text, error):
    name = await abandoned(machine, cloud)
    cloud.age()
    before = await checked(machine, cloud, "delete")
    cloud.fault(fault, text)
    for _ in range(2):
        report = await swept(machine, clock)
        assert error in report.error
        assert (report.findings, report.listed_at) == (before.findings, before.listed_at)
    assert cloud.names() == {name}
    cloud.heal(fault)
    assert (await swept(machine, clock)).deleted


async def test_warnings_on_standard_error_do_not_spoil_the_list(machine, cloud):
    await abandoned(machine, cloud)
    cloud.fault("warn")
    report = await checked(machine, cloud)
    assert (report.error, report.counts) == ("", {"unknown": 1})


async def test_cached_list_with_deleted_items_deletes_no_new_item(machine, cloud, clock):
    name = await abandoned(machine, cloud)
    cloud.age()
    row = (cloud.folder / name).read_text()
    await checked(machine, cloud, "delete")
    cloud.fault("list", f'{row}\n{{"complete": true, "count": 1}}')
    for _ in range(2):
        assert (await swept(machine, clock)).deleted == (name.removeprefix("item-"),)
    await machine.host.offer(cloud.offer("new"))
    await machine.ready("new")
    await swept(machine, clock)
    assert len(cloud.names()) == 1, "an item that is not in the list yet stays"
    await machine.finish("new")


async def test_items_of_others_are_never_deleted(machine, cloud, clock):
    """Names that differ by a character, other keys, copies of tags, and items without any tag."""
    held, orphan = "held", await abandoned(machine, cloud)
    await machine.host.offer(cloud.offer(held))
    await machine.ready(held)
    (living,) = cloud.names() - {orphan}
    identity = living.removeprefix("item-")
    cloud.copy(living, "item-snapshot")  # our token and ID, another name
    similar = identity[:-1] + ("0" if identity[-1] != "0" else "1")
    cloud.copy(living, f"item-{similar}", id=similar)  # our token for another ID
    cloud.copy(living, f"item-{identity}0", id=f"{identity}0")
    cloud.add(f"item-{OTHER}", id=OTHER, created=100_000, token=resource_token(b"x" * 32, "host", OTHER))
    cloud.add("item-plain", created=100_000)
    cloud.add("item-named", id="f" * 26, created=100_000)
    foreign = cloud.names() - {orphan}
    cloud.age()
    await checked(machine, cloud, "delete")
    for _ in range(3):
        report = await swept(machine, clock)
    assert cloud.names() == foreign
    assert {each.verdict for each in report.findings} == {"foreign"}
    await machine.finish(held)


async def test_copy_of_the_tags_of_an_orphan_protects_both(machine, cloud, clock):
    name = await abandoned(machine, cloud)
    cloud.copy(name, "item-restored")
    cloud.age()
    await checked(machine, cloud, "delete")
    report = await swept(machine, clock)
    assert verdicts(report) == {name: "orphan", "item-restored": "orphan"}
    assert not any(each.deletable for each in report.findings)
    assert cloud.names() == {name, "item-restored"}


async def test_orphan_without_record_is_found_by_token_and_stays(machine, cloud, clock):
    name = await abandoned(machine, cloud)
    cloud.age()
    with machine.database() as database:
        database.execute("DELETE FROM resource_record")
    await checked(machine, cloud, "delete")
    report = await swept(machine, clock)
    assert (verdicts(report), report.deleted, cloud.names()) == ({name: "orphan"}, (), {name})


async def test_report_of_many_items_shows_the_orphan(machine, cloud, clock):
    name = await abandoned(machine, cloud)
    cloud.age()
    rows = [json.dumps({"name": f"other-{number}"}) for number in range(1_000)]
    rows += [(cloud.folder / name).read_text(), json.dumps({"complete": True, "count": 1_001})]
    cloud.fault("list", "\n".join(rows))
    await checked(machine, cloud)
    report = await swept(machine, clock)
    assert (len(report.findings), report.findings[0].name, report.counts["foreign"]) == (1_000, name, 1_000)


async def test_second_home_on_the_same_account_sees_foreign_items(machine, cloud, clock, tmp_path, runner):
    await machine.host.offer(cloud.offer("u"))
    await machine.ready()
    cloud.age()
    (tmp_path / "other").mkdir()
    second = Machine(tmp_path / "other", runner)
    await second.up()
    try:
        await checked(second, cloud, "delete")
        report = await swept(second, clock)
        assert [each.verdict for each in report.findings] == ["foreign"]
        assert "another installation" in report.findings[0].reason
    finally:
        await second.end()
    assert len(cloud.names()) == 1
    await machine.finish()


async def test_young_orphan_waits_for_its_grace_period(machine, cloud, clock):
    await abandoned(machine, cloud)
    await checked(machine, cloud, "delete", grace="1h")
    report = await swept(machine, clock)
    assert [(each.verdict, each.reason) for each in report.findings] == [
        ("unknown", "it is not older than the grace period")
    ]
    assert len(cloud.names()) == 1


async def test_item_from_the_future_is_no_orphan(machine, cloud, clock):
    """The clock of the account or of this machine is wrong."""
    await abandoned(machine, cloud)
    cloud.age(-86_400)
    await checked(machine, cloud, "delete")
    assert [each.verdict for each in (await swept(machine, clock)).findings] == ["unknown"]


async def test_check_that_is_changed_during_a_sweep_deletes_nothing(machine, cloud, clock):
    name = await abandoned(machine, cloud)
    cloud.age()
    number = (await checked(machine, cloud, "delete")).number
    clock.advance(1.1)
    cloud.fault("slow")
    assert await machine.host.leak_checks.execute(SWEEP) is Verdict.TAKEN
    await until(lambda: state(machine).is_sweeping)
    assert await machine.host.leak_checks.execute(cloud.check("report")) is Verdict.TAKEN
    cloud.heal("slow")
    await until(lambda: state(machine).number == number + 2, lambda: state(machine))
    assert verdicts(state(machine)) == {name: "orphan"}
    assert (cloud.names(), cloud.journal()) == ({name}, [])


async def test_result_of_a_sweep_is_not_stored_in_a_changed_check(tmp_path, cloud):
    def definition(plugin: str) -> LeakDefinition:
        order = cloud.check()
        return LeakDefinition(name="items", spec=order.spec, plugin=plugin, inventory=order.inventory)

    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.leaks.define(definition("item@1.0.0"))
    ledger.leaks.record(definition("item@1.0.0"), LeakState(number=1, swept_at=1))
    ledger.leaks.define(definition("item@2.0.0"))
    ledger.leaks.record(definition("item@1.0.0"), LeakState(number=2, swept_at=2))
    assert ledger.leaks.load("items") == (definition("item@2.0.0"), LeakState(number=2, swept_at=1))
    applied = LeakState(number=3, swept_at=3, applied="done", applied_plan="w", applied_number=3)
    ledger.leaks.record(definition("item@1.0.0"), applied)
    _, stored = ledger.leaks.load("items")
    assert (stored.swept_at, stored.applied_plan, stored.applied_number) == (1, "w", 3)
    assert "was changed" in stored.applied
    ledger.close()


async def test_clock_that_is_set_forward_makes_no_distant_lists(machine, cloud, clock):
    await abandoned(machine, cloud)
    cloud.age()
    await checked(machine, cloud, grace="1h")
    clock.jump(2 * 60)
    assert (await swept(machine, clock)).counts == {"unknown": 1}
    clock.advance(2 * 60)
    assert (await swept(machine, clock)).counts == {"orphan": 1}


async def test_plan_is_refused_if_the_orphans_have_changed(machine, cloud, clock):
    first = await abandoned(machine, cloud, "a")
    cloud.age()
    await checked(machine, cloud)
    digest = (await swept(machine, clock)).plan
    second = await abandoned(machine, cloud, "b")
    cloud.age()
    await swept(machine, clock)
    report = await swept(machine, clock, msgspec.structs.replace(SWEEP, plan=digest))
    assert "have changed" in report.applied
    assert cloud.names() == {first, second}
    report = await swept(machine, clock, msgspec.structs.replace(SWEEP, plan=report.plan))
    assert (report.applied, len(report.deleted)) == ("done", 2)
    assert cloud.names() == set()


async def test_plan_is_refused_if_the_delete_steps_have_changed(machine, cloud, clock):
    """The version was published again with other delete steps, so neither the items nor their plugin differ."""
    name = await abandoned(machine, cloud)
    cloud.age()
    await checked(machine, cloud)
    plan = (await swept(machine, clock)).plan
    [drop] = cloud.check().deletes.values()
    other = msgspec.structs.replace(drop, pre_start=(msgspec.structs.replace(drop.pre_start[0], name="erase"),))
    changed = msgspec.structs.replace(cloud.check(), deletes={"item@1.0.0": other})
    await swept(machine, clock, changed)
    report = await swept(machine, clock, msgspec.structs.replace(SWEEP, plan=plan))
    assert "the delete steps have changed" in report.applied
    assert (report.deleted, cloud.names(), cloud.journal()) == ((), {name}, [])
    assert report.plan not in ("", plan)


async def test_plan_brings_the_delete_steps_of_a_version(machine, cloud, clock):
    """The version was published after the check was applied. The check itself stays as it was applied."""
    await abandoned(machine, cloud, version="2.0.0")
    cloud.age()
    await checked(machine, cloud)
    digest = (await swept(machine, clock)).plan
    known = cloud.check(versions=("2.0.0",))
    order = msgspec.structs.replace(SWEEP, plan=digest, deletes=known.deletes, spec=cloud.check(grace="2s").spec)
    report = await swept(machine, clock, order)
    assert "no delete steps of item@2.0.0" in report.findings[0].reason, "they were made for another spec"
    report = await swept(machine, clock, msgspec.structs.replace(order, spec=known.spec))
    assert (report.applied, len(report.deleted), cloud.names()) == ("done", 1, set())
    result = (report.applied, report.applied_plan, report.applied_number)
    assert result == ("done", digest, report.number)
    report = await swept(machine, clock)
    assert (report.applied, report.applied_plan, report.applied_number) == result, "a later sweep has no plan"


async def test_orphan_that_no_delete_steps_can_delete_is_in_no_plan(machine, cloud, clock):
    """A plugin with a Kubernetes object or a Terraform state, for example: the server knows its version."""
    name = await abandoned(machine, cloud, version="2.0.0")
    cloud.age()
    order = msgspec.structs.replace(cloud.check("delete"), undeletable=("item@2.0.0",))
    await machine.host.leak_checks.execute(order)
    await swept(machine, clock)
    report = await swept(machine, clock)
    [orphan] = report.findings
    assert (orphan.verdict, orphan.deletable, report.plan, report.left) == ("orphan", False, "", 0)
    assert "delete it by hand" in orphan.reason
    assert (report.deletions, cloud.names()) == ((), {name})


async def test_plan_without_the_steps_of_a_version_deletes_nothing(machine, cloud, clock):
    names = {await abandoned(machine, cloud, f"v{each[0]}", version=each) for each in ("1.0.0", "2.0.0")}
    cloud.age()
    await checked(machine, cloud)
    digest = (await swept(machine, clock)).plan
    report = await swept(machine, clock, msgspec.structs.replace(SWEEP, plan=digest))
    assert "nothing was deleted: the check has no delete steps of item@2.0.0" in report.applied
    assert (report.deleted, report.deletions, cloud.names()) == ((), (), names)


async def test_sweep_leaves_many_orphans_until_a_plan_is_applied(machine, cloud, clock):
    for number in range(3):
        await abandoned(machine, cloud, f"u{number}")
    cloud.age()
    await checked(machine, cloud, "delete")
    report = await swept(machine, clock)
    assert (len(report.deleted), report.left, len(cloud.names())) == (1, 2, 2)
    report = await swept(machine, clock, cloud.check("delete"))
    assert (report.deleted, report.left, len(cloud.names())) == ((), 2, 2), "applying the check again is no decision"
    report = await swept(machine, clock, msgspec.structs.replace(SWEEP, plan="0" * 26))
    assert (report.deleted, report.left, len(cloud.names())) == ((), 2, 2), "the plan is not for this digest"
    report = await swept(machine, clock, msgspec.structs.replace(SWEEP, plan=report.plan))
    assert (report.applied, len(report.deleted), report.left, cloud.names()) == ("done", 2, 0, set())
    await abandoned(machine, cloud, "next")
    cloud.age()
    await swept(machine, clock)
    assert len((await swept(machine, clock)).deleted) == 1


async def test_check_waits_until_two_new_lists_have_no_orphan(machine, cloud, clock):
    names = {await abandoned(machine, cloud, f"u{number}") for number in range(2)}
    cloud.age()
    await checked(machine, cloud, "delete")
    assert (await swept(machine, clock)).left == 1
    report = await swept(machine, clock, cloud.check("delete", versions=("2.0.0", "1.0.0")))
    assert report.left == 1, "the changed check has no two lists yet"
    (name,) = cloud.names() & names
    cloud.heal(name)
    assert (await swept(machine, clock)).left == 0


async def test_failed_deletion_is_reported_and_repeated(machine, cloud, clock):
    name = await abandoned(machine, cloud)
    cloud.age()
    cloud.fault("stuck")
    order = cloud.check("delete")
    quick = {
        version: msgspec.structs.replace(
            document,
            pre_start=tuple(
                msgspec.structs.replace(unit, retry=msgspec.structs.replace(unit.retry, backoff_ms=10))
                for unit in document.pre_start
            ),
        )
        for version, document in order.deletes.items()
    }
    await machine.host.leak_checks.execute(msgspec.structs.replace(order, deletes=quick))
    await until(lambda: state(machine).number)
    report = await swept(machine, clock)
    assert "its deletion has failed" in report.findings[0].reason
    assert cloud.names() == {name}
    cloud.heal("stuck")
    assert (await swept(machine, clock)).deleted == (name.removeprefix("item-"),)


async def test_check_survives_a_restart_and_can_be_deleted(machine, cloud, clock):
    name = await abandoned(machine, cloud)
    cloud.age()
    await checked(machine, cloud, "delete")
    await machine.down()
    await machine.up()
    report = await swept(machine, clock)
    assert report.deleted == (name.removeprefix("item-"),), "the list before the restart counts"
    (deletion,) = report.deletions
    unknown = DropLeakCheck(uid=SWEEP.uid, name=SWEEP.name, after=deletion.sequence - 1)
    assert await machine.host.leak_checks.execute(unknown) is Verdict.CLOSED
    drop = DropLeakCheck(uid=SWEEP.uid, name=SWEEP.name, after=deletion.sequence)
    assert await machine.host.leak_checks.execute(drop) is Verdict.TAKEN
    assert machine.host.leak_checks.reports() == ()
    assert await machine.host.leak_checks.execute(drop) is Verdict.UNKNOWN
    assert await machine.host.leak_checks.execute(SWEEP) is Verdict.UNKNOWN


async def test_ended_runs_of_a_check_are_not_remembered(machine, cloud, clock):
    await checked(machine, cloud)
    await swept(machine, clock)
    ledger = SqliteLedger(machine.host.home / "ledger.db")
    try:
        ended = ledger.known_uids() - set(ledger.live_uids())
    finally:
        ledger.close()
    assert ended
    holders = [each for each in gc.get_objects() if isinstance(each, set | frozenset | dict) and each is not ended]
    assert not [each for each in holders if not ended.isdisjoint(each)]


async def test_runs_of_a_check_are_hidden_from_the_server(machine, cloud, clock):
    await abandoned(machine, cloud)
    await machine.host.acknowledge(tuple(machine.host.unacknowledged_ends()))
    cloud.age()
    await checked(machine, cloud, "delete")
    await swept(machine, clock)
    assert list(machine.host.living_runs()) == []
    assert list(machine.host.unacknowledged_ends()) == []
    await until(lambda: not machine.folders(), machine.folders)
