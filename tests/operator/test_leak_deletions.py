"""Deletions by leak checks in a cluster: plans, refusals, and the record of each deletion."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.kube.fake import Call, Fault, Harm
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.leaks import (
    BOX,
    CHECKS,
    PLUGIN,
    check,
    item,
    leak_status,
    leak_world,
    leave_orphan,
    living,
    next_sweep,
    request,
    sweeps,
    verdicts,
)
from tests.operator.rig.world import API, HOME, World, live

from dayfly.operator.leaks.check_store import CheckRecord, Sweep
from dayfly.operator.leaks.record_changes import KEPT_DELETIONS, abort_sweep, begin_deletion, end_deletion
from dayfly.plan.leaks.sweep import LeakState
from dayfly.spec.identity import resource_id
from dayfly.spec.leak_report import LeakFinding

RUNS = "/apis/dayfly.dev/v1alpha1/runs"


async def orphans(world: World, count: int) -> list[str]:
    return [await leave_orphan(world, f"box{number}") for number in range(count)]


def deletions(world: World) -> list[Object]:
    return leak_status(world)["deletions"]


def change(world: World, **spec: Any) -> None:
    world.ask("PATCH", f"{CHECKS}/things", {"spec": spec}, "application/merge-patch+json")


def publish_again(world: World) -> None:
    """Delete the plugin, and create it with other delete steps under the same version."""
    world.ask("DELETE", f"/apis/{API}/resourceplugins/pg.1.0.0")
    world.plugin("pg@1.0.0", {**PLUGIN, "delete": [{"name": "drop", "script": "#!/bin/sh\n# another script\n"}]})


class TestDelete:
    def test_check_deletes_an_orphan_with_its_recorded_version(self):
        async def story(world: World) -> None:
            world.start()
            held = await living(world)
            world.account.protected.add(held)
            id_ = await leave_orphan(world)
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 2)
            world.account.play()
            assert set(world.account.items) == {item(held)}
            assert leak_status(world)["deleted"] == [id_]
            await world.until(lambda: ("Normal", "LeaksDeleted") in world.events(), "the Event")
            await next_sweep(world)
            assert (verdicts(world), leak_status(world)["deleted"]) == ({}, [])
            assert world.cloud.starts("pg/drop") == 1

        live(leak_world, story)

    def test_failed_deletion_is_reported_and_tried_by_the_next_sweep(self):
        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 2)
            [found] = leak_status(world)["findings"]
            assert "its deletion has failed" in found["reason"]
            world.kubelet.scripts["pg/drop"].fails = 0
            await next_sweep(world)
            assert leak_status(world)["deleted"] == [id_]

        live(lambda: leak_world(pg_drop=Script(fails=99)), story)

    def test_sweep_with_too_many_orphans_waits_for_a_plan(self):
        async def story(world: World) -> None:
            world.start()
            await orphans(world, 3)
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 2)
            status = leak_status(world)
            assert (len(status["deleted"]), status["left"]) == (1, 2)
            await next_sweep(world)
            status = leak_status(world)
            assert (status["deleted"], status["left"], len(verdicts(world))) == ([], 2, 2)
            request(world, f"apply {status['plan']} ann")
            await next_sweep(world)
            status = leak_status(world)
            assert (len(status["deleted"]), status["left"], status["applied"]) == (2, 0, "done")
            world.account.play()
            assert not world.account.items

        live(leak_world, story)

    def test_plan_is_refused_if_the_orphans_have_changed(self):
        async def story(world: World) -> None:
            world.start()
            await orphans(world, 2)
            await world.rest(120)
            check(world)
            await next_sweep(world, 2)
            plan = leak_status(world)["plan"]
            world.account.items.popitem()
            request(world, f"apply {plan} ann")
            await next_sweep(world)
            status = leak_status(world)
            assert status["applied"].startswith("nothing was deleted")
            assert (status["appliedPlan"], status["deleted"]) == (plan, [])
            assert not world.cloud.starts("pg/drop")

        live(leak_world, story)

    def test_plan_is_refused_if_the_delete_steps_have_changed(self):
        """The plugin was deleted and created again under its version, so neither the items nor their plugin differ."""

        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            await world.rest(120)
            check(world)
            await next_sweep(world, 2)
            plan = leak_status(world)["plan"]
            publish_again(world)
            request(world, f"apply {plan} ann")
            await next_sweep(world)
            status = leak_status(world)
            assert "the delete steps have changed" in status["applied"]
            assert item(id_) in world.account.items
            assert not world.cloud.starts("pg/drop")
            assert status["plan"] not in ("", plan)

        live(leak_world, story)

    def test_steps_changed_during_a_sweep_delete_nothing(self):
        async def story(world: World) -> None:
            world.start()
            await orphans(world, 2)
            await world.rest(120)
            check(world)
            await next_sweep(world, 2)
            request(world, f"apply {leak_status(world)['plan']} ann")
            await world.until(lambda: world.cloud.starts("pg/drop"), "the first deletion")
            publish_again(world)
            await next_sweep(world)
            status = leak_status(world)
            assert len(status["deleted"]) == world.cloud.starts("pg/drop") == 1
            [left] = status["findings"]
            assert "the delete steps of pg@1.0.0 have changed since the list" in left["reason"]

        live(leak_world, story)

    def test_request_is_carried_out_once(self):
        async def story(world: World) -> None:
            world.start()
            check(world, every="24h")
            await next_sweep(world)
            request(world, "sweep ann 1")
            await next_sweep(world)
            await world.rest(3600)
            assert sweeps(world) == 2

        live(leak_world, story)

    def test_change_of_the_check_stops_a_deletion(self):
        async def story(world: World) -> None:
            world.start()
            await orphans(world, 1)
            await world.rest(120)
            check(world, action="delete", every="24h")
            await next_sweep(world)
            await world.rest(120)
            request(world, "sweep ann")
            await world.until(lambda: world.pods("pg/look"), "the list")
            change(world, action="report")
            await next_sweep(world)
            await world.rest(600)
            assert not world.cloud.starts("pg/drop")
            assert len(verdicts(world)) == 1

        live(leak_world, story)

    def test_resource_of_two_checks_is_deleted_by_one_of_them(self):
        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            await world.rest(120)
            names = ("one", "two")
            for name in names:
                check(world, name, action="delete")
            await world.until(lambda: all(sweeps(world, name) == 2 for name in names), "both sweeps")
            assert sorted(leak_status(world, name)["deleted"] for name in names) == [[], [id_]]
            await next_sweep(world, 1, "one")
            assert world.cloud.starts("pg/drop") == 1

        live(lambda: leak_world(pg_drop=Script(runs=20.0)), story)

    def test_run_that_an_old_cache_lacks_stops_a_deletion(self):
        """A run is restored from a backup between the comparison of the list and the first step of the deletion."""

        async def story(world: World) -> None:
            world.start()
            uid = world.sandbox(BOX)
            await world.until(lambda: world.status().get("ready"), "ready")
            [backup] = world.cluster.objects("runs")
            id_ = resource_id(uid, "db").encode()
            world.account.forgets = True
            world.delete()
            await world.until(lambda: world.box() is None, "the end of the sandbox")
            world.account.play()
            await world.rest(120)
            restored: list[Object] = []

            def restore(_count: int, call: Call) -> None:
                request = call.request
                if (request.method, request.path) == ("POST", RUNS) and id_ in request.body and not restored:
                    world.processes[0].transport.view.delay = 600.0
                    meta = {"name": backup["metadata"]["name"]}
                    world.cloud.forgiven = True  # the backup contradicts the history of the run
                    restored.append(world.ask("POST", RUNS, {**backup, "metadata": meta}))

            world.hook = restore
            check(world, action="delete", every="1h")
            await world.until(lambda: restored, "the deletion", 4 * 3600)
            await world.rest(500)
            assert not world.cloud.starts("pg/drop")
            world.take_away(f"{RUNS}/{restored[0]['metadata']['name']}")

        live(leak_world, story)

    def test_status_shows_each_deletion_of_a_plan_during_its_sweep(self):
        async def story(world: World) -> None:
            world.start()
            ids = await orphans(world, 2)
            await world.rest(120)
            check(world)
            await next_sweep(world, 2)
            request(world, f"apply {leak_status(world)['plan']} ann")
            await world.until(lambda: leak_status(world)["deleted"], "the first deletion")
            status = leak_status(world)
            assert (status["sweeping"], len(status["deleted"])) == (True, 1)
            assert (status["number"], status["appliedNumber"], status["applied"]) == (2, 0, "")
            assert {each["id"] for each in status["findings"]} == set(ids) - set(status["deleted"])

        live(lambda: leak_world(pg_drop=Script(runs=300.0)), story)

    def test_record_of_another_publisher_is_foreign(self):
        """A server's plugin may have the name of another one in the cluster, and other delete steps."""

        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            [secret] = [
                each for each in world.cluster.objects("secrets") if each["type"] == "dayfly.dev/resource-records"
            ]
            _rewrite(world, secret)
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 3)
            [found] = leak_status(world)["findings"]
            assert (found["verdict"], found["plugin"]) == ("foreign", "acme/pg@1.0.0")
            assert item(id_) in world.account.items

        live(leak_world, story)


def _rewrite(world: World, secret: Object) -> None:
    """Replace the publisher in stored records."""
    raw = msgspec.convert(secret["data"]["records"], bytes)
    plugins, rows = msgspec.msgpack.decode(raw)
    changed = msgspec.to_builtins(msgspec.msgpack.encode(([("acme", plugin) for _, plugin in plugins], rows)))
    path = f"/api/v1/namespaces/{HOME}/secrets/{secret['metadata']['name']}"
    world.ask("PATCH", path, {"data": {"records": changed}}, "application/merge-patch+json")


class TestRecord:
    def test_deletion_by_a_check_is_recorded_as_done(self):
        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 2)
            [made] = deletions(world)
            assert (made["id"], made["plugin"], made["done"]) == (id_, "pg@1.0.0", True)
            assert not made.get("plan")
            await next_sweep(world, 2)
            assert (leak_status(world)["deleted"], deletions(world)) == ([], [made])

        live(leak_world, story)

    def test_deletion_by_plan_has_the_digest_of_the_plan(self):
        async def story(world: World) -> None:
            world.start()
            ids = await orphans(world, 2)
            await world.rest(120)
            check(world)
            await next_sweep(world, 2)
            plan = leak_status(world)["plan"]
            request(world, f"apply {plan} ann")
            await next_sweep(world)
            made = deletions(world)
            assert {each["id"] for each in made} == set(ids)
            assert [(each["plan"], each["done"]) for each in made] == [(plan, True)] * 2
            assert made[0]["sequence"] < made[1]["sequence"]

        live(leak_world, story)

    def test_crash_after_the_birth_of_the_run_leaves_a_record(self):
        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            await world.rest(120)
            world.respawn = False
            crashes: list[Call] = []

            def crash(_count: int, call: Call) -> Fault | None:
                sent = call.request
                if crashes or (sent.method, sent.path) != ("POST", RUNS) or id_.encode() not in sent.body:
                    return None
                crashes.append(call)
                return Fault(Harm.CRASH_AFTER)

            world.hook = crash
            check(world, action="delete", every="24h")
            await next_sweep(world)
            await world.rest(120)
            request(world, "sweep ann")
            await world.until(lambda: crashes, "the crash")
            change(world, action="report")  # the next operator does not finish the deletion
            world.start()
            await next_sweep(world)
            [made] = deletions(world)
            assert (made["id"], made.get("done", False)) == (id_, False)

        live(leak_world, story)

    def test_aborted_sweep_reports_that_its_deletion_may_have_run(self):
        waiting = {"a": "pg@1.0.0", "b": "pg@1.0.0"}
        found = tuple(LeakFinding(verdict="orphan", id=each, name=each, deletable=True) for each in waiting)
        before = CheckRecord(state=LeakState(findings=found))
        record = begin_deletion(before, Sweep(began_at=1, generation=1, run=""), waiting, 5)
        assert record.sweep is not None
        after = abort_sweep(record, record.sweep)
        assert ["which may have run" in each.reason for each in after.state.findings] == [True, False]
        assert [(each.id, each.done) for each in after.deletions] == [("a", False)]

    def test_failed_deletion_is_recorded_and_not_done(self):
        async def story(world: World) -> None:
            world.start()
            await leave_orphan(world)
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 3)
            made = deletions(world)
            assert [each.get("done", False) for each in made] == [False, False]
            assert made[0]["id"] == made[1]["id"]

        live(lambda: leak_world(pg_drop=Script(fails=99)), story)

    def test_record_keeps_the_newest_deletions(self):
        waiting = {f"{number:026}": "pg@1.0.0" for number in range(KEPT_DELETIONS + 30)}
        record = begin_deletion(CheckRecord(), Sweep(began_at=1, generation=1, run="", plan="p"), waiting, 5)
        while record.sweep is not None:
            record = end_deletion(record, record.sweep, "", 5)
        assert [each.id for each in record.deletions] == list(waiting)[30:]
        assert all(each.done and each.plan == "p" for each in record.deletions)
        sequences = [each.sequence for each in record.deletions]
        assert sequences == sorted(set(sequences))

    def test_sequence_rises_if_the_clock_jumps_back(self):
        first, second = dict.fromkeys(["a"], "pg@1.0.0"), dict.fromkeys(["b"], "pg@1.0.0")
        sweep = Sweep(began_at=1, generation=1, run="")
        record = begin_deletion(CheckRecord(), sweep, first, 9_000)
        assert record.sweep is not None
        record = begin_deletion(end_deletion(record, record.sweep, "", 9_000), sweep, second, 10)
        assert [(each.sequence, each.at) for each in record.deletions] == [(9_000, 9_000), (9_001, 10)]
