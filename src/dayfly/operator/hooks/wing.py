"""The wing for LifecycleHooks, as the operator's process has it. Optional: without it their runs stay as they are."""

import asyncio
import logging

from dayfly.kube.cache import Change
from dayfly.kube.controller import Controller, Resync
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key, PartialObjectMetadata, Resource
from dayfly.operator.cluster.caches import Cluster, Pair
from dayfly.operator.cluster.objects import HOOKED_PREFIX, HookObject, RunObject, holds
from dayfly.operator.hooks import controller
from dayfly.operator.hooks.hook_status import HookStatus
from dayfly.operator.hooks.kinds import Kinds
from dayfly.operator.hooks.pairs import Pairs
from dayfly.operator.targets.adapter import FrozenError
from dayfly.operator.targets.lifecycle_hook import HookedTarget
from dayfly.operator.targets.targets import Targets, kind_of
from dayfly.spec.errors import SpecError

log = logging.getLogger(__name__)

WORKERS = 8
EVERY_S = 60.0


class Hooks:
    """Hooks, the kinds that they select, and the pairs of both."""

    def __init__(self, cluster: Cluster, targets: Targets, events: Recorder) -> None:
        self._cluster = cluster
        self._status = HookStatus(cluster, events)
        self._kinds = Kinds(cluster, targets, self._adapter)
        self._pairs = Pairs(cluster, self._kinds, self._status)
        self._controller = controller.Controller(cluster, self._kinds, self._pairs, self._status)
        cluster.hooks.listen(self._hook_changed)
        cluster.runs.listen(self._run_changed)

    @property
    def frozen(self) -> int:
        """How many objects there are of which nothing is done any more."""
        return self._status.frozen

    def reset(self) -> None:
        """Somebody else has worked meanwhile: what was said last is not known."""
        self._status.reset()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        hooked, pairs = self._cluster.hooked, self._cluster.pairs
        # Rights that are taken back, and kinds that are served no more, nobody tells.
        every = Resync(EVERY_S, lambda: [hook.metadata.name for hook in self._cluster.hooks])
        hooks = Controller("hook", self._controller.reconcile, hooked, workers=1, expected=(FrozenError,), resync=every)
        both = Controller("hook and object", self._pair, pairs, workers=WORKERS, expected=(FrozenError,))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hooks.run())
            tasks.create_task(both.run())

    def _adapter(self, resource: Resource[PartialObjectMetadata]) -> HookedTarget:
        return HookedTarget(self._cluster, resource, self._status, heard=self._heard, lost=self._lost)

    def _hook_changed(self, change: Change[HookObject]) -> None:
        seen = change.seen
        self._cluster.hooked.add(change.key.name)
        if _ends(change):
            for run in self._status.runs_of(seen.metadata.uid):
                self._cluster.queue.add(run.metadata.name)
        if change.new is None:
            self._status.forget(seen.metadata.uid)

    def _run_changed(self, change: Change[RunObject]) -> None:
        """Also where its hook is gone, whoever has seen to that: what depends on its target must not wait for ever."""
        if change.old is None and change.seen.spec.hook is not None:
            self._kinds.want(kind_of(change.seen))

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

    async def _pair(self, pair: Pair) -> None:
        try:
            await self._pairs.reconcile(pair)
        except SpecError as fault:
            log.warning("hook %s of %s: %s", pair.hook, pair.key, fault)  # its status says so


def _ends(change: Change[HookObject]) -> bool:
    """Whether that is the news. Its status says how its runs fare: if each word of it had them all try again, a hook
    with a thousand objects would have a thousand turns for each object that is through, or that cannot go on.
    """
    old, new = change.old, change.new
    return new is None or (
        new.metadata.deletion_timestamp is not None and (old is None or not old.metadata.deletion_timestamp)
    )
