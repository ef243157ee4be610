"""The cluster as all controllers of this process see it: one client, shared caches, the ledger, the queue of runs."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.cache import Cache, Change, Reflector
from dayfly.kube.client import Client, Style
from dayfly.kube.objects import PODS, AnnotatedMeta, Key, ObjectMeta, Pod, Resource
from dayfly.kube.queue import WorkQueue
from dayfly.operator.objects import (
    DOCUMENTS,
    PLUGINS,
    RUNS,
    SANDBOXES,
    DocumentObject,
    PluginObject,
    RunObject,
    SandboxObject,
)
from dayfly.operator.runs import Runs


def unix_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


class Cluster:
    """Watches what the controllers read, and queues the runs and sandboxes that something happened to."""

    def __init__(self, client: Client, *, now: Callable[[], int] = unix_ms, seed: int | None = None) -> None:
        """`now` tells unix milliseconds; `seed` makes the jitter of watches and queues repeat."""
        self.client = client
        self.now = now
        self.runs: Cache[RunObject] = Cache()
        self.documents: Cache[DocumentObject] = Cache()
        self.sandboxes: Cache[SandboxObject] = Cache()
        self.plugins: Cache[PluginObject] = Cache()
        self.pods: Cache[Pod] = Cache(labels=(names.RUN_LABEL,))
        self.ledger = Runs(client, self.runs)
        self.queue: WorkQueue[str] = WorkQueue(seed=seed)
        self.wishes: WorkQueue[Key] = WorkQueue(seed=seed)
        self.reflectors: list[Reflector[Any]] = [
            Reflector(client, RUNS, self.runs, seed=seed),
            Reflector(client, DOCUMENTS, self.documents, seed=seed),
            Reflector(client, SANDBOXES, self.sandboxes, seed=seed),
            Reflector(client, PLUGINS, self.plugins, seed=seed),
            Reflector(client, PODS, self.pods, labels=names.RUN_LABEL, seed=seed),
        ]
        self.runs.listen(self._run_changed)
        self.pods.listen(self._pod_changed)
        self.sandboxes.listen(self._sandbox_changed)
        self.plugins.listen(self._plugin_changed)

    async def watch(self) -> None:
        """Keep the caches current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self.reflectors:
                tasks.create_task(reflector.run())

    async def wait_synced(self) -> None:
        """Until every cache has been whole once."""
        for reflector in self.reflectors:
            await reflector.wait_synced()

    def close(self) -> None:
        """Take no more work."""
        self.queue.close()
        self.wishes.close()

    @property
    def age(self) -> float:
        """Seconds since the server last proved the most backward cache current; inf before."""
        return max(reflector.age for reflector in self.reflectors)

    def _run_changed(self, change: Change[RunObject]) -> None:
        self.queue.add(change.key.name, urgent=change.new is not None and change.new.ledger.closed is not None)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        if pod is not None and (run := (pod.metadata.labels or {}).get(names.RUN_LABEL)):
            self.queue.add(run)

    def _sandbox_changed(self, change: Change[SandboxObject]) -> None:
        seen = change.new or change.old
        if seen is None:
            return
        self.wishes.add(change.key)
        deleting = change.new is None or change.new.metadata.deletion_timestamp is not None
        self.queue.add(names.run_name(seen.metadata.name, seen.metadata.uid), urgent=deleting)

    def _plugin_changed(self, _: Change[PluginObject]) -> None:
        # Whoever waits for a plugin looks again; that is rare enough to ask everyone.
        for sandbox in self.sandboxes:
            if self.ledger.get(names.run_name(sandbox.metadata.name, sandbox.metadata.uid)) is None:
                self.wishes.add(Key.of(sandbox))

    async def drop_finalizer(self, resource: Resource[Any], meta: ObjectMeta, finalizer: str) -> None:
        """Take our finalizer off that very object, for certain; done already, or gone, is as good.

        Raises:
            errors.ApiError: it may still be there.
        """
        for last in (False, False, True):
            finalizers = list(meta.finalizers or ())
            if finalizer not in finalizers:
                return
            at = finalizers.index(finalizer)
            operations = [
                {"op": "test", "path": "/metadata/uid", "value": meta.uid},
                {"op": "test", "path": f"/metadata/finalizers/{at}", "value": finalizer},
                {"op": "remove", "path": f"/metadata/finalizers/{at}"},
            ]
            try:
                await self.client.patch(resource, operations, meta.name, meta.namespace, style=Style.JSON)
                return
            except errors.NotFound:
                return
            except (errors.Conflict, errors.Invalid):
                # Done by a peer, or another finalizer went and ours has moved up.
                if last:
                    raise
            try:
                seen = await self.client.get(resource.metadata_only(), meta.name, meta.namespace)
            except errors.NotFound:
                return
            if seen.metadata.uid != meta.uid:
                return
            meta = seen.metadata


def finalized(meta: AnnotatedMeta, finalizer: str) -> bool:
    """Whether the object carries the finalizer."""
    return finalizer in (meta.finalizers or ())
