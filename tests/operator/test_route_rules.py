"""A route server that watches a cluster with operators, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib

from tests.operator.rig.fork_stories import ended
from tests.operator.rig.scenes import fork, gone, ready, wish
from tests.operator.rig.world import API, World
from tests.operator.test_routes import group, play, routed

from dayfly.kube.client import KubeClient
from dayfly.routeserver.cluster_source import ClusterRuleWatcher
from dayfly.routeserver.rule_store import RuleStore
from dayfly.spec.identity import routing_key
from dayfly.spec.routing.rules import Query


@contextlib.asynccontextmanager
async def watching(world: World, namespace: str = ""):
    """Collects the rules when they are published; by then they must be true."""
    store = RuleStore()
    task = asyncio.create_task(
        ClusterRuleWatcher(KubeClient(world.cluster.transport("reader"), seed=1), store, namespace).run()
    )
    await store.wait_complete()
    try:
        yield store
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def told(store: RuleStore) -> set[tuple[str, str]]:
    return {(rule.routing_key, rule.destination_sandbox.name) for rule in store.find(Query())}


def answered(store: RuleStore, key: str) -> str:
    """Return the fork that a key leads to, which must exist."""
    [name] = (name for of, name in told(store) if of == key)
    return name


def test_rule_is_published_while_the_fork_answers_by_its_route():
    async def story(world: World) -> None:
        async with watching(world) as store:
            world.gateways.latency = 30.0
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: "has not accepted route" in world.status().get("message", ""), "the wait", 60)
            assert told(store) == set(), "requests do not reach it yet"
            await world.until(lambda: ready(world), "ready", 300)
            [found] = world.forks.all()
            name = found["metadata"]["name"]
            await world.until(lambda: store.find(Query()), "its rule", 10)
            [rule] = store.find(Query())
            assert (rule.baseline.kind, rule.baseline.namespace, rule.baseline.name) == ("Deployment", "shop", "web")
            assert rule.routing_key == world.status()["routingKey"]
            answers = {each.workload_port: [(at.host, at.port) for at in each.destinations] for each in rule.mappings}
            # By container port, also if the Service refers to ports by name.
            assert answers == {8080: [(f"{name}.shop.svc", 80)], 81: [(f"{name}.shop.svc", 81)]}
            world.delete()
            await world.until(lambda: not store.find(Query()), "its rule to go", 5)
            assert world.forks.all(), "before anything of the fork does"
            await gone(world)

    play(story)


def test_late_subscriber_receives_the_current_rules():
    async def story(world: World) -> None:
        key, _ = await routed(world)
        async with watching(world) as store:
            assert [name for name, _ in told(store)] == [key]
        async with watching(world, "elsewhere") as store:
            assert told(store) == set()
        await ended(world)

    play(story)


def test_group_key_moves_from_one_sandbox_to_the_other():
    async def story(world: World) -> None:
        async with watching(world) as store:
            uid = world.sandbox(wish(forks=[fork()], labels={"team": "pay"}))
            await world.until(lambda: ready(world), "ready", 300)
            mine, pay = routing_key(uid), group(world)
            await world.until(lambda: told(store) == {(mine, "box"), (pay, "box")}, "both keys", 30)
            other = routing_key(world.sandbox(wish(forks=[fork()], labels={"team": "pays"}), "other"))
            await world.until(lambda: (other, "other") in told(store), "the other", 300)
            assert (pay, "box") in told(store), "the older one answers"
            with store.subscribe(Query(key=pay)) as watcher:
                watcher.take_changes()
                world.change({"spec": {"labels": {"team": "x"}}})
                await world.until(lambda: answered(store, pay) == "other", "the key to go over", 30)
                assert [op for op, _ in watcher.take_changes()] == ["REPLACE"], "never nobody"
                world.change({"spec": {"labels": {"team": "pay"}}})
                await world.until(lambda: answered(store, pay) == "box", "the key to come back", 30)
                assert [op for op, _ in watcher.take_changes()] == ["REPLACE"]
            world.ask("DELETE", f"/apis/{API}/namespaces/shop/routegroups/pay")
            await world.until(lambda: told(store) == {(mine, "box"), (other, "other")}, "the group's to go", 30)
            world.delete("other")
            await world.until(lambda: told(store) == {(mine, "box")}, "the other's to go", 60)
            await ended(world)

    play(story)


def test_rules_are_published_also_without_routing():
    async def story(world: World) -> None:
        async with watching(world) as store:
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: ready(world), "ready", 300)
            await world.until(lambda: told(store), "its rule", 10)
            await ended(world)

    play(story, installed=False, route=False)
