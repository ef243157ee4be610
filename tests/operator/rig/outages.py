"""Stories in which something is missing for a while: a permission, a served kind, quota, or a webhook's consent.

It is restored later, when the user has deleted the object.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from tests.kube.fake import Call, Refusal
from tests.kube.fake.cluster import is_discovery
from tests.kube.fake.rights import verb
from tests.operator.rig import hook_targets
from tests.operator.rig.cloud import Object
from tests.operator.rig.mixed_steps import MIXED, TOLD, UNITS
from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, RETRY, RETRY_UNITS, Scene, fork, ready, wish
from tests.operator.rig.world import API, Unit, World

from dayfly.execute.gateway.preview import PreviewGateway
from dayfly.kube.transport import KubeRequest
from dayfly.operator.cluster.route_kinds import RoutingSettings
from dayfly.operator.route_groups.extension import RouteGroupsExtension

GROUPS = f"/apis/{API}/namespaces/shop/routegroups"
EDGE = PreviewGateway("edges", "edge", "preview.example.com")
ENDPOINTS: Object = {"endpoints": [{"name": "site", "target": "http://web.shop.svc:80"}]}
MINUTES = (400, 200, *([90] * 8))
"""Maximum number of requests of an operator in each minute of the wait."""


@dataclasses.dataclass(frozen=True)
class Life:
    """An object, when it counts as ready, and how the user deletes it."""

    world: Callable[[], World]
    begin: Callable[[World], None]
    stands: Callable[[World], bool]
    end: Callable[[World], None]
    over: Callable[[World], bool] = lambda world: not world.leftovers()


class Asked(NamedTuple):
    """Verb and resource of a request; `user` is the account whose permissions count, if it is not the operator."""

    does: str
    resource: str
    plural: str
    user: str


class Outage(NamedTuple):
    """A name, and a function that applies it to a world and returns its undo."""

    name: str
    take: Callable[[World], Callable[[], object]]
    of: Asked | None = None  # the request that it affects; None if that is unknown


# --- lives ------------------------------------------------------------------------------------------------------------


def _steps() -> World:
    return Scene(CHAIN, CHAIN_UNITS, _nothing).world()


def _mixed() -> World:
    world = Scene(MIXED, UNITS, _nothing, TOLD).world()
    world.may("claims.db.example.org")
    world.may("secrets", verbs="get")
    return world


def _forks() -> World:
    world = Scene(RETRY, RETRY_UNITS, _nothing, baseline=True).world()
    world.groups = RouteGroupsExtension
    return world


def _routed() -> World:
    world = _forks()
    world.routing = RoutingSettings(edge=EDGE)
    world.gateways.install()
    world.gateways.route()
    return world


def _meshed() -> World:
    world = _forks()
    world.meshes.install()
    return world


def _grouped() -> World:
    world = _routed()
    for name in hook_targets.FOUR.values():
        world.units[name] = Unit(creates=name in ("before", "warm"))
        world.kubelet.scripts[name] = hook_targets.Script()
        world.cloud.knows(name, creates=name in ("before", "warm"), once=False, reads={}, drains=False)
    return world


def _hooked() -> World:
    units = {name: Unit(creates=name in ("before", "warm")) for name in hook_targets.FOUR.values()}
    return World(units, {name: hook_targets.Script() for name in units})


async def _nothing(_world: World) -> None:
    """A scene needs a world only."""


def _wish_for_a_group(world: World) -> None:
    hooks = {event: [hook_targets.step(name)] for event, name in hook_targets.FOUR.items()}
    match = {"label": {"key": "team", "value": "pay*"}}
    spec = {"match": match, "runner": {"image": "busybox:1"}, "hooks": hooks, **ENDPOINTS}
    world.ask("POST", GROUPS, {"apiVersion": API, "kind": "RouteGroup", "metadata": {"name": "pay"}, "spec": spec})
    world.sandbox(wish(forks=[fork()], labels={"team": "payments"}))


def _group_stands(world: World) -> bool:
    return all(each.get("status", {}).get("ready") for each in world.cluster.objects("routegroups")) and ready(world)


def _end(world: World) -> None:
    if world.cluster.serves("sandboxes") and world.box() is not None:
        world.delete()


def _end_group(world: World) -> None:
    _end(world)
    if world.cluster.serves("routegroups") and world.cluster.objects("routegroups"):
        world.ask("DELETE", f"{GROUPS}/pay")


def _wish_for_a_hook(world: World) -> None:
    hook_targets.hook(world, **{event: [hook_targets.step(name)] for event, name in hook_targets.FOUR.items()})
    hook_targets.machine(world)


def _end_hook(world: World) -> None:
    if world.cluster.serves("machines") and hook_targets.machine_of(world) is not None:
        hook_targets.delete(world)
    if world.cluster.serves("lifecyclehooks") and hook_targets.hook_of(world) is not None:
        hook_targets.remove_hook(world)


def _sandbox(**spec: object) -> Callable[[World], None]:
    return lambda world: void(world.sandbox(wish(**spec)))


def void(_: object) -> None:
    """An input is invalid."""


LIVES = {
    "steps": Life(_steps, _sandbox(), ready, _end),
    "mixed": Life(_mixed, _sandbox(), ready, _end),
    "routed": Life(_routed, _sandbox(forks=[fork()], defaultRouteGroup=ENDPOINTS), ready, _end),
    "meshed": Life(_meshed, _sandbox(forks=[fork()]), ready, _end),
    "group": Life(
        _grouped,
        _wish_for_a_group,
        _group_stands,
        _end_group,
        lambda world: not world.leftovers() and not world.cluster.objects("routegroups"),
    ),
    "hook": Life(
        _hooked,
        _wish_for_a_hook,
        lambda world: hook_targets.is_active(world) and world.cloud.starts("warm") > 0,
        _end_hook,
        lambda world: (
            world.cluster.serves("machines") and hook_targets.is_over(world) and hook_targets.hook_of(world) is None
        ),
    ),
}


# --- outages ----------------------------------------------------------------------------------------------------------


def asked(world: World, request: KubeRequest) -> Asked | None:
    """Return the request; None for discovery, and for kinds that are not served."""
    if is_discovery(request.path):
        return None
    try:
        kind, key, _ = world.cluster.target(request.path)
    except Refusal:
        return None
    does = verb(request.method, named=bool(key.name), watches="watch" in request.query)
    return Asked(does, kind.qualified, kind.plural, request.headers.get("Impersonate-User", ""))


def right(of: Asked) -> Outage:
    """An administrator revokes a permission of the operator, or of an account that it acts for."""

    def take(world: World) -> Callable[[], object]:
        if of.user:
            lost = (of.user, of.does, of.resource)
            had = lost in world.cluster.rights
            world.cluster.rights.discard(lost)
            return lambda: had and world.cluster.rights.add(lost)
        world.cluster.denied.add((of.does, of.resource))
        return lambda: world.cluster.denied.discard((of.does, of.resource))

    # Access reviews name the permissions of an account in their body.
    name = f"the right to {of.does} {of.resource}{' of the account' if of.user else ''}"
    return Outage(name, take, None if of.user else of)


def leave(of: Asked, code: int = 403) -> Outage:
    """A webhook refuses such a change with a different message each time, or fails (500)."""

    def take(world: World) -> Callable[[], object]:
        said = 0

        def refuse(request: KubeRequest) -> Refusal | None:
            nonlocal said
            what = asked(world, request)
            if what is None or (what.does, what.resource) != (of.does, of.resource):
                return None
            said += 1
            words = f"admission webhook denied request {said}" if code == 403 else f"failed calling webhook: try {said}"
            return Refusal(code, words)

        world.cluster.refuses = refuse
        return lambda: setattr(world.cluster, "refuses", lambda _request: None)

    return Outage(f"the {'leave' if code == 403 else 'webhook'} to {of.does} {of.resource}", take, of)


def kind(plural: str) -> Outage:
    """A CRD is deleted, so its objects are invisible; then it is created again."""

    def take(world: World) -> Callable[[], object]:
        was = world.cluster.forget(plural)
        return lambda: world.cluster.serve(was)

    return Outage(f"the definition of {plural}", take)


NOTHING = Outage("nothing", lambda _world: lambda: None)
# Kinds of others, and ours. Routes are released where their kind is not served (`execute.istio`, `execute.gateway`).
DEFINITIONS = {
    "steps": ("sandboxes", "runs", "objectlifecyclemethods"),
    "mixed": ("claims", "runs"),
    "group": ("routegroups", "sandboxes", "runs"),
    "hook": ("machines", "lifecyclehooks", "runs"),
}


def outages(name: str, requests: list[Asked]) -> list[Outage]:
    """Return all outages that can affect a life with these requests."""
    every = list(dict.fromkeys(requests))
    changes = [each for each in every if each.does not in ("get", "list", "watch")]
    found = [right(each) for each in every] + [leave(each) for each in changes]
    found += [leave(each, 500) for each in changes]
    return found + [kind(plural) for plural in DEFINITIONS.get(name, ())]


# --- stories ----------------------------------------------------------------------------------------------------------


def met(every: list[Outage], requests: list[Asked]) -> list[Outage]:
    """Return the outages that matter if all this is requested afterwards; without them, a life is the same."""
    known = {request._replace(user="") for request in requests}
    return [each for each in every if each.of is None or each.of._replace(user="") in known]


async def play(world: World, life: Life, outage: Outage | None, number: int, after: float) -> list[Asked]:
    """Play one life with an outage that begins at a change; the object is deleted a while later.

    The outage ends then. Return all requests of operators since it began.
    """
    undo: list[Callable[[], object]] = []
    requests: list[Asked] = []

    def hook(count: int, call: Call) -> None:
        if outage is not None and count == number and not undo:
            undo.append(outage.take(world))
            requests.clear()
        if (what := asked(world, call.request)) is not None:
            requests.append(what)

    world.hook = hook
    world.start()
    life.begin(world)
    await world.until(lambda: life.stands(world) or undo, "it to stand", 900)
    if undo:
        await world.rest(after)
    life.end(world)
    await world.until(lambda: undo or life.over(world), "it to be over", 900)
    if undo:
        await _barred(world)
        undo[0]()
        life.end(world)  # what was out of sight is there again
    await world.until(lambda: life.over(world), "it to be over at last", 4 * 3600)
    return requests


async def _barred(world: World) -> None:
    """Wait, and check the number of requests in each minute."""
    for minute, enough in enumerate(MINUTES):
        before = len(world.cluster.calls)
        await world.rest(60)
        calls = world.cluster.calls[before:]
        if len(calls) > enough:
            paths = collections.Counter(f"{each.request.method} {each.request.path}" for each in calls)
            raise AssertionError(f"{len(calls)} requests in minute {minute}: {paths.most_common(6)}")
