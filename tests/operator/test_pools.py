"""Resource pools in a cluster: their size, holders, requests of people, and what is refused."""

from __future__ import annotations

from tests.operator.rig.kubelet import Script
from tests.operator.rig.pool_stories import annotate, at_work, change, delete, is_full, take
from tests.operator.rig.pools import (
    MEMBERS,
    PLUGIN,
    members,
    pool,
    pool_ledger,
    pool_status,
)
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.world import World


class TestSize:
    def test_pool_creates_members_up_to_its_size(self):
        async def story(world: World) -> None:
            pool(world, ready=3)
            await world.until(lambda: is_full(world), "a full pool")
            assert world.cloud.starts("pg/make") == len(members(world)) == 3
            assert pool_status(world)["size"] == "3/3"
            delete(world)
            await gone(world)
            assert world.cloud.starts("pg/drop") == 3

        at_work(story)

    def test_full_pool_writes_nothing(self):
        async def story(world: World) -> None:
            pool(world, ready=2)
            await world.until(lambda: is_full(world), "a full pool")
            await world.rest(60)
            before = len(world.writes)
            await world.rest(600)
            assert len(world.writes) == before
            delete(world)
            await gone(world)

        at_work(story)

    def test_larger_size_creates_more_members(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            change(world, ready=2)
            await world.until(lambda: pool_status(world).get("size") == "2/2", "the new size")
            delete(world)
            await gone(world)

        at_work(story)

    def test_smaller_size_closes_unused_members(self):
        async def story(world: World) -> None:
            pool(world, ready=3)
            await world.until(lambda: is_full(world), "a full pool")
            change(world, ready=1)
            await world.until(lambda: len(members(world)) == 1, "the surplus to go", 600)
            delete(world)
            await gone(world)

        at_work(story)

    def test_failing_members_pause_the_pool(self):
        async def story(world: World) -> None:
            uid = pool(world)
            await world.until(lambda: pool_status(world).get("reason") == "Failing", "the pause", 600)
            await world.rest(300)
            assert pool_ledger(world, uid)["failures"] == 3
            assert world.cloud.starts("pg/make") == 3
            assert len(members(world)) == 1  # the latest failed one is kept for its logs
            delete(world)
            await gone(world)

        at_work(story, make=Script(fails=99))

    def test_unschedulable_member_is_no_failure(self):
        async def story(world: World) -> None:
            uid = pool(world)
            await world.until(lambda: pool_status(world).get("reason") == "Unschedulable", "the report", 130)
            assert "1 cannot be scheduled" in pool_status(world)["message"]
            await world.rest(600)
            assert not pool_ledger(world, uid).get("failures")
            assert len(members(world)) == 1
            world.kubelet.scripts["pg/make"].unschedulable = ""
            await world.until(lambda: is_full(world), "a full pool", 600)
            delete(world)
            await gone(world)

        at_work(story, make=Script(unschedulable="0/3 nodes are available"))

    def test_member_deleted_by_hand_is_replaced(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            [first] = members(world)
            world.ask("DELETE", f"{MEMBERS}/{first['metadata']['name']}")
            await world.until(lambda: world.cloud.starts("pg/make") == 2 and is_full(world), "another member")
            await world.until(lambda: len(members(world)) == 1, "the first to go")
            delete(world)
            await gone(world)

        at_work(story)

    def test_newer_plugin_version_replaces_the_members(self):
        async def story(world: World) -> None:
            world.plugin("pg@1.0.0", PLUGIN)
            pool(world, plugin="pg")
            await world.until(lambda: is_full(world), "a full pool")
            [old] = members(world)
            world.plugin("pg@1.1.0", {**PLUGIN, "runner": {"image": "busybox:2"}})
            await world.until(lambda: len(members(world)) == 2, "a new member")
            await world.until(lambda: len(members(world)) == 1, "the old member to go", 600)
            assert members(world)[0]["spec"]["template"] != old["spec"]["template"]
            delete(world)
            await gone(world)

        at_work(story, plugins=False)


class TestHolders:
    def test_sandbox_takes_a_member_and_the_pool_replaces_it(self):
        async def story(world: World) -> None:
            uid = pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            take(world)
            await world.until(lambda: ready(world), "ready")
            await world.until(lambda: len(members(world)) == 2 and is_full(world), "another member")
            await world.until(lambda: pool_status(world).get("held") == 1, "the report")
            demand = pool_ledger(world, uid)["demand"]
            assert (demand.get("hits", 0), demand.get("misses", 0)) == (1, 0)
            assert pool_status(world)["refillMilliseconds"] > 0
            world.delete()
            delete(world)
            await gone(world)

        at_work(story)

    def test_request_without_a_member_is_counted_as_a_miss(self):
        async def story(world: World) -> None:
            uid = pool(world, ready=0)
            await world.until(lambda: is_full(world), "an empty pool")
            take(world)
            await world.until(lambda: ready(world), "ready")
            await world.until(lambda: pool_ledger(world, uid)["demand"].get("misses"), "the miss")
            assert pool_ledger(world, uid)["demand"]["misses"] == 1
            world.delete()
            delete(world)
            await gone(world)

        at_work(story)

    def test_deleted_pool_leaves_held_members(self):
        async def story(world: World) -> None:
            pool(world, ready=2)
            await world.until(lambda: is_full(world), "a full pool")
            take(world)
            await world.until(lambda: ready(world), "ready")
            delete(world)
            await world.until(lambda: not world.cluster.objects("resourcepools"), "the pool to go")
            await world.rest(200)
            assert ready(world)
            assert len(members(world)) == 1
            world.delete()
            await gone(world)

        at_work(story)

    def test_later_pool_of_that_name_has_its_own_members(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            take(world)
            await world.until(lambda: ready(world), "ready")
            delete(world)
            await world.until(lambda: not world.cluster.objects("resourcepools"), "the pool to go")
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            assert len(members(world)) == 2
            world.delete()
            delete(world)
            await gone(world)

        at_work(story)


class TestRequests:
    def test_paused_pool_creates_nothing_until_resume(self):
        async def story(world: World) -> None:
            uid = pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            annotate(world, pool_request="pause ada")
            await world.until(lambda: pool_status(world).get("paused"), "the pause")
            assert pool_ledger(world, uid)["pause"]["by"] == "ada"
            change(world, ready=3)
            await world.rest(300)
            assert len(members(world)) == 1
            annotate(world, pool_request="resume ada")
            await world.until(lambda: pool_status(world).get("size") == "3/3", "the new size")
            delete(world)
            await gone(world)

        at_work(story)

    def test_drained_pool_has_no_unused_member(self):
        async def story(world: World) -> None:
            pool(world, ready=2)
            await world.until(lambda: is_full(world), "a full pool")
            annotate(world, pool_request="drain")
            await world.until(lambda: not members(world), "the members to go", 600)
            assert pool_status(world)["reason"] == "Drained"
            change(world, ready=1)
            await world.until(lambda: is_full(world) and members(world), "a new member")
            delete(world)
            await gone(world)

        at_work(story)

    def test_request_with_a_long_author_is_applied_once(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            annotate(world, pool_request=f"pause {'a' * 3000}")
            await world.until(lambda: pool_status(world).get("paused"), "the pause")
            await world.rest(60)
            before = len(world.writes)
            await world.rest(600)
            assert len(world.writes) == before
            delete(world)
            await gone(world)

        at_work(story)

    def test_unknown_request_changes_nothing(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            annotate(world, pool_request="destroy everything")
            await world.rest(100)
            assert is_full(world)
            delete(world)
            await gone(world)

        at_work(story)

    def test_abandoned_pool_ends_without_its_cleanup(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            delete(world)
            await world.until(lambda: world.cloud.starts("pg/drop"), "the cleanup")
            world.cloud.forgiven = True
            annotate(world, abandon="gone anyway")
            await world.until(lambda: not (members(world) or world.cluster.objects("resourcepools")), "the end", 900)

        at_work(story, drop=Script(fails=99))


class TestRefusals:
    def test_invalid_pool_names_the_step(self):
        async def story(world: World) -> None:
            world.plugin("bad", {**PLUGIN, "create": [{**PLUGIN["create"][0], "at": "claim"}], "delete": []})
            pool(world, plugin="bad")
            await world.until(lambda: pool_status(world).get("reason") == "Refused", "the refusal")
            assert "make" in pool_status(world)["message"]
            assert "spec.plugin" in pool_status(world)["message"]
            assert not members(world)
            delete(world)
            await gone(world)

        at_work(story)

    def test_pool_waits_for_its_plugin(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: pool_status(world).get("reason") == "PluginMissing", "the report")
            world.plugin("pg", PLUGIN)
            await world.until(lambda: is_full(world), "a full pool")
            delete(world)
            await gone(world)

        at_work(story, plugins=False)

    def test_second_pool_of_the_same_plugin_is_refused(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            pool(world, "warm-again")
            await world.until(lambda: pool_status(world, "warm-again").get("reason") == "Refused", "the refusal")
            assert '"warm"' in pool_status(world, "warm-again")["message"]
            delete(world)
            await world.until(lambda: is_full(world, "warm-again"), "the second pool to be full")
            delete(world, "warm-again")
            await gone(world)

        at_work(story)

    def test_refused_change_keeps_the_members(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            change(world, schedule=[{"cron": "never", "duration": "1h", "ready": 2}])
            await world.until(lambda: pool_status(world).get("reason") == "Refused", "the refusal")
            assert len(members(world)) == 1
            assert pool_status(world)["size"] == "1/1"
            change(world, schedule=None)
            await world.until(lambda: is_full(world), "a full pool")
            delete(world)
            await gone(world)

        at_work(story)
