"""Resource pools in a cluster: their size, their ledger, requests of people, and their end."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.kube.fake import Call, Fault, Harm, Refusal
from tests.operator.rig.kubelet import Script
from tests.operator.rig.pools import (
    MEMBERS,
    PLUGIN,
    POOLS,
    members,
    pool,
    pool_ledger,
    pool_status,
    pool_world,
    pooled_sandbox,
)
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.world import API, World, live
from tests.operator.test_step_slots import most_at_once

from dayfly.operator.extensions import SandboxExtensionFactory
from dayfly.operator.pods.step_slots import DEFAULT_LIMIT
from dayfly.operator.sandboxes.extension import SandboxesExtension
from dayfly.spec.lifecycle import Lifecycle

MERGE = "application/merge-patch+json"


def at_work(
    story,
    operators: int = 1,
    *,
    plugins: bool = True,
    steps: int = DEFAULT_LIMIT,
    front: SandboxExtensionFactory | None = None,
    **scripts: Any,
) -> World:
    def make() -> World:
        world = pool_world(claim_steps=False, **scripts)
        world.steps, world.front = steps, front
        if plugins:
            world.plugin("pg", PLUGIN)
        return world

    async def begin(world: World) -> None:
        world.start(operators)
        await story(world)

    return live(make, begin)


def is_full(world: World, name: str = "warm") -> bool:
    return bool(pool_status(world, name).get("ready"))


def annotate(world: World, **annotations: str) -> None:
    noted = {f"dayfly.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    world.ask("PATCH", f"{POOLS}/warm", {"metadata": {"annotations": noted}}, MERGE)


def change(world: World, **spec: Any) -> None:
    world.ask("PATCH", f"{POOLS}/warm", {"spec": spec}, MERGE)


def delete(world: World, name: str = "warm") -> None:
    world.ask("DELETE", f"{POOLS}/{name}")


def take(world: World) -> None:
    """Create a Sandbox whose resource has the template of the pool."""
    [record] = [run["spec"]["pool"] for run in world.cluster.objects("runs") if run["spec"].get("pool")]
    pooled_sandbox(world, documents=msgspec.convert(record["template"], tuple[Lifecycle, ...]))


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
            assert len(members(world)) == 1  # the one that failed last, for its logs
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


class TestFaults:
    def test_refused_member_is_reported_and_created_later(self):
        """A quota of the namespace refuses the member for some time."""

        async def story(world: World) -> None:
            refusal = Refusal(403, "exceeded quota: few, requested: count/poolmembers.dayfly.dev=1")
            world.cluster.refuses = lambda each: refusal if (each.method, each.path) == ("POST", MEMBERS) else None
            pool(world)
            await world.until(lambda: "exceeded quota" in pool_status(world).get("message", ""), "the report", 300)
            world.cluster.refuses = lambda _request: None
            await world.until(lambda: is_full(world), "a full pool", 900)
            delete(world)
            await gone(world)

        at_work(story)

    def test_lost_ledger_freezes_the_pool(self):
        async def story(world: World) -> None:
            uid = pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            world.cloud.forgiven = True
            [run] = [each for each in world.cluster.objects("runs") if each["ledger"]["uid"] == uid]
            world.take_away(f"/apis/{API}/runs/{run['metadata']['name']}")
            await world.until(lambda: pool_status(world).get("reason") == "LedgerLost", "the report", 300)
            await world.rest(300)
            assert len(members(world)) == 1
            assert not pool_ledger(world, uid)
            annotate(world, abandon="force: start again")
            await world.until(lambda: not (members(world) or world.cluster.objects("resourcepools")), "the end", 900)

        at_work(story)

    def test_member_starts_only_with_a_grant(self):
        """A member that no ledger grants is removed, whoever created it."""

        async def story(world: World) -> None:
            uid = pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            [first] = members(world)
            spec = {**first["spec"], "number": 99}
            meta = {"name": "warm-99", "labels": {"dayfly.dev/pool": uid}}
            body = {"apiVersion": API, "kind": "PoolMember", "metadata": meta, "spec": spec}
            world.ask("POST", MEMBERS, body)
            await world.until(lambda: len(members(world)) == 1, "the member to go", 300)
            assert world.cloud.starts("pg/make") == 1
            delete(world)
            await gone(world)

        at_work(story)

    def test_operator_that_crashes_after_the_grant_creates_the_member(self):
        async def story(world: World) -> None:
            crashed: list[int] = []

            def hook(number: int, call: Call) -> Fault | None:
                if number and not crashed and call.request.method == "PUT" and b'"granted":[{' in call.request.body:
                    crashed.append(number)
                    return Fault(Harm.CRASH_AFTER)
                return None

            world.hook = hook
            pool(world, ready=2)
            await world.until(lambda: is_full(world), "a full pool")
            assert crashed
            assert len(members(world)) == world.cloud.starts("pg/make") == 2
            delete(world)
            await gone(world)

        at_work(story)

    def test_member_that_is_created_late_does_not_start(self):
        """The operator is paused between the grant and the creation. Meanwhile another one withdraws the number."""

        async def story(world: World) -> None:
            late = world.processes[0]
            late.transport.pause = lambda each: 60.0 if (each.method, each.path) == ("POST", MEMBERS) else 0.0
            uid = pool(world)
            await world.until(lambda: pool_ledger(world, uid).get("granted"), "the grant")
            change(world, ready=0)
            world.start()
            await world.until(lambda: not pool_ledger(world, uid).get("granted"), "the withdrawal", 50)
            for process in world.processes:
                process.transport.view.delay = 90.0
            await world.rest(300)
            assert not members(world)
            assert not world.cloud.starts("pg/make")
            delete(world)
            await gone(world)

        at_work(story)

    def test_two_operators_create_each_member_once(self):
        async def story(world: World) -> None:
            pool(world, ready=4)
            await world.until(lambda: is_full(world), "a full pool")
            await world.rest(100)
            assert len(members(world)) == world.cloud.starts("pg/make") == 4
            delete(world)
            await gone(world)

        at_work(story, operators=2)

    def test_operator_with_an_old_cache_creates_nothing_more(self):
        async def story(world: World) -> None:
            world.processes[0].transport.view.delay = 40.0
            pool(world, ready=2)
            await world.until(lambda: is_full(world), "a full pool")
            await world.rest(300)
            assert len(members(world)) == world.cloud.starts("pg/make") == 2
            delete(world)
            await gone(world)

        at_work(story, operators=2)

    def test_pool_deleted_during_a_claim_ends_after_the_holder_has_it(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            take(world)
            delete(world)
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await gone(world)

        at_work(story, operators=2)


class TestSlots:
    def test_refill_uses_at_most_half_of_the_slots(self):
        async def story(world: World) -> None:
            pool(world, ready=6)
            await world.until(lambda: is_full(world), "a full pool")
            assert most_at_once(world, "pg/make") == 2
            delete(world)
            await gone(world)
            assert most_at_once(world, "pg/drop") == 2

        at_work(story, steps=4, make=Script(runs=30), drop=Script(runs=30))

    def test_refill_takes_no_slot_of_a_sandbox(self):
        async def story(world: World) -> None:
            pool(world, ready=6)
            await world.until(lambda: world.cloud.starts("pg/make"), "the refill")
            pooled_sandbox(world, "other")  # its template differs, so it creates a member
            await world.until(lambda: world.cloud.starts("pg/make") == 2, "its step", 20)
            world.delete("other")
            delete(world)
            await gone(world)

        at_work(story, steps=1, make=Script(runs=600))

    def test_held_member_counts_for_its_holder(self):
        """A sandbox joins the member that is being created. Then the refill has its slot again."""

        async def story(world: World) -> None:
            pool(world, ready=1)
            await world.until(lambda: world.cloud.starts("pg/make"), "the refill")
            take(world)
            await world.until(lambda: world.cloud.starts("pg/make") == 2, "the step of the next member", 60)
            world.delete()
            delete(world)
            await gone(world)

        at_work(story, steps=1, make=Script(runs=600))


class TestInUse:
    def test_pool_protects_its_plugin_and_namespace(self):
        async def story(world: World) -> None:
            pool(world)
            await world.until(lambda: is_full(world), "a full pool")
            await world.until(lambda: {"pg", "shop"} <= labelled(world), "the labels", 130)
            delete(world)
            await gone(world)
            await world.until(lambda: not {"pg", "shop"} & labelled(world), "the labels to go", 300)

        at_work(story, front=SandboxesExtension)


def labelled(world: World) -> set[str]:
    """Return the names of the objects that are in use."""
    found = [*world.cluster.objects("resourceplugins"), *world.cluster.objects("namespaces")]
    return {each["metadata"]["name"] for each in found if "dayfly.dev/in-use" in each["metadata"].get("labels", {})}
