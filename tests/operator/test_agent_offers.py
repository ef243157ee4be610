"""A control plane that somebody else has taken over is a tenant of the bound namespace, and no more."""

from __future__ import annotations

import msgspec
import pytest
from rig import plane as planes
from rig.plane import Plane, wish
from rig.served import begin, box, gone, ready, until
from rig.world import World

from dayfly.operator.agent.objects import name_of
from dayfly.spec import wire
from dayfly.spec.lifecycle import Input, Origin, Target


def evil(plane: Plane, change) -> None:
    """Have every offer altered on its way out, as whoever has the server could."""
    host = plane.agents._hosts[planes.ORG, "east"]
    send = host.send
    host.send = lambda message: send(change(message) if isinstance(message, wire.Offer) else message)


def of(documents, **changes):
    return tuple(msgspec.structs.replace(each, **changes) for each in documents)


def secretive(document):
    """Each of its steps takes what comes with no document."""
    key = Input(name="key", secret=True)
    steps = (msgspec.structs.replace(unit, inputs=(*unit.inputs, key)) for unit in document.pre_start)
    return msgspec.structs.replace(document, pre_start=tuple(steps))


REFUSED = {
    "plugins of this cluster": (
        lambda offer: msgspec.structs.replace(
            offer, documents=of(offer.documents, origin=Origin(publisher="cluster", plugin="postgres"))
        ),
        "the plugin cluster:postgres is not one of acme",
    ),
    "a uid that leads elsewhere": (
        lambda offer: msgspec.structs.replace(offer, uid="../../secrets/x"),
        "is not a UID",
    ),
    "a route group": (
        lambda offer: msgspec.structs.replace(
            offer,
            documents=tuple(
                msgspec.structs.replace(each, target=msgspec.structs.replace(each.target, kind="RouteGroup"))
                for each in offer.documents
            ),
        ),
        "carries out sandboxes alone",
    ),
    "a secret": (
        lambda offer: msgspec.structs.replace(offer, documents=tuple(map(secretive, offer.documents))),
        "key is a secret, and --secrets-file gives it on a developer's own machine alone",
    ),
    "nothing at all": (lambda offer: msgspec.structs.replace(offer, documents=()), "a run has documents"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_offer_that_nobody_may_make_is_refused_and_makes_nothing(story, what):
    change, said = REFUSED[what]

    async def tell(world: World, plane: Plane) -> None:
        evil(plane, change)
        await plane.must("PUT", "resource-plugins/pg", planes.PLUGIN)
        await plane.must("PUT", "sandboxes/shop", wish())

        async def refused() -> bool:
            return said in (await plane.must("GET", "sandboxes/shop"))["status"]["message"]

        await until(world, refused, "it is refused")
        assert not world.cluster.objects("sandboxes")
        assert not world.cluster.objects("runs")

    story(tell)


def test_whatever_a_document_says_its_run_belongs_to_our_object_in_the_bound_namespace(story):
    async def tell(world: World, plane: Plane) -> None:
        target = Target(
            api_version="dayfly.dev/v1alpha1", kind="Sandbox", namespace="kube-system", name="x", uid="another"
        )
        evil(
            plane,
            lambda offer: msgspec.structs.replace(offer, target=target, documents=of(offer.documents, target=target)),
        )
        await begin(world, plane)
        seen = box(world)
        documents = [each["spec"]["target"] for each in world.cluster.objects("objectlifecyclemethods")]
        wanted = {key: seen["metadata"][key] for key in ("name", "namespace", "uid")}
        for found in (world.ledger()["target"], *documents):
            assert {key: found[key] for key in wanted} == wanted
        assert seen["metadata"]["namespace"] == "acme-sandboxes"
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    story(tell)


def test_a_name_that_a_tenant_took_first_is_left_alone_and_said(story):
    async def tell(world: World, plane: Plane) -> None:
        await plane.must("PUT", "resource-plugins/pg", planes.PLUGIN)
        host = plane.agents._hosts[planes.ORG, "east"]
        send, taken = host.send, []

        def squat(message):
            if isinstance(message, wire.Offer) and not taken:
                taken.append(message)
                world.sandbox({}, name=name_of(message.uid), namespace="acme-sandboxes")
            send(message)

        host.send = squat
        await plane.must("PUT", "sandboxes/shop", wish())

        async def said() -> bool:
            return (
                "is not the control plane's; delete it"
                in (await plane.must("GET", "sandboxes/shop"))["status"]["message"]
            )

        await until(world, said, "it is said")
        [theirs] = world.cluster.objects("sandboxes")
        assert "dayfly.dev/served" not in theirs["metadata"].get("finalizers", [])
        world.delete(theirs["metadata"]["name"], "acme-sandboxes")
        await ready(world, plane)

    story(tell)
