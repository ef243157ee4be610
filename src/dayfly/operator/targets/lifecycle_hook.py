"""Objects of any kind as the targets of LifecycleHooks: their metadata is watched, and full objects are read on demand.

A hook reads its targets, adds a finalizer and, if the hook has one, a hold. Targets start, stop and disappear
independently of the operator. So each decision uses a quorum read. "Not found" proves that an object is gone only while
the API server serves its kind.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from dayfly.execute.object.read import ObjectState, is_ending, judge
from dayfly.execute.pod.read import parse_time
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.cache import ObjectChange
from dayfly.kube.client import KubeClient
from dayfly.kube.discovery import find_served_kind, is_definition_gone
from dayfly.kube.forms import Style
from dayfly.kube.objects import AnnotatedMeta, ApiResource, PartialObjectMetadata, untyped_resource
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import DOCUMENTS, HOOKS, HookObject, RunObject, dayfly_finalizers
from dayfly.operator.targets.adapter import BaseAdapter, KindLostError, StatusReporter, UndecidableError
from dayfly.plan import messages
from dayfly.plan.closed_run import is_past_pre_stop
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import TargetState
from dayfly.spec.kinds import SealedHook
from dayfly.spec.lifecycle_hook import Hold
from dayfly.spec.report import RunReport
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.steps.kube_object import KubeObject, ReadyRule, pointer_parts

ENDED_PHASES = (Phase.CLEANED, Phase.ABANDONED)


async def find_living_hook(client: KubeClient, name: str, uid: str) -> HookObject | None:
    """Read the hook by a quorum read; return None if the one with that UID is gone or being deleted.

    Raises:
        KindLostError, errors.ApiError: as `find_hook`.
    """
    found = await find_hook(client, name, uid)
    return found if found is not None and not found.metadata.deletion_timestamp else None


async def find_hook(client: KubeClient, name: str, uid: str) -> HookObject | None:
    """Read the hook by a quorum read; return None if the one with that UID is gone.

    Raises:
        KindLostError: the API server does not serve LifecycleHooks, so the hook may still exist.
        errors.ApiError: the hook cannot be read.
    """
    try:
        found = await client.get(HOOKS, name)
    except errors.NotFound:
        return None
    except errors.NotServed as missing:
        raise KindLostError(f"this cluster serves no {HOOKS.kind}: apply the install manifest again") from missing
    return found if found.metadata.uid == uid else None


class HookReporter(StatusReporter, Protocol):
    """Reports the runs of a hook in the hook's status."""

    def clear_problem(self, uid: str, key: str, /) -> None:
        """Record that the run of that name needs no more attention; `uid` is its hook's."""


class HookedTarget(BaseAdapter):
    """A kind that hooks select. Its targets stay after their runs, and nothing is stored next to them."""

    def __init__(
        self,
        cluster: ClusterWatches,
        resource: ApiResource[PartialObjectMetadata],
        reporter: HookReporter,
        *,
        on_change: Callable[["HookedTarget", ObjectChange[PartialObjectMetadata]], None],
        on_run_missing: Callable[["HookedTarget", PartialObjectMetadata], None],
    ) -> None:
        """`on_change` receives objects that may need a run, `on_run_missing` those with our finalizer and no run."""
        super().__init__(resource)
        self._cluster = cluster
        self._client = cluster.client
        self._reporter = reporter
        self._changed, self._run_missing = on_change, on_run_missing

    def on_change(self, change: ObjectChange[PartialObjectMetadata]) -> bool:
        self._changed(self, change)
        if change.old is None or change.new is None or change.new is change.old:
            return True
        if _without_version(change.old.metadata) != _without_version(change.new.metadata):
            return True
        # Only fields outside the metadata have changed. That concerns only runs that wait for the start or stop.
        runs = map(self._cluster.ledger.get, self._cluster.runs_of(change.new.metadata.uid))
        return any(
            run is None
            or run.ledger.closed is not None
            or not run.ledger.started_at
            or run.ledger.phase in ENDED_PHASES
            for run in runs
        )

    def on_run_missing(self, item: PartialObjectMetadata) -> None:
        self._run_missing(self, item)

    async def get_end_request(self, run: RunObject) -> EndRequest | None:
        """Return an end if the hook is being deleted. A new run needs a quorum read: its hook may already be gone.

        The finalizer is on the target by then. So either the hook is alive after the run exists, and a later deletion
        of the hook finds the run; or the run belongs to no hook, and ends before anything has started.
        """
        hook = _hook(run)
        seen = self._cluster.hooks.get(hook.name)
        if run.ledger.seq and seen is not None and seen.metadata.uid == hook.uid:
            if not (at := parse_time(seen.metadata.deletion_timestamp)):
                return None
        elif await find_living_hook(self._client, hook.name, hook.uid) is not None:
            return None
        else:
            at = self._cluster.now()
        return EndRequest(at=at, reason=Reason.HOOK_REMOVED, message=messages.hook_removed(hook.name))

    async def confirm_gone(self, run: RunObject, missing: errors.NotFound | errors.NotServed) -> None:
        """Accept "not found" as proof while the kind is served, or the end of the kind's own definition."""
        target, plural = run.ledger.target, run.spec.plural
        if isinstance(missing, errors.NotFound) and await find_served_kind(
            self._client, target.api_version, target.kind
        ):
            return
        uid, definition = _hook(run).definition, f"{plural}.{self.resource.group}"
        if uid and await is_definition_gone(self._client, definition, uid):
            return
        raise KindLostError(messages.kind_lost(target.kind, target.api_version, definition, proves=True))

    async def record_end(self, run: RunObject) -> bool:
        """Keep the ledger as long as the hook exists: otherwise the target, which stays, would get a new run."""
        hook = _hook(run)
        self._reporter.clear_problem(hook.uid, run.metadata.name)
        return await find_living_hook(self._client, hook.name, hook.uid) is not None

    async def read_fields(self, run: RunObject) -> dict[str, Any] | None:
        target = run.ledger.target
        try:
            found = await self._client.get(_full_kind(run), target.name, target.namespace)
        except errors.ABSENT as missing:
            await self.confirm_gone(run, missing)
            return None
        return found if found["metadata"]["uid"] == target.uid else None

    async def build_hold_patch(self, run: RunObject, meta: AnnotatedMeta) -> dict[str, Any]:
        """Return the patch that sets the hook's hold, unless another owner has set one; it precedes the first claim."""
        hold = _hook(run).hold
        found = await self.read_fields(run) if hold is not None else None
        if hold is None or found is None or found["metadata"]["resourceVersion"] != meta.resource_version:
            return {}
        return {} if _read_hold(found, hold) is not None else _nest(_hold_path(hold), _hold_value(hold))

    async def remove_hold(self, run: RunObject) -> bool:
        """Remove the hold if no other run needs it: each run checks the others after its own end is recorded."""
        hold, target = _hook(run).hold, run.ledger.target
        if hold is None:
            return True
        for name in self._cluster.runs_of(target.uid):
            if name != run.metadata.name and await self._needs_hold(name, hold):
                return False
        found = await self.read_fields(run)
        if _read_hold(found, hold) != _hold_value(hold):
            return True
        path = "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in _hold_path(hold))
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": target.uid},
            {"op": "test", "path": path, "value": _hold_value(hold)},
            {"op": "remove", "path": path},
        ]
        try:
            kind = _full_kind(run).metadata_only()
            await self._client.patch(kind, operations, target.name, target.namespace, style=Style.JSON)
        except (errors.Conflict, errors.Invalid):
            if _read_hold(await self.read_fields(run), hold) == _hold_value(hold):
                raise  # no peer has changed the object: the API server refuses the removal
        except errors.ABSENT as missing:
            await self.confirm_gone(run, missing)
        return True

    async def _needs_hold(self, name: str, hold: Hold) -> bool:
        """Return whether another run of the target has the same hold and must still act before the target stops."""
        run = await self._cluster.ledger.read_current(name)
        if run is None or run.spec.hook is None or run.spec.hook.hold != hold or run.ledger.phase in ENDED_PHASES:
            return False
        documents = []
        for pin in run.spec.documents:
            found = await self._client.find(DOCUMENTS, pin.name)
            documents += [found.spec] if found is not None else []
        # A run without its documents is frozen. Its remaining steps are unknown, so it keeps the hold.
        lost = len(documents) < len(run.spec.documents)
        return lost or not is_past_pre_stop(seal(tuple(documents)), run.ledger)

    async def read_state(self, run: RunObject) -> TargetState:
        hook, ledger = _hook(run), run.ledger
        if ledger.phase in ENDED_PHASES:
            return TargetState()
        if ledger.closed is None and ledger.started_at and self._is_cached_alive(run):
            return TargetState(started=True)
        found = await self.read_fields(run)
        if found is None:
            # It existed when its run was born. Whether it fulfilled the hook's start rule is unknown.
            return TargetState(started=hook.started is None, stopped=True)
        started, lack = _check_rule(found, hook.started)
        stopped, left = _has_stopped(found, hook.stopped)
        return TargetState(started=started, stopped=stopped, message=left if is_ending(found) else lack)

    def _is_cached_alive(self, run: RunObject) -> bool:
        """Return whether the cache has the target and it is not being deleted: then the run need not close now."""
        seen = self.cache.get(run.ledger.target.name, run.ledger.target.namespace)
        return seen is not None and seen.metadata.uid == run.ledger.target.uid and not seen.metadata.deletion_timestamp

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        return await self._reporter.report_status(scene, report, hindrance=hindrance)

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        await self._reporter.report_frozen(run, why)


def _full_kind(run: RunObject) -> ApiResource[dict[str, Any]]:
    """Return the target's kind in the version that the hook's field paths refer to; the watch may use another."""
    return untyped_resource(run.ledger.target.api_version, run.ledger.target.kind, run.spec.plural)


def _hold_path(hold: Hold) -> tuple[str, ...]:
    """Return the keys of the field that holds the target."""
    return ("metadata", "annotations", hold.annotation) if hold.annotation else pointer_parts(hold.path)


def _hold_value(hold: Hold) -> Any:
    return hold.value if hold.path or hold.value is not None else ""


def _read_hold(found: Any, hold: Hold) -> Any:
    """Return the value of the hold's field; None if it is not set or the object is gone."""
    for part in _hold_path(hold):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _nest(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for part in reversed(path[1:]):
        value = {part: value}
    return {path[0]: value}


def _hook(run: RunObject) -> SealedHook:
    assert run.spec.hook is not None, "such a target has only runs of hooks"
    return run.spec.hook


def _without_version(meta: AnnotatedMeta) -> AnnotatedMeta:
    """Return the metadata without the resource version, which changes with each write."""
    return msgspec.structs.replace(meta, resource_version="")


def _check_rule(found: dict[str, Any], verdict: ReadyRule | None) -> tuple[bool, str]:
    """Return whether the object fulfils the rule, and else what is missing."""
    if verdict is None:
        return True, ""
    judged = judge(found, KubeObject(ready=verdict))
    return judged.state is ObjectState.READY, judged.message


def _has_stopped(found: dict[str, Any], verdict: ReadyRule | None) -> tuple[bool, str]:
    """Return whether the object has stopped: by the hook's rule, or else once no finalizer but ours is left."""
    meta = msgspec.convert(found["metadata"], AnnotatedMeta)
    if not meta.deletion_timestamp:
        return False, messages.not_deleted(found.get("kind", ""))
    if verdict is not None:
        return _check_rule(found, verdict)

    others = tuple(each for each in meta.finalizers or () if each not in dayfly_finalizers(meta))
    return not others, messages.remaining_finalizers(others) if others else ""
