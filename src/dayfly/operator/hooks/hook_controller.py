"""The controller of LifecycleHooks: it validates hooks, watches their kinds and holds a hook while it has runs."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from dayfly import compile as compiler
from dayfly.execute.pod import pod_precheck
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.discovery import find_served_kind
from dayfly.kube.objects import AnnotatedMeta, ApiResource, Key, PartialObjectMetadata, untyped_resource
from dayfly.kube.ownership import add_finalizer
from dayfly.operator.cluster.caches import ClusterWatches, Pair, has_finalizer
from dayfly.operator.cluster.objects import (
    HOOK_FINALIZER,
    HOOK_LABEL,
    HOOKS,
    RUNS,
    HookObject,
    RunObject,
    finalizer_of,
)
from dayfly.operator.hooks import target_grants
from dayfly.operator.hooks.hook_runs import PairReconciler, selects
from dayfly.operator.hooks.hook_status import HookStatus
from dayfly.operator.hooks.target_grants import TargetGrants
from dayfly.operator.hooks.watched_kinds import Kind, WatchedKind, WatchedKinds
from dayfly.operator.targets.lifecycle_hook import ENDED_PHASES
from dayfly.operator.targets.targets import target_kind
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError, with_article
from dayfly.spec.lifecycle import Target
from dayfly.spec.lifecycle_hook import LifecycleHook, Selector

# Poll interval for granted rights and newly served kinds, which cause no event.
RETRY_AFTER_S = 5.0
MAX_CHECKED_NAMESPACES = 16
"""Namespaces in which the right to change objects is checked, with one object each, until one may be changed."""


class HookNotReadyError(Exception):
    """A hook cannot become active yet; `reason` is a `Reason`, the text names what is missing."""

    def __init__(self, reason: str, message: str, *, retry: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry = retry


class _KnownHook(NamedTuple):
    """One generation of a hook: the parsed hook, or the error in it."""

    uid: str
    generation: int
    parsed: LifecycleHook | SpecError


class HookController:
    """Activates hooks, and removes our finalizer from a deleted hook once all its runs have ended."""

    def __init__(self, cluster: ClusterWatches, kinds: WatchedKinds, pairs: PairReconciler, status: HookStatus) -> None:
        self._cluster = cluster
        self._client: KubeClient = cluster.client
        self._kinds = kinds
        self._pairs = pairs
        self._status = status
        self._grants = TargetGrants(cluster.client, cluster.now)
        self._known: dict[str, _KnownHook] = {}
        self._selects: dict[str, Kind] = {}
        """The selected kind of each hook, by the hook's name."""
        self._active: set[str] = set()
        """The UIDs of hooks that may start runs."""

    def hooks_of(self, kind: Kind) -> list[HookObject]:
        """Return the hooks that select objects of a kind."""
        found = (self._cluster.hooks.get(name) for name, selects in self._selects.items() if selects == kind)
        return [hook for hook in found if hook is not None]

    def reset(self) -> None:
        """Start no runs: another replica is active now."""
        self._active.clear()

    def forget(self, gone: HookObject) -> None:
        """Forget a hook that is gone, also on a standby replica."""
        self._known.pop(gone.metadata.name, None)
        self._selects.pop(gone.metadata.name, None)
        self._active.discard(gone.metadata.uid)

    async def reconcile(self, name: str) -> None:
        """Reconcile one hook.

        Raises:
            errors.ApiError: the API server does not answer.
        """
        seen = self._cluster.hooks.get(name)
        if seen is None:
            self._unwatch_unused()
            return
        if seen.metadata.deletion_timestamp:
            await self._remove(seen)
            return
        try:
            watched = await self._activate(seen)
        except HookNotReadyError as why:
            self._active.discard(seen.metadata.uid)
            await self._report(seen, why.reason, str(why))
            if why.retry:
                self._cluster.hooked.add(name, after=RETRY_AFTER_S)
            return
        self._active.add(seen.metadata.uid)
        for item in watched.adapter.cache:
            self.queue_if_new(seen, watched.adapter.resource, item.metadata)
        await self._report(
            seen, Reason.HOOK_ACTIVE, self._status.summarize(seen.metadata.uid, _active_message(self._status, seen))
        )

    async def _report(self, seen: HookObject, reason: str, message: str) -> None:
        if after := await self._status.write(seen, reason, message):
            self._cluster.hooked.add(seen.metadata.name, after=after)

    async def _activate(self, seen: HookObject) -> WatchedKind:
        """Watch the hook's kind, and add our finalizer to the hook.

        Raises:
            HookNotReadyError: that is not possible yet.
        """
        parsed = self._read(seen)
        if isinstance(parsed, SpecError):
            raise HookNotReadyError(Reason.REFUSED, str(parsed), retry=False)
        resource = await self._served(parsed.spec.selector)
        self._selects[seen.metadata.name] = resource.group, resource.plural
        watched = self._kinds.watch_served(resource)
        self._unwatch_unused()
        await self._add_finalizer(seen)
        trouble = watched.error
        # A broken watch restarts by itself; a rejected one stays so until an administrator acts.
        if trouble is not None and (isinstance(trouble, errors.Refused) or not watched.is_listed):
            lack = target_grants.describe_refusal(trouble.message)
            reason = Reason.TARGETS_NOT_GRANTED if lack else Reason.BLOCKED
            raise HookNotReadyError(reason, lack or f"its objects cannot be watched: {trouble.message}")
        if not watched.is_listed:
            raise HookNotReadyError(Reason.WAITING_FOR_OPERATOR, f"objects of kind {resource.kind} are being listed")
        await self._check_grants(seen, watched)
        return watched

    async def _check_grants(self, seen: HookObject, watched: WatchedKind) -> None:
        """Check with one object of a namespace whether the operator may change the objects that need a run.

        A rejection can concern only that object, for example by an admission policy. Then another namespace is checked.

        Raises:
            HookNotReadyError: the right is missing, or no checked object may be changed.
        """
        refused: errors.Refused | None = None
        for item in islice(self._samples(seen, watched), MAX_CHECKED_NAMESPACES):
            try:
                await self._grants.check(watched.adapter.resource, item)
            except errors.Refused as error:
                if lack := target_grants.describe_refusal(error.message):
                    raise HookNotReadyError(Reason.TARGETS_NOT_GRANTED, lack) from None
                refused = refused or error
            else:
                return
        if refused is not None:
            raise HookNotReadyError(Reason.BLOCKED, f"its objects cannot be changed: {refused.message}")

    def _samples(self, seen: HookObject, watched: WatchedKind) -> Iterator[PartialObjectMetadata]:
        """Yield the first object of each namespace that needs a run."""
        seen_namespaces: set[str] = set()
        for item in watched.adapter.cache:
            if item.metadata.namespace not in seen_namespaces and self._is_new(seen, item.metadata):
                seen_namespaces.add(item.metadata.namespace)
                yield item

    def _read(self, seen: HookObject) -> LifecycleHook | SpecError:
        name, which = seen.metadata.name, (seen.metadata.uid, seen.metadata.generation)
        known = self._known.get(name)
        # A hook that is deleted and created again at once has generation 1 again, so the UID counts, too.
        if known is None or known[:2] != which:
            known = self._known[name] = _KnownHook(*which, _parse_hook(seen))
        return known.parsed

    async def _served(self, selector: Selector) -> ApiResource[dict[str, Any]]:
        """Return the selected kind as the API server serves it."""
        version, kind = selector.api_version, selector.kind
        seen = await find_served_kind(self._client, version, kind)
        if seen is None:
            raise HookNotReadyError(Reason.KIND_NOT_SERVED, messages.kind_not_served(kind, version))
        if not seen.namespaced:
            message = f"{with_article(kind)} of {version} is cluster-scoped; hooks can select only namespaced kinds"
            raise HookNotReadyError(Reason.REFUSED, message, retry=False)
        return untyped_resource(version, kind, seen.name)

    async def _add_finalizer(self, seen: HookObject) -> None:
        """Add our finalizer to the hook before the first run, so that it outlives its runs.

        Raises:
            HookNotReadyError: the hook has just changed, and is reconciled again.
        """
        try:
            await add_finalizer(self._client, HOOKS, seen.metadata, HOOK_FINALIZER)
        except (errors.NotFound, errors.Conflict):
            raise HookNotReadyError(Reason.WAITING_FOR_OPERATOR, "it has just been changed") from None

    def queue_if_new(self, seen: HookObject, resource: ApiResource[Any], meta: AnnotatedMeta) -> None:
        """Queue an object of the selected kind if the hook is active and the object needs a run."""
        if seen.metadata.uid in self._active and self._is_new(seen, meta):
            kind, key = (resource.group, resource.plural), Key(meta.namespace, meta.name)
            self._cluster.pairs.add(Pair(seen.metadata.name, kind, key))

    def _is_new(self, seen: HookObject, meta: AnnotatedMeta) -> bool:
        """Return whether the hook selects the object, and the object has no known run yet."""
        parsed = self._read(seen)
        is_selected = isinstance(parsed, LifecycleHook) and selects(parsed, meta) and not meta.deletion_timestamp
        return is_selected and not self._pairs.has_run(seen, meta)

    async def _remove(self, seen: HookObject) -> None:
        """Release a deleted hook once all its runs have ended. The runs close by themselves when it is deleted."""
        meta = seen.metadata
        left = [run for run in self._status.runs_of(meta.uid) if self._has_work_left(run)]
        if not has_finalizer(meta, HOOK_FINALIZER):
            return
        if not left:
            # A run that the cache does not have yet may have been born before the hook's deletion.
            listing = await self._client.list_all(RUNS, labels=f"{HOOK_LABEL}={meta.uid}")
            left = [run for run in listing.items if run.ledger.phase not in ENDED_PHASES]
        if not left:
            await self._cluster.drop_finalizer(HOOKS, meta, HOOK_FINALIZER)
            return
        self._cluster.hooked.add(meta.name, after=RETRY_AFTER_S)
        message = f"is being removed; {_objects(len(left))} must be released first"
        await self._report(seen, Reason.DELETING, self._status.summarize(meta.uid, message))

    def _has_work_left(self, run: RunObject) -> bool:
        """Return whether a run of a hook must still end or release its target."""
        if run.ledger.phase not in ENDED_PHASES:
            return True
        target = run.ledger.target
        found = self._kinds.watch(target_kind(run)).adapter.cache.get(target.name, target.namespace)
        if found is None or found.metadata.uid != target.uid:
            return False
        return has_finalizer(found.metadata, finalizer_of(run))

    def _unwatch_unused(self) -> None:
        """Unwatch kinds that no hook selects and no run has as its target."""
        kinds = {(kind.group, kind.plural) for kind in map(target_kind, self._status.list_runs())}
        self._kinds.keep_only(kinds | set(self._selects.values()))


def _parse_hook(seen: HookObject) -> LifecycleHook | SpecError:
    """Parse and compile a hook; return the error if it is invalid for every object."""
    try:
        parsed = seen.parsed()
        example = Target(
            api_version=parsed.spec.selector.api_version,
            kind=parsed.spec.selector.kind,
            namespace="n",
            name="n",
            uid="u",
        )
        found = pod_precheck.objections(compiler.compile_hook(parsed, example))
    except SpecError as fault:
        return fault
    return SpecError(f"{found[0]}; change spec.runner.podTemplateOverlay") if found else parsed


def _active_message(status: HookStatus, seen: HookObject) -> str:
    """Return the status message of an active hook without problems."""
    counts = status.count(seen.metadata.uid)
    message = f"active for {_objects(counts.objects)}"
    if counts.older:
        are = "is" if counts.older == 1 else "are"
        message += f"; {counts.older} of them {are} older than the hook, so preStart was skipped"
    return message


def _objects(count: int) -> str:
    return f"{count} object{'s' * (count != 1)}"
