"""Facts about baselines for forks and routes: which sandboxes may fork them, and the labels of their pods."""

from dayfly.execute.fork.rights import FREE_LABEL, ForkPermissions
from dayfly.execute.fork.run import Forks
from dayfly.execute.pod import names
from dayfly.kube.cache import ObjectChange
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES, Key
from dayfly.operator.cluster.caches import BaselineMeta, ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.pods.namespaces import NotGrantedError, comma_separated
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Baseline

# On a namespace: the namespaces whose sandboxes may fork its workloads, separated by commas. Its own always may.
SOURCES_ANNOTATION = f"{names.GROUP}/sandboxes-from"


async def read_fork_rights(client: KubeClient, run: RunObject, namespace: str) -> ForkPermissions:
    """Return what forks of a run's sandbox may do in a namespace.

    The right to write Sandboxes in one namespace gives no rights in another one, which must name the first.

    Raises:
        NotGrantedError: its workloads may not be forked by that sandbox.
        errors.ApiError: the API server does not answer.
    """
    home = run.ledger.target.namespace
    seen = await client.find(NAMESPACES, namespace)
    labels = seen.metadata.labels if seen else None
    annotations = seen.metadata.annotations if seen else None
    if namespace != home and home not in comma_separated(annotations, SOURCES_ANNOTATION):
        raise NotGrantedError(
            Reason.NAMESPACE_NOT_GRANTED,
            f"workloads of namespace {namespace} may not be forked by sandboxes of {home}: an administrator can "
            f"annotate it {SOURCES_ANNOTATION}={home} (separate several names with commas)",
        )
    return ForkPermissions(is_home=namespace == home, is_free=(labels or {}).get(FREE_LABEL) == "free")


class PodLabels:
    """The pod labels of baselines, by which Services select them. They are read again after a baseline has changed."""

    def __init__(self, cluster: ClusterWatches, forks: Forks) -> None:
        self._cluster = cluster
        self._forks = forks
        # By baseline: its UID, its generation and the pod labels of that generation.
        self._known: dict[Key, tuple[str, int, dict[str, str]]] = {}
        cluster.baselines.listen(self._on_change)

    def _on_change(self, change: ObjectChange[BaselineMeta]) -> None:
        if change.new is None:
            self._known.pop(change.key, None)

    async def read(self, baseline: Baseline) -> dict[str, str] | None:
        """Return the pod labels of a baseline; None if it is gone.

        Raises:
            errors.ApiError: the API server does not answer.
        """
        key = Key(baseline.namespace, baseline.name)
        cached, known = self._cluster.baselines.get(baseline.name, baseline.namespace), self._known.get(key)
        if known and cached and known[:2] == (cached.metadata.uid, cached.metadata.generation):
            return known[2]
        deployment = await self._forks.read_baseline(baseline.name, baseline.namespace)
        if deployment is None:
            self._known.pop(key, None)
            return None
        labels: dict[str, str] = deployment["spec"]["template"].get("metadata", {}).get("labels") or {}
        self._known[key] = deployment["metadata"]["uid"], deployment["metadata"]["generation"], labels
        return labels
