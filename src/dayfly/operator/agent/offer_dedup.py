"""Which offers are already carried out, and whether the cluster was restored to an older backup, both from the caches.

A server repeats an offer after a restart, or if an answer was lost. If the cached run already has the offered spec, no
request to the API server is needed. A cache may be slightly behind, but a run that has ended since then reports its
end by itself. A cached run counts only once the watch has delivered our own last write to it: after the cluster was
restored to an older backup, what we wrote is no longer there.

A cluster does not report objects that a restore has removed. So the agent begins a new session when its caches went
back: all confirmations of the old session become invalid, and the server sends everything again.
"""

from __future__ import annotations

from dayfly.execute.pod import names
from dayfly.kube.cache import ObjectChange
from dayfly.link.wire import Offer
from dayfly.operator.agent import served_sandboxes
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, SandboxObject


def is_carried_out(cluster: ClusterWatches, seen: SandboxObject | None, offer: Offer) -> bool:
    """Return whether the caches show that an offer changes nothing; `seen` is the cached Sandbox."""
    if seen is None or served_sandboxes.has_ended(seen, run=True):
        return False
    name = names.run_name(seen.metadata.name, seen.metadata.uid)
    run = cluster.runs.get(name)
    if run is None or run.spec.offered is None or cluster.ledger.get(name) is not run:
        return False
    offered = run.spec.offered
    if offer.generation < offered.generation or run.ledger.closed is not None:
        return True
    known = offered.generation, offered.expires_at, run.spec.forks
    return known == (offer.generation, offer.expires_at, offer.forks)


def has_regressed(change: ObjectChange[RunObject]) -> bool:
    """Return whether a server's run has disappeared without being closed, or lacks something it had."""
    old = change.old.spec.offered if change.old is not None else None
    if old is None or change.old is None:
        return False
    if change.new is None:
        return change.old.ledger.closed is None and old.stop is None
    new = change.new.spec.offered
    return new is not None and (new.generation < old.generation or (new.stop is None and old.stop is not None))
