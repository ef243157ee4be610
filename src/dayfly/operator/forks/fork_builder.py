"""Manifests of forks and of the Services that route to them, derived from the current baselines."""

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
from dayfly.operator.cluster.fork_values import service_address
from dayfly.operator.cluster.objects import RunObject, run_owner_reference
from dayfly.operator.forks.baselines import PodLabels, read_fork_rights
from dayfly.operator.outputs.resource_secrets import write_resource_secret
from dayfly.plan.sealed import Plan
from dayfly.spec.lifecycle import Baseline, Unit, digest, fork_id

KIND = "Deployment"


class ForkRefusal(NamedTuple):
    """Why a fork could not be rendered, and all inputs of that attempt."""

    rendered_from: tuple[Any, ...]
    reason: str
    message: str


class ForkBuilder:
    """Renders forks from their unit, their baseline and the outputs of resources."""

    def __init__(self, cluster: ClusterWatches, forks: Forks) -> None:
        self._cluster = cluster
        self._forks = forks
        self._labels = PodLabels(cluster, forks)

    async def manifest(
        self, run: RunObject, plan: Plan, unit: Unit, refused: dict[str, ForkRefusal]
    ) -> dict[str, Any] | None:
        """Render a fork; return None if its baseline has just been deleted.

        Failures are remembered in `refused`. They are not tried again until an input has changed.

        Raises:
            CannotRenderError: the fork cannot be rendered.
            NotGrantedError: the namespace does not allow it.
            errors.ApiError: the API server does not answer.
        """
        assert unit.fork is not None, "only forks derive from a baseline"
        source = unit.fork.baseline
        permissions = await read_fork_rights(self._cluster.client, run, source.namespace)
        baseline = await self._forks.read_baseline(source.name, source.namespace)
        if baseline is None:
            return None
        hosts: dict[tuple[str, str], tuple[str, int]] = {}
        for namespace, name in peer_baselines(unit):
            if each := await self.service(run, Baseline(kind=KIND, namespace=namespace, name=name)):
                hosts[namespace, name] = service_address(each)
        inputs = await self._inputs(run, plan, unit)
        meta, key = baseline["metadata"], fork_id(source)
        rendered_from = (digest(unit), meta["uid"], meta["resourceVersion"], inputs, hosts, permissions)
        if (known := refused.get(key)) and known.rendered_from == rendered_from:
            raise CannotRenderError(known.reason, known.message)
        try:
            return render_fork(
                unit, baseline, _identity(run, source), inputs=inputs, hosts=hosts, permissions=permissions
            )
        except CannotRenderError as error:
            refused[key] = ForkRefusal(rendered_from, error.reason, str(error))
            raise

    async def _inputs(self, run: RunObject, plan: Plan, unit: Unit) -> dict[str, PodSecretKey | None]:
        """Return the Secret keys of a fork's inputs. Missing Secrets are created in its namespace."""
        assert unit.fork is not None, "only forks derive from a baseline"
        namespace = unit.fork.baseline.namespace
        documents = {document.resource: document for document in plan.documents}
        secrets: dict[str, str] = {}
        found: dict[str, PodSecretKey | None] = {}
        for name, source in resolve(run.ledger, unit, "", must_run=False).sources.items():
            if not isinstance(source, UnitOutputRef):
                found[name] = None
                continue
            resource, _, step = source.unit.rpartition("/")
            if resource not in secrets:
                secrets[resource] = await write_resource_secret(self._cluster, run, documents[resource], namespace)
            found[name] = PodSecretKey(secrets[resource], f"{step}.{source.output}")
        return found

    async def service(self, run: RunObject, source: Baseline) -> ForkService | None:
        """Return the fork's own Service; create it if a Service selects the baseline, else return None.

        The fork's namespace must allow this also if only another fork needs the address.
        """
        await read_fork_rights(self._cluster.client, run, source.namespace)
        identity = _identity(run, source)
        found = await self._forks.find_service(identity.name, source.namespace, identity.owner)
        if found is not None:
            return found
        labels = await self._labels.read(source) or {}
        local = (each for each in self._cluster.services if each.metadata.namespace == source.namespace)
        like = find_service(local, source.name, labels)
        return await self._forks.ensure_service(render_service(like, identity)) if like else None

    def hosts(self, run: RunObject, unit: Unit) -> Hosts:
        """Return the addresses of the other forks that a fork refers to, as far as the cache has them."""
        found = {}
        for namespace, name in peer_baselines(unit):
            own = fork_name(run.ledger.target.name, run.ledger.uid, namespace, name)
            if each := self._cluster.services.get(own, namespace):
                found[namespace, name] = service_address(each)
        return found


def _identity(run: RunObject, source: Baseline) -> ForkIdentity:
    own = fork_name(run.ledger.target.name, run.ledger.uid, source.namespace, source.name)
    return ForkIdentity(own, run.metadata.name, run_owner_reference(run))
