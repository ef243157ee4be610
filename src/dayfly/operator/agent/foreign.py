"""The routing keys of what was applied in this cluster: no control plane leads the requests that carry them."""

from __future__ import annotations

from typing import Any

from dayfly.kube.cache import Change
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import is_served
from dayfly.spec.identity import routing_key


class ForeignKeys:
    """Kept up by what is heard of Sandboxes and RouteGroups. Keys are derived from their UIDs."""

    def __init__(self, cluster: Cluster) -> None:
        self._keys: dict[str, str] = {}
        cluster.sandboxes.listen(self._heard)
        cluster.groups.listen(self._heard)

    def has(self, key: str) -> bool:
        """Whether it is the key of one of these."""
        return key in self._keys

    def _heard(self, change: Change[Any]) -> None:
        if change.new is None and change.old is not None:
            key = routing_key(change.old.metadata.uid)
            if self._keys.get(key) == change.old.metadata.uid:
                del self._keys[key]
        elif change.new is not None and not is_served(change.new.metadata):
            self._keys[routing_key(change.new.metadata.uid)] = change.new.metadata.uid
