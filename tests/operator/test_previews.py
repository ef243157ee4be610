"""Each endpoint of a sandbox has its own address, which adds the key to requests; in virtual time."""

from __future__ import annotations

import pytest
from tests.kube.fake import Refusal
from tests.operator.rig.fork_stories import ended
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, fork, forked, gone, message, ready, wish
from tests.operator.rig.world import API, World, live

from dayfly.execute.gateway.preview import PreviewGateway, host_name
from dayfly.kube.objects import Key
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.route_kinds import RoutingSettings
from dayfly.operator.route_groups.extension import RouteGroupsExtension
from dayfly.spec.identity import routing_key
from dayfly.spec.routing.routing_keys import injected_headers

GROUP = f"/apis/{API}/namespaces/shop/routegroups/{{}}"
SHORT = Scene(RETRY, RETRY_UNITS, forked)
WEB = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}
EDGE = PreviewGateway("edges", "edge", "preview.example.com", "https", "8443")


def play(story, *, edge: PreviewGateway | None = EDGE, installed: bool = True, groups: bool = False) -> World:
    """Run a story with an operator, a baseline, and a Gateway for addresses."""

    def born() -> World:
        world = SHORT.world()
        world.routing = RoutingSettings(edge=edge)
        world.groups = RouteGroupsExtension if groups else None
        return world

    async def begin(world: World) -> None:
        world.forks.baseline()
        world.forks.baseline("page")
        if installed:
            world.gateways.install()
            world.gateways.route()
        world.start(1)
        await story(world)

    return live(born, begin)


def previewed(**targets: str) -> dict:
    return {"endpoints": [{"name": name, "target": target} for name, target in targets.items()]}


def urls(world: World) -> dict[str, str]:
    return {each["name"]: each["url"] for each in world.status().get("endpoints", ())}


def host(url: str) -> str:
    return url.partition("://")[2].partition(":")[0]


async def sandbox(world: World, **targets: str) -> str:
    uid = world.sandbox(wish(forks=[fork()], defaultRouteGroup=previewed(**targets)))
    await world.until(lambda: ready(world), "ready", 120)
    return uid


def test_preview_address_leads_to_fork_or_baseline_with_its_key():
    async def story(world: World) -> None:
        uid = await sandbox(world, site="http://web.shop.svc:80", page="http://page.shop.svc:80")
        await world.until(lambda: len(urls(world)) == 2, "the addresses", 30)
        name = host_name(EDGE, "box", uid, "site")
        assert urls(world)["site"] == f"https://{name}:8443"
        [own] = world.forks.all()
        key = dict(injected_headers(routing_key(uid)))
        assert world.gateways.asked(name) == (own["metadata"]["name"], key)
        assert world.gateways.asked(host(urls(world)["page"])) == ("page", key)
        assert message(world) == "All desired workloads are available."
        world.delete()
        await world.until(lambda: not urls(world) or not world.forks.all(), "the addresses to go", 60)
        await gone(world)

    play(story)


def test_preview_address_is_reported_only_while_it_works():
    async def story(world: World) -> None:
        world.gateways.latency = 6.0
        world.sandbox(wish(forks=[fork()], defaultRouteGroup=previewed(site="http://web.shop.svc:80")))
        await world.until(lambda: any("site-box" in str(each) for each in world.gateways.ours()), "its route", 60)
        assert not urls(world)
        assert not ready(world)
        await world.until(lambda: urls(world), "the address", 60)
        assert world.gateways.asked(host(urls(world)["site"]))[0]
        assert ready(world)
        await ended(world)

    play(story)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edge", "target", "refuses", "word"),
    [
        (None, "http://web.shop.svc:80", "", "only if the operator has the option --preview-gateway"),
        (EDGE, "https://web.shop.svc:80", "", "a Gateway connects to it without TLS"),
        (EDGE, "http://nothing.shop.svc:80", "", "there is no Service nothing.shop.svc with port 80"),
        (EDGE, "http://web.shop.svc:9", "", "there is no Service web.shop.svc with port 9"),
        (
            EDGE._replace(gateway="nowhere"),
            "http://web.shop.svc:80",
            "",
            "Gateway edges/nowhere has not accepted the route yet",
        ),
        (EDGE, "http://web.shop.svc:80", "not from here", "Gateway edges/edge rejects the route: No: not from here"),
    ],
    ids=["none", "tls", "no service", "no port", "no gateway", "refused"],
)
def test_impossible_preview_is_reported_and_blocks_nothing(edge, target, refuses, word):
    async def story(world: World) -> None:
        if refuses:
            world.gateways.refuses["site-box"] = refuses
        await sandbox(world, site=target)
        await world.until(lambda: word in message(world), "the status message", 60)
        assert ready(world)
        assert not urls(world)
        await world.rest(600)
        before = len(world.writes)
        await world.rest(600)
        assert len(world.writes) == before
        await ended(world)

    play(story, edge=edge)


def test_preview_ignored_by_its_gateway_is_awaited_once():
    """A resting sandbox, about which nothing is remembered, does not wait again; nor does another operator."""

    async def story(world: World) -> None:
        world.sandbox({"forks": [WEB], "defaultRouteGroup": previewed(site="http://web.shop.svc:80")})
        await world.until(
            lambda: "nowhere has not accepted the route yet" in message(world) and ready(world), "ready", 120
        )
        await world.rest(60)
        world.change({"metadata": {"labels": {"team": "pay"}}})
        await world.rest(1)
        assert ready(world), "after a label has changed"
        for process in list(world.processes):
            await process.end()
            world.processes.remove(process)
        world.start()
        world.change({"metadata": {"labels": {"team": "web"}}})
        await world.rest(5)
        assert ready(world), "with another operator"
        await ended(world)

    play(story, edge=EDGE._replace(gateway="nowhere"))


def grouped(world: World, name: str, label: str = "pay", namespace: str = "shop", **targets: str) -> str:
    body = {
        "metadata": {"name": name},
        "spec": {"match": {"label": {"key": "team", "value": label}}, **previewed(**targets)},
    }
    path = f"/apis/{API}/namespaces/{namespace}/routegroups"
    return world.ask("POST", path, {"apiVersion": API, "kind": "RouteGroup", **body})["metadata"]["uid"]


def addresses(world: World, name: str, namespace: str = "shop") -> dict[str, str]:
    found = world.cluster.store.get(world.cluster.kind("routegroups"), Key(namespace, name)) or {}
    return {each["name"]: host(each["url"]) for each in found.get("status", {}).get("endpoints", ())}


def test_group_address_follows_its_members():
    async def story(world: World) -> None:
        uid = grouped(world, "all", site="http://web.shop.svc:80")
        await world.until(lambda: addresses(world, "all"), "the address", 60)
        name = addresses(world, "all")["site"]
        assert name == host_name(EDGE, "all", uid, "site")
        assert world.gateways.asked(name) == ("web", dict(injected_headers(routing_key(uid))))
        world.sandbox(wish(forks=[fork()], labels={"team": "pay"}))
        await world.until(lambda: ready(world), "a member", 120)
        [own] = world.forks.all()
        await world.until(
            lambda: world.gateways.asked(name)[0] == own["metadata"]["name"], "it to lead to its fork", 10
        )
        world.delete()
        await world.until(lambda: world.gateways.asked(name)[0] == "web", "it to lead to the baseline again", 10)
        assert world.forks.all(), "before the fork is gone"
        assert addresses(world, "all") == {"site": name}
        await world.until(lambda: not world.forks.all(), "the fork to go", 60)
        world.ask("PATCH", GROUP.format("all"), {"spec": {"endpoints": None}}, "application/merge-patch+json")
        await world.until(lambda: world.gateways.asked(name) == ("", {}), "it to go with its endpoint", 60)
        await world.until(lambda: not addresses(world, "all"), "its status to say so", 60)
        world.ask("DELETE", GROUP.format("all"))
        await world.until(lambda: not world.leftovers(), "nothing to be left", 60)

    play(story, groups=True)


UPDATE = ("update", "httproutes.gateway.networking.k8s.io")


def test_fork_stays_until_the_group_address_is_redirected():
    """The sandbox's own routes may be gone by then, and requests to the address would get no answer."""

    async def story(world: World) -> None:
        uid = grouped(world, "all", site="http://web.shop.svc:80")
        name = host_name(EDGE, "all", uid, "site")
        world.sandbox(wish(forks=[fork()], labels={"team": "pay"}))
        await world.until(lambda: ready(world) and world.gateways.asked(name)[0].startswith("f-"), "a member", 120)
        [route] = [each["metadata"]["name"] for each in world.gateways.ours() if "site-all" in each["metadata"]["name"]]

        def refuses(request: KubeRequest) -> Refusal | None:
            changes = request.method in ("PUT", "DELETE") and request.path.endswith(f"/{route}")
            return Refusal(403, "not now") if changes else None

        world.cluster.refuses = refuses
        world.delete()
        said = f"its fork stays while HTTPRoute shop/{route}, an endpoint's address, routes requests to it"
        await world.until(lambda: said in str(world.status().get("units")), "the status message", 60)
        assert len(world.gateways.ours()) == 1, "its own are gone"
        await world.rest(300)
        assert world.gateways.asked(name)[0].startswith("f-")
        assert world.forks.all()
        world.cluster.refuses = lambda _: None
        await world.until(lambda: world.gateways.asked(name)[0] == "web", "it to lead to the baseline", 60)
        assert world.forks.all()
        await world.until(lambda: not world.forks.all(), "the fork to go soon after that", 15)
        assert list(addresses(world, "all").values()) == [name]
        world.ask("DELETE", GROUP.format("all"))
        await world.until(lambda: not world.leftovers(), "nothing to be left", 60)

    play(story, groups=True)


def test_group_address_is_removed_if_it_cannot_be_redirected():
    async def story(world: World) -> None:
        uid = grouped(world, "all", site="http://web.shop.svc:80")
        name = host_name(EDGE, "all", uid, "site")
        world.cluster.denied = {UPDATE}
        world.sandbox(wish(forks=[fork()], labels={"team": "pay"}))
        await world.until(lambda: addresses(world, "all") and ready(world), "ready", 120)
        assert world.gateways.asked(name)[0] == "web", "requests without access to a fork are unaffected"
        world.cluster.denied = set()
        await world.until(lambda: world.gateways.asked(name)[0].startswith("f-"), "it to lead to the fork", 60)
        world.cluster.denied = {UPDATE}
        world.delete()
        await world.until(lambda: not world.forks.all(), "the fork to go", 60)
        await world.until(lambda: world.gateways.asked(name)[0] == "web", "another one, to the baseline", 60)
        world.ask("DELETE", GROUP.format("all"))
        await world.until(lambda: not world.leftovers(), "nothing to be left", 60)

    play(story, groups=True)


def test_group_address_leads_to_no_fork_of_another_namespace():
    """A user who may write groups there, and knows a key, gains nothing."""

    async def story(world: World) -> None:
        world.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "thieves"}})
        world.grant("shop", annotations={"dayfly.dev/sandboxes-from": "thieves"})
        world.sandbox(wish(forks=[fork()], labels={"team": "pay"}))
        await world.until(lambda: ready(world), "ready", 120)
        uid = grouped(world, "mine", namespace="thieves", site="http://web.shop.svc:80")
        await world.until(lambda: addresses(world, "mine", "thieves"), "the address", 60)
        run = next(each for each in world.cluster.objects("runs") if each["spec"].get("plural") == "routegroups")
        [victim] = [each for each in world.cluster.objects("runs") if each is not run]
        key = routing_key(victim["ledger"]["uid"])
        forks = [{**run["spec"]["forks"][0], "preview": {**run["spec"]["forks"][0]["preview"], "key": key}}]
        path = f"/apis/{API}/runs/{run['metadata']['name']}"
        world.ask("PATCH", path, {"spec": {"forks": forks}}, "application/merge-patch+json")
        name = host_name(EDGE, "mine", uid, "site")
        await world.until(
            lambda: world.gateways.asked(name)[1] == dict(injected_headers(key)), "it to give that key", 60
        )
        await world.rest(30)
        assert world.gateways.leads(key).startswith("f-")
        assert world.gateways.asked(name)[0] == "web", "and the data plane decides what is done with it"

    play(story, groups=True)


def test_address_into_a_namespace_without_grant_is_refused():
    """The right to write Sandboxes in one namespace gives no access to another."""

    async def story(world: World) -> None:
        world.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "bank"}})
        world.forks.baseline("vault", "bank")
        await sandbox(world, site="http://vault.bank.svc:80")
        await world.until(lambda: "may not be forked by sandboxes of shop" in message(world), "the refusal", 60)
        assert not [each for each in world.gateways.ours() if "site" in each["metadata"]["name"]]
        await ended(world)

    play(story)


def test_edited_preview_is_restored_and_removed_one_deleted():
    async def story(world: World) -> None:
        await sandbox(world, site="http://web.shop.svc:80")
        await world.until(lambda: urls(world), "the address", 30)
        [route] = [each["metadata"] for each in world.gateways.ours() if "site" in each["metadata"]["name"]]
        name, uid = route["name"], route["uid"]
        at = host(urls(world)["site"])
        world.gateways.change(name, {"spec": {"hostnames": ["elsewhere.example.org"]}})
        await world.until(lambda: world.gateways.asked(at)[0] != "", "it to be put back", 60)
        world.gateways.delete(name)
        await world.until(lambda: uid not in str(world.gateways.ours()) and urls(world), "another one", 60)
        await world.until(lambda: world.gateways.asked(at)[0] != "", "that to work", 60)
        world.change({"spec": {"defaultRouteGroup": {"endpoints": []}}})
        await world.until(lambda: not urls(world) and not world.gateways.asked(at)[0], "it to go", 60)
        await world.until(lambda: ready(world), "ready", 60)
        await ended(world)

    play(story)


def test_preview_host_names_differ_between_sandboxes():
    names = {host_name(EDGE, sandbox, uid, "site") for sandbox in ("box", "x" * 30) for uid in ("u1", "u2")}
    names.add(host_name(EDGE, "box", "u1", "s-ite"))
    assert len(names) == 5
    assert max(len(each.partition(".")[0]) for each in names) <= 63
