"""Makes the manifests of forks and the Services that lead to them: from the baselines as they are now."""

from typing import Any, NamedTuple

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import (
    ForkIdentity,
    Hosts,
    find_service,
    fork_name,
    peer_baselines,
    render_fork,
    render_service,
)
from dayfly.execute.fork.run import Forks
from dayfly.execute.inputs import UnitOutputRef, resolve
from dayfly.execute.pod.render import PodSecretKey
from dayfly.execute.work_order import CannotRenderError
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.fork_values import address
from dayfly.operator.cluster.objects import RunObject, owner
from dayfly.operator.forks.namespaces import leave
from dayfly.operator.forks.pod_labels import PodLabels
from dayfly.operator.outputs.resource_secrets import bind
from dayfly.plan.sealed import Plan
from dayfly.spec.lifecycle import Baseline, Unit, digest, fork_id

KIND = "Deployment"


class ForkRefusal(NamedTuple):
    """Of what a fork was to be made, and why that is no fork."""

    made_of: tuple[Any, ...]
    reason: str
    message: str


class ForkBuilder:
    """What a fork looks like, by its wish, its baseline and what its resources have told."""

    def __init__(self, cluster: ClusterWatches, forks: Forks) -> None:
        self._cluster = cluster
        self._forks = forks
        self._labels = PodLabels(cluster, forks)

    async def manifest(
        self, run: RunObject, plan: Plan, unit: Unit, refused: dict[str, ForkRefusal]
    ) -> dict[str, Any] | None:
        """The fork as it is to be now; None if its baseline has just gone.

        What could not be rendered is remembered in `refused`, and not rendered again while nothing of it has changed.
        """
        assert unit.fork is not None, "only forks derive from a baseline"
        of = unit.fork.baseline
        left = await leave(self._cluster.client, run, of.namespace)
        baseline = await self._forks.read_baseline(of.name, of.namespace)
        if baseline is None:
            return None
        hosts: dict[tuple[str, str], tuple[str, int]] = {}
        for namespace, name in peer_baselines(unit):
            if each := await self.service(run, Baseline(kind=KIND, namespace=namespace, name=name)):
                hosts[namespace, name] = address(each)
        inputs = await self._inputs(run, plan, unit)
        meta, place = baseline["metadata"], fork_id(of)
        made_of = (digest(unit), meta["uid"], meta["resourceVersion"], inputs, hosts, left)
        if (known := refused.get(place)) and known.made_of == made_of:
            raise CannotRenderError(known.reason, known.message)
        try:
            return render_fork(unit, baseline, _identity(run, of), inputs=inputs, hosts=hosts, permissions=left)
        except CannotRenderError as error:
            refused[place] = ForkRefusal(made_of, error.reason, str(error))
            raise

    async def _inputs(self, run: RunObject, plan: Plan, unit: Unit) -> dict[str, PodSecretKey | None]:
        """Where the fork finds each value: the resource's Secret in the fork's own namespace, made now if need be."""
        assert unit.fork is not None, "only forks derive from a baseline"
        namespace = unit.fork.baseline.namespace
        documents = {document.resource: document for document in plan.documents}
        secrets: dict[str, str] = {}
        found: dict[str, PodSecretKey | None] = {}
        for name, source in resolve(run.ledger, unit, "", cleans=False).sources.items():
            if not isinstance(source, UnitOutputRef):
                found[name] = None
                continue
            resource, _, step = source.unit.rpartition("/")
            if resource not in secrets:
                secrets[resource] = await bind(self._cluster.client, run, documents[resource], namespace)
            found[name] = PodSecretKey(secrets[resource], f"{step}.{source.output}")
        return found

    async def service(self, run: RunObject, of: Baseline) -> ForkService | None:
        """The fork's own Service, made now if a Service leads to its baseline; None if none does.

        Also for a fork that another one is only told of: its namespace has to allow that as if it were made there now.
        """
        await leave(self._cluster.client, run, of.namespace)
        identity = _identity(run, of)
        found = await self._forks.find_service(identity.name, of.namespace, identity.owner)
        if found is not None:
            return found
        labels = await self._labels.of(of) or {}
        local = (each for each in self._cluster.services if each.metadata.namespace == of.namespace)
        like = find_service(local, of.name, labels)
        return await self._forks.ensure_service(render_service(like, identity)) if like else None

    def hosts(self, run: RunObject, unit: Unit) -> Hosts:
        """Where the forks that this one is told of answer, as far as the cache knows."""
        found = {}
        for namespace, name in peer_baselines(unit):
            own = fork_name(run.ledger.target.name, run.ledger.uid, namespace, name)
            if each := self._cluster.services.get(own, namespace):
                found[namespace, name] = address(each)
        return found


def _identity(run: RunObject, of: Baseline) -> ForkIdentity:
    own = fork_name(run.ledger.target.name, run.ledger.uid, of.namespace, of.name)
    return ForkIdentity(own, run.metadata.name, owner(run))
