"""Worlds with pool members: sandboxes whose resource `db` is provided by a member, as the compiler would seal them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from tests.embedded import documents as doc
from tests.embedded.pool_documents import pooled, template
from tests.kube.fake.store import Write
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.world import API, Unit, World

from dayfly.execute.pod import names
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import (
    RUN_FINALIZER,
    MemberRef,
    RunObject,
)
from dayfly.operator.pools.extension import PoolsExtension
from dayfly.spec.kinds import RunSpec
from dayfly.spec.lifecycle import API_VERSION, MEMBER_KIND, Lifecycle, Target, canonical, digest
from dayfly.spec.run import Run

IMAGE = "busybox:1"
POOLS = f"/apis/{API}/namespaces/shop/resourcepools"
MEMBERS = f"/apis/{API}/namespaces/shop/poolmembers"
URL = {"URL": ("pg/make", "url")}
UNITS = {
    "pg/make": Unit(creates=True, once=True, undone_by="pg/drop"),
    "pg/seed": Unit(creates=True, once=True, undone_by="pg/drop", reads=URL),
    "pg/drop": Unit(creates=False, reads=URL),
    "db/grant": Unit(creates=True, once=True, undone_by="db/revoke"),
    "db/revoke": Unit(creates=False),
}


def step(name: str, *inputs: str, outputs: tuple[str, ...] = ()) -> Any:
    given = tuple(f"{each}=make.{each}" for each in inputs)
    return doc.step(name, image=IMAGE, inputs=given, outputs=[(each, f"/tmp/{each}") for each in outputs])


TEMPLATE = template(
    [step("make", outputs=("url",)), step("seed", "url", outputs=("user",))], [step("drop", "url")], name="pg"
)


def _script(name: str, *, reads_url: bool = False, output: str = "") -> Object:
    made: Object = {"name": name, "script": "#!/bin/sh\n"}
    if reads_url:
        source = {"name": "make", "output": "url"}
        made["inputs"] = [{"name": "url", "valueFromStep": source, "as": {"env": "URL"}}]
    if output:
        made["outputs"] = [{"name": output, "valueFromPath": f"/tmp/{output}"}]
    return made


PLUGIN = {
    "runner": {"image": IMAGE},
    "create": [_script("make", output="url"), _script("seed", reads_url=True, output="user")],
    "delete": [_script("drop", reads_url=True)],
}
"""The plugin whose pools have members like `TEMPLATE`."""


def pool_world(*, claim_steps: bool = True, seed: int = 0, **scripts: Script) -> World:
    """Return a world whose operators know pools. `scripts` are the steps of members by name."""
    behaves = {unit: scripts.get(unit.partition("/")[2], Script()) for unit in UNITS}
    behaves["pg/make"].outputs = {"url": b"db://1"}
    behaves["pg/seed"].outputs = {"user": b"ann"}
    world = World(UNITS, behaves, seed=seed)
    world.front, world.pools = None, PoolsExtension
    world.claim_steps = claim_steps
    world.invariants.append(lambda: list(hold_violations(world)))
    return world


def member(world: World, number: int = 1) -> MemberRef:
    """Create a member without a pool, which needs no permission to start."""
    name = f"pg-{number}"
    spec = {"number": number, "template": digest(TEMPLATE)}
    body = {"apiVersion": API, "kind": MEMBER_KIND, "metadata": {"name": name}, "spec": spec}
    uid = world.ask("POST", MEMBERS, body)["metadata"]["uid"]
    seal_run(world, target_in(MEMBER_KIND, name, uid), TEMPLATE, "poolmembers")
    return MemberRef("shop", name, uid)


def pooled_sandbox(
    world: World, name: str = "box", namespace: str = "shop", documents: tuple[Lifecycle, ...] = TEMPLATE
) -> str:
    """Create a Sandbox with its run, as its controller would. Return its UID."""
    claim, undo = ([step("grant", "url")], [step("revoke", "url")]) if world.claim_steps else ([], [])
    uid = world.sandbox({}, name, namespace)
    target = target_in("Sandbox", name, uid, namespace)
    database = msgspec.structs.replace(pooled("db", documents, claim, undo), target=target)
    seal_run(world, target, (database, Lifecycle(target=target)), "sandboxes")
    return uid


def pooled_document(cold: Lifecycle) -> Lifecycle:
    """Return the document of a resource that a member provides, instead of one with its steps."""
    return msgspec.structs.replace(pooled(cold.resource, TEMPLATE), target=cold.target)


def target_in(kind: str, name: str, uid: str, namespace: str = "shop") -> Target:
    """Return the target with this name and UID."""
    return Target(api_version=API_VERSION, kind=kind, namespace=namespace, name=name, uid=uid)


def seal_run(world: World, target: Target, documents: tuple[Lifecycle, ...], plural: str) -> None:
    """Create the run of a target."""
    ledger = Run(uid=target.uid, target=target, plan=digest(documents), born_at=world.now())
    spec = RunSpec(inline=tuple(msgspec.json.decode(canonical(documents))), plural=plural)
    meta = AnnotatedMeta(name=names.run_name(target.name, target.uid), finalizers=[RUN_FINALIZER])
    _post(world, "runs", RunObject(metadata=meta, ledger=ledger, spec=spec))


def _post(world: World, plural: str, body: msgspec.Struct) -> Object:
    return world.ask("POST", f"/apis/{API}/{plural}", msgspec.json.decode(msgspec.json.encode(body)))


def pool(world: World, name: str = "warm", **spec: Any) -> str:
    """Apply a pool of the plugin `pg` with one member. Return its UID."""
    wanted = {"plugin": "pg", "ready": 1, **spec}
    body = {"apiVersion": API, "kind": "ResourcePool", "metadata": {"name": name}, "spec": wanted}
    return world.ask("POST", POOLS, body)["metadata"]["uid"]


def pool_status(world: World, name: str = "warm") -> Object:
    every = world.cluster.objects("resourcepools")
    return next((each.get("status", {}) for each in every if each["metadata"]["name"] == name), {})


def pool_ledger(world: World, uid: str) -> Object:
    """Return the ledger of the pool with this UID; empty if it is gone."""
    found = (run["spec"]["pool"]["ledger"] for run in world.cluster.objects("runs") if run["ledger"]["uid"] == uid)
    return next(found, {})


def members(world: World) -> list[Object]:
    return world.cluster.objects("poolmembers")


def ledger_of(world: World, ref: MemberRef) -> Object:
    """Return the ledger of a member; empty if it is gone."""
    return next((run["ledger"] for run in world.cluster.objects("runs") if run["ledger"]["uid"] == ref.uid), {})


def is_ready(world: World, ref: MemberRef) -> Callable[[], bool]:
    return lambda: ledger_of(world, ref).get("units", {}).get("pg/seed", {}).get("outcome") == "succeeded"


# --- what must always be true -------------------------------------------------------------------------------------------


def hold_violations(world: World) -> Iterable[str]:
    """Yield each state that ever was stored and in which a hold is broken."""
    if world.cloud.forgiven:
        return
    ledgers: dict[str, Object] = {}
    held: set[str] = set()  # UIDs of members with our finalizer
    writes = [
        each for plural in ("runs", "poolmembers") for each in world.cluster.store.after(world.cluster.kind(plural), 0)
    ]
    for write in sorted(writes, key=lambda each: each.version):
        whole = write.new or write.old
        if "ledger" not in whole:
            if "dayfly.dev/lifecycle" in whole["metadata"].get("finalizers", []):
                held.add(whole["metadata"]["uid"])
            continue
        yield from _ended_before_member(write, ledgers)
        if write.new is None:
            ledgers.pop(write.key.name, None)
        else:
            ledgers[write.key.name] = write.new["ledger"]
        yield from _broken_holds(ledgers)
        yield from _early_starts(write, ledgers, held)


def _refs(ledger: Object) -> dict[str, str]:
    """Return the members that a ledger claims, by resource."""
    records = ledger.get("units", {}).items()
    return {
        name.partition("/")[0]: each["ref"]
        for name, each in records
        if each.get("kind") == "acquire" and each.get("ref")
    }


def _broken_holds(ledgers: dict[str, Object]) -> Iterable[str]:
    by_uid = {ledger["uid"]: ledger for ledger in ledgers.values()}
    seen: dict[str, str] = {}
    for name, ledger in ledgers.items():
        for resource, ref in _refs(ledger).items():
            if seen.setdefault(ref, name) != name:
                yield f"{name} and {seen[ref]} claim {ref}"
            found = by_uid.get(MemberRef.parse(ref).uid, {})
            held = [(each["run"], each["resource"]) for each in found.get("holders", [])]
            made = [each for unit, each in ledger["units"].items() if unit.startswith(f"{resource}/make")]
            is_open = ledger.get("phase", "open") == "open"
            is_made = is_open and any(each.get("outcome") == "succeeded" for each in made)
            if is_made and (ledger["uid"], resource) not in held:
                yield f"{name} is ready, and its member {ref} has the holders {held}"


def _early_starts(write: Write, ledgers: dict[str, Object], held: set[str]) -> Iterable[str]:
    """A member claims nothing without our finalizer, or before the ledger of the holder for which it was created."""
    ledger = write.new and write.new["ledger"]
    had = (write.old or {}).get("ledger", {}).get("units", {})
    if not ledger or ledger["target"]["kind"] != MEMBER_KIND or not ledger.get("units") or had:
        return
    if ledger["uid"] not in held:
        yield f"{write.key.name} starts without our finalizer"
    if ledger.get("phase", "open") == "open" and not ledger["target"]["name"].startswith(("pg-", "warm-")):
        claimed = {ref for each in ledgers.values() for ref in _refs(each).values()}
        target = ledger["target"]
        if f"{target['namespace']}/{target['name']}/{ledger['uid']}" not in claimed:
            yield f"{write.key.name} starts, and no ledger claims it"


def _ended_before_member(write: Write, ledgers: dict[str, Object]) -> Iterable[str]:
    """The run of a holder goes after its member, unless it was abandoned."""
    if write.new is None and write.old is not None and write.old["ledger"].get("phase") == "cleaned":
        living = {each["uid"] for each in ledgers.values() if each.get("phase", "open") != "abandoned"}
        for ref in _refs(write.old["ledger"]).values():
            if MemberRef.parse(ref).uid in living:
                yield f"{write.key.name} has ended before its member {ref}"
