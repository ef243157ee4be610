"""The attempts that have the outputs of a unit: its own, or those of the pool member that provides the resource."""

from collections.abc import Iterable
from typing import NamedTuple

from dayfly.execute.acquire.acquisition import find_acquisitions
from dayfly.execute.work_order import CannotRenderError
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import MemberRef, RunObject
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import Kind, Lifecycle, Unit, unit_id


class Producer(NamedTuple):
    """A unit with outputs, as `name` in the ledger of `run`."""

    run: RunObject
    name: str
    unit: Unit


async def find_producer(cluster: ClusterWatches, run: RunObject, document: Lifecycle, unit: Unit) -> Producer:
    """Return the unit of a document that has the outputs: for a stand-in, the unit of the member or parent.

    Raises:
        CannotRenderError: the run of the pool member is gone.
        errors.ApiError: the API server failed.
    """
    name = unit_id(document.resource, unit.name)
    if unit.kind != Kind.ACQUIRE or not (ref := run.ledger.unit(name).ref):
        return Producer(run, name, unit)
    member = MemberRef.parse(ref)
    found = cluster.ledger.get(member.run) or await cluster.ledger.read_current(member.run)
    if found is None or found.ledger.uid != member.uid:
        message = f"the outputs of {name} are gone with PoolMember {member.namespace}/{member.name}"
        raise CannotRenderError(Reason.OUTPUTS_LOST, message)
    acquisition = find_acquisitions((document,))[document.resource]
    template = acquisition.template
    step = template.plan.steps[acquisition.steps[name]]
    # The member of a pool may itself have a shared parent.
    above = next(each for each in template.documents if each.resource == step.resource)
    return await find_producer(cluster, found, above, step.unit)


def given_resource_id(run: RunObject, documents: Iterable[Lifecycle], resource: str) -> str | None:
    """Return the ID of a resource that its document gives, or that a pool member provides.

    It is None for any other resource, also for one with a parent: its ID is derived from its run.
    """
    own = [each for each in documents if each.resource == resource]
    if own and own[0].resource_id is not None:
        return own[0].resource_id
    found = find_acquisitions(own).get(resource)
    if found is None or found.template.sharing is not None or not (ref := found.member(run.ledger)):
        return None
    return resource_id(MemberRef.parse(ref).uid, found.template.resource)
