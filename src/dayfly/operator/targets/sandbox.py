"""Sandboxes as targets: cached, with a time to live; they start with their forks and stop with them."""

from typing import Any

from dayfly.execute.pod.read import milliseconds
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import SANDBOXES, RunObject
from dayfly.operator.targets.adapter import Seen, Times
from dayfly.plan.world import TargetState
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import Target
from dayfly.spec.sandbox import ttl_seconds


class SandboxTarget:
    """Deleted with its run, whatever that ended by."""

    kind, plural = SANDBOXES.kind, SANDBOXES.plural
    speaks = removes = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def cached(self, target: Target) -> Seen | None:
        found = self._cluster.sandboxes.get(target.name, target.namespace)
        return Seen(found.metadata, found.spec) if found is not None and found.metadata.uid == target.uid else None

    def times(self, run: RunObject, seen: Seen) -> Times:
        ttl = seen.spec.get("ttl") or {}
        try:
            seconds = ttl_seconds(ttl["duration"]) if ttl else 0
        except (SpecError, KeyError, TypeError):
            return Times()
        begin = milliseconds(seen.meta.creation_timestamp)
        if counts_updates(seen.spec):
            if seen.meta.generation != (run.spec.generation or 1):
                return Times()  # it has just been changed; the moment is about to be noted
            begin = max(begin, run.spec.updated_at)
        return Times(expires_at=begin + seconds * 1000 if seconds else 0)

    async def state(self, _run: RunObject) -> TargetState | None:
        return None


def counts_updates(spec: dict[str, Any]) -> bool:
    """Whether its time to live begins anew with each change of its spec."""
    ttl = spec.get("ttl")
    return isinstance(ttl, dict) and ttl.get("offsetFrom") == "updatedAt"
