"""The routing keys of what was applied in this cluster: no server leads the requests that carry them."""

from __future__ import annotations

from typing import Any

from dayfly.kube.cache import Change
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import is_served
from dayfly.spec.identity import routing_key


class LocalKeys:
    """Kept up by what is heard of Sandboxes and RouteGroups. Keys are derived from their UIDs."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._keys: set[str] = set()
        cluster.sandboxes.listen(self._heard)
        cluster.groups.listen(self._heard)

    def has(self, key: str) -> bool:
        """Whether it is the key of one of these."""
        return key in self._keys

    def _heard(self, change: Change[Any]) -> None:
        meta = change.seen.metadata
        key = routing_key(meta.uid)
        if change.new is None:
            self._keys.discard(key)
        elif not is_served(meta):
            self._keys.add(key)
