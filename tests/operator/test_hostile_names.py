"""Hostile text in each string field of each kind, without the schemas: requests, statuses and the end."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from tests.kube.fake import run
from tests.kube.fake.kinds import BUILTIN
from tests.operator.rig import hostile_specs
from tests.operator.rig.world import API, KINDS, World
from tests.selection import SELECTION

from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster import births
from dayfly.operator.extensions import SandboxExtensionFactory
from dayfly.operator.route_groups.extension import RouteGroupsExtension
from dayfly.operator.sandboxes.extension import SandboxesExtension
from dayfly.spec.documents import from_wire
from dayfly.spec.errors import SpecError
from dayfly.spec.kinds import RunSpec
from dayfly.spec.lifecycle import Lifecycle

MERGE = "application/merge-patch+json"
PLURALS = {kind.plural for kind in (*KINDS, *BUILTIN)} | {"gateways", "httproutes", "grpcroutes", "virtualservices"}
SUBRESOURCES = {"status", "log"}
QUERIES = {
    "allowWatchBookmarks", "container", "continue", "dryRun", "fieldManager", "fieldSelector", "follow", "force",
    "labelSelector", "limit", "limitBytes", "resourceVersion", "timeoutSeconds", "timestamps", "watch",
}  # fmt: skip
NAMESPACES = {"shop", "tools", "dayfly-runners", "dayfly-system"}
SANDBOXES = f"/apis/{API}/namespaces/shop/sandboxes"
GROUPS = f"/apis/{API}/namespaces/shop/routegroups"
HOOKS, PLUGINS, RUNS, DOCUMENTS = (
    f"/apis/{API}/{plural}" for plural in ("lifecyclehooks", "resourceplugins", "runs", "objectlifecyclemethods")
)
MACHINES = "/apis/cluster.example.org/v1/namespaces/shop/machines"
BAIT = {"dayfly.dev/sandboxes-from": "shop", "dayfly.dev/runners-from": "shop"}


def astray(world: World) -> list[str]:
    """Return requests that do not lead to one object, or all objects, of a kind in a namespace of that name."""
    return sorted({found for call in world.cluster.calls for found in _astray(call.request)})


def _astray(request: Any) -> Iterator[str]:
    said = f"{request.method} {request.path} {dict(request.query)}"
    parts = request.path.split("/")
    rest = parts[3:] if parts[1] == "api" else parts[4:]
    if re.search("[?#\n ]|%2[fF]|%25", request.path) or any(unquote(each) in ("", ".", "..") for each in parts[1:]):
        yield said
    if not set(request.query) <= QUERIES or (request.query.get("watch") and len(rest) > 1):
        yield said
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = unquote(rest[1]), rest[2:]
    if not rest:
        return  # the parts of a path that follow a version
    plural, name, subresource = (*rest, "", "")[:3]
    # A Run names the kind of its target, and the operator requests an object of that kind.
    known = plural in PLURALS or (request.method == "GET" and unquote(plural) in hostile_specs.VALUES)
    if not known or subresource not in {"", *SUBRESOURCES} or len(rest) > 3:
        yield said
    if name == "bait" or namespace == "evil" or (request.method != "GET" and namespace not in {"", *NAMESPACES}):
        yield said


def bare() -> World:
    """Return a cluster in which a tenant has some grants, with a Secret and a namespace as bait."""
    world = World({}, {})
    world.groups = RouteGroupsExtension
    world.namespace("tools", BAIT, **{"dayfly.dev/runners": "true"})
    world.namespace("evil", BAIT, **{"dayfly.dev/runners": "true"})
    world.grant("tools", annotations={"dayfly.dev/pod-keys": "app,note"})
    world.grant("shop", labels={"dayfly.dev/forks": "free"}, annotations={"dayfly.dev/steps": "9999"})
    granted = {"name": "granted", "annotations": {"dayfly.dev/plugins": "cluster:bait"}}
    for plural in ("secrets", "configmaps", "persistentvolumeclaims"):
        world.ask("POST", f"/api/v1/namespaces/tools/{plural}", {"metadata": granted})
    world.ask("POST", "/api/v1/namespaces/tools/secrets", {"metadata": {**granted, "name": "dns"}})
    world.forks.baseline()
    world.may("claims.db.example.org")
    meta = {"name": "bait", "annotations": BAIT, "labels": {"dayfly.dev/runners": "true"}}
    for namespace in ("shop", "evil"):
        world.ask("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": meta, "data": {}})
    return world


def selecting(world: World, spec: Any, name: str) -> Any:
    """Create an object for a hook, and return the hook with a selector for that object."""
    labels = {"team": "pay", "hook": name}
    world.ask("POST", MACHINES, {"metadata": {"name": name, "labels": labels}})
    selector = spec["selector"]
    return {**spec, "selector": {**selector, "labels": {**selector["labels"], "hook": name}}}


def posted(world: World, path: str, kind: str, specs: list[Any]) -> list[str]:
    for number, wish in enumerate(specs):
        name, spec = f"x{number}", wish
        if kind == "ResourcePlugin":
            name = "bait.1.0.0"
        elif kind == "LifecycleHook":
            spec = selecting(world, wish, name)
        world.ask("POST", path, {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec})
    return [f"x{number}" for number in range(len(specs))]


def reasons(world: World, plural: str) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each.get("status", {}).get("reason", "") for each in world.cluster.objects(plural)
    }


async def settled(world: World, so: Callable[[], bool], most: int) -> None:
    """Let time pass until the condition is true, or for that number of seconds."""
    for _ in range(most // 2):
        if so():
            return
        await world.rest(2)


async def ended(world: World, plural: str, path: str, targets: str = "") -> None:
    """Delete all objects of a kind, and abandon objects with begun steps: without a kubelet no step ends.

    The runs of hooks have objects at `targets`.
    """

    def there() -> list[str]:
        return [name for name in reasons(world, plural) if name[0] == "x"]

    for name in there():
        world.ask("DELETE", f"{path}/{name}")
    await settled(world, lambda: not there(), 60)
    begun = {each["ledger"]["target"]["name"] for each in world.cluster.objects("runs") if each["ledger"].get("units")}
    for name in there():
        if targets or name in begun or reasons(world, plural)[name] == "PlanLost":
            notes = {"metadata": {"annotations": {"dayfly.dev/abandon": "test"}}}
            world.ask("PATCH", f"{targets or path}/{name}", notes, MERGE)
    await settled(world, lambda: not there(), 120)


def played(
    cases: list[tuple[str, str, Any]],
    story: Callable[[World], Awaitable[list[str]]],
    place: tuple[str, str, str] = ("sandboxes", SANDBOXES, ""),
    front: SandboxExtensionFactory | None = SandboxesExtension,
) -> None:
    """Let a story create one object for each case. Each named object gets a reason, and each can be ended."""

    async def main() -> World:
        world = bare()
        world.respawn, world.front = False, front
        world.start()
        try:
            names_ = await story(world)
            await settled(world, lambda: all(reasons(world, place[0]).get(name, "-") for name in names_), 60)
            silent = [name for name in names_ if not reasons(world, place[0]).get(name, "-")]
            assert not silent, [cases[int(name[1:])][:2] for name in silent][:20]
            await ended(world, *place)
        finally:
            await world.processes[0].end()
        return world

    world = run(main())
    assert not (found := astray(world)), f"{len(found)}: " + "\n".join(found[:20])
    left = [(*cases[int(name[1:])][:2], reason) for name, reason in reasons(world, place[0]).items() if name[0] == "x"]
    assert not left, f"{len(left)}: {left[:20]}"


# `make test` plays every third case on average.
ONE_IN = 3
BAIT_PLUGIN = {**hostile_specs.PLUGIN, "name": "bait@1.0.0"}
SORTS = hostile_specs.sorts("Sandbox")
KINDS_OF_WISHES = {
    "sandbox": (("sandboxes", SANDBOXES, ""), "Sandbox", hostile_specs.SANDBOXES, ()),
    "route group": (("routegroups", GROUPS, ""), "RouteGroup", (hostile_specs.GROUP,), SORTS),
    "lifecycle hook": (("lifecyclehooks", HOOKS, MACHINES), "LifecycleHook", (hostile_specs.HOOK,), SORTS),
}


@pytest.mark.parametrize("what", KINDS_OF_WISHES)
def test_hostile_wish_sends_no_request_astray_and_can_end(what):
    place, kind, seeds, tried = KINDS_OF_WISHES[what]
    cases = SELECTION.sample(hostile_specs.wishes(kind, seeds, tried), ONE_IN, f"hostile texts of a {what}")

    async def story(world: World) -> list[str]:
        posted(world, PLUGINS, "ResourcePlugin", [BAIT_PLUGIN])
        return posted(world, place[1], kind, [spec for _, _, spec in cases])

    played(cases, story, place)


def takes(schema: Any, text: str) -> bool:
    """Return whether a schema's pattern accepts a text; for an API server, the end is the end of the text."""
    return re.search(re.sub(r"\$$", r"\\Z", schema.get("pattern", "")), text) is not None


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ("Sandbox", hostile_specs.SANDBOXES),
        ("RouteGroup", (hostile_specs.GROUP,)),
        ("LifecycleHook", (hostile_specs.HOOK,)),
        ("ResourcePlugin", (hostile_specs.PLUGIN,)),
    ],
)
def test_hostile_text_that_the_schema_refuses_reading_refuses(kind, seeds):
    """The command line, the server and an operator with an older schema must refuse it, too."""
    accepted, known = [], hostile_specs.fields(kind)
    for name, text, spec in hostile_specs.wishes(kind, seeds):
        if name in known and not takes(known[name], text):
            with contextlib.suppress(SpecError):
                from_wire({"name": "bait@1.0.0" if kind == "ResourcePlugin" else "x", "spec": spec}, kind)
                accepted.append((name, text[:40]))
    assert not accepted


def test_hostile_plugin_sends_no_request_astray():
    """Each plugin has a reason, and a Sandbox with it can be deleted."""
    cases = SELECTION.sample(
        hostile_specs.wishes("ResourcePlugin", [BAIT_PLUGIN], SORTS), ONE_IN, "hostile texts of a plugin"
    )

    async def story(world: World) -> list[str]:
        for number, (name, _, spec) in enumerate(cases):
            named = spec if name == "name" else {**spec, "name": f"x{number}@1.0.0"}
            meta = {"name": f"x{number}.1.0.0"}
            world.ask("POST", PLUGINS, {"apiVersion": API, "kind": "ResourcePlugin", "metadata": meta, "spec": named})
        await settled(world, lambda: all(reasons(world, "resourceplugins").values()), 60)
        assert all(reasons(world, "resourceplugins").values())
        resources = [{"name": "db", "plugin": f"x{number}@1.0.0"} for number in range(len(cases))]
        return posted(world, SANDBOXES, "Sandbox", [{"cluster": "c", "resources": [each]} for each in resources])

    played(cases, story)


SAID_ELSEWHERE = {"plural", "offered.uid"}
"""Fields that make a run one of another kind, or of a server: its Sandbox then has no status."""
PINNED = [{"name": "plan", "uid": "uid", "digest": "sha256:"}]


def sealed() -> list[tuple[Any, Any]]:
    """Return the documents and the run of each valid spec, as an operator has sealed them."""

    async def main() -> list[tuple[Any, Any]]:
        made = bare()
        posted(made, PLUGINS, "ResourcePlugin", [BAIT_PLUGIN])
        posted(made, SANDBOXES, "Sandbox", list(hostile_specs.SANDBOXES))
        made.start()
        try:
            await settled(made, lambda: all(reasons(made, "sandboxes").values()), 60)
        finally:
            await made.processes[0].end()
        documents = {each["metadata"]["name"]: each["spec"] for each in made.cluster.objects("objectlifecyclemethods")}
        runs = {each["ledger"]["target"]["name"]: each for each in made.cluster.objects("runs")}
        ordered = [runs[f"x{number}"] for number in range(len(hostile_specs.SANDBOXES))]
        return [([documents[pin["name"]] for pin in each["spec"]["documents"]], each["spec"]) for each in ordered]

    return run(main())


def sealed_wishes() -> Iterator[tuple[str, str, tuple[list[Any], Any]]]:
    """Yield field, text, and the sealed documents and run with the text in that field."""
    forks, _, plugin, _, _ = sealed()
    documents, spec = plugin
    known = [name for name in hostile_specs.sorts("ObjectLifecycleMethods") if not hostile_specs.names_something(name)]
    for name, text, made in hostile_specs.wishes("ObjectLifecycleMethods", documents[:1], known, most=4):
        yield name, text, ([made, *documents[1:]], spec)
    known = [name for name in hostile_specs.sorts("Run") if not hostile_specs.names_something(name)]
    for name, text, made in hostile_specs.wishes("Run", [{**forks[1], "documents": PINNED}], known, most=4):
        yield name, text, (forks[0], made)


async def begun(world: World, name: str, documents: list[Any], spec: Any) -> None:
    """Create a Sandbox with documents of another version of the operator, unless this version cannot read them."""
    body = {"apiVersion": API, "kind": "Sandbox", "metadata": {"name": name}, "spec": {"cluster": "c"}}
    meta = msgspec.convert(world.ask("POST", SANDBOXES, body)["metadata"], AnnotatedMeta)
    whose = {"apiVersion": API, "kind": "Sandbox", "namespace": "shop", "name": name, "uid": meta.uid}
    with contextlib.suppress(msgspec.ValidationError):
        plans = msgspec.convert([{**each, "target": whose} for each in documents], tuple[Lifecycle, ...])
        pins = spec.get("documents", [])
        made = await births.seal(
            world.processes[0].operator.cluster, meta, plans, msgspec.convert({**spec, "documents": []}, RunSpec)
        )
        if any(pin not in PINNED for pin in pins):
            where = f"{RUNS}/{made.metadata.name}"
            kept = msgspec.to_builtins(made.spec)["documents"]
            changed = [{**old, **(new if new not in PINNED else {})} for old, new in zip(kept, pins, strict=False)]
            world.ask("PATCH", where, {"spec": {"documents": changed}}, MERGE)


def test_hostile_sealed_run_sends_no_request_astray():
    """An operator without these checks, or an administrator, has sealed it."""
    cases = SELECTION.sample(sealed_wishes(), ONE_IN, "hostile texts of a sealed run")

    async def story(world: World) -> list[str]:
        await world.rest(2)
        for number, (_, _, (documents, spec)) in enumerate(cases):
            await begun(world, f"x{number}", documents, spec)
        found = [each["ledger"]["target"]["name"] for each in world.cluster.objects("runs")]
        return [name for name in found if cases[int(name[1:])][0] not in SAID_ELSEWHERE]

    played(cases, story, front=None)
