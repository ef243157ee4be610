"""Sandbox objects as targets: with a time to live. They start with their forks and stop with them."""

import contextlib
from typing import Protocol

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import Key
from dayfly.lib.pace import Urgency
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.objects import (
    SANDBOXES,
    SERVED_END_ANNOTATION,
    TARGET_FINALIZER,
    RunObject,
    SandboxObject,
)
from dayfly.operator.targets.adapter import (
    BaseAdapter,
    CachedTarget,
    StatusReporter,
    Times,
    UndecidableError,
    is_own_change,
    restarts_ttl_on_update,
)
from dayfly.operator.targets.resource_pool import has_members
from dayfly.operator.targets.route_group import IMMEDIATELY_S, is_group_starting, read_group_state
from dayfly.plan.world import TargetState
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport
from dayfly.spec.route_group import KIND as GROUP
from dayfly.spec.run import EndRequest, encode
from dayfly.spec.sandbox import ttl_seconds


class ControlPlane(Protocol):
    """The connection to a server that has Sandboxes in this cluster."""

    async def permits(self, run: RunObject, /) -> bool | None:
        """Return whether the server still wants the run's Sandbox; None if the server is not reachable."""

    def record_report(self, target: Target, report: RunReport, /) -> None:
        """Record the newest report of a run, for the server."""


class SandboxTarget(BaseAdapter):
    """Sandbox objects. They are deleted with their run. A change also queues the Sandbox for its controller."""

    has_resources = has_logs = removes = True

    def __init__(self, cluster: ClusterWatches, reporter: StatusReporter, server: ControlPlane | None = None) -> None:
        """`server` owns some of the Sandboxes, which do not start without it."""
        super().__init__(SANDBOXES)
        self.cache = cluster.sandboxes
        self._cluster = cluster
        self._reporter = reporter
        self._server = server

    def as_cached(self, item: SandboxObject) -> CachedTarget:
        return CachedTarget(item.metadata, item.spec)

    def on_change(self, change: ObjectChange[SandboxObject]) -> bool:
        seen = change.latest
        if is_own_change(change):
            return False
        held = has_finalizer(seen.metadata, TARGET_FINALIZER)
        self._cluster.sandbox_queue.add(
            change.key, urgency=self._cluster.discovery_urgency() if held else Urgency.NORMAL
        )
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            # Queued also without a known run, so that what a peer may have created for it is cleaned up.
            run = names.run_name(seen.metadata.name, seen.metadata.uid)
            self._cluster.queue.add(run, urgency=Urgency.URGENT)
        return True

    def on_run_missing(self, item: SandboxObject) -> None:
        self._cluster.sandbox_queue.add(Key.from_object(item))

    def get_times(self, run: RunObject, seen: CachedTarget) -> Times:
        if (offered := run.spec.offered) is not None:
            return Times(offered.expires_at, offered.lease_until)
        ttl = seen.spec.get("ttl") or {}
        try:
            seconds = ttl_seconds(ttl["duration"]) if ttl else 0
        except (SpecError, KeyError, TypeError):
            return Times()
        begin = parse_time(seen.meta.creation_timestamp)
        if restarts_ttl_on_update(seen.spec):
            if seen.meta.generation != (run.spec.generation or 1):
                return Times()  # it has just been changed, and the run does not have the time of the change yet
            begin = max(begin, run.spec.updated_at)
        return Times(expires_at=begin + seconds * 1000 if seconds else 0)

    async def get_end_request(self, run: RunObject) -> EndRequest | None:
        return run.spec.offered.stop if run.spec.offered is not None else None

    async def permits(self, run: RunObject) -> bool | None:
        offered = run.spec.offered
        if offered is None or offered.stop is not None or 0 < offered.expires_at <= self._cluster.now():
            return True
        return await self._server.permits(run) if self._server is not None else None

    async def read_state(self, run: RunObject) -> TargetState | None:
        return await read_group_state(self._cluster, run) if _is_group(run) else None

    async def is_awaited(self, run: RunObject) -> bool:
        """Return whether it is a server's pool, and unused members of it are still being cleaned up."""
        return has_members(self._cluster, run)

    async def record_end(self, run: RunObject) -> bool:
        """Write the final ledger on a server's Sandbox, which stays until the server has acknowledged the end."""
        if run.spec.offered is not None:
            last = msgspec.structs.replace(run.ledger, units={}, plan="")
            annotations = {SERVED_END_ANNOTATION: encode(last).decode()}
            target = run.ledger.target
            patch = {"metadata": {"uid": target.uid, "annotations": annotations}}
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self._cluster.client.patch(SANDBOXES.metadata_only(), patch, target.name, target.namespace)
        return False

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        target, pool = scene.world.run.target, self._cluster.holds.pool_reports.get(scene.world.run.uid)
        if self._server is not None:
            self._server.record_report(target, pool or report)
        report = msgspec.structs.replace(pool, units=()) if pool is not None else report
        after = await self._reporter.report_status(scene, report, hindrance=hindrance)
        run = self._cluster.ledger.get(names.run_name(target.name, target.uid))
        return IMMEDIATELY_S if run is not None and _is_group(run) and is_group_starting(scene) else after

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        await self._reporter.report_frozen(run, why)


def _is_group(run: RunObject) -> bool:
    """Return whether the run is of a server's route group: it starts like a route group, and has no forks."""
    return run.spec.offered is not None and run.spec.offered.kind == GROUP
