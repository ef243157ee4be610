"""Worlds with shared parents: sandboxes whose resource `db` has the parent `server`, as the compiler would seal them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from tests.embedded import documents as doc
from tests.embedded.parent_documents import parent, with_parent
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.pools import IMAGE, seal_run, target_in
from tests.operator.rig.scenes import plugin, step
from tests.operator.rig.world import Unit, World

from dayfly.operator.cluster.objects import MemberRef
from dayfly.operator.pools.extension import PoolsExtension
from dayfly.spec.lifecycle import Lifecycle

URL = b"server://1"
UNITS = {
    "server/start": Unit(creates=True, once=True, undone_by="server/stop"),
    "server/stop": Unit(creates=False),
    "db/clone": Unit(creates=True, once=True, undone_by="db/drop"),
    "db/drop": Unit(creates=False),
}


def server(name: str = "server", **limits: int) -> Lifecycle:
    """Return the document of a parent. `limits` are fields of `Sharing`."""
    start = doc.step("start", image=IMAGE, outputs=[("url", "/tmp/url")])
    stop = doc.step("stop", image=IMAGE, backoff_ms=20, idempotent=True, limit=0)
    return parent([start], [stop], name, **limits)


def child_document(above: Lifecycle, name: str = "db") -> Lifecycle:
    """Return the document of a resource with the parent `above`."""
    clone = doc.step("clone", image=IMAGE, inputs=["url=parent.start.url"], outputs=[("name", "/tmp/name")])
    drop = doc.step("drop", image=IMAGE, inputs=["url=parent.start.url"], backoff_ms=20, idempotent=True, limit=0)
    return with_parent(doc.resource(name, [clone], [drop]), above)


PARENT_PLUGIN = plugin([step("start", outputs=("url",))], [step("stop", idempotent=True)])
"""The plugin of the parent `server`."""


def child_plugin(above: str = "server@1.0.0", **limits: Any) -> Object:
    """Return a plugin with the parent `above`. `limits` are fields of `spec.parent`."""
    reads = {"name": "url", "valueFromParent": {"step": "start", "output": "url"}, "as": {"env": "URL"}}
    create = {**step("clone", outputs=("name",)), "inputs": [reads]}
    delete = {**step("drop", idempotent=True), "inputs": [reads]}
    return {**plugin([create], [delete]), "parent": {"plugin": above, **limits}}


def parent_world(*, seed: int = 0, **scripts: Script) -> World:
    """Return a world whose operators know pools and parents. `scripts` are the steps by name."""
    behaves = {unit: scripts.get(unit.partition("/")[2], Script()) for unit in UNITS}
    behaves["server/start"].outputs = {"url": URL}
    behaves["db/clone"].outputs = {"name": b"db"}
    world = World(UNITS, behaves, seed=seed)
    world.front, world.pools = None, PoolsExtension
    world.invariants.append(lambda: list(parent_violations(world)))
    return world


def child(
    world: World, name: str = "box", above: Lifecycle | None = None, *, namespace: str = "shop", **limits: Any
) -> str:
    """Create a Sandbox with its run, as its controller would. Return its UID."""
    uid = world.sandbox({}, name, namespace)
    target = target_in("Sandbox", name, uid, namespace)
    document = child_document(above or server(**limits))
    seal_run(world, target, (msgspec.structs.replace(document, target=target), Lifecycle(target=target)), "sandboxes")
    return uid


def parents(world: World) -> list[Object]:
    """Return the objects of all parents."""
    return [each for each in world.cluster.objects("poolmembers") if each["spec"].get("parent")]


def parent_ledgers(world: World) -> list[Object]:
    """Return the ledgers of all parents."""
    every = (run["ledger"] for run in world.cluster.objects("runs"))
    return [ledger for ledger in every if ledger["target"]["kind"] == "SharedParent"]


def holders(world: World) -> set[str]:
    """Return the names of the Sandboxes that hold the only parent."""
    [ledger] = parent_ledgers(world)
    return {each["target"]["name"] for each in ledger.get("holders", ())}


def ref_of(found: Object) -> MemberRef:
    """Return the identity of a parent with this object."""
    meta = found["metadata"]
    return MemberRef(meta["namespace"], meta["name"], meta["uid"])


# --- what must always be true -------------------------------------------------------------------------------------------


def parent_violations(world: World) -> Iterable[str]:
    """Yield each state that ever was stored and in which a parent and its children do not agree."""
    if world.cloud.forgiven:
        return
    for (_, unit, attempt), given in world.cloud.given.items():
        if unit.startswith("db/") and given.get("URL") != URL:
            yield f"{unit}#{attempt} reads {given.get('URL')!r} from its parent"
    ledgers: dict[str, Object] = {}
    for write in world.cluster.store.after(world.cluster.kind("runs"), 0):
        if write.new is None:
            ledgers.pop(write.key.name, None)
        else:
            ledgers[write.key.name] = write.new["ledger"]
            yield from _broken(ledgers)


def _broken(ledgers: dict[str, Object]) -> Iterable[str]:
    by_uid = {ledger["uid"]: ledger for ledger in ledgers.values()}
    every = [(name, each) for name, each in ledgers.items() if each["target"]["kind"] == "SharedParent"]
    begun = [name for name, each in every if each.get("units") and each.get("phase", "open") in ("open", "closed")]
    places = [(ledgers[name]["target"]["namespace"], ledgers[name]["target"]["name"]) for name in begun]
    if len(places) > len(set(places)):
        yield f"{begun} have one place"
    for name, ledger in ledgers.items():
        units = ledger.get("units", {})
        clone, drop = units.get("db/clone", {}), units.get("db/drop", {})
        may_exist = clone.get("attempt", 0) > clone.get("voids", 0) and drop.get("outcome") != "succeeded"
        if not may_exist or clone.get("kind") == "acquire" or ledger.get("phase") == "abandoned":
            continue
        above = by_uid.get(MemberRef.parse(units["db/parent.start"]["ref"]).uid, {})
        held = {each["run"] for each in above.get("holders", ())}
        if above.get("phase", "open") != "open" or ledger["uid"] not in held:
            yield f"{name} has a child, and its parent is {above.get('phase', 'gone')} with the holders {held}"
