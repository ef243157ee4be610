"""Routes by routing key in a cluster: observed, and kept in their desired state while their sandboxes live."""

from collections.abc import Awaitable, Collection, Iterator
from functools import partial

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.fork.run import Forks
from dayfly.execute.gateway import read, render
from dayfly.execute.gateway.preview import PREVIEW_LABEL
from dayfly.execute.gateway.read import RouteObject, RouteProblem
from dayfly.execute.gateway.render import ROUTE_LABEL
from dayfly.execute.gateway.run import KINDS, AlteredRouteError, Routes
from dayfly.execute.istio.read import VirtualService
from dayfly.kube import errors
from dayfly.kube.objects import ApiResource, Key, ObjectMeta
from dayfly.operator.cluster.caches import ClusterWatches, owned_by_run
from dayfly.operator.cluster.objects import RunObject, is_owned_by
from dayfly.operator.forks.baselines import PodLabels, read_fork_rights
from dayfly.operator.refusals import all_done, seconds_until_kept_retry
from dayfly.operator.retries import Request, Retries, attempt_due, deletion
from dayfly.operator.routes.addresses import EndpointAddresses
from dayfly.operator.routes.differences import (
    REFUSALS,
    SETTLE_MS,
    Ours,
    RouteDifferences,
    find_problems,
    is_outdated,
    new_services,
    propagated_at,
    to_objection,
    unrouted_message,
)
from dayfly.operator.routes.route_builder import DesiredRoutes, RouteBuilder, WantedRoute, fork_of
from dayfly.operator.routes.route_memory import RouteMemory, RouteSight
from dayfly.operator.routes.vs_writer import ISTIO_SETTLE_MS, VirtualServiceWriter
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep, Plan
from dayfly.plan.world import AttemptKey, Ended, Fact, Running, Waiting
from dayfly.spec.lifecycle import DRAIN_MS, Baseline, Kind, Route, route_id
from dayfly.spec.routing.routing_keys import Forms
from dayfly.spec.run import ALIVE, Result

CONFLICT_RETRY_AFTER_S = 1.0
# Poll interval while a Service has no pods.
EMPTY_SERVICE_RETRY_AFTER_S = 0.5


class RouteReconciler:
    """Creates routes next to those of baselines; one instance for each operator."""

    def __init__(self, cluster: ClusterWatches, forms: Forms, labels: PodLabels) -> None:
        self._cluster = cluster
        self._routes = Routes(cluster.client)
        self._services = Forks(cluster.client)
        self._rules = VirtualServiceWriter(cluster)
        self._addresses = EndpointAddresses(cluster)
        self._builder = RouteBuilder(cluster, labels, forms)

    # --- observing --------------------------------------------------------------------------------------------------

    async def observe(self, run: RunObject, plan: Plan, now: int, memory: RouteMemory) -> RouteSight:
        """Observe the run's routes, also unwanted ones.

        Raises:
            errors.ApiError: the API server does not answer.
        """
        sight = RouteSight()
        wanted, ledger = _wanted_routes(plan), run.ledger
        known = dict.fromkeys((*wanted, *(name for name in ledger.units if ledger.kind(name) == Kind.ROUTE)))
        alive = [name for name in known if ledger.unit(name).state in ALIVE]
        memory.keep_only({(name, ledger.unit(name).attempt) for name in alive})
        if alive:
            await self._cluster.gateway.wait_listed()
            await self._cluster.istio.wait_listed()
        for name in alive:
            key = name, ledger.unit(name).attempt
            if ledger.closed is None and name in wanted:
                await self._observe_alive(sight, run, plan, wanted[name], memory)
            else:
                sight.facts[key] = await self._observe_ending(run, name, now, memory, wanted.get(name))
        return sight

    def unrouted(self, run: RunObject, plan: Plan) -> tuple[str, ...]:
        """Return a remark for a sandbox with forks in a cluster that cannot route requests; it has no route units."""
        forks = any(step.unit.kind == Kind.FORK for step in plan.kept.values())
        return (
            () if self._cluster.can_route or run.ledger.closed is not None or not forks else (messages.no_data_plane(),)
        )

    async def _observe_alive(
        self, sight: RouteSight, run: RunObject, plan: Plan, step: KeptStep, memory: RouteMemory
    ) -> None:
        """Observe whether all routes to the fork exist and Gateways have accepted them."""
        record, route = run.ledger.unit(step.id), _route(step)
        key, since = (step.id, record.attempt), record.claimed_at
        sight.facts[key] = Running(since=since)
        trouble = self._cluster.gateway.list_error or (
            self._cluster.istio.list_error if self._cluster.uses_istio else ""
        )
        if not self._cluster.can_route or trouble:
            sight.lacking += (unrouted_message(step.id, trouble),)
            return
        ours = dict(self._ours(run, route.baseline))
        services = self._rules.list_cached(
            run.metadata.name, fork_of(run, route.baseline).name, route.baseline.namespace
        )
        made = [*(seen.metadata.uid for _, seen in ours.values()), *(seen.metadata.uid for seen in services)]
        if made and not record.ref:
            sight.object_refs[key] = min(made)
        desired = await self._builder.build(run, plan, route)
        if desired is None:
            return
        if desired.remark:
            sight.lacking += (f"{step.id} ({desired.remark})",)
        if stuck := memory.stuck.get(step.id):
            sight.facts[key] = Waiting(since=since, reason=stuck.reason, message=stuck.message)
        elif lack := (
            next(find_problems(desired, ours, memory), None)
            or self._settling(run, ours, memory)
            or self._rules.find_problem(run, desired.edits, memory)
        ):
            reason = Reason.ROUTE_NOT_ACCEPTED if lack.is_refused else Reason.ROUTE_PENDING
            sight.facts[key] = Waiting(since=since, reason=reason, message=lack.message)

    def _settling(self, run: RunObject, ours: Ours, memory: RouteMemory) -> RouteProblem | None:
        """Wait after a Gateway has accepted a route until all of its proxies use it."""
        now, until = self._cluster.now(), 0
        for _, seen in ours.values():
            # The Gateway's clock may be ahead of ours.
            first_seen = memory.accepted_at.setdefault(seen.metadata.uid, now)
            until = max(until, min(read.accepted_at(seen), first_seen) + SETTLE_MS)
        if now >= until:
            return None
        self._cluster.queue.add(run.metadata.name, after=(until - now) / 1000 + 0.001)
        return RouteProblem(messages.waits_for_gateways())

    def _ours(
        self, run: RunObject, baseline: Baseline
    ) -> Iterator[tuple[tuple[str, Key], tuple[ApiResource[RouteObject], RouteObject]]]:
        """Yield the cached routes that lead to a fork, by plural and key."""
        own = fork_of(run, baseline).name
        for kind in KINDS:
            for seen in owned_by_run(self._cluster.gateway.routes[kind.plural], run.metadata.name):
                if (seen.metadata.labels or {}).get(ROUTE_LABEL) == own and is_owned_by(seen.metadata, run):
                    yield (kind.plural, Key.from_object(seen)), (kind, seen)

    async def _read_routes(
        self, run: RunObject, baseline: Baseline
    ) -> list[tuple[ApiResource[RouteObject], RouteObject]]:
        """Return the routes that lead to a fork by quorum reads."""
        own = fork_of(run, baseline).name
        found = [
            (kind, seen)
            for kind in self._cluster.gateway.kinds
            for seen in await self._routes.list_of_fork(kind, run.metadata.name, own, baseline.namespace)
        ]
        return [(kind, seen) for kind, seen in found if is_owned_by(seen.metadata, run)]

    async def _read_rules(self, run: RunObject, baseline: Baseline) -> list[VirtualService]:
        return await self._rules.read_remaining(run.metadata.name, fork_of(run, baseline).name, baseline.namespace)

    async def _observe_ending(
        self, run: RunObject, name: str, now: int, memory: RouteMemory, step: KeptStep | None
    ) -> Fact:
        """Observe an ending route. It has ended once all its objects are gone and the drain time has passed."""
        record = run.ledger.unit(name)
        key = name, record.attempt
        if await self._read_routes(run, _baseline(name)) or await self._read_rules(run, _baseline(name)):
            memory.gone_at.pop(key, None)
            return Running(since=record.claimed_at, ready=False)
        if blocker := await self._addresses.find_blocker(run, key, _baseline(name), memory):
            memory.gone_at.pop(key, None)
            return Running(since=record.claimed_at, ready=False, reason=Reason.STOPPING, message=blocker)
        drain = (_route(step).drain_ms if step else DRAIN_MS) if record.ref or key in memory.address_left_at else 0
        if drain and self._cluster.istio.kinds:
            drain += ISTIO_SETTLE_MS  # Istio's proxies use removed rules for this time
        until = memory.gone_at.setdefault(key, now) + drain
        if now < until:
            self._cluster.queue.add(run.metadata.name, after=(until - now) / 1000 + 0.001)
            return Running(since=record.claimed_at, ready=False, reason=Reason.STOPPING, message=messages.draining())
        message = "its routes are gone, and the drain time for open requests has passed"
        result = Result(
            outcome="failed", reason=Reason.CANCELLED, message=message, started_at=record.claimed_at, ended_at=now
        )
        return Ended(result=result)

    # --- updating ---------------------------------------------------------------------------------------------------

    async def remove(self, run: RunObject, name: str, memory: RouteMemory) -> None:
        """Remove everything that leads to the fork by this route."""
        left, services = await self._read_routes(run, _baseline(name)), await self._read_rules(run, _baseline(name))
        key = name, run.ledger.unit(name).attempt
        if not (left or services or key in memory.gone_at or key in memory.address_left_at):
            self._cluster.queue.add(run.metadata.name)  # no object is left whose deletion would wake the run
        for each in left:
            await self._withdraw(run, key, each, memory)
        for service in services:
            await self._remove_rules(run, service, fork_of(run, _baseline(name)).name)

    async def _remove_rules(self, run: RunObject, seen: VirtualService, fork: str) -> None:
        """Remove the rules for a fork from a VirtualService; retry after a conflict."""
        try:
            await self._rules.remove_rules(run.metadata.name, seen, fork)
        except (errors.Conflict, errors.NotFound):
            self._cluster.queue.add(run.metadata.name, after=CONFLICT_RETRY_AFTER_S)

    async def _withdraw(
        self, run: RunObject, key: AttemptKey, ours: tuple[ApiResource[RouteObject], RouteObject], memory: RouteMemory
    ) -> None:
        """Withdraw a route: first make it match no request, and delete it when all proxies have accepted that."""
        kind, seen = ours
        now, uid, after = self._cluster.now(), seen.metadata.uid, CONFLICT_RETRY_AFTER_S
        if seen.metadata.deletion_timestamp:
            return
        noted = memory.withdrawn_at.setdefault(key, {})
        if not render.is_withdrawn(seen):
            noted.pop(uid, None)  # it was withdrawn before, and has been wanted again since
            try:
                await self._routes.update(kind, seen, render.render_withdrawn(kind, seen))
            except (errors.Conflict, errors.NotFound):
                pass  # it has changed or is gone
            except (AlteredRouteError, errors.Refused):
                await self._routes.remove(kind, seen)  # rather a few failed requests than a sandbox that cannot end
        else:
            due = propagated_at(seen, noted.setdefault(uid, [now, 0]), now)
            after = (due - now) / 1000 + 0.001
            if now >= due:
                # Forgotten only after success: if the deletion is rejected it is retried without another withdrawal.
                await self._routes.remove(kind, seen)
                noted.pop(uid)
                return
        self._cluster.queue.add(run.metadata.name, after=after)

    async def keep(self, run: RunObject, plan: Plan, memory: RouteMemory) -> None:
        """After a turn, write the desired routes and remove our other ones.

        Raises:
            errors.ApiError: some of this is not done.
        """
        ledger = run.ledger
        wanted = _wanted_routes(plan) if ledger.closed is None else {}
        alive = [step for name, step in wanted.items() if ledger.unit(name).state in ALIVE]
        led = [name for name in ledger.units if ledger.kind(name) == Kind.ROUTE and ledger.unit(name).state in ALIVE]
        # Routes that are no longer wanted stay until their unit ends.
        await self._remove_strays(run, {fork_of(run, _baseline(name)).name for name in led}, memory.retries)
        if not alive or not self._cluster.can_route:
            return
        await self._cluster.gateway.wait_listed()
        await self._cluster.istio.wait_listed()
        for step in alive:
            desired = await self._builder.build(run, plan, _route(step))
            if desired is not None:
                await self._keep_one(run, step, desired, memory)

    async def _keep_one(self, run: RunObject, step: KeptStep, desired: DesiredRoutes, memory: RouteMemory) -> None:
        baseline = _route(step).baseline
        differences = self._compare(run, baseline, desired, memory)
        if not any(differences[1:]):
            self._clear_stuck(run, step.id, memory)
            memory.withdrawn_at.pop((step.id, run.ledger.unit(step.id).attempt), None)
            # No route leads to these Services now, and open requests have had the time of a turn.
            wanted = {each["metadata"]["name"] for each in desired.services}
            await self._remove_services(run, baseline, wanted, memory.retries)
            return
        if not await self._is_current(run):
            return
        try:
            if await self._apply(run, baseline, differences, memory):
                self._clear_stuck(run, step.id, memory)
        except errors.Conflict:
            self._cluster.queue.add(run.metadata.name, after=CONFLICT_RETRY_AFTER_S)
        except REFUSALS as error:
            blocker = to_objection(error, self._cluster.now())
            before = memory.stuck.get(step.id)
            memory.stuck[step.id] = blocker
            self._cluster.queue.add(run.metadata.name, after=seconds_until_kept_retry(before, blocker))

    def _compare(
        self, run: RunObject, baseline: Baseline, desired: DesiredRoutes, memory: RouteMemory
    ) -> RouteDifferences:
        ours = dict(self._ours(run, baseline))
        wanted = {(each.kind.plural, each.key): each for each in desired.routes}
        return RouteDifferences(
            ours=ours,
            missing=[each for each in desired.services if not self._has_service(run, each)],
            changed=[each for place, each in wanted.items() if is_outdated(each, ours.get(place), memory)],
            extra=[found for place, found in ours.items() if place not in wanted],
            outdated=[each for each in desired.edits if each.is_outdated],
            unwanted=self._rules.list_unwanted(run, fork_of(run, baseline).name, baseline.namespace, desired.edits),
        )

    async def _apply(
        self, run: RunObject, baseline: Baseline, differences: RouteDifferences, memory: RouteMemory
    ) -> bool:
        """Write all differences; return False while the fork's Services have no pods."""
        if differences.missing or differences.changed or differences.outdated:
            await read_fork_rights(self._cluster.client, run, baseline.namespace)
        for manifest in differences.missing:
            await self._services.ensure_service(manifest)
        if not await self._have_pods(run, new_services(baseline.namespace, differences)):
            return False
        for each in differences.changed:
            await self._write(each, differences.ours.get((each.kind.plural, each.key)), memory)
        for edit in differences.outdated:
            await self._rules.write(run, edit)
        key = route_id(baseline), run.ledger.unit(route_id(baseline)).attempt
        for extra in differences.extra:
            await self._withdraw(run, key, extra, memory)
        for service in differences.unwanted:
            await self._remove_rules(run, service, fork_of(run, baseline).name)
        return True

    async def _have_pods(self, run: RunObject, services: set[Key]) -> bool:
        """Return whether these Services have pods. Without pods, the data plane answers 503."""
        for namespace, name in sorted(services):
            if not await self._routes.has_ready_endpoint(name, namespace):
                self._cluster.queue.add(run.metadata.name, after=EMPTY_SERVICE_RETRY_AFTER_S)
                return False
        return True

    async def _remove_services(self, run: RunObject, baseline: Baseline, but: set[str], retries: Retries) -> None:
        own = fork_of(run, baseline).name
        unwanted = [each for each in self._own_services(run) if _fork(each.metadata) == own]
        unwanted = [each for each in unwanted if each.metadata.name not in but]
        requests: list[Request] = [(deletion(each), partial(self._services.remove_service, each)) for each in unwanted]
        await attempt_due(self._cluster, run.metadata.name, retries, requests, partial(self._is_current, run))

    def _own_services(self, run: RunObject) -> list[ForkService]:
        """Return the cached Services that lead to forks and are not the forks' own."""
        every = owned_by_run(self._cluster.services, run.metadata.name)
        return [each for each in every if FORK_LABEL not in (each.metadata.labels or {})]

    async def _write(
        self, wanted: WantedRoute, found: tuple[ApiResource[RouteObject], RouteObject] | None, memory: RouteMemory
    ) -> None:
        if found is None:
            made = await self._routes.ensure(wanted.kind, wanted.manifest)
        else:
            made = await self._routes.update(wanted.kind, found[1], wanted.manifest)
        if made.spec != wanted.manifest["spec"]:
            memory.written_generation[made.metadata.uid] = made.metadata.generation

    def _has_service(self, run: RunObject, manifest: dict[str, object]) -> bool:
        meta = manifest["metadata"]
        assert isinstance(meta, dict), "a rendered manifest"
        seen = self._cluster.services.get(meta["name"], meta["namespace"])
        return seen is not None and is_owned_by(seen.metadata, run)

    async def _remove_strays(self, run: RunObject, stays: set[str], retries: Retries) -> None:
        """Remove routes and Services to forks without a live route: a paused peer may have created them."""
        name = run.metadata.name
        routes = [
            (kind, seen)
            for kind in KINDS
            for seen in owned_by_run(self._cluster.gateway.routes[kind.plural], name)
            if _fork(seen.metadata) not in stays and PREVIEW_LABEL not in (seen.metadata.labels or {})
        ]
        services = [each for each in self._own_services(run) if _fork(each.metadata) not in stays]
        within = namespaces_of(run)
        strays = self._rules.has_strays(name, stays, within)
        requests: list[Request] = []
        if strays:
            requests.append((("Rules", name, 0), partial(self._rules.remove_strays, name, stays, within)))
        requests += [(deletion(seen), partial(self._routes.remove, kind, seen)) for kind, seen in routes]
        requests += [(deletion(each), partial(self._services.remove_service, each)) for each in services]
        await attempt_due(self._cluster, name, retries, requests, partial(self._is_current, run))

    async def clear(self, run: str, within: Collection[str] | None = None) -> None:
        """Remove what is left of the routes of a run that has ended or is gone. Services are removed with the forks'.

        `within` has the namespaces of the run's routes, if they are known.

        Raises:
            errors.ApiError: some of this is not done.
        """
        await all_done(self._removals(run, within))

    def _removals(self, run: str, within: Collection[str] | None) -> Iterator[Awaitable[object]]:
        for kind in KINDS:
            for seen in owned_by_run(self._cluster.gateway.routes[kind.plural], run):
                yield self._routes.remove(kind, seen)
        yield self._rules.remove_strays(run, set(), within)

    def _clear_stuck(self, run: RunObject, name: str, memory: RouteMemory) -> None:
        if memory.stuck.pop(name, None):
            self._cluster.queue.add(run.metadata.name)

    async def _is_current(self, run: RunObject) -> bool:
        """Return whether the run has not changed since it was read. If a peer has changed it, another turn follows."""
        found = await self._cluster.ledger.read_current(run.metadata.name)
        return found is not None and found.metadata.resource_version == run.metadata.resource_version


def _wanted_routes(plan: Plan) -> dict[str, KeptStep]:
    return {name: step for name, step in plan.kept.items() if step.unit.kind == Kind.ROUTE}


def _route(step: KeptStep) -> Route:
    assert step.unit.route is not None, "only routes"
    return step.unit.route


def _baseline(name: str) -> Baseline:
    """Return the baseline of a route from its name in the ledger."""
    namespace, _, workload = name.partition(":")[2].partition("/")
    return Baseline(kind="Deployment", namespace=namespace, name=workload)


def namespaces_of(run: RunObject) -> set[str]:
    """Return the namespaces in which a run has or had routes."""
    return {_baseline(name).namespace for name in run.ledger.units if run.ledger.kind(name) == Kind.ROUTE}


def _fork(meta: ObjectMeta) -> str:
    return (meta.labels or {}).get(ROUTE_LABEL, "")
