"""Whose sandboxes may fork what is in a namespace, and how far forks there may differ from their baselines."""

from dayfly.execute.fork.rights import FREE_LABEL, ForkPermissions
from dayfly.execute.pod import names
from dayfly.kube.client import Client
from dayfly.kube.objects import NAMESPACES
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.pods.namespaces import NotGrantedError, listed
from dayfly.plan.reasons import Reason

# On a namespace: those whose sandboxes may fork its workloads, with commas between. Its own sandboxes always may.
SOURCES_ANNOTATION = f"{names.GROUP}/sandboxes-from"


async def leave(client: Client, run: RunObject, namespace: str) -> ForkPermissions:
    """What is left to the forks of a run's sandbox there. Whoever may write Sandboxes in one namespace is given nothing
    by that in another: it has to name theirs.

    Raises:
        NotGrantedError: nothing at all.
        errors.ApiError: the server cannot be asked.
    """
    home = run.ledger.target.namespace
    seen = await client.find(NAMESPACES, namespace)
    labels = seen.metadata.labels if seen else None
    notes = seen.metadata.annotations if seen else None
    if namespace != home and home not in listed(notes, SOURCES_ANNOTATION):
        raise NotGrantedError(
            Reason.NAMESPACE_NOT_GRANTED,
            f"workloads of namespace {namespace} may not be forked by sandboxes of {home}: an administrator can "
            f"annotate it {SOURCES_ANNOTATION}={home} (separate several names with commas)",
        )
    return ForkPermissions(home=namespace == home, free=(labels or {}).get(FREE_LABEL) == "free")
