"""The label by which namespaces and plugins are kept from deletion while sandboxes live off them.

The policies of `deploy/` honour it. It is a courtesy to whoever would delete them by mistake: plans are sealed and
ledgers lie elsewhere, so nothing rests on it. It is set before a run is born, and taken off by a sweep that finds no
use twice in a row: once a minute, and soon after a run has ended.
"""

import asyncio
import logging
from typing import Any, NamedTuple

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import NAMESPACES, ObjectMeta, Resource
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import PLUGINS, SandboxObject

log = logging.getLogger(__name__)

# Long enough for a sandbox that is made anew to keep the labels of the one before.
SETTLE_S = 3.0
EVERY_S = 60.0
# A namespace that was in use is not looked at again for so long: no two sweeps lie within.
AGAIN_S = 2.0
IN_USE = f"{names.GROUP}/in-use"


class _Labelled(NamedTuple):
    """What bears the label, and the name by which sandboxes use it."""

    resource: Resource[Any]
    meta: ObjectMeta
    name: str


class InUse:
    """Keeps the label where it belongs. An operator that may not label says so once and goes on."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._idle: set[str] = set()
        self._freed = asyncio.Event()
        self._warned = False
        self._seen: dict[str, float] = {}

    def freed(self) -> None:
        """A run has ended: perhaps something is used by nobody now, and its owner may want to delete it."""
        self._freed.set()

    def reset(self) -> None:
        """Forget what was seen: another process keeps the label from now on."""
        self._idle.clear()
        self._seen.clear()
        self._freed.clear()

    async def run(self) -> None:
        """Sweep at the start, every minute, and soon after each end of a run, until cancelled.

        The start counts as such an end: an uninstall may have left labels, with which no namespace can be deleted.
        """
        self._freed.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep_after_ends())
            while True:
                await self._try_to_sweep()
                await asyncio.sleep(EVERY_S)

    async def _sweep_after_ends(self) -> None:
        while True:
            await self._freed.wait()
            self._freed.clear()
            for _ in range(2):
                await asyncio.sleep(SETTLE_S)
                await self._try_to_sweep()

    async def _try_to_sweep(self) -> None:
        try:
            await self.sweep()
        except errors.ApiError as error:
            log.warning("labels of what is not in use may stay for a minute: %s", error)

    async def mark(self, sandbox: SandboxObject) -> None:
        """Before the run of a Sandbox is born: its namespace, and every version of the plugins that it names."""
        await self._mark_namespace(sandbox.metadata.namespace)
        used = _plugins(sandbox)
        for plugin in list(self._cluster.plugins):
            if _base(plugin.spec) in used:
                await self._label(PLUGINS, plugin.metadata)

    async def _mark_namespace(self, name: str) -> None:
        """Not for each of many sandboxes that come at once."""
        now = asyncio.get_running_loop().time()
        if now < self._seen.get(name, -AGAIN_S) + AGAIN_S:
            return
        try:
            namespace = await self._cluster.client.get(NAMESPACES, name)
        except errors.Refused:
            return
        await self._label(NAMESPACES, namespace.metadata)
        self._seen[name] = now

    async def sweep(self) -> None:
        """Take the label off what nobody uses any more."""
        listing = await self._cluster.client.list_all(NAMESPACES, labels=IN_USE)
        labelled = [_Labelled(NAMESPACES, each.metadata, each.metadata.name) for each in listing.items]
        plugins = [each for each in self._cluster.plugins if IN_USE in (each.metadata.labels or {})]
        labelled += [_Labelled(PLUGINS, each.metadata, _base(each.spec)) for each in plugins]
        used = self._used()
        idle = [each for each in labelled if each.name not in used[each.resource.plural]]
        for each in idle:
            if each.meta.uid in self._idle:
                await self._free(each)
        self._idle = {each.meta.uid for each in idle}

    def _used(self) -> dict[str, set[str]]:
        """As far as is known now: namespaces, and plugins without their versions."""
        places = {sandbox.metadata.namespace for sandbox in self._cluster.sandboxes}
        places |= {pod.metadata.namespace for pod in self._cluster.pods}
        plugins = {name for sandbox in self._cluster.sandboxes for name in _plugins(sandbox)}
        return {NAMESPACES.plural: places, PLUGINS.plural: plugins}

    async def _free(self, idle: _Labelled) -> None:
        """Take its label off, and put it back where a sandbox came meanwhile that had found it there."""
        if idle.resource is NAMESPACES:
            self._seen.pop(idle.name, None)
        if idle.name not in self._used()[idle.resource.plural]:
            await self._patch(idle.resource, idle.meta, wanted=False)
            if idle.name in self._used()[idle.resource.plural]:
                await self._patch(idle.resource, idle.meta, wanted=True)

    async def _label(self, resource: Resource[Any], meta: ObjectMeta) -> None:
        if IN_USE not in (meta.labels or {}):
            await self._patch(resource, meta, wanted=True)

    async def _patch(self, resource: Resource[Any], meta: ObjectMeta, *, wanted: bool) -> None:
        patch = {"metadata": {"uid": meta.uid, "labels": {IN_USE: "true" if wanted else None}}}
        try:
            await self._cluster.client.patch(resource.metadata_only(), patch, meta.name)
        except errors.Refused as error:
            if not self._warned and not isinstance(error, (*errors.ABSENT, errors.Conflict)):
                self._warned = True
                log.warning("cannot label what is in use: %s", error)


def _plugins(sandbox: SandboxObject) -> set[str]:
    """Names without versions of the plugins that it asks for."""
    wishes = sandbox.spec.get("resources")
    found = wishes if isinstance(wishes, list) else []
    return {str(wish.get("plugin", "")).partition("@")[0] for wish in found if isinstance(wish, dict)}


def _base(spec: dict[str, Any]) -> str:
    return str(spec.get("name", "")).partition("@")[0]
