"""The label that protects namespaces and plugins from deletion while sandboxes and pools use them.

Admission policies in `deploy/` reject the deletion of labelled objects. That only prevents mistakes: plans are sealed
and ledgers are elsewhere, so runs do not depend on it. The label is set before a run of a sandbox is born, and by the
next sweep for pools. A sweep removes it after it has found no use twice in a row: once a minute, and soon after a run
has ended.
"""

import asyncio
import logging
from typing import Any, NamedTuple

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import NAMESPACES, ApiResource, ObjectMeta
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import PLUGINS, ResourcePoolObject, SandboxObject

log = logging.getLogger(__name__)

# Delay of a sweep after a run has ended. A sandbox that is created again within it keeps the labels.
SWEEP_DELAY_S = 3.0
SWEEPS_AFTER_END = 4
SWEEP_INTERVAL_S = 60.0
# A labelled namespace is not read again within this time. It is shorter than the time between two sweeps.
NAMESPACE_CHECK_INTERVAL_S = 2.0
IN_USE = f"{names.GROUP}/in-use"


class _Labelled(NamedTuple):
    """A labelled object, and the name by which sandboxes use it."""

    resource: ApiResource[Any]
    meta: ObjectMeta
    name: str


class InUseLabels:
    """Sets and removes the label. If the operator may not write labels, it logs that once and continues."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._idle: set[str] = set()
        self._run_ended = asyncio.Event()
        self._warned = False
        self._checked_at: dict[str, float] = {}

    def schedule_sweep(self) -> None:
        """Sweep soon: a run has ended, and a user may want to delete what it used."""
        self._run_ended.set()

    def reset(self) -> None:
        """Forget all observations: another replica sets the labels now."""
        self._idle.clear()
        self._checked_at.clear()
        self._run_ended.clear()

    async def run(self) -> None:
        """Sweep at the start, every minute, and soon after each end of a run, until cancelled.

        The start counts as an end: an uninstall may have left labels, and a labelled namespace cannot be deleted.
        """
        self._run_ended.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep_after_ends())
            while True:
                await self._try_to_sweep()
                await asyncio.sleep(SWEEP_INTERVAL_S)

    async def _sweep_after_ends(self) -> None:
        while True:
            await self._run_ended.wait()
            self._run_ended.clear()
            for number in range(1, SWEEPS_AFTER_END + 1):
                await asyncio.sleep(SWEEP_DELAY_S)
                await self._try_to_sweep()
                # The first sweep may still find the sandbox in the cache.
                if number >= 2 and not self._idle:
                    break

    async def _try_to_sweep(self) -> None:
        try:
            await self.sweep()
        except errors.ApiError as error:
            log.warning("labels of unused objects may stay for a minute: %s", error)

    async def label_used(self, sandbox: SandboxObject) -> None:
        """Label a Sandbox's namespace and all versions of its plugins, before its run is born."""
        await self._label_namespace(sandbox.metadata.namespace)
        used = self._with_parents(_plugins(sandbox))
        for plugin in list(self._cluster.plugins):
            if _plugin_name(plugin.spec) in used:
                await self._label(PLUGINS, plugin.metadata)

    async def _label_namespace(self, name: str) -> None:
        """Label a namespace, with one request for many sandboxes that are created at the same time."""
        now = asyncio.get_running_loop().time()
        if now < self._checked_at.get(name, -NAMESPACE_CHECK_INTERVAL_S) + NAMESPACE_CHECK_INTERVAL_S:
            return
        try:
            namespace = await self._cluster.client.get(NAMESPACES, name)
        except errors.Refused:
            return
        await self._label(NAMESPACES, namespace.metadata)
        self._checked_at[name] = now

    async def sweep(self) -> None:
        """Label what pools use, and remove the label from objects that neither sandboxes nor pools use."""
        await self._label_used_by_pools()
        listing = await self._cluster.client.list_all(NAMESPACES, labels=IN_USE)
        labelled = [_Labelled(NAMESPACES, each.metadata, each.metadata.name) for each in listing.items]
        plugins = [each for each in self._cluster.plugins if IN_USE in (each.metadata.labels or {})]
        labelled += [_Labelled(PLUGINS, each.metadata, _plugin_name(each.spec)) for each in plugins]
        used = self._used()
        idle = [each for each in labelled if each.name not in used[each.resource.plural]]
        for each in idle:
            if each.meta.uid in self._idle:
                await self._unlabel(each)
        self._idle = {each.meta.uid for each in idle}

    async def _label_used_by_pools(self) -> None:
        used = self._with_parents({_pool_plugin(pool) for pool in self._cluster.holds.pools})
        for plugin in [each for each in self._cluster.plugins if _plugin_name(each.spec) in used]:
            await self._label(PLUGINS, plugin.metadata)
        for name in sorted({pool.metadata.namespace for pool in self._cluster.holds.pools}):
            await self._label_namespace(name)

    def _used(self) -> dict[str, set[str]]:
        """Return the used namespaces, and the used plugins without their versions, according to the caches."""
        namespaces = {sandbox.metadata.namespace for sandbox in self._cluster.sandboxes}
        namespaces |= {pod.metadata.namespace for pod in self._cluster.pods}
        namespaces |= {pool.metadata.namespace for pool in self._cluster.holds.pools}
        namespaces |= {member.metadata.namespace for member in self._cluster.holds.members}
        plugins = {name for sandbox in self._cluster.sandboxes for name in _plugins(sandbox)}
        plugins |= {_pool_plugin(pool) for pool in self._cluster.holds.pools}
        return {NAMESPACES.plural: namespaces, PLUGINS.plural: self._with_parents(plugins)}

    def _with_parents(self, used: set[str]) -> set[str]:
        """Return names of plugins with those of their parents."""
        found, size = set(used), -1
        while size < len(found):
            size = len(found)
            found |= {_parent(plugin.spec) for plugin in self._cluster.plugins if _plugin_name(plugin.spec) in found}
        return found

    async def _unlabel(self, idle: _Labelled) -> None:
        """Remove the label, and restore it if a new sandbox uses the object and may have found the label there."""
        if idle.resource is NAMESPACES:
            self._checked_at.pop(idle.name, None)
        if idle.name not in self._used()[idle.resource.plural]:
            await self._patch(idle.resource, idle.meta, wanted=False)
            if idle.name in self._used()[idle.resource.plural]:
                await self._patch(idle.resource, idle.meta, wanted=True)

    async def _label(self, resource: ApiResource[Any], meta: ObjectMeta) -> None:
        if IN_USE not in (meta.labels or {}):
            await self._patch(resource, meta, wanted=True)

    async def _patch(self, resource: ApiResource[Any], meta: ObjectMeta, *, wanted: bool) -> None:
        patch = {"metadata": {"uid": meta.uid, "labels": {IN_USE: "true" if wanted else None}}}
        try:
            await self._cluster.client.patch(resource.metadata_only(), patch, meta.name)
        except errors.Refused as error:
            if not self._warned and not isinstance(error, (*errors.ABSENT, errors.Conflict)):
                self._warned = True
                log.warning("cannot label what is in use: %s", error)


def _plugins(sandbox: SandboxObject) -> set[str]:
    """Return the names, without versions, of the plugins that a Sandbox uses."""
    resources = sandbox.spec.get("resources")
    found = resources if isinstance(resources, list) else []
    return {str(resource.get("plugin", "")).partition("@")[0] for resource in found if isinstance(resource, dict)}


def _pool_plugin(pool: ResourcePoolObject) -> str:
    return str(pool.spec.get("plugin", "")).partition("@")[0]


def _parent(spec: dict[str, Any]) -> str:
    """Return the name, without its version, of a plugin's parent; empty for none."""
    parent = spec.get("parent")
    return str(parent.get("plugin", "")).partition("@")[0] if isinstance(parent, dict) else ""


def _plugin_name(spec: dict[str, Any]) -> str:
    return str(spec.get("name", "")).partition("@")[0]
