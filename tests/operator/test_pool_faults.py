"""Pools in a cluster: faults of operators, slots, and what tenants can do."""

from __future__ import annotations

from tests.kube.fake import Call, Fault, Harm, Refusal
from tests.operator.rig.kubelet import Script
from tests.operator.rig.pool_stories import annotate, at_work, change, delete, is_full, labelled, take
from tests.operator.rig.pools import (
    MEMBERS,
    PLUGIN,
    POOLS,
    members,
    pool,
    pool_ledger,
    pool_status,
    pooled_sandbox,
)
from tests.operator.rig.scenes import gone, ready
from tests.operator.rig.world import API, World
from tests.operator.test_step_slots import most_at_once

from dayfly.operator.sandboxes.extension import SandboxesExtension


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
        """A member without a grant is removed."""

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

    def test_member_is_created_after_a_crash_between_grant_and_birth(self):
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

    def test_pool_without_our_finalizer_creates_nothing(self):
        async def story(world: World) -> None:
            refusal = Refusal(403, "no")
            world.cluster.refuses = lambda each: (
                refusal if (each.method, each.path) == ("PATCH", f"{POOLS}/warm") else None
            )
            uid = pool(world)
            await world.until(lambda: pool_ledger(world, uid), "its ledger")
            await world.rest(100)
            assert not members(world)
            world.cluster.refuses = lambda _request: None
            await world.until(lambda: is_full(world), "a full pool", 900)
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

    def test_pool_deleted_during_a_claim_ends_without_the_held_member(self):
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


class TestTenants:
    """The fields that a tenant can write give no more than those of a Sandbox in the same namespace."""

    def test_pool_runs_no_steps_in_a_namespace_that_is_not_granted(self):
        async def story(world: World) -> None:
            world.namespace("vault", {"dayfly.dev/runners-from": "bank"}, **{"dayfly.dev/runners": "true"})
            world.plugin("pg", {**PLUGIN, "runner": {"image": "busybox:1", "namespace": "vault"}})
            pool(world, ready=2)
            await world.until(lambda: len(members(world)) == 2, "the members")
            await world.rest(300)
            assert not world.cloud.starts("pg/make")
            assert not world.pods()
            delete(world)
            await gone(world)

        at_work(story, plugins=False)

    def test_pool_of_another_namespace_has_its_own_members_and_slots(self):
        async def story(world: World) -> None:
            world.namespace("bank")
            other = POOLS.replace("/shop/", "/bank/")
            spec = {"plugin": "pg", "ready": 5}
            body = {"apiVersion": API, "kind": "ResourcePool", "metadata": {"name": "warm"}, "spec": spec}
            world.ask("POST", other, body)
            await world.until(lambda: world.cloud.starts("pg/make"), "the refill of the other namespace")
            pool(world)
            await world.until(lambda: world.cloud.starts("pg/make") == 2, "a step here", 20)
            namespaces = {each["metadata"]["namespace"] for each in members(world)}
            assert namespaces == {"shop", "bank"}
            world.ask("DELETE", f"{other}/warm")
            delete(world)
            await gone(world)

        at_work(story, steps=1, make=Script(runs=600))
