"""Deletions by leak checks in a cluster: plans, refusals, and changes during a deletion."""

from __future__ import annotations

import zlib

import msgspec
from tests.kube.fake import Call
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.leaks import (
    BOX,
    PLUGIN,
    apply_plan,
    change,
    check,
    item,
    leak_status,
    leak_world,
    leave_orphan,
    listed_orphans,
    living,
    next_sweep,
    request,
    sweeps,
    verdicts,
)
from tests.operator.rig.world import API, HOME, World, live

from dayfly.spec.identity import resource_id

RUNS = f"/apis/{API}/runs"
SECRETS = f"/api/v1/namespaces/{HOME}/secrets"


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
            [id_] = await listed_orphans(world, action="delete")
            [found] = leak_status(world)["findings"]
            assert "its deletion has failed" in found["reason"]
            world.kubelet.scripts["pg/drop"].fails = 0
            await next_sweep(world)
            assert leak_status(world)["deleted"] == [id_]

        live(lambda: leak_world(pg_drop=Script(fails=99)), story)

    def test_sweep_with_too_many_orphans_waits_for_a_plan(self):
        async def story(world: World) -> None:
            await listed_orphans(world, 3, action="delete")
            status = leak_status(world)
            assert (len(status["deleted"]), status["left"]) == (1, 2)
            await next_sweep(world)
            status = leak_status(world)
            assert (status["deleted"], status["left"], len(verdicts(world))) == ([], 2, 2)
            await apply_plan(world)
            status = leak_status(world)
            assert (len(status["deleted"]), status["left"], status["applied"]) == (2, 0, "done")
            world.account.play()
            assert not world.account.items

        live(leak_world, story)

    def test_plan_is_refused_if_the_orphans_have_changed(self):
        async def story(world: World) -> None:
            await listed_orphans(world, 2)
            world.account.items.popitem()
            plan = await apply_plan(world)
            status = leak_status(world)
            assert status["applied"].startswith("nothing was deleted")
            assert (status["appliedPlan"], status["deleted"]) == (plan, [])
            assert not world.cloud.starts("pg/drop")

        live(leak_world, story)

    def test_plan_is_refused_if_the_delete_steps_have_changed(self):
        """The plugin was deleted and created again under its version, so neither the items nor their plugin differ."""

        async def story(world: World) -> None:
            [id_] = await listed_orphans(world)
            publish_again(world)
            plan = await apply_plan(world)
            status = leak_status(world)
            assert "the delete steps have changed" in status["applied"]
            assert item(id_) in world.account.items
            assert not world.cloud.starts("pg/drop")
            assert status["plan"] not in ("", plan)

        live(leak_world, story)

    def test_steps_changed_during_a_sweep_delete_nothing(self):
        async def story(world: World) -> None:
            await listed_orphans(world, 2)
            request(world, f"apply {leak_status(world)['plan']} ann")
            await world.until(lambda: world.cloud.starts("pg/drop"), "the first deletion")
            publish_again(world)
            await next_sweep(world)
            status = leak_status(world)
            assert len(status["deleted"]) == world.cloud.starts("pg/drop") == 1
            [left] = status["findings"]
            assert "the delete steps of pg@1.0.0 have changed since the list" in left["reason"]

        live(leak_world, story)

    def test_orphan_without_delete_steps_is_in_no_plan(self):
        """The version of its plugin is no longer published, so nothing could delete it."""

        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            world.plugin("pg@1.1.0", PLUGIN)
            world.ask("DELETE", f"/apis/{API}/resourceplugins/pg.1.0.0")
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 3)
            status = leak_status(world)
            [found] = status["findings"]
            assert (found["verdict"], found["id"], found.get("deletable", False)) == ("orphan", id_, False)
            assert "no delete steps of pg@1.0.0" in found["reason"]
            assert (status["plan"], status["left"]) == ("", 0)

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
            await listed_orphans(world, lists=1, action="delete", every="24h")
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
                    world.processes[0].transport.view.delay = 60.0
                    meta = {"name": backup["metadata"]["name"]}
                    world.cloud.forgiven = True  # the backup contradicts the history of the run
                    restored.append(world.ask("POST", RUNS, {**backup, "metadata": meta}))

            world.hook = restore
            check(world, action="delete", every="1h")
            await world.until(lambda: restored, "the deletion", 4 * 3600)
            await world.until(lambda: not leak_status(world)["sweeping"], "the end of the sweep")
            assert not world.cloud.starts("pg/drop")
            [found] = leak_status(world)["findings"]
            assert "the run of the resource has changed" in found["reason"]
            world.take_away(f"{RUNS}/{restored[0]['metadata']['name']}")

        live(leak_world, story)

    def test_status_shows_each_deletion_of_a_plan_during_its_sweep(self):
        async def story(world: World) -> None:
            ids = await listed_orphans(world, 2)
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

    def test_change_during_a_deletion_starts_no_second_one_beside_it(self):
        async def story(world: World) -> None:
            [id_] = await listed_orphans(world, lists=1, action="delete", every="24h")
            await world.rest(120)
            request(world, "sweep ann")
            await world.until(lambda: world.cloud.starts("pg/drop"), "the deletion")
            before = len(world.writes)
            change(world, every="23h")
            await world.rest(250)
            assert len(world.writes) - before < 60, "the check has a loop"
            await world.until(lambda: item(id_) not in listed(world), "the deletion", 4 * 3600)
            await world.until(lambda: not leak_status(world).get("sweeping"), "the end of the sweep")
            steps = [each.what for each in world.cloud.log if each.unit == "pg/drop"]
            assert steps in (["start", "end"], ["start", "end"] * 2), "a deletion has begun beside another one"
            await world.quiet(3600)

        live(lambda: leak_world(pg_drop=Script(runs=300.0)), story)

    def test_ten_deletions_list_all_runs_once(self):
        """Each of them reads the Run of its resource by name."""

        async def story(world: World) -> None:
            await listed_orphans(world, 10)
            lists: list[tuple[str, str]] = []

            def record(_count: int, call: Call) -> None:
                sent = call.request
                if sent.method == "GET" and sent.path in (RUNS, SECRETS) and "watch" not in sent.query:
                    lists.append((sent.path, sent.query.get("labelSelector", "")))

            world.hook = record
            await apply_plan(world)
            assert len(leak_status(world)["deleted"]) == 10
            assert lists.count((RUNS, "")) == 1
            assert lists.count((SECRETS, "dayfly.dev/resource-records")) == 2

        live(leak_world, story)


def listed(world: World) -> set[str]:
    world.account.play()
    return set(world.account.items)


def _rewrite(world: World, secret: Object) -> None:
    """Replace the publisher in stored records."""
    plugins, *rows = msgspec.msgpack.decode(zlib.decompress(msgspec.convert(secret["data"]["records"], bytes)))
    foreign = msgspec.msgpack.encode(([("acme", plugin) for _, plugin in plugins], *rows))
    changed = msgspec.to_builtins(zlib.compress(foreign))
    path = f"/api/v1/namespaces/{HOME}/secrets/{secret['metadata']['name']}"
    world.ask("PATCH", path, {"data": {"records": changed}}, "application/merge-patch+json")
