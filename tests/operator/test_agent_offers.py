"""A compromised server can do no more than a tenant of its bound namespace."""

from __future__ import annotations

import msgspec
import pytest
from tests.operator.rig import control_plane as planes
from tests.operator.rig import routed_clusters
from tests.operator.rig.control_plane import ControlPlane, wish
from tests.operator.rig.server_stories import begin, box, gone, ready, true, until
from tests.operator.rig.world import World

from dayfly.link import wire
from dayfly.operator.agent.served_sandboxes import object_name
from dayfly.server.sync.agents.mailbox_transport import MailboxTransport
from dayfly.spec.identity import routing_key
from dayfly.spec.lifecycle import MEMBER_TARGET, Baseline, Kind, PreviewUnit, Route, StepOrigin, Target, Unit, UnitInput
from dayfly.spec.resource_pool import ResourcePoolSpec


@pytest.fixture
def evil(monkeypatch):
    """Alter every offer on its way out, as an attacker who controls the server could."""
    send = MailboxTransport.send

    def alter(change) -> None:
        def altered(host, message):
            send(host, change(message) if isinstance(message, wire.Offer) else message)

        monkeypatch.setattr(MailboxTransport, "send", altered)

    return alter


def of(documents, **changes):
    return tuple(msgspec.structs.replace(each, **changes) for each in documents)


def secretive(document):
    """Add a secret param to each step: a cluster does not accept them."""
    key = UnitInput(name="key", secret=True)
    steps = (msgspec.structs.replace(unit, inputs=(*unit.inputs, key)) for unit in document.pre_start)
    return msgspec.structs.replace(document, pre_start=tuple(steps))


REFUSED = {
    "plugins of this cluster": (
        lambda offer: msgspec.structs.replace(
            offer, documents=of(offer.documents, origin=StepOrigin(publisher="cluster", plugin="postgres"))
        ),
        "the plugin cluster:postgres was not published by acme",
    ),
    "a uid that leads elsewhere": (
        lambda offer: msgspec.structs.replace(offer, uid="../../secrets/x"),
        "is not a UID",
    ),
    "what is neither a sandbox nor a route group": (
        lambda offer: msgspec.structs.replace(
            offer,
            documents=tuple(
                msgspec.structs.replace(each, target=msgspec.structs.replace(each.target, kind="LifecycleHook"))
                for each in offer.documents
            ),
        ),
        "only sandboxes, route groups and pools for a server",
    ),
    "a pool without its spec": (
        lambda offer: msgspec.structs.replace(offer, documents=of(offer.documents, target=MEMBER_TARGET)),
        "an offer of a pool must have its spec",
    ),
    "a sandbox with the spec of a pool": (
        lambda offer: msgspec.structs.replace(offer, pool=ResourcePoolSpec(plugin="pg", ready=1)),
        "this operator has no pools",
    ),
    "a secret": (
        lambda offer: msgspec.structs.replace(offer, documents=tuple(map(secretive, offer.documents))),
        "key is a secret, and --secrets-file can set it only on a developer's own machine",
    ),
    "nothing at all": (lambda offer: msgspec.structs.replace(offer, documents=()), "a run must have documents"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_forbidden_offer_is_refused_and_creates_nothing(story, evil, what):
    change, said = REFUSED[what]

    async def steps(world: World, plane: ControlPlane) -> None:
        evil(change)
        await plane.must("PUT", "resource-plugins/pg", planes.PLUGIN)
        await plane.must("PUT", "sandboxes/shop", wish())

        async def refused() -> bool:
            return said in (await plane.must("GET", "sandboxes/shop"))["status"]["message"]

        await until(world, refused, "it is refused")
        assert not world.cluster.objects("sandboxes")
        assert not world.cluster.objects("runs")

    story(steps)


def test_target_in_documents_cannot_leave_the_bound_namespace(story, evil):
    async def steps(world: World, plane: ControlPlane) -> None:
        target = Target(
            api_version="dayfly.dev/v1alpha1", kind="Sandbox", namespace="kube-system", name="x", uid="another"
        )
        evil(lambda offer: msgspec.structs.replace(offer, target=target, documents=of(offer.documents, target=target)))
        await begin(world, plane)
        seen = box(world)
        documents = [each["spec"]["target"] for each in world.cluster.objects("objectlifecyclemethods")]
        wanted = {key: seen["metadata"][key] for key in ("name", "namespace", "uid")}
        for found in (world.ledger()["target"], *documents):
            assert {key: found[key] for key in wanted} == wanted
        assert seen["metadata"]["namespace"] == "acme-sandboxes"
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    story(steps)


def test_name_taken_by_a_tenant_is_left_alone_and_reported(story, evil):
    async def steps(world: World, plane: ControlPlane) -> None:
        await plane.must("PUT", "resource-plugins/pg", planes.PLUGIN)
        taken = []

        def squat(offer):
            if not taken:
                taken.append(offer)
                world.sandbox({}, name=object_name(offer.uid), namespace="acme-sandboxes")
            return offer

        evil(squat)
        await plane.must("PUT", "sandboxes/shop", wish())

        async def said() -> bool:
            return "is not the server's; delete it" in (await plane.must("GET", "sandboxes/shop"))["status"]["message"]

        await until(world, said, "it is said")
        [theirs] = world.cluster.objects("sandboxes")
        assert "dayfly.dev/served" not in theirs["metadata"].get("finalizers", [])
        world.delete(theirs["metadata"]["name"], "acme-sandboxes")
        await ready(world, plane)

    story(steps)


def kept(*units: Unit):
    """Return a change that adds kept units to an offer."""
    return lambda offer: msgspec.structs.replace(offer, forks=(*offer.forks, *units))


def route(*keys: str) -> Unit:
    return Unit(
        name="web",
        kind=Kind.ROUTE,
        route=Route(baseline=Baseline(kind="Deployment", namespace="shop", name="web"), keys=keys),
    )


def preview(key: str, scheme: str = "http") -> Unit:
    shown = PreviewUnit(scheme=scheme, host="web.shop.svc", port=80, key=key)
    return Unit(name="site", kind=Kind.PREVIEW, preview=shown)


LED = {
    "a key that is a pattern": (lambda _: kept(route("ok", ".*")), 'route:shop/web: ".*" is not a routing key'),
    "the key of a sandbox that was applied here": (
        lambda theirs: kept(route(theirs)),
        "is the routing key of a sandbox applied in this cluster",
    ),
    "an address that gives that key": (lambda theirs: kept(preview(theirs)), "is the routing key of a sandbox"),
    "an address that gives a line of its own": (
        lambda _: kept(preview("a\r\nauthorization: x")),
        "is not a routing key",
    ),
    "an address by a scheme that is none": (
        lambda _: kept(preview("ok", "javascript")),
        'requests over "javascript" cannot carry a routing key',
    ),
}


@pytest.mark.parametrize("what", LED)
@pytest.mark.parametrize("when", ["at its birth", "once it lives"])
def test_offer_cannot_route_requests_of_others(story, evil, what, when):
    """Neither with a pattern that matches all keys, nor with a key of another user in this cluster."""
    change, said = LED[what]

    async def steps(world: World, plane: ControlPlane) -> None:
        theirs = routing_key(world.sandbox({"labels": {}}, name="theirs"))
        await until(world, lambda: true(world.status("theirs").get("ready")), "theirs is there")
        if when == "once it lives":
            await plane.must("PUT", "sandboxes/shop", routed_clusters.forking())
            await ready(world, plane)
        evil(change(theirs))
        await plane.must("PUT", "sandboxes/shop", routed_clusters.forking(labels={"x": "y"}))

        async def refused() -> bool:
            return said in (await plane.must("GET", "sandboxes/shop"))["status"]["message"]

        await until(world, refused, "it is refused")
        await world.rest(60)
        assert world.gateways.leads(theirs) == world.gateways.leads() == "web"

    story(steps, born=routed_clusters.world)


def test_route_without_fork_needs_a_grant_of_its_namespace(story, evil):
    async def steps(world: World, plane: ControlPlane) -> None:
        evil(kept(route("mine")))
        await plane.must("PUT", "sandboxes/shop", {"spec": {"cluster": "east"}})
        await world.rest(120)
        assert not world.gateways.ours()
        assert world.gateways.leads("mine") == "web"

    story(steps, born=lambda: routed_clusters.world(grants=False))


def test_unsafe_endpoint_address_is_not_shown(story):
    """A cluster can report any address for an endpoint."""

    async def steps(world: World, plane: ControlPlane) -> None:
        await plane.must(
            "PUT",
            "sandboxes/shop",
            routed_clusters.forking(defaultRouteGroup=routed_clusters.previewed(site="http://web.shop.svc:80")),
        )

        async def addressed() -> bool:
            return bool((await routed_clusters.urls(plane))["site"])

        await until(world, addressed, "it has an address")
        uid = (await plane.must("GET", "sandboxes/shop/report"))["uid"]
        picture = plane.link.state
        last = picture.last_report(uid)
        for number, changes in enumerate(({"scheme": "javascript"}, {"host": 'x" onclick="y'}, {"port": 0}), 1):
            bad = tuple(msgspec.structs.replace(each, **changes) for each in last.endpoints)
            picture.record_status(msgspec.structs.replace(last, seq=last.seq + number, endpoints=bad))
            assert await routed_clusters.urls(plane) == {"site": ""}

    story(steps, born=routed_clusters.world)
