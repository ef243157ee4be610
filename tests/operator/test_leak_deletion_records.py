"""The record of each deletion by a leak check in a cluster, and its part that the status shows."""

from __future__ import annotations

from tests.kube.fake import Call, Fault, Harm
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.leaks import (
    apply_plan,
    change,
    leak_status,
    leak_world,
    listed_orphans,
    next_sweep,
    request,
)
from tests.operator.rig.world import API, World, live

from dayfly.operator.leaks.check_store import CheckRecord, Sweep
from dayfly.operator.leaks.record_changes import KEPT_DELETIONS, abort_sweep, begin_deletion, end_deletion
from dayfly.plan.leaks.sweep import LeakState
from dayfly.spec.leak_report import LeakFinding


def deletions(world: World) -> list[Object]:
    return leak_status(world)["deletions"]


def test_deletion_by_a_check_is_recorded_as_done():
    async def story(world: World) -> None:
        [id_] = await listed_orphans(world, action="delete")
        [made] = deletions(world)
        assert (made["id"], made["plugin"], made["done"]) == (id_, "pg@1.0.0", True)
        assert not made.get("plan")
        await next_sweep(world, 2)
        assert (leak_status(world)["deleted"], deletions(world)) == ([], [made])

    live(leak_world, story)


def test_deletion_by_plan_has_the_digest_of_the_plan():
    async def story(world: World) -> None:
        ids = await listed_orphans(world, 2)
        plan = await apply_plan(world)
        made = deletions(world)
        assert {each["id"] for each in made} == set(ids)
        assert [(each["plan"], each["done"]) for each in made] == [(plan, True)] * 2
        assert made[0]["sequence"] < made[1]["sequence"]

    live(leak_world, story)


def test_crash_after_the_birth_of_the_run_leaves_a_record():
    async def story(world: World) -> None:
        world.respawn = False
        [id_] = await listed_orphans(world, lists=1, action="delete", every="24h")
        await world.rest(120)
        crashes: list[Call] = []

        def crash(_count: int, call: Call) -> Fault | None:
            sent = call.request
            if crashes or (sent.method, sent.path) != ("POST", f"/apis/{API}/runs") or id_.encode() not in sent.body:
                return None
            crashes.append(call)
            return Fault(Harm.CRASH_AFTER)

        world.hook = crash
        request(world, "sweep ann")
        await world.until(lambda: crashes, "the crash")
        change(world, action="report")  # the next operator does not finish the deletion
        world.start()
        await next_sweep(world)
        [made] = deletions(world)
        assert (made["id"], made.get("done", False)) == (id_, False)

    live(leak_world, story)


def test_aborted_sweep_reports_that_its_deletion_may_have_run():
    waiting = {"a": "pg@1.0.0", "b": "pg@1.0.0"}
    found = tuple(LeakFinding(verdict="orphan", id=each, name=each, deletable=True) for each in waiting)
    before = CheckRecord(state=LeakState(findings=found))
    record = begin_deletion(before, Sweep(began_at=1, generation=1, run=""), waiting, 5)
    assert record.sweep is not None
    after = abort_sweep(record, record.sweep)
    assert ["which may have run" in each.reason for each in after.state.findings] == [True, False]
    assert [(each.id, each.done) for each in after.deletions] == [("a", False)]


def test_failed_deletion_is_recorded_and_not_done():
    async def story(world: World) -> None:
        await listed_orphans(world, action="delete")
        await next_sweep(world)
        made = deletions(world)
        assert [each.get("done", False) for each in made] == [False, False]
        assert made[0]["id"] == made[1]["id"]

    live(lambda: leak_world(pg_drop=Script(fails=99)), story)


def test_record_keeps_the_newest_deletions():
    waiting = {f"{number:026}": "pg@1.0.0" for number in range(KEPT_DELETIONS + 30)}
    record = begin_deletion(CheckRecord(), Sweep(began_at=1, generation=1, run="", plan="p"), waiting, 5)
    while record.sweep is not None:
        record = end_deletion(record, record.sweep, "", 5)
    assert [each.id for each in record.deletions] == list(waiting)[30:]
    assert all(each.done and each.plan == "p" for each in record.deletions)
    sequences = [each.sequence for each in record.deletions]
    assert sequences == sorted(set(sequences))


def test_sequence_rises_if_the_clock_jumps_back():
    first, second = dict.fromkeys(["a"], "pg@1.0.0"), dict.fromkeys(["b"], "pg@1.0.0")
    sweep = Sweep(began_at=1, generation=1, run="")
    record = begin_deletion(CheckRecord(), sweep, first, 9_000)
    assert record.sweep is not None
    record = begin_deletion(end_deletion(record, record.sweep, "", 9_000), sweep, second, 10)
    assert [(each.sequence, each.at) for each in record.deletions] == [(9_000, 9_000), (9_001, 10)]


def test_status_shows_the_newest_20_deletions():
    async def story(world: World) -> None:
        await listed_orphans(world, 23)
        await apply_plan(world)
        deleted = leak_status(world)["deleted"]
        assert len(deleted) == 23
        assert [each["id"] for each in deletions(world)] == deleted[-20:]

    live(leak_world, story)
