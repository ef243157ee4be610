"""The versions of the Secrets and ConfigMaps that members of a pool read: if one changes, the members are stale."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from dayfly.execute.pod import names, pod_precheck
from dayfly.execute.pod.policy.object_references import CLAIM
from dayfly.kube import errors
from dayfly.operator.pods.plugin_reads import PluginReads
from dayfly.spec.lifecycle import STEP_KINDS

if TYPE_CHECKING:
    from dayfly.execute.pod.policy import Reference
    from dayfly.operator.cluster.caches import ClusterWatches
    from dayfly.spec.lifecycle import Lifecycle, Unit


class SourceVersions:
    """Reads the versions of objects at most once in the time for which grants are cached.

    Only objects that grant the plugin access are read, so the age of a member reveals nothing about other objects.
    """

    def __init__(self, cluster: ClusterWatches) -> None:
        self._reads = PluginReads(cluster.client, cluster.now)

    async def read(self, documents: tuple[Lifecycle, ...], *, newest: bool = False) -> str:
        """Return a digest of the versions that create steps read; empty for none, or if one of them is unknown.

        `newest` does not use cached versions.
        """
        found = []
        for document in documents:
            for unit in document.pre_start:
                if unit.kind not in STEP_KINDS or not (sources := _sources(unit)):
                    continue
                namespace = names.namespace_of(unit)
                try:
                    versions = await self._reads.versions(document.origin, namespace, sources, newest=newest)
                except errors.ApiError:
                    return ""
                if versions is None:
                    return ""
                found += [(namespace, *key, version) for key, version in versions.items()]
        return f"sha256:{hashlib.sha256(msgspec.json.encode(sorted(set(found)))).hexdigest()}" if found else ""


def _sources(unit: Unit) -> list[Reference]:
    """Return the Secrets and ConfigMaps that are inputs of a step. A claim has no version of its content."""
    every = pod_precheck.read_objects(unit)
    return [each for each in every if each.kind != CLAIM and not each.path.startswith("spec.imagePullSecrets")]
