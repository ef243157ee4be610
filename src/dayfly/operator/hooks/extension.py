"""The optional part of the operator for LifecycleHooks. Without it, the runs of hooks do not change."""

import asyncio
import logging

from dayfly.kube.cache import Cache, Change
from dayfly.kube.controller import Controller, Resync
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key, PartialObjectMetadata, Resource
from dayfly.operator.cluster.caches import ClusterWatches, Pair
from dayfly.operator.cluster.objects import HOOKED_PREFIX, HookObject, RunObject, holds
from dayfly.operator.hooks import hook_controller
from dayfly.operator.hooks.hook_runs import Pairs
from dayfly.operator.hooks.hook_status import HookStatus
from dayfly.operator.hooks.target_grants import ROLE, ROLES
from dayfly.operator.hooks.watched_kinds import Kind, Kinds
from dayfly.operator.status.sandbox_status import SandboxNotReadyError, hindered, reporting
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.operator.targets.lifecycle_hook import HookedTarget
from dayfly.operator.targets.targets import Targets, target_kind
from dayfly.spec.errors import SpecError

log = logging.getLogger(__name__)

WORKERS = 8
EVERY_S = 60.0
# The authorizer sees a changed role a moment after its watchers do.
SEEN_S = 1.0


class HooksExtension:
    """Hooks, the kinds that they select, and the pairs of both."""

    def __init__(self, cluster: ClusterWatches, targets: Targets, events: Recorder) -> None:
        self._cluster = cluster
        self._status = HookStatus(cluster, events)
        self._kinds = Kinds(cluster, targets, self._adapter)
        self._pairs = Pairs(cluster, self._kinds, self._status)
        self._controller = hook_controller.HookController(cluster, self._kinds, self._pairs, self._status)
        self._kinds.recovered = self._recovered
        cluster.hooks.listen(self._hook_changed)
        cluster.runs.listen(self._run_changed)
        self._rights: Cache[PartialObjectMetadata] = Cache()
        cluster.follow_also(ROLES.metadata_only(), self._rights, fields=f"metadata.name={ROLE}")
        self._rights.listen(self._rights_changed)

    @property
    def frozen(self) -> int:
        """How many objects there are of which nothing is done any more."""
        return self._status.frozen

    def reset(self) -> None:
        """Forget what only work keeps up to date: another process works from now on."""
        self._status.reset()
        self._controller.reset()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        hooked, pairs = self._cluster.hooked, self._cluster.pairs
        # Rights that are taken back, and kinds that are served no more, nobody tells.
        every = Resync(EVERY_S, lambda: [hook.metadata.name for hook in self._cluster.hooks])
        hooks = Controller("hook", self._hook, hooked, workers=1, expected=(UndecidableError,), resync=every)
        both = Controller("hook and object", self._pair, pairs, workers=WORKERS, expected=(UndecidableError,))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hooks.run())
            tasks.create_task(both.run())

    def _adapter(self, resource: Resource[PartialObjectMetadata]) -> HookedTarget:
        return HookedTarget(self._cluster, resource, self._status, on_change=self._heard, on_run_missing=self._lost)

    def _hook_changed(self, change: Change[HookObject]) -> None:
        seen = change.seen
        self._cluster.hooked.add(change.key.name)
        if _ends(change):
            for run in self._status.runs_of(seen.metadata.uid):
                self._cluster.queue.add(run.metadata.name)
        if change.new is None:
            self._status.forget(seen.metadata.uid)
            self._controller.forget(seen)

    def _run_changed(self, change: Change[RunObject]) -> None:
        """Also where its hook is gone, whoever has seen to that: what depends on its target must not wait for ever."""
        if change.old is None and change.seen.spec.hook is not None:
            self._kinds.want(target_kind(change.seen))

    def _rights_changed(self, _change: Change[PartialObjectMetadata]) -> None:
        """Retry the watches at once and soon again, and all else once the authorizer has seen the change."""
        self._kinds.retry()
        for hook in self._cluster.hooks:
            self._cluster.hooked.add(hook.metadata.name, after=SEEN_S)
        for run in self._status.troubled_runs():
            self._cluster.queue.add(run, after=SEEN_S)

    def _recovered(self, kind: Kind) -> None:
        for hook in self._controller.hooks_of(kind):
            self._cluster.hooked.add(hook.metadata.name)

    def _heard(self, adapter: HookedTarget, change: Change[PartialObjectMetadata]) -> None:
        resource = adapter.resource
        for hook in self._controller.hooks_of((resource.group, resource.plural)):
            self._pairs.heard(hook, change)
            if change.new is not None:
                self._controller.heard(hook, resource, change.new.metadata)

    def _lost(self, adapter: HookedTarget, item: PartialObjectMetadata) -> None:
        kind = adapter.resource.group, adapter.resource.plural
        for finalizer in holds(item.metadata):
            if finalizer.startswith(HOOKED_PREFIX):
                self._cluster.pairs.add(Pair(finalizer.removeprefix(HOOKED_PREFIX), kind, Key.of(item)))

    async def _hook(self, name: str) -> None:
        """Take one hook a step further; an error is reported in its status."""
        async with reporting(lambda: self._cluster.hooked.failures(name), lambda why: self._report(name, why)):
            await self._controller.reconcile(name)

    async def _report(self, name: str, why: SandboxNotReadyError) -> None:
        if (seen := self._cluster.hooks.get(name)) is not None:
            await self._status.say(seen, why.reason, str(why))

    async def _pair(self, pair: Pair) -> None:
        try:
            await self._pairs.reconcile(pair)
        except SpecError as fault:
            log.warning("hook %s of %s: %s", pair.hook, pair.key, fault)  # its status says so
        except Exception as error:
            if (said := hindered(error, self._cluster.pairs.failures(pair))) is not None:
                self._pairs.tell(pair, said.reason, str(said))
            raise


def _ends(change: Change[HookObject]) -> bool:
    """Whether that is the news. Its status says how its runs fare: if each word of it had them all try again, a hook
    with a thousand objects would have a thousand turns for each object that is through, or that cannot go on.
    """
    old, new = change.old, change.new
    return new is None or (
        new.metadata.deletion_timestamp is not None and (old is None or not old.metadata.deletion_timestamp)
    )
