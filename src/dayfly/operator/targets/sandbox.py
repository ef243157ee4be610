"""Sandboxes as targets: cached, with a time to live; they start with their forks and stop with them."""

import contextlib
from typing import Any, Protocol

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import milliseconds
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.cache import Change
from dayfly.kube.objects import Key
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.objects import (
    SANDBOXES,
    SERVED_END_ANNOTATION,
    TARGET_FINALIZER,
    RouteGroupObject,
    RunObject,
    SandboxObject,
)
from dayfly.operator.targets.adapter import CachedTarget, Plain, StatusReporter, Times, UndecidableError
from dayfly.operator.targets.group_state import AT_ONCE_S, group_begins, group_state
from dayfly.plan.world import TargetState
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport
from dayfly.spec.route_group import KIND as GROUP
from dayfly.spec.run import EndRequest, encode
from dayfly.spec.sandbox import ttl_seconds


class ControlPlane(Protocol):
    """A server, as far as its Sandboxes here concern it."""

    async def permits(self, run: RunObject, /) -> bool | None:
        """Whether it says that the run's Sandbox is to live; None: it cannot be asked now."""

    def heard(self, target: Target, report: RunReport, /) -> None:
        """A Sandbox stands so."""


class SandboxTarget(Plain):
    """Deleted with its run, whatever that ended by. What is heard of it is a wish for whoever makes runs, too."""

    copies = removes = True

    def __init__(self, cluster: ClusterWatches, speaker: StatusReporter, server: ControlPlane | None = None) -> None:
        """`server` is the server whose Sandboxes some of them are; without one none of these begins."""
        super().__init__(SANDBOXES)
        self.cache = cluster.sandboxes
        self._cluster = cluster
        self._speaker = speaker
        self._server = server

    def seen(self, item: SandboxObject) -> CachedTarget:
        return CachedTarget(item.metadata, item.spec)

    def heard(self, change: Change[SandboxObject]) -> bool:
        seen = change.seen
        if only_ours(change):
            return False
        held = has_finalizer(seen.metadata, TARGET_FINALIZER)
        self._cluster.wishes.add(change.key, urgency=self._cluster.when_found() if held else Urgency.NORMAL)
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            # Also without a run: what a peer has made for it meanwhile is tidied up.
            run = names.run_name(seen.metadata.name, seen.metadata.uid)
            self._cluster.queue.add(run, urgency=Urgency.URGENT)
        return True

    def lost(self, item: SandboxObject) -> None:
        self._cluster.wishes.add(Key.of(item))

    def times(self, run: RunObject, seen: CachedTarget) -> Times:
        if (offered := run.spec.offered) is not None:
            return Times(offered.expires_at, offered.lease_until)
        ttl = seen.spec.get("ttl") or {}
        try:
            seconds = ttl_seconds(ttl["duration"]) if ttl else 0
        except (SpecError, KeyError, TypeError):
            return Times()
        begin = milliseconds(seen.meta.creation_timestamp)
        if counts_updates(seen.spec):
            if seen.meta.generation != (run.spec.generation or 1):
                return Times()  # it has just been changed; the moment is about to be noted
            begin = max(begin, run.spec.updated_at)
        return Times(expires_at=begin + seconds * 1000 if seconds else 0)

    async def dismissal(self, run: RunObject) -> EndRequest | None:
        return run.spec.offered.stop if run.spec.offered is not None else None

    async def permits(self, run: RunObject) -> bool | None:
        offered = run.spec.offered
        if offered is None or offered.stop is not None or 0 < offered.expires_at <= self._cluster.now():
            return True
        return await self._server.permits(run) if self._server is not None else None

    async def state(self, run: RunObject) -> TargetState | None:
        return await group_state(self._cluster, run) if _is_group(run) else None

    async def stays(self, run: RunObject) -> bool:
        """Its Sandbox stays instead, with how it ended, until its server has noted that."""
        if run.spec.offered is not None:
            last = msgspec.structs.replace(run.ledger, units={}, plan="")
            notes = {SERVED_END_ANNOTATION: encode(last).decode()}
            target = run.ledger.target
            patch = {"metadata": {"uid": target.uid, "annotations": notes}}
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self._cluster.client.patch(SANDBOXES.metadata_only(), patch, target.name, target.namespace)
        return False

    async def tell(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        target = scene.world.run.target
        if self._server is not None:
            self._server.heard(target, report)
        after = await self._speaker.tell(scene, report, hindrance=hindrance)
        run = self._cluster.ledger.get(names.run_name(target.name, target.uid))
        return AT_ONCE_S if run is not None and _is_group(run) and group_begins(scene) else after

    async def freeze(self, run: RunObject, why: UndecidableError) -> None:
        await self._speaker.freeze(run, why)


def _is_group(run: RunObject) -> bool:
    """Whether it is a route group of a server, which starts as route groups do and has no forks."""
    return run.spec.offered is not None and run.spec.offered.kind == GROUP


def counts_updates(spec: dict[str, Any]) -> bool:
    """Whether its time to live begins anew with each change of its spec."""
    ttl = spec.get("ttl")
    return isinstance(ttl, dict) and ttl.get("offsetFrom") == "updatedAt"


def only_ours(change: Change[SandboxObject] | Change[RouteGroupObject]) -> bool:
    """Whether only its status has changed, or our finalizer has come: that is what we do, and nothing to us."""
    old, new = change.old, change.new
    if old is None or new is None:
        return False
    finalizers = old.metadata.finalizers
    if has_finalizer(new.metadata, TARGET_FINALIZER) and not has_finalizer(old.metadata, TARGET_FINALIZER):
        finalizers = [*(finalizers or ()), TARGET_FINALIZER]
    version = new.metadata.resource_version
    before = msgspec.structs.replace(old.metadata, resource_version=version, finalizers=finalizers)
    return (before, old.spec) == (new.metadata, new.spec)
