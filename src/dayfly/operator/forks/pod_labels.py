"""The labels of baselines' pods, by which Services lead to them."""

from dayfly.execute.fork.run import Forks
from dayfly.kube.cache import Change
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import BaselineMeta as Cached
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.spec.lifecycle import Baseline


class PodLabels:
    """Read again only when a baseline has changed."""

    def __init__(self, cluster: ClusterWatches, forks: Forks) -> None:
        self._cluster = cluster
        self._forks = forks
        # By baseline: its UID and generation, and the labels that its pods have then.
        self._known: dict[Key, tuple[str, int, dict[str, str]]] = {}
        cluster.baselines.listen(self._heard)

    def _heard(self, change: Change[Cached]) -> None:
        """Nobody may ever ask again for one that is gone."""
        if change.new is None:
            self._known.pop(change.key, None)

    async def of(self, of: Baseline) -> dict[str, str] | None:
        """Those of a baseline's pods; None if it is gone.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        key = Key(of.namespace, of.name)
        cached, known = self._cluster.baselines.get(of.name, of.namespace), self._known.get(key)
        if known and cached and known[:2] == (cached.metadata.uid, cached.metadata.generation):
            return known[2]
        whole = await self._forks.read_baseline(of.name, of.namespace)
        if whole is None:
            self._known.pop(key, None)
            return None
        labels: dict[str, str] = whole["spec"]["template"].get("metadata", {}).get("labels") or {}
        self._known[key] = whole["metadata"]["uid"], whole["metadata"]["generation"], labels
        return labels
