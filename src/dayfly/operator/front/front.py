"""The front for kubectl and GitOps, as the operator's process has it. Optional: without it runs are taken further all
the same, whoever has sealed them; and the only part of the operator that knows what a plugin is.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import SandboxObject
from dayfly.operator.front.in_use import InUse
from dayfly.operator.front.plugins import Plugins
from dayfly.operator.front.sandboxes import Sandboxes
from dayfly.operator.status.sandbox_status import Heeded, SandboxStatus
from dayfly.work.queue import WorkQueue, work

K = TypeVar("K", bound=Hashable)
log = logging.getLogger(__name__)

WORKERS = 16


class Front:
    """Sandboxes, plugins, and the label on what is in use."""

    def __init__(self, cluster: Cluster, status: SandboxStatus) -> None:
        self._cluster = cluster
        self._status = status
        self._in_use = InUse(cluster)
        self._sandboxes = Sandboxes(cluster, self._in_use, status.doubt)
        self._plugins = Plugins(cluster)

    def heeded(self, seen: SandboxObject) -> Heeded:
        """Which of its owner's wishes the run of a Sandbox goes by."""
        return self._sandboxes.heeded(seen)

    def ended(self) -> None:
        """A run is over: what it used may be free."""
        self._in_use.freed()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        async with asyncio.TaskGroup() as tasks:
            sweeping = tasks.create_task(self._in_use.run())
            wishes, published = self._cluster.wishes, self._cluster.published
            reconcile = _handling(wishes, "sandbox", self._reconcile)
            working = [tasks.create_task(work(wishes, reconcile)) for _ in range(WORKERS)]
            judge = _handling(published, "plugin", self._plugins.reconcile)
            working.append(tasks.create_task(work(published, judge)))
            await asyncio.wait(working)
            sweeping.cancel()

    async def _reconcile(self, key: Key) -> None:
        why = await self._sandboxes.reconcile(key)
        seen = self._cluster.sandboxes.get(key.name, key.namespace)
        if why is not None and seen is not None:
            await self._status.waiting(seen, why)


def _handling(queue: WorkQueue[K], what: str, handle: Callable[[K], Awaitable[None]]) -> Callable[[K], Awaitable[None]]:
    """What goes wrong with one key stays visible and is tried again: it must not stop the others."""

    async def handled(key: K) -> None:
        try:
            await handle(key)
        except errors.ApiError as error:
            log.warning("%s %s: %s", what, key, error)
            queue.retry(key)
        except Exception:
            log.exception("%s %s failed", what, key)
            queue.retry(key)
        else:
            queue.forget(key)

    return handled
