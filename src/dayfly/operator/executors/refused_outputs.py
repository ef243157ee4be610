"""Ends of attempts whose outputs the API server refuses to store: each waits for its next try."""

from collections.abc import Mapping

from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.retries import RequestKey, is_due
from dayfly.operator.run_memory import Sight
from dayfly.plan.world import AttemptKey, Ended, Fact, Sealed, Unread
from dayfly.spec.run import ALIVE


def outputs_request(attempt: AttemptKey) -> RequestKey:
    """Return the key for the request to write the outputs of an attempt."""
    return ("Outputs", *attempt)


def hold_back_refused(
    cluster: ClusterWatches, sight: Sight, facts: Mapping[AttemptKey, Fact]
) -> dict[AttemptKey, Fact]:
    """Replace the ends whose outputs were refused, until the next try. The rest of the run continues.

    An abandoned run does not wait for outputs.
    """
    run, retries = sight.run, sight.memory.retries
    refused: dict[AttemptKey, Fact] = {}
    for key, fact in facts.items() if retries and not sight.abandoned else ():
        record, request = run.ledger.unit(key[0]), outputs_request(key)
        if not isinstance(fact, Ended | Sealed) or key[1] != record.attempt or record.state not in ALIVE:
            continue
        if not is_due(cluster, run.metadata.name, retries, request):
            refused[key] = Unread(since=fact.result.ended_at, message=retries.message(request))
    return dict(facts) | refused
