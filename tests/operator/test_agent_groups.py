"""Route groups of a server in a cluster that connects to it: keys, hooks and end."""

from __future__ import annotations

import asyncio

import pytest
from tests.operator.rig import routed_clusters
from tests.operator.rig.control_plane import ControlPlane, Fate
from tests.operator.rig.routed_clusters import HOOKS, forking, key, previewed, status, urls
from tests.operator.rig.server_stories import box, left, lost_there, ready, true, until
from tests.operator.rig.world import World
from tests.selection import SELECTION

from dayfly.server.runs.group_sweep import GroupSweep

AT = "routegroups/pay"
MATCH = {"label": {"key": "team", "value": "pay*"}}
STEPS = dict(zip(("preStart", "postStart", "preStop", "postStop"), HOOKS, strict=True))
WITH_HOOKS = {
    "runner": {"image": "busybox:1"},
    "hooks": {event: [{"name": name, "script": "#!/bin/sh\n"}] for event, name in STEPS.items()},
}


def play(story, steps, **how):
    return story(steps, born=lambda: routed_clusters.world(**how))


def group(cluster: str = "east", **more) -> dict:
    return {"spec": {"cluster": cluster, "match": MATCH, **more}}


async def begin(world: World, plane: ControlPlane, **more) -> str:
    """Create a group and wait until it is ready; return its key."""
    await plane.must("PUT", AT, group(**more))

    async def so() -> bool:
        return (await status(plane, AT))["ready"]

    await until(world, so, f"the group is ready: {await status(plane, AT)}")
    return await key(plane, AT)


async def member(world: World, plane: ControlPlane, name: str, *baselines: str) -> str:
    """Create a sandbox with forks that the group matches; return the name of its first fork."""
    await plane.must("PUT", f"sandboxes/{name}", forking(*baselines, labels={"team": "payments"}))
    await ready(world, plane, name)
    own = await key(plane, f"sandboxes/{name}")
    await until(world, lambda: true(world.gateways.leads(own).startswith("f-")), "its own key leads to it")
    return world.gateways.leads(own)


async def led_to(world: World, key: str, fork: str) -> None:
    await until(world, lambda: true(world.gateways.leads(key) == fork), f"its key leads to {fork}")


async def ended(world: World, plane: ControlPlane) -> None:
    """Delete everything and check that nothing is left."""
    for each in await plane.must("GET", "sandboxes"):
        await plane.must("DELETE", f"sandboxes/{each['name']}")
    await plane.ask("DELETE", AT)

    async def so() -> bool:
        none = not await plane.must("GET", "sandboxes") and (await plane.ask("GET", AT))[0] == 404
        return none and not left(world)

    await until(world, so, "nothing is left")


def started(world: World) -> list[str]:
    return [each.unit for each in world.cloud.log if each.what == "start" and each.unit in HOOKS]


def test_all_four_hooks_run_in_the_cluster_that_it_names(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane, **WITH_HOOKS)
        assert started(world) == ["before", "warm"]
        seen = box(world)
        assert seen["metadata"]["namespace"] == "acme-sandboxes"
        assert seen["metadata"]["annotations"]["served.dayfly.dev/name"] == "routegroup/pay"
        [document] = world.cluster.objects("objectlifecyclemethods")
        env = document["spec"]["preStart"][0]["exec"]["env"]
        assert env["DAYFLY_ROUTE_GROUP_NAME"] == "pay"
        assert env["DAYFLY_ROUTE_GROUP_NAMESPACE"] == "acme-sandboxes"
        assert env["DAYFLY_ROUTE_GROUP_ROUTING_KEY"] == await key(plane, AT)
        assert [each["move"] for each in await plane.must("GET", f"{AT}/history")].count("Claim") == 2
        await plane.must("DELETE", AT)
        await until(world, lambda: gone(plane), "it is gone there")
        await until(world, lambda: true(not left(world)), "nothing is left here")
        assert started(world) == list(HOOKS)

    play(story, steps)


async def gone(plane: ControlPlane) -> bool:
    return (await plane.ask("GET", AT))[0] == 404


@pytest.mark.parametrize("cluster", ["east", ""], ids=["its cluster", "all clusters"])
def test_group_key_routes_to_forks_of_current_members(story, cluster):
    async def steps(world: World, plane: ControlPlane) -> None:
        found = await begin(world, plane, cluster=cluster)
        assert world.gateways.leads(found) == "web"
        first = await member(world, plane, "one")
        await led_to(world, found, first)
        await world.rest(5)
        second = await member(world, plane, "two")
        await world.rest(60)
        assert world.gateways.leads(found) == first, "the older one answers"
        stands = await status(plane, AT)
        assert stands["matchedSandboxes"] == ["one", "two"]
        assert stands["conflicts"] == [{"baseline": "shop/web", "sandbox": "one", "others": ["two"]}]
        assert "unsupported" not in stands
        await plane.must("PUT", "sandboxes/one", forking())
        await led_to(world, found, second)
        await plane.must("DELETE", "sandboxes/two")
        await led_to(world, found, "web")
        await until(world, lambda: lost_there(plane, "two"), "two is gone")
        assert (await status(plane, AT))["matchedSandboxes"] == []
        await ended(world, plane)

    play(story, steps)


def test_group_without_routing_reports_that(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane, **previewed(site="http://web.shop.svc:80"))
        stands = await status(plane, AT)
        assert "spec.match and spec.endpoints[0] (no data plane routes requests by their key" in stands["message"]
        assert await urls(plane, AT) == {"site": ""}
        world.gateways.install()
        world.gateways.route()

        async def leads() -> bool:
            return not (await status(plane, AT)).get("unsupported") and bool((await urls(plane, AT))["site"])

        await until(world, leads, "its key leads now, and its endpoint has an address")
        await led_to(world, await key(plane, AT), await member(world, plane, "one"))
        await ended(world, plane)

    play(story, steps, installed=False)


def test_endpoint_address_routes_as_the_group_key_does(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        targets = {
            "site": "http://web.shop.svc:80",
            "page": "http://page.shop.svc:80",
            "queue": "tcp://web.shop.svc:80",
        }
        found = await begin(world, plane, **previewed(**targets))

        async def addressed() -> bool:
            return {name for name, url in (await urls(plane, AT)).items() if url} == {"site", "page"}

        await until(world, addressed, "its endpoints have addresses")
        hosts = {name: url.removeprefix("https://") for name, url in (await urls(plane, AT)).items()}
        assert [world.gateways.asked(hosts[name])[0] for name in ("site", "page")] == ["web", "page"]
        assert found in str(world.gateways.asked(hosts["site"])[1])
        said = (await status(plane, AT))["unsupported"]
        assert said == ["spec.endpoints[2] (requests of tcp cannot have a routing key)"]
        first = await member(world, plane, "one")
        await until(
            world, lambda: true(world.gateways.asked(hosts["site"])[0] == first), "it leads to its first member"
        )
        second = await member(world, plane, "two", "web", "page")
        await until(world, lambda: true(world.gateways.asked(hosts["page"])[0].startswith("f-")), "and to the second's")
        assert world.gateways.asked(hosts["site"])[0] == first, "the older one answers"
        await plane.must("DELETE", "sandboxes/one")
        await until(world, lambda: true(world.gateways.asked(hosts["site"])[0] == second), "then the next one answers")
        await plane.must("PUT", "sandboxes/two", forking("web", "page", labels={"team": "others"}))
        await until(world, lambda: true(world.gateways.asked(hosts["site"])[0] == "web"), "no sandbox once all left")
        assert (await urls(plane, AT))["site"].removeprefix("https://") == hosts["site"], "by the same address"
        await ended(world, plane)
        assert world.gateways.asked(hosts["site"]) == ("", {})

    play(story, steps)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"edge": None}, "endpoints get addresses only if the operator has the option --preview-gateway"),
        ({"grants": False}, "may not be forked by sandboxes of acme-sandboxes"),
    ],
)
def test_ready_group_reports_impossible_addresses(story, how, said):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane, **previewed(site="http://web.shop.svc:80"))

        async def told() -> bool:
            return said in str((await status(plane, AT)).get("unsupported"))

        await until(world, told, f"it says: {said}")
        assert await urls(plane, AT) == {"site": ""}
        await ended(world, plane)

    play(story, steps, **how)


def test_empty_group_lives_until_its_ttl(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane, ttl={"duration": "10m"}, **WITH_HOOKS)
        await member(world, plane, "one")
        await world.rest(900)
        assert (await status(plane, AT))["ready"]
        await plane.must("DELETE", "sandboxes/one")
        await until(world, lambda: lost_there(plane, "one"), "one is gone")
        await world.rest(500)
        assert (await status(plane, AT))["ready"]
        await world.rest(120)
        await until(world, lambda: gone(plane), "it is over")
        assert started(world) == list(HOOKS)
        await until(world, lambda: true(not left(world)), "nothing is left")

    play(story, steps)


def test_ttl_ends_a_group_while_the_server_is_away(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane, ttl={"duration": "10m", "offsetFrom": "createdAt"}, **WITH_HOOKS)
        plane.off = True
        await world.rest(900)
        assert started(world) == list(HOOKS)
        plane.off = False
        await until(world, lambda: gone(plane), "its end is noted")
        await until(world, lambda: true(not left(world)), "nothing is left")

    play(story, steps)


def test_group_key_routes_on_through_restarts(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        found = await begin(world, plane)
        fork = await member(world, plane, "one")
        await led_to(world, found, fork)
        for what in ("server", "agent", "both"):
            if what != "agent":
                await plane.restart()
            if what != "server":
                for process in world.processes:
                    process.transport.dead = True
            for _ in range(60):
                await world.rest(2)
                assert world.gateways.leads(found) == fork, what
        await ended(world, plane)

    play(story, steps)


def test_starting_server_keeps_the_keys_of_groups(story, monkeypatch):
    """Otherwise the keys of all groups would lead to baselines until the server has listed the groups."""

    async def never(_self) -> None:
        await asyncio.Event().wait()

    async def steps(world: World, plane: ControlPlane) -> None:
        found = await begin(world, plane)
        fork = await member(world, plane, "one")
        await led_to(world, found, fork)
        with monkeypatch.context() as patched:
            patched.setattr(GroupSweep, "run", never)
            await plane.restart()
            for _ in range(60):
                await world.rest(2)
                assert world.gateways.leads(found) == fork
        await plane.restart()
        await ended(world, plane)

    play(story, steps)


def test_restored_server_begins_no_group_again(story, tmp_path):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane, **WITH_HOOKS)
        await plane.back_up(tmp_path / "backup.db")
        await plane.must("DELETE", AT)
        await until(world, lambda: gone(plane), "it is gone there")
        await until(world, lambda: true(not left(world)), "its end is noted")
        await plane.restore(tmp_path / "backup.db")

        async def frozen() -> bool:
            return (await plane.must("GET", "clusters/east/thaw")).get("compared", False)

        await until(world, frozen, "it is frozen")
        assert (await plane.must("GET", "clusters/east/thaw"))["onlyHere"] == ["routegroup/pay"]
        await plane.must("POST", "clusters/east/thaw", {})

        async def lost() -> bool:
            return "no longer knows" in (await status(plane, AT))["message"]

        await until(world, lost, "its ledger is said to be lost")
        assert started(world) == list(HOOKS)

    play(story, steps)


REQUESTS = 40
CELLS = [(number, fate) for number in range(1, REQUESTS + 1) for fate in Fate]


@pytest.mark.parametrize(("number", "fate"), SELECTION.sample(CELLS, 119, "fates of requests about route groups"))
def test_any_fate_of_one_request_runs_each_hook_once(story, number, fate, played):
    async def steps(world: World, plane: ControlPlane) -> None:
        plane.hook = lambda now, _what: fate if now == number else None
        found = await begin(world, plane, **WITH_HOOKS)
        fork = await member(world, plane, "one")
        await led_to(world, found, fork)
        await ended(world, plane)
        await world.rest(400)
        assert started(world) == list(HOOKS)
        assert world.gateways.leads(found) == "web"
        assert (await plane.must("GET", "clusters/east/thaw")) == {"frozen": False}

    played("lives under a server, each with another fate of one request of the agent", 1)
    play(story, steps)
