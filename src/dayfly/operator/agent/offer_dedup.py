"""What the caches tell of offers: which are carried out already, and whether the cluster has less than it had.

A server that begins, or does not know that its word was heard, offers again. Where our caches show that very wish in
the run, nothing is asked of the API server. They may be a moment old, and so may any answer: a run that has ended
since says so by itself. But they are believed only once the watch has brought all that we have written: what we wrote
is not what is there if the cluster was put back to an older backup.

What a cluster once had and has no more it does not say by itself. So whoever sees that its caches went back begins
another session: whatever was confirmed in the one before is void, and the server tells everything again.
"""

from __future__ import annotations

from dayfly.execute.pod import names
from dayfly.kube.cache import Change
from dayfly.link.wire import Offer
from dayfly.operator.agent import objects
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, SandboxObject


def is_carried_out(cluster: ClusterWatches, seen: SandboxObject | None, offer: Offer) -> bool:
    """Whether an offer changes nothing any more, as far as the caches show; `seen` is the Sandbox that they have."""
    if seen is None or objects.has_ended(seen, run=True):
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


def is_lost(old: SandboxObject, *, run: bool) -> bool:
    """Whether a Sandbox that is gone was not over. `run`: whether it has one still."""
    return not objects.has_ended(old, run=run)


def went_back(change: Change[RunObject]) -> bool:
    """Whether a run of a server is gone though it was not closed, or knows less than it knew."""
    old = change.old.spec.offered if change.old is not None else None
    if old is None or change.old is None:
        return False
    if change.new is None:
        return change.old.ledger.closed is None and old.stop is None
    new = change.new.spec.offered
    return new is not None and (new.generation < old.generation or (new.stop is None and old.stop is not None))
