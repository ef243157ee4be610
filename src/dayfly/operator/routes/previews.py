"""Addresses of endpoints in a cluster: for each a route of the Gateway API, at the Gateway that the operator names."""

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
from dayfly.execute.pod.read import milliseconds
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches, belonging
from dayfly.operator.cluster.objects import RunObject, owned, owner
from dayfly.operator.forks.namespaces import leave
from dayfly.operator.forks.pod_labels import PodLabels
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.refusals import KEPT_AGAIN_S, kept_again
from dayfly.operator.retries import attempt, deletion
from dayfly.operator.routes.differences import REFUSALS, objection
from dayfly.operator.routes.group_keys import LedKeys
from dayfly.operator.routes.route_builder import fork_of
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep, Plan
from dayfly.plan.world import Fact, Objection, Running, Waiting
from dayfly.spec.lifecycle import PreviewUnit

# So long after its Gateway has taken a route its proxies may not know yet.
SETTLE_MS = 2_000
# So long a Gateway is waited for that says nothing of a route.
PATIENCE_MS = 10_000


class Previews:
    """Makes and keeps them; without an `edge` there are none."""

    def __init__(self, cluster: ClusterWatches, edge: PreviewGateway | None, labels: PodLabels) -> None:
        self._cluster = cluster
        self._keys = LedKeys(cluster)
        self._edge = edge
        self._labels = labels
        self._routes = Routes(cluster.client)

    def seen(self, run: RunObject) -> list[RouteObject]:
        """Those of a run that there are, as the cache knows them."""
        every = belonging(self._cluster.gateway.routes[HTTP_ROUTES.plural], run.metadata.name)
        return [each for each in every if preview.PREVIEW_LABEL in (each.metadata.labels or {})]

    async def standing(self, run: RunObject, step: KeptStep, since: int, memory: RouteMemory) -> tuple[Fact, str, str]:
        """How one stands: the fact; why it leads nowhere, for which nothing waits; its address, if it works.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        wished = _preview(step)
        if why := await self._not_granted(run, wished) or self._unable(wished):
            return Running(since=since), why, ""
        assert self._edge is not None, "it would be unable"
        if stuck := memory.stuck.get(step.id):
            return Running(since=since), stuck.message, ""
        target, now = run.ledger.target, self._cluster.now()
        name = preview.label(target.name, run.ledger.uid, step.unit.name)
        ours = next((each for each in self.seen(run) if each.metadata.name == name), None)
        if ours is not None and ours.spec.get("hostnames") != [f"{name}.{self._edge.domain}"]:
            ours = None  # somebody has changed it, and it is put back
        lack = preview.find_lack(ours, self._edge) if ours is not None else None
        if ours is None or (lack is not None and not lack.refused):
            # What is remembered is forgotten when the run rests, or with its process: the route itself tells its age.
            heard = memory.heard_at.setdefault(step.id, now)
            made = milliseconds(ours.metadata.creation_timestamp) if ours is not None else 0
            begun = min(made or heard, heard)
            message = lack.message if lack is not None else "its route is being written"
            if now >= begun + PATIENCE_MS:
                return Running(since=since), message, ""
            self._again(run, begun + PATIENCE_MS - now)
            return Waiting(since=since, reason=Reason.ROUTE_PENDING, message=message), "", ""
        if lack is not None:
            return Running(since=since), lack.message, ""
        heard = memory.heard_at.setdefault(ours.metadata.uid, now)
        left = min(read.accepted_at(ours), heard) + SETTLE_MS - now
        if left > 0:
            self._again(run, left)
            message = "its Gateway has taken it, and its proxies are being told"
            return Waiting(since=since, reason=Reason.ROUTE_PENDING, message=message), "", ""
        return Running(since=since), "", self._edge.url(f"{name}.{self._edge.domain}")

    async def _not_granted(self, run: RunObject, wished: PreviewUnit) -> str:
        """Of another namespace it is not told which Services and ports there are, unless that one says it may be."""
        namespace = _namespace(wished)
        try:
            if namespace != run.ledger.target.namespace:
                await leave(self._cluster.client, run, namespace)
        except (NotGrantedError, errors.Refused) as error:
            self._again(run, round(KEPT_AGAIN_S * 1000))  # nobody tells us when that changes
            return objection(error, 0).message
        return ""

    def unable(self, step: KeptStep) -> bool:
        """Whether it leads nowhere as things stand, and so is not made."""
        return bool(self._unable(_preview(step)))

    def _unable(self, wished: PreviewUnit) -> str:
        if self._edge is None:
            return "endpoints get an address in a cluster whose operator has a --preview-gateway"
        if HTTP_ROUTES not in self._cluster.gateway.kinds:
            return "endpoints get an address by the Gateway API, which is not installed"
        if wished.scheme == "https":
            return "a Gateway speaks to it without TLS, and it would not answer"
        if self._service(wished) is None:
            return f"there is no Service {wished.host} with port {wished.port}"
        return ""

    async def keep(self, run: RunObject, plan: Plan, alive: list[str], memory: RouteMemory) -> None:
        """After a turn: those that are wished for are there as they are to be, and no others.

        Raises:
            errors.ApiError: not all is done.
        """
        wanted = [plan.kept[name] for name in alive if name in plan.kept] if run.ledger.closed is None else []
        names = set()
        for step in wanted:
            if self._unable(_preview(step)):
                continue
            names.add(preview.label(run.ledger.target.name, run.ledger.uid, step.unit.name))
            try:
                await self._keep_one(run, plan, step)
            except errors.Conflict:
                self._cluster.queue.add(run.metadata.name, after=1.0)
            except REFUSALS as error:
                self._stuck(run, step.id, objection(error, self._cluster.now()), memory)
            else:
                if memory.stuck.pop(step.id, None):
                    self._cluster.queue.add(run.metadata.name)
        unwanted = (each for each in self.seen(run) if each.metadata.name not in names and owned(each.metadata, run))
        await self._remove(run, unwanted, memory)

    async def _remove(self, run: RunObject, unwanted: Iterable[RouteObject], memory: RouteMemory) -> None:
        for each in unwanted:
            remove = partial(self._routes.remove, HTTP_ROUTES, each)
            await attempt(self._cluster, run.metadata.name, memory.retries, deletion(each), remove)

    def _stuck(self, run: RunObject, name: str, said: Objection, memory: RouteMemory) -> None:
        before = memory.stuck.get(name)
        memory.stuck[name] = said
        self._cluster.queue.add(run.metadata.name, after=kept_again(before, said))

    async def _keep_one(self, run: RunObject, plan: Plan, step: KeptStep) -> None:
        assert self._edge is not None, "it would be unable"
        wished = _preview(step)
        service = await self._led(run, plan, wished)
        if service is None:
            return
        namespace = service.metadata.namespace
        name = preview.label(run.ledger.target.name, run.ledger.uid, step.unit.name)
        to = (namespace, service.metadata.name, wished.port)
        made = preview.render_preview(
            self._edge, name, step.unit.name, run.metadata.name, owner(run), key=wished.key, to=to
        )
        found = next((each for each in self.seen(run) if each.metadata.name == name), None)
        if found is not None and (found.metadata.deletion_timestamp or not differs(found, made)):
            return
        try:
            await leave(self._cluster.client, run, namespace)
            if found is None:
                await self._routes.ensure(HTTP_ROUTES, made)
            else:
                await self._routes.update(HTTP_ROUTES, found, made)
        except REFUSALS:
            if found is not None and self._leads_astray(found, service):
                await self._routes.remove(HTTP_ROUTES, found)  # better no address than a fork that cannot end
            raise

    def _leads_astray(self, seen: RouteObject, service: ForkService) -> bool:
        """Whether an address leads to a fork to which it is to lead no more."""
        others = preview.backends(seen) - {service.metadata.name}
        found = (self._cluster.services.get(name, seen.metadata.namespace) for name in others)
        return any(FORK_LABEL in (each.metadata.labels or {}) for each in found if each is not None)

    async def _led(self, run: RunObject, plan: Plan, wished: PreviewUnit) -> ForkService | None:
        """The Service of the fork to which requests with the key go; the endpoint's own where they go to none."""
        service = self._service(wished)
        if service is None:
            return None
        own_forks = [step.unit.fork.baseline for step in plan.kept.values() if step.unit.fork is not None]
        forked = [(run, of) for of in own_forks] or self._keys.of(wished.key, run.ledger.target.namespace)
        for whose, of in forked:
            if of.namespace != service.metadata.namespace:
                continue
            labels = await self._labels.of(of)
            if labels is None or not services_for([service], labels):
                continue
            own = self._cluster.services.get(fork_of(whose, of).name, of.namespace)
            if own is not None and any(port.port == wished.port for port in own.spec.ports or ()):
                return own
        return service

    def _service(self, wished: PreviewUnit) -> ForkService | None:
        """The Service of that name and port; of a workload the one that is called like it."""
        found = self._cluster.services.get(wished.host.partition(".")[0], _namespace(wished))
        has = found is not None and any(port.port == wished.port for port in found.spec.ports or ())
        return found if has else None

    def _again(self, run: RunObject, milliseconds: int) -> None:
        self._cluster.queue.add(run.metadata.name, after=milliseconds / 1000 + 0.001)

    async def remove(self, run: RunObject, endpoint: str, memory: RouteMemory) -> bool:
        """Take the address of an endpoint away; whether it is gone, by a quorum read.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        left = await self._left(run, endpoint)
        await self._remove(run, left, memory)
        return not left

    async def is_gone(self, run: RunObject, endpoint: str) -> bool:
        """Return whether the address of an endpoint is gone, by a quorum read.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        return not await self._left(run, endpoint)

    async def _left(self, run: RunObject, endpoint: str) -> list[RouteObject]:
        which = f"{RUN_LABEL}={run.metadata.name},{preview.PREVIEW_LABEL}={endpoint}"
        try:
            found = (await self._cluster.client.list_all(HTTP_ROUTES, labels=which)).items
        except errors.NotServed:
            return []  # nothing of that kind is served any more
        return [each for each in found if owned(each.metadata, run)]


def _namespace(wished: PreviewUnit) -> str:
    return wished.host.partition(".")[2].partition(".")[0] or "default"


def _preview(step: KeptStep) -> PreviewUnit:
    assert step.unit.preview is not None, "asked of previews alone"
    return step.unit.preview
