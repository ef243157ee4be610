"""Pools that serve sandboxes of other namespaces, if an administrator has annotated the namespace of the pool.

A sandbox gets nothing from such a pool that its own namespace may not create: the steps of the members must run where
steps of the sandbox may run. Pools whose members have Kubernetes objects or a shared parent serve only their own
namespace, because these belong to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import NAMESPACES
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.pods.namespaces import GRANT_CACHE_MS, comma_separated
from dayfly.spec.errors import quote
from dayfly.spec.lifecycle import Kind, Lifecycle, LifecycleEvent

# On a namespace: the other namespaces that its pools serve, separated by commas, `*` for all.
POOLS_FOR_ANNOTATION = f"{names.GROUP}/pools-for"

log = logging.getLogger(__name__)


class SharedPools:
    """Cached annotations of all namespaces. They are read only if a namespace has a pool that could serve another."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._lock = asyncio.Lock()
        self._expires_at = 0
        self._served: dict[str, set[str]] = {}  # by namespace of pools

    async def serving(self, home: str, candidates: Iterable[str]) -> list[str]:
        """Return the namespaces among `candidates` whose pools serve sandboxes of the namespace `home`, sorted.

        `home` itself is never among them: its own pools need no permission.

        Raises:
            errors.ApiError: the API server failed. A refused request permits nothing.
        """
        others = sorted(set(candidates) - {home})
        if others:
            async with self._lock:
                if self._cluster.now() >= self._expires_at:
                    await self._read()
        return [each for each in others if not self._served.get(each, set()).isdisjoint({home, "*"})]

    async def _read(self) -> None:
        self._served.clear()
        try:
            listing = await self._cluster.client.list_all(NAMESPACES)
        except errors.Refused as error:
            log.warning("pools serve only their own namespaces: %s", error)
        else:
            living = (each.metadata for each in listing.items if not each.metadata.deletion_timestamp)
            granted = ((meta.name, comma_separated(meta.annotations, POOLS_FOR_ANNOTATION)) for meta in living)
            self._served.update((name, served) for name, served in granted if served)
        self._expires_at = self._cluster.now() + GRANT_CACHE_MS


def why_unshared(documents: Iterable[Lifecycle]) -> str:
    """Return why members with these documents serve only their own namespace; empty if they may serve others."""
    for document in documents:
        if document.template:
            return "its members share a parent with other resources of their namespace"
        objects = (unit.name for event in LifecycleEvent for unit in document.units(event) if unit.kind == Kind.OBJECT)
        if found := next(objects, ""):
            return f"its step {quote(found)} creates or removes a Kubernetes object"
    return ""


def step_namespaces(documents: Iterable[Lifecycle]) -> set[str]:
    """Return the namespaces in which the steps of these documents run."""
    return {names.namespace_of(unit) for each in documents for event in LifecycleEvent for unit in each.units(event)}
