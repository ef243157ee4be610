"""Requests with the key of a server's sandbox reach its forks, if the cluster has a data plane."""

from __future__ import annotations

import asyncio

import pytest
from tests.kube.fake import Call, Fault, Harm
from tests.operator.rig import routed_clusters
from tests.operator.rig.control_plane import ControlPlane, Fate
from tests.operator.rig.routed_clusters import forking, key, previewed, status, urls
from tests.operator.rig.server_stories import gone, ready, true, until
from tests.operator.rig.world import World
from tests.selection import SELECTION

from dayfly.execute.gateway.preview import PreviewGateway
from dayfly.link import wire
from dayfly.link.host_end import HostEnd
from dayfly.link.wire import Verdict

SITE = "http://web.shop.svc:80"


def play(story, steps, **how):
    return story(steps, born=lambda: routed_clusters.world(**how))


async def begin(world: World, plane: ControlPlane, name: str = "shop", **more) -> str:
    """Create a sandbox with a fork and wait until its key leads to the fork."""
    await plane.must("PUT", f"sandboxes/{name}", forking(**more))
    await ready(world, plane, name)
    found = await key(plane, f"sandboxes/{name}")
    await until(world, lambda: leads(world, found), "its key leads to its fork")
    return found


async def leads(world: World, key: str) -> bool:
    return world.gateways.leads(key).startswith("f-")


def test_key_routes_to_the_fork_and_endpoint_has_an_address(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        found = await begin(world, plane, defaultRouteGroup=previewed(site=SITE, page="http://page.shop.svc:80"))
        assert world.gateways.leads() == "web"

        async def addressed() -> bool:
            return all((await urls(plane)).values())

        await until(world, addressed, "its endpoints have addresses")
        for name, answers in (("site", world.gateways.leads(found)), ("page", "page")):
            host = (await urls(plane))[name].removeprefix("https://")
            assert host.endswith(".preview.example.com")
            by, given = world.gateways.asked(host)
            assert (by, found in str(given)) == (answers, True)
        assert "unsupported" not in await status(plane)
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)
        assert world.gateways.leads(found) == "web"

    play(story, steps)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"installed": False}, "neither the Gateway API nor Istio routes requests here"),
        ({"edge": None}, "endpoints get addresses only if the operator has the option --preview-gateway"),
        (
            {"edge": PreviewGateway("edges", "nowhere", "x.example.com")},
            "Gateway edges/nowhere has not accepted the route yet",
        ),
    ],
    ids=["nothing routes", "no gateway for addresses", "nobody takes them"],
)
def test_ready_sandbox_reports_missing_routes(story, how, said):
    async def steps(world: World, plane: ControlPlane) -> None:
        await plane.must("PUT", "sandboxes/shop", forking(defaultRouteGroup=previewed(site=SITE)))
        await ready(world, plane)

        async def so() -> bool:
            stands = await status(plane)
            return stands["ready"] and said in stands["message"] and said in str(stands["unsupported"])

        await until(world, so, "it is said")
        assert await urls(plane) == {"site": ""}
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    play(story, steps, **how)


def test_namespace_without_grant_is_neither_forked_nor_routed(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await plane.must("PUT", "sandboxes/shop", forking(defaultRouteGroup=previewed(site=SITE)))

        async def refused() -> bool:
            return "may not be forked by sandboxes of acme-sandboxes" in (await status(plane))["message"]

        await until(world, refused, "it is refused")
        await world.rest(120)
        assert not world.gateways.ours()
        assert not world.forks.all()
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    play(story, steps, grants=False)


async def test_orders_of_one_run_are_carried_out_in_order():
    """Each offer takes several requests to the cluster, so the newer one can finish first."""
    told: list[str] = []

    class Host:
        async def lease(self, uid: str, until: int) -> Verdict:
            told.append(f"+{uid}{until}")
            for _ in range(4 - until):
                await asyncio.sleep(0)
            told.append(f"-{uid}{until}")
            return Verdict.TAKEN

    end = HostEnd(Host())
    orders = [wire.Lease(session=1, number=each, uid="u", until=each) for each in (1, 2, 3)]
    await asyncio.gather(*map(end.execute, orders))
    assert told == ["+u1", "-u1", "+u2", "-u2", "+u3", "-u3"]
    told.clear()
    others = wire.Lease(session=1, number=4, uid="v", until=3)
    await asyncio.gather(end.execute(orders[0]), end.execute(others))
    assert told == ["+u1", "+v3", "-v3", "-u1"], "those of another run do not wait"


def test_newer_of_two_concurrent_offers_wins(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await world.rest(5)
        plane.hook = lambda _number, what: Fate.LOST if what == "GET messages" else None
        asked = [asyncio.ensure_future(plane.must("PUT", "sandboxes/shop", forking()))]
        await world.rest(60)
        asked.append(asyncio.ensure_future(plane.must("PUT", "sandboxes/shop", forking("web", "page"))))
        await world.rest(60)
        plane.hook = lambda _number, _what: None
        await asyncio.gather(*asked)
        await until(world, lambda: true(len(world.forks.all()) == 2), "both forks are there")
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    play(story, steps)


def test_gateways_may_appear_later_and_disappear(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await plane.must("PUT", "sandboxes/shop", forking())
        await ready(world, plane)
        found = await key(plane)
        assert "neither the Gateway API nor Istio routes requests here" in (await status(plane))["message"]
        world.gateways.install()
        world.gateways.route()
        await until(world, lambda: leads(world, found), "its key leads to its fork")

        async def quiet() -> bool:
            stands = await status(plane)
            return stands["ready"] and "unsupported" not in stands

        await until(world, quiet, "nothing is lacking")
        world.gateways.remove()

        async def lacking() -> bool:
            return "neither the Gateway API nor Istio routes requests here" in (await status(plane))["message"]

        await until(world, lacking, "it is sent again")
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    play(story, steps, installed=False)


def test_requests_are_not_rerouted_during_restarts(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        found = await begin(world, plane, defaultRouteGroup=previewed(site=SITE))
        fork = world.gateways.leads(found)
        before = sorted(each["metadata"]["uid"] for each in world.gateways.ours())
        for what in ("server", "agent", "both"):
            if what != "agent":
                await plane.restart()
            if what != "server":
                for process in world.processes:
                    process.transport.dead = True
            for _ in range(60):
                await world.rest(2)
                assert world.gateways.leads(found) == fork, what
        assert sorted(each["metadata"]["uid"] for each in world.gateways.ours()) == before
        await ready(world, plane)
        assert (await urls(plane))["site"]
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    play(story, steps)


def test_operator_that_cannot_list_routes_keeps_them(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        found = await begin(world, plane)
        fork = world.gateways.leads(found)
        asked = []

        def blind(_number, call: Call) -> Fault | None:
            if call.request.path != "/apis/gateway.networking.k8s.io/v1":
                return None
            asked.append(call)
            return Fault(Harm.TROUBLE_BEFORE)

        world.hook = blind
        for process in world.processes:
            process.transport.dead = True
        await world.rest(120)
        assert asked
        world.hook = lambda _number, _call: None
        for _ in range(60):
            await world.rest(2)
            assert world.gateways.leads(found) == fork
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    play(story, steps)


REQUESTS = 40
CELLS = [(number, fate) for number in range(1, REQUESTS + 1) for fate in Fate]


@pytest.mark.parametrize(("number", "fate"), SELECTION.sample(CELLS, 119, "fates of requests about routes"))
def test_any_fate_of_one_request_routes_to_the_fork(story, number, fate, played):
    async def steps(world: World, plane: ControlPlane) -> None:
        plane.hook = lambda now, _what: fate if now == number else None
        found = await begin(world, plane, defaultRouteGroup=previewed(site=SITE))

        async def addressed() -> bool:
            return bool((await urls(plane))["site"])

        await until(world, addressed, "its endpoint has an address")
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)
        await world.rest(400)
        assert not world.gateways.ours()
        assert world.gateways.leads(found) == "web"
        assert (await plane.must("GET", "clusters/east/thaw")) == {"frozen": False}

    played("lives under a server, each with another fate of one request of the agent", 1)
    play(story, steps)
