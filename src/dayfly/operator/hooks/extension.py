"""The optional part of the operator for LifecycleHooks. Without it, the runs of hooks do not change."""

import asyncio
import logging

from dayfly.kube.cache import Cache, ObjectChange
from dayfly.kube.controller import Controller, Resync
from dayfly.kube.events import Recorder
from dayfly.kube.objects import ApiResource, Key, PartialObjectMetadata
from dayfly.operator.cluster.caches import ClusterWatches, Pair
from dayfly.operator.cluster.objects import HOOKED_PREFIX, HookObject, RunObject, dayfly_finalizers
from dayfly.operator.hooks import hook_controller
from dayfly.operator.hooks.hook_runs import PairReconciler
from dayfly.operator.hooks.hook_status import HookStatus
from dayfly.operator.hooks.target_grants import ROLE, ROLES
from dayfly.operator.hooks.watched_kinds import Kind, WatchedKinds
from dayfly.operator.status.sandbox_status import SandboxNotReadyError, report_on_error, to_status_error
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.operator.targets.lifecycle_hook import HookedTarget
from dayfly.operator.targets.targets import Targets, target_kind
from dayfly.spec.errors import SpecError

log = logging.getLogger(__name__)

WORKERS = 8
RESYNC_INTERVAL_S = 60.0
# The API server's authorizer sees a changed role a moment after its watchers do.
AUTHORIZER_DELAY_S = 1.0


class HooksExtension:
    """Reconciles hooks, and pairs of a hook and an object that it selects."""

    def __init__(self, cluster: ClusterWatches, targets: Targets, events: Recorder) -> None:
        self._cluster = cluster
        self._status = HookStatus(cluster, events)
        self._kinds = WatchedKinds(cluster, targets, self._adapter)
        self._pairs = PairReconciler(cluster, self._kinds, self._status)
        self._controller = hook_controller.HookController(cluster, self._kinds, self._pairs, self._status)
        self._kinds.on_listed = self._on_listed
        cluster.hooks.listen(self._on_hook_change)
        cluster.runs.listen(self._on_run_change)
        self._rights: Cache[PartialObjectMetadata] = Cache()
        cluster.follow_also(ROLES.metadata_only(), self._rights, fields=f"metadata.name={ROLE}")
        self._rights.listen(self._on_rights_change)

    @property
    def frozen_count(self) -> int:
        """The number of objects for which nothing is done."""
        return self._status.frozen_count

    def reset(self) -> None:
        """Forget what only the active replica keeps up to date."""
        self._status.reset()
        self._controller.reset()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        hooked, pairs = self._cluster.hooked, self._cluster.pairs
        # Revoked rights, and kinds that are no longer served, cause no event.
        every = Resync(RESYNC_INTERVAL_S, lambda: [hook.metadata.name for hook in self._cluster.hooks])
        hooks = Controller("hook", self._hook, hooked, workers=1, expected=(UndecidableError,), resync=every)
        both = Controller("hook and object", self._pair, pairs, workers=WORKERS, expected=(UndecidableError,))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hooks.run())
            tasks.create_task(both.run())

    def _adapter(self, resource: ApiResource[PartialObjectMetadata]) -> HookedTarget:
        return HookedTarget(
            self._cluster, resource, self._status, on_change=self._on_target_change, on_run_missing=self._on_run_missing
        )

    def _on_hook_change(self, change: ObjectChange[HookObject]) -> None:
        seen = change.latest
        self._cluster.hooked.add(change.key.name)
        if _is_ending(change):
            for run in self._status.runs_of(seen.metadata.uid):
                self._cluster.queue.add(run.metadata.name)
        if change.new is None:
            self._status.forget(seen.metadata.uid)
            self._controller.forget(seen)

    def _on_run_change(self, change: ObjectChange[RunObject]) -> None:
        """Watch the target's kind, also if the hook is gone, so that its run does not wait for the target forever."""
        if change.old is None and change.latest.spec.hook is not None:
            self._kinds.watch(target_kind(change.latest))

    def _on_rights_change(self, _change: ObjectChange[PartialObjectMetadata]) -> None:
        """Retry the watches at once, and all else once the authorizer has seen the change."""
        self._kinds.retry_failed()
        for hook in self._cluster.hooks:
            self._cluster.hooked.add(hook.metadata.name, after=AUTHORIZER_DELAY_S)
        for run in self._status.list_problem_runs():
            self._cluster.queue.add(run, after=AUTHORIZER_DELAY_S)

    def _on_listed(self, kind: Kind) -> None:
        for hook in self._controller.hooks_of(kind):
            self._cluster.hooked.add(hook.metadata.name)

    def _on_target_change(self, adapter: HookedTarget, change: ObjectChange[PartialObjectMetadata]) -> None:
        resource = adapter.resource
        for hook in self._controller.hooks_of((resource.group, resource.plural)):
            self._pairs.on_target_change(hook, change)
            if change.new is not None:
                self._controller.queue_if_new(hook, resource, change.new.metadata)

    def _on_run_missing(self, adapter: HookedTarget, item: PartialObjectMetadata) -> None:
        kind = adapter.resource.group, adapter.resource.plural
        for finalizer in dayfly_finalizers(item.metadata):
            if finalizer.startswith(HOOKED_PREFIX):
                self._cluster.pairs.add(Pair(finalizer.removeprefix(HOOKED_PREFIX), kind, Key.from_object(item)))

    async def _hook(self, name: str) -> None:
        """Reconcile one hook; an error is reported in its status."""
        async with report_on_error(lambda: self._cluster.hooked.failures(name), lambda why: self._report(name, why)):
            await self._controller.reconcile(name)

    async def _report(self, name: str, why: SandboxNotReadyError) -> None:
        if (seen := self._cluster.hooks.get(name)) is not None:
            await self._status.write(seen, why.reason, str(why))

    async def _pair(self, pair: Pair) -> None:
        try:
            await self._pairs.reconcile(pair)
        except SpecError as fault:
            log.warning("hook %s of %s: %s", pair.hook, pair.key, fault)  # also in the hook's status
        except Exception as error:
            if (problem := to_status_error(error, self._cluster.pairs.failures(pair))) is not None:
                self._pairs.report_problem(pair, problem.reason, str(problem))
            raise


def _is_ending(change: ObjectChange[HookObject]) -> bool:
    """Return whether the hook is gone or its deletion has just begun.

    Other changes must not wake the runs: the status changes with each object, and a hook can have a thousand of them.
    """
    old, new = change.old, change.new
    return new is None or (
        new.metadata.deletion_timestamp is not None and (old is None or not old.metadata.deletion_timestamp)
    )
