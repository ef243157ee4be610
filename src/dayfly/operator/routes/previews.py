"""Addresses of endpoints in a cluster: one HTTPRoute for each, at the Gateway of the option `--preview-gateway`."""

from collections.abc import Iterable
from functools import partial

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.gateway import preview, read
from dayfly.execute.gateway.preview import PreviewGateway
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.render import services_for
from dayfly.execute.gateway.run import HTTP_ROUTES, Routes, differs
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.execute.pod.read import parse_time
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches, owned_by_run
from dayfly.operator.cluster.objects import RunObject, is_owned_by, run_owner_reference
from dayfly.operator.forks.baselines import PodLabels, read_fork_rights
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.refusals import KEPT_RETRY_AFTER_S, seconds_until_kept_retry
from dayfly.operator.retries import attempt, deletion
from dayfly.operator.routes.differences import PATIENCE_MS, REFUSALS, SETTLE_MS, to_objection
from dayfly.operator.routes.group_keys import GroupKeyIndex
from dayfly.operator.routes.route_builder import fork_of
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep, Plan
from dayfly.plan.world import Fact, Running, UnitRefusal, Waiting
from dayfly.spec.lifecycle import PreviewUnit


class Previews:
    """Creates and updates the addresses; without `edge` there are none."""

    def __init__(self, cluster: ClusterWatches, edge: PreviewGateway | None, labels: PodLabels) -> None:
        self._cluster = cluster
        self._keys = GroupKeyIndex(cluster)
        self._edge = edge
        self._labels = labels
        self._routes = Routes(cluster.client)

    def list_cached(self, run: RunObject) -> list[RouteObject]:
        """Return the cached HTTPRoutes of a run's addresses."""
        every = owned_by_run(self._cluster.gateway.routes[HTTP_ROUTES.plural], run.metadata.name)
        return [each for each in every if preview.PREVIEW_LABEL in (each.metadata.labels or {})]

    async def observe(self, run: RunObject, step: KeptStep, since: int, memory: RouteMemory) -> tuple[Fact, str, str]:
        """Return the state of an address: its fact, why it leads nowhere (nothing waits for that), and its working URL.

        Raises:
            errors.ApiError: the API server does not answer.
        """
        endpoint = _preview(step)
        if why := await self._why_not_granted(run, endpoint) or self._why_impossible(endpoint):
            return Running(since=since), why, ""
        assert self._edge is not None, "otherwise it is impossible"
        if stuck := memory.stuck.get(step.id):
            return Running(since=since), stuck.message, ""
        target, now = run.ledger.target, self._cluster.now()
        name = preview.label(target.name, run.ledger.uid, step.unit.name)
        ours = next((each for each in self.list_cached(run) if each.metadata.name == name), None)
        if ours is not None and ours.spec.get("hostnames") != [f"{name}.{self._edge.domain}"]:
            ours = None  # a user has changed it, and it is restored
        lack = preview.find_problem(ours, self._edge) if ours is not None else None
        if ours is None or (lack is not None and not lack.is_refused):
            # The memory is dropped when the run rests and when the process ends, so the age of the route counts, too.
            first_seen = memory.accepted_at.setdefault(step.id, now)
            made = parse_time(ours.metadata.creation_timestamp) if ours is not None else 0
            begun = min(made or first_seen, first_seen)
            message = lack.message if lack is not None else "its route is being written"
            if now >= begun + PATIENCE_MS:
                return Running(since=since), message, ""
            self._requeue(run, begun + PATIENCE_MS - now)
            return Waiting(since=since, reason=Reason.ROUTE_PENDING, message=message), "", ""
        if lack is not None:
            return Running(since=since), lack.message, ""
        accepted = memory.accepted_at.setdefault(ours.metadata.uid, now)
        left = min(read.accepted_at(ours), accepted) + SETTLE_MS - now
        if left > 0:
            self._requeue(run, left)
            message = "its Gateway has accepted it and is configuring its proxies"
            return Waiting(since=since, reason=Reason.ROUTE_PENDING, message=message), "", ""
        return Running(since=since), "", self._edge.url(f"{name}.{self._edge.domain}")

    async def _why_not_granted(self, run: RunObject, endpoint: PreviewUnit) -> str:
        """Return why the address may not be created. Services of another namespace are shown only if it allows that."""
        namespace = _namespace(endpoint)
        try:
            if namespace != run.ledger.target.namespace:
                await read_fork_rights(self._cluster.client, run, namespace)
        except (NotGrantedError, errors.Refused) as error:
            self._requeue(run, round(KEPT_RETRY_AFTER_S * 1000))  # namespaces are not watched
            return to_objection(error, 0).message
        return ""

    def is_impossible(self, step: KeptStep) -> bool:
        """Return whether the address cannot exist now, so that it is not created."""
        return bool(self._why_impossible(_preview(step)))

    def _why_impossible(self, endpoint: PreviewUnit) -> str:
        if self._edge is None:
            return "endpoints get addresses only if the operator has the option --preview-gateway"
        if HTTP_ROUTES not in self._cluster.gateway.kinds:
            return "endpoints get addresses from the Gateway API, which is not installed"
        if endpoint.scheme == "https":
            return "a Gateway connects to it without TLS, so it would not answer"
        if self._endpoint_service(endpoint) is None:
            return f"there is no Service {endpoint.host} with port {endpoint.port}"
        return ""

    async def keep(self, run: RunObject, plan: Plan, alive: list[str], memory: RouteMemory) -> None:
        """After a turn, create and update the wanted addresses, and remove all others.

        Raises:
            errors.ApiError: some of this is not done.
        """
        wanted = [plan.kept[name] for name in alive if name in plan.kept] if run.ledger.closed is None else []
        names = set()
        for step in wanted:
            if self._why_impossible(_preview(step)):
                continue
            names.add(preview.label(run.ledger.target.name, run.ledger.uid, step.unit.name))
            try:
                await self._keep_one(run, plan, step)
            except errors.Conflict:
                self._cluster.queue.add(run.metadata.name, after=1.0)
            except REFUSALS as error:
                self._record_stuck(run, step.id, to_objection(error, self._cluster.now()), memory)
            else:
                if memory.stuck.pop(step.id, None):
                    self._cluster.queue.add(run.metadata.name)
        own = (each for each in self.list_cached(run) if is_owned_by(each.metadata, run))
        await self._remove(run, (each for each in own if each.metadata.name not in names), memory)

    async def _remove(self, run: RunObject, unwanted: Iterable[RouteObject], memory: RouteMemory) -> None:
        for each in unwanted:
            remove = partial(self._routes.remove, HTTP_ROUTES, each)
            await attempt(self._cluster, run.metadata.name, memory.retries, deletion(each), remove)

    def _record_stuck(self, run: RunObject, name: str, blocker: UnitRefusal, memory: RouteMemory) -> None:
        before = memory.stuck.get(name)
        memory.stuck[name] = blocker
        self._cluster.queue.add(run.metadata.name, after=seconds_until_kept_retry(before, blocker))

    async def _keep_one(self, run: RunObject, plan: Plan, step: KeptStep) -> None:
        assert self._edge is not None, "otherwise it is impossible"
        endpoint = _preview(step)
        service = await self._find_service(run, plan, endpoint)
        if service is None:
            return
        namespace = service.metadata.namespace
        name = preview.label(run.ledger.target.name, run.ledger.uid, step.unit.name)
        to = (namespace, service.metadata.name, endpoint.port)
        made = preview.render_preview(
            self._edge, name, step.unit.name, run.metadata.name, run_owner_reference(run), key=endpoint.key, to=to
        )
        found = next((each for each in self.list_cached(run) if each.metadata.name == name), None)
        if found is not None and (found.metadata.deletion_timestamp or not differs(found, made)):
            return
        try:
            await read_fork_rights(self._cluster.client, run, namespace)
            if found is None:
                await self._routes.ensure(HTTP_ROUTES, made)
            else:
                await self._routes.update(HTTP_ROUTES, found, made)
        except REFUSALS:
            if found is not None and self._leads_to_former_fork(found, service):
                await self._routes.remove(HTTP_ROUTES, found)  # rather no address than a fork that cannot end
            raise

    def _leads_to_former_fork(self, seen: RouteObject, service: ForkService) -> bool:
        """Return whether the address leads to a fork that it must no longer lead to."""
        others = preview.backends(seen) - {service.metadata.name}
        found = (self._cluster.services.get(name, seen.metadata.namespace) for name in others)
        return any(FORK_LABEL in (each.metadata.labels or {}) for each in found if each is not None)

    async def _find_service(self, run: RunObject, plan: Plan, endpoint: PreviewUnit) -> ForkService | None:
        """Return the Service of the fork that the key leads to; the endpoint's own Service if there is no such fork."""
        service = self._endpoint_service(endpoint)
        if service is None:
            return None
        own_forks = [step.unit.fork.baseline for step in plan.kept.values() if step.unit.fork is not None]
        forks = [(run, baseline) for baseline in own_forks]
        for owner_run, baseline in forks or self._keys.find_forks(endpoint.key, run.ledger.target.namespace):
            if baseline.namespace != service.metadata.namespace:
                continue
            labels = await self._labels.read(baseline)
            if labels is None or not services_for([service], labels):
                continue
            own = self._cluster.services.get(fork_of(owner_run, baseline).name, baseline.namespace)
            if own is not None and any(port.port == endpoint.port for port in own.spec.ports or ()):
                return own
        return service

    def _endpoint_service(self, endpoint: PreviewUnit) -> ForkService | None:
        """Return the endpoint's Service, if it has the port. For a workload, it is the Service with its name."""
        found = self._cluster.services.get(endpoint.host.partition(".")[0], _namespace(endpoint))
        has = found is not None and any(port.port == endpoint.port for port in found.spec.ports or ())
        return found if has else None

    def _requeue(self, run: RunObject, milliseconds: int) -> None:
        self._cluster.queue.add(run.metadata.name, after=milliseconds / 1000 + 0.001)

    async def remove(self, run: RunObject, endpoint: str, memory: RouteMemory) -> bool:
        """Delete the address of an endpoint; return whether it is gone, by a quorum read.

        Raises:
            errors.ApiError: the API server does not answer.
        """
        left = await self._remaining(run, endpoint)
        await self._remove(run, left, memory)
        return not left

    async def is_gone(self, run: RunObject, endpoint: str) -> bool:
        """Return whether the address of an endpoint is gone, by a quorum read.

        Raises:
            errors.ApiError: the API server does not answer.
        """
        return not await self._remaining(run, endpoint)

    async def _remaining(self, run: RunObject, endpoint: str) -> list[RouteObject]:
        which = f"{RUN_LABEL}={run.metadata.name},{preview.PREVIEW_LABEL}={endpoint}"
        try:
            found = (await self._cluster.client.list_all(HTTP_ROUTES, labels=which)).items
        except errors.NotServed:
            return []  # the Gateway API has been removed
        return [each for each in found if is_owned_by(each.metadata, run)]


def _namespace(endpoint: PreviewUnit) -> str:
    return endpoint.host.partition(".")[2].partition(".")[0] or "default"


def _preview(step: KeptStep) -> PreviewUnit:
    assert step.unit.preview is not None, "only previews"
    return step.unit.preview
