"""The story of a sandbox with a fork as text, in the order of the writes, for golden files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.kube.fake.store import Write
from tests.operator.rig.cloud import Object
from tests.operator.rig.world import World

from dayfly.execute.fork.render import FORK_LABEL


def board(world: World) -> str:
    """Yield one line for each change of ledger, forks and status."""
    told = {"runs": _run, "deployments": _deployment, "services": _service, "pods": _pod, "sandboxes": _said}
    writes = [(write, tell) for plural, tell in told.items() for write in _writes(world, plural)]
    lines = [line for write, tell in sorted(writes, key=lambda each: each[0].version) for line in tell(write)]
    return "".join(f"{line}\n" for line in lines)


def _writes(world: World, plural: str) -> list[Write]:
    return world.cluster.store.after(world.cluster.kind(plural), 0)


def _of(item: Object | None, *path: str) -> Any:
    for step in path:
        item = (item or {}).get(step)
    return item


def _is_fork(write: Write) -> bool:
    return FORK_LABEL in (_of(write.new or write.old, "metadata", "labels") or {})


def _run(write: Write) -> Iterator[str]:
    old, new = _of(write.old, "ledger"), _of(write.new, "ledger")
    if new is None:
        yield "ledger: gone"
        return
    for unit, record in new.get("units", {}).items():
        before = _of(old, "units", unit) or {}
        if (record["attempt"], record["state"]) != (before.get("attempt"), before.get("state")):
            yield f"ledger: {unit}#{record['attempt']} {record['state']} {record.get('outcome', '')}".rstrip()
    if new.get("phase", "open") != (old or {}).get("phase", "open"):
        yield f"ledger: {new['phase']}"


def _deployment(write: Write) -> Iterator[str]:
    if not _is_fork(write):
        return
    old, new = write.old, write.new
    if new is None:
        yield "  Deployment: gone"
    elif old is None:
        yield f"  Deployment: made with {new['spec']['replicas']} replicas"
    elif new["metadata"].get("deletionTimestamp") and not old["metadata"].get("deletionTimestamp"):
        yield "  Deployment: is being deleted"
    elif new["spec"]["replicas"] != old["spec"]["replicas"]:
        yield f"  Deployment: scaled to {new['spec']['replicas']}"
    elif new["spec"] != old["spec"]:
        (container,) = new["spec"]["template"]["spec"]["containers"]
        yield f"  Deployment: runs {container['image']} {' '.join(container.get('args', []))}".rstrip()


def _service(write: Write) -> Iterator[str]:
    if not _is_fork(write):
        return
    if write.old is None:
        yield f"  Service: made with ports {[port['port'] for port in write.new['spec']['ports']]}"
    elif write.new is None:
        yield "  Service: gone"


def _pod(write: Write) -> Iterator[str]:
    if not _is_fork(write):
        return
    if write.old is None:
        yield "  pod: made"
    elif write.new is None:
        yield "  pod: gone"
    elif _of(write.new, "status", "phase") == "Running" and _of(write.old, "status", "phase") != "Running":
        yield "  pod: answers"


def _said(write: Write) -> Iterator[str]:
    """Yield the reason whenever it changes; progress in between depends on timing."""
    if write.new is None:
        yield "sandbox: gone"
        return
    before, now = (_of(item, "status") or {} for item in (write.old, write.new))
    if now.get("reason") != before.get("reason"):
        yield f"says: {now['reason']}"
