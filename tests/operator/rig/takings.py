"""Lives from which something is taken away at some moment: a right, a kind that is served, room, a webhook's leave.

What is taken is given back later, when whoever had wished for the life does so no more.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from dayfly.execute.gateway.preview import PreviewGateway
from dayfly.kube.transport import Request
from dayfly.operator.cluster.route_kinds import RoutingSettings
from dayfly.operator.route_groups.extension import Groups
from kube.fake import Call, Refusal
from kube.fake.cluster import is_discovery
from kube.fake.rights import verb
from rig import hooking
from rig.cloud import Object
from rig.mixed import MIXED, TOLD, UNITS
from rig.scenes import CHAIN, CHAIN_UNITS, RETRY, RETRY_UNITS, Scene, fork, ready, wish
from rig.world import API, Unit, World

GROUPS = f"/apis/{API}/namespaces/shop/routegroups"
EDGE = PreviewGateway("edges", "edge", "preview.example.com")
ENDPOINTS: Object = {"endpoints": [{"name": "site", "target": "http://web.shop.svc:80"}]}
MINUTES = (400, 200, *([90] * 8))
"""So many requests of an operator are enough for one life whose way is barred, in each minute of the wait."""


@dataclasses.dataclass(frozen=True)
class Life:
    """What somebody wishes for, when it stands, and how they wish for it no more."""

    world: Callable[[], World]
    begin: Callable[[World], None]
    stands: Callable[[World], bool]
    end: Callable[[World], None]
    over: Callable[[World], bool] = lambda world: not world.leftovers()


class Asked(NamedTuple):
    """What a request does to which resource; `user` is whose rights count, where they are not the operator's own."""

    does: str
    resource: str
    plural: str
    user: str


class Taking(NamedTuple):
    """How it is called, and what it does to a world; what that gives undoes it."""

    name: str
    take: Callable[[World], Callable[[], object]]
    of: Asked | None = None  # it is met by whoever asks just this; None where nobody knows who meets it


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
    world.groups = Groups
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
    for name in hooking.FOUR.values():
        world.units[name] = Unit(creates=name in ("before", "warm"))
        world.kubelet.scripts[name] = hooking.Script()
        world.cloud.knows(name, creates=name in ("before", "warm"), once=False, reads={}, drains=False)
    return world


def _hooked() -> World:
    units = {name: Unit(creates=name in ("before", "warm")) for name in hooking.FOUR.values()}
    return World(units, {name: hooking.Script() for name in units})


async def _nothing(_world: World) -> None:
    """A scene is asked for its world alone."""


def _wish_for_a_group(world: World) -> None:
    hooks = {event: [hooking.step(name)] for event, name in hooking.FOUR.items()}
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
    hooking.hook(world, **{event: [hooking.step(name)] for event, name in hooking.FOUR.items()})
    hooking.machine(world)


def _end_hook(world: World) -> None:
    if world.cluster.serves("machines") and hooking.machine_of(world) is not None:
        hooking.delete(world)
    if world.cluster.serves("lifecyclehooks") and hooking.hook_of(world) is not None:
        hooking.remove_hook(world)


def _sandbox(**spec: object) -> Callable[[World], None]:
    return lambda world: void(world.sandbox(wish(**spec)))


def void(_: object) -> None:
    """What was given is of no use."""


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
        lambda world: hooking.is_active(world) and world.cloud.starts("warm") > 0,
        _end_hook,
        lambda world: world.cluster.serves("machines") and hooking.is_over(world) and hooking.hook_of(world) is None,
    ),
}


# --- takings ----------------------------------------------------------------------------------------------------------


def asked(world: World, request: Request) -> Asked | None:
    """None if it asks what is served, or for what is not."""
    if is_discovery(request.path):
        return None
    try:
        kind, key, _ = world.cluster.target(request.path)
    except Refusal:
        return None
    does = verb(request.method, named=bool(key.name), watches="watch" in request.query)
    return Asked(does, kind.qualified, kind.plural, request.headers.get("Impersonate-User", ""))


def right(of: Asked) -> Taking:
    """An administrator takes a right away from the operator, or from an account that it acts for."""

    def take(world: World) -> Callable[[], object]:
        if of.user:
            lost = (of.user, of.does, of.resource)
            had = lost in world.cluster.rights
            world.cluster.rights.discard(lost)
            return lambda: had and world.cluster.rights.add(lost)
        world.cluster.denied.add((of.does, of.resource))
        return lambda: world.cluster.denied.discard((of.does, of.resource))

    # What an account may do is asked about as well, in a review's body.
    name = f"the right to {of.does} {of.resource}{' of the account' if of.user else ''}"
    return Taking(name, take, None if of.user else of)


def leave(of: Asked, code: int = 403) -> Taking:
    """A webhook admits such a change no more, each time in other words; or does not answer (500)."""

    def take(world: World) -> Callable[[], object]:
        said = 0

        def refuse(request: Request) -> Refusal | None:
            nonlocal said
            what = asked(world, request)
            if what is None or (what.does, what.resource) != (of.does, of.resource):
                return None
            said += 1
            words = f"admission webhook denied request {said}" if code == 403 else f"failed calling webhook: try {said}"
            return Refusal(code, words)

        world.cluster.refuses = refuse
        return lambda: setattr(world.cluster, "refuses", lambda _request: None)

    return Taking(f"the {'leave' if code == 403 else 'webhook'} to {of.does} {of.resource}", take, of)


def kind(plural: str) -> Taking:
    """A definition goes, and what there is of its kind is out of sight; then it comes back."""

    def take(world: World) -> Callable[[], object]:
        was = world.cluster.forget(plural)
        return lambda: world.cluster.serve(was)

    return Taking(f"the definition of {plural}", take)


NOTHING = Taking("nothing", lambda _world: lambda: None)
# Others' kinds, and ours. Routes are let go where nobody serves them (`execute.istio`, `execute.gateway`).
DEFINITIONS = {
    "steps": ("sandboxes", "runs", "objectlifecyclemethods"),
    "mixed": ("claims", "runs"),
    "group": ("routegroups", "sandboxes", "runs"),
    "hook": ("machines", "lifecyclehooks", "runs"),
}


def takings(name: str, requests: list[Asked]) -> list[Taking]:
    """All that can be taken from a life in which these were asked."""
    every = list(dict.fromkeys(requests))
    changes = [each for each in every if each.does not in ("get", "list", "watch")]
    found = [right(each) for each in every] + [leave(each) for each in changes]
    found += [leave(each, 500) for each in changes]
    return found + [kind(plural) for plural in DEFINITIONS.get(name, ())]


# --- playing ----------------------------------------------------------------------------------------------------------


def met(every: list[Taking], requests: list[Asked]) -> list[Taking]:
    """Those that make a difference where all this is asked afterwards: a life without them is the same to the letter."""
    known = {request._replace(user="") for request in requests}
    return [each for each in every if each.of is None or each.of._replace(user="") in known]


async def play(world: World, life: Life, taking: Taking | None, number: int, after: float) -> list[Asked]:
    """One life, from which something is taken at a change, and whose end is wished for so much later.

    All that operators asked since then is given back.
    """
    undo: list[Callable[[], object]] = []
    requests: list[Asked] = []

    def hook(count: int, call: Call) -> None:
        if taking is not None and count == number and not undo:
            undo.append(taking.take(world))
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
    """It waits, and asks now and then."""
    for minute, enough in enumerate(MINUTES):
        before = len(world.cluster.calls)
        await world.rest(60)
        calls = world.cluster.calls[before:]
        if len(calls) > enough:
            paths = collections.Counter(f"{each.request.method} {each.request.path}" for each in calls)
            raise AssertionError(f"{len(calls)} requests in minute {minute}: {paths.most_common(6)}")
