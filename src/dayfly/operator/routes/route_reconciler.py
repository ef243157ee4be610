"""Routes by key in a cluster: their facts, and what is kept of them while their sandboxes live."""

from collections.abc import Awaitable, Collection, Iterator
from functools import partial

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.fork.run import Forks
from dayfly.execute.gateway import read, render
from dayfly.execute.gateway.preview import PREVIEW_LABEL
from dayfly.execute.gateway.read import Lack, RouteObject
from dayfly.execute.gateway.render import ROUTE_LABEL
from dayfly.execute.gateway.run import KINDS, AlteredRouteError, Routes
from dayfly.execute.istio.read import VirtualService
from dayfly.kube import errors
from dayfly.kube.objects import Key, ObjectMeta, Resource
from dayfly.operator.cluster.caches import ClusterWatches, belonging
from dayfly.operator.cluster.objects import RunObject, owned
from dayfly.operator.forks.namespaces import leave
from dayfly.operator.forks.pod_labels import PodLabels
from dayfly.operator.refusals import all_done, kept_again
from dayfly.operator.retries import Request, Retries, attempt_due, deletion
from dayfly.operator.routes.addresses import Addresses
from dayfly.operator.routes.differences import (
    REFUSALS,
    SETTLE_MS,
    Ours,
    RouteDifferences,
    is_off,
    known_at,
    lacking,
    new_services,
    objection,
    unrouted,
)
from dayfly.operator.routes.route_builder import DesiredRoutes, RouteBuilder, WantedRoute, fork_of
from dayfly.operator.routes.route_memory import RouteMemory, RouteSight
from dayfly.operator.routes.vs_writer import SETTLE_MS as WOVEN_MS
from dayfly.operator.routes.vs_writer import Weaver
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep, Plan
from dayfly.plan.world import AttemptKey, Ended, Fact, Running, Waiting
from dayfly.spec.lifecycle import DRAIN_MS, Baseline, Kind, Route, route_id
from dayfly.spec.routing.routing_keys import Forms
from dayfly.spec.run import ALIVE, Result

CONFLICT_S = 1.0
# A Service that has no pod yet is looked at again so soon.
EMPTY_S = 0.5


class RouteReconciler:
    """Routes beside those of baselines; one for each operator."""

    def __init__(self, cluster: ClusterWatches, forms: Forms, labels: PodLabels) -> None:
        self._cluster = cluster
        self._routes = Routes(cluster.client)
        self._services = Forks(cluster.client)
        self._weaver = Weaver(cluster)
        self._addresses = Addresses(cluster)
        self._builder = RouteBuilder(cluster, labels, forms)

    # --- seeing -----------------------------------------------------------------------------------------------------

    async def observe(self, run: RunObject, plan: Plan, now: int, memory: RouteMemory) -> RouteSight:
        """What is known of the run's routes, those that are no longer wished for included.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        sight = RouteSight()
        wished, ledger = _wished(plan), run.ledger
        known = dict.fromkeys((*wished, *(name for name in ledger.units if ledger.kind(name) == Kind.ROUTE)))
        alive = [name for name in known if ledger.unit(name).state in ALIVE]
        memory.keep_only({(name, ledger.unit(name).attempt) for name in alive})
        if alive:
            await self._cluster.gateway.seen()
            await self._cluster.istio.seen()
        for name in alive:
            key = name, ledger.unit(name).attempt
            if ledger.closed is None and name in wished:
                await self._kept(sight, run, plan, wished[name], memory)
            else:
                sight.facts[key] = await self._going(run, name, now, memory, wished.get(name))
        return sight

    def unrouted(self, run: RunObject, plan: Plan) -> tuple[str, ...]:
        """What is said of a sandbox whose forks nothing leads to: it has no routes that could say so."""
        forks = any(step.unit.kind == Kind.FORK for step in plan.kept.values())
        return () if self._cluster.routed or run.ledger.closed is not None or not forks else (messages.no_data_plane(),)

    async def _kept(self, sight: RouteSight, run: RunObject, plan: Plan, step: KeptStep, memory: RouteMemory) -> None:
        """Whether all that leads to the fork is there, and Gateways have taken it."""
        record, route = run.ledger.unit(step.id), _route(step)
        key, since = (step.id, record.attempt), record.claimed_at
        sight.facts[key] = Running(since=since)
        trouble = self._cluster.gateway.trouble or (self._cluster.istio.trouble if self._cluster.by_istio else "")
        if not self._cluster.routed or trouble:
            sight.lacking += (unrouted(step.id, trouble),)
            return
        ours = dict(self._ours(run, route.baseline))
        woven = self._weaver.of(run.metadata.name, fork_of(run, route.baseline).name, route.baseline.namespace)
        made = [*(seen.metadata.uid for _, seen in ours.values()), *(seen.metadata.uid for seen in woven)]
        if made and not record.ref:
            sight.made[key] = min(made)
        picture = await self._builder.picture(run, plan, route)
        if picture is None:
            return
        if picture.remark:
            sight.lacking += (f"{step.id} ({picture.remark})",)
        if stuck := memory.stuck.get(step.id):
            sight.facts[key] = Waiting(since=since, reason=stuck.reason, message=stuck.message)
        elif lack := (
            next(lacking(picture, ours, memory), None)
            or self._settling(run, ours, memory)
            or self._weaver.lack(run, picture.strands, memory)
        ):
            reason = Reason.ROUTE_NOT_ACCEPTED if lack.refused else Reason.ROUTE_PENDING
            sight.facts[key] = Waiting(since=since, reason=reason, message=lack.message)

    def _settling(self, run: RunObject, ours: Ours, memory: RouteMemory) -> Lack | None:
        """A Gateway says that it has taken a route a moment before all of its proxies go by it."""
        now, until = self._cluster.now(), 0
        for _, seen in ours.values():
            # Its clock may go before ours.
            heard = memory.heard_at.setdefault(seen.metadata.uid, now)
            until = max(until, min(read.accepted_at(seen), heard) + SETTLE_MS)
        if now >= until:
            return None
        self._cluster.queue.add(run.metadata.name, after=(until - now) / 1000 + 0.001)
        return Lack(messages.waits_for_gateways())

    def _ours(
        self, run: RunObject, of: Baseline
    ) -> Iterator[tuple[tuple[str, Key], tuple[Resource[RouteObject], RouteObject]]]:
        """The routes that lead to a fork, as the caches know them, by plural and place."""
        own = fork_of(run, of).name
        for kind in KINDS:
            for seen in belonging(self._cluster.gateway.routes[kind.plural], run.metadata.name):
                if (seen.metadata.labels or {}).get(ROUTE_LABEL) == own and owned(seen.metadata, run):
                    yield (kind.plural, Key.of(seen)), (kind, seen)

    async def _left(self, run: RunObject, of: Baseline) -> list[tuple[Resource[RouteObject], RouteObject]]:
        """Those that are there by quorum reads."""
        own = fork_of(run, of).name
        found = [
            (kind, seen)
            for kind in self._cluster.gateway.kinds
            for seen in await self._routes.list_of_fork(kind, run.metadata.name, own, of.namespace)
        ]
        return [(kind, seen) for kind, seen in found if owned(seen.metadata, run)]

    async def _woven(self, run: RunObject, of: Baseline) -> list[VirtualService]:
        return await self._weaver.left(run.metadata.name, fork_of(run, of).name, of.namespace)

    async def _going(self, run: RunObject, name: str, now: int, memory: RouteMemory, step: KeptStep | None) -> Fact:
        """A route that is to end: it has when nothing of it is there, and requests that came by it had their time."""
        record = run.ledger.unit(name)
        key = name, record.attempt
        if await self._left(run, _baseline(name)) or await self._woven(run, _baseline(name)):
            memory.gone_at.pop(key, None)
            return Running(since=record.claimed_at, ready=False)
        if said := await self._addresses.hold(run, key, _baseline(name), memory):
            memory.gone_at.pop(key, None)
            return Running(since=record.claimed_at, ready=False, reason=Reason.STOPPING, message=said)
        drain = (_route(step).drain_ms if step else DRAIN_MS) if record.ref or key in memory.led else 0
        if drain and self._cluster.istio.kinds:
            drain += WOVEN_MS  # its proxies go by the rules for so long still
        until = memory.gone_at.setdefault(key, now) + drain
        if now < until:
            self._cluster.queue.add(run.metadata.name, after=(until - now) / 1000 + 0.001)
            return Running(since=record.claimed_at, ready=False, reason=Reason.STOPPING, message=messages.draining())
        message = "its routes are gone, and requests that came by them had time to be answered"
        result = Result(
            outcome="failed", reason=Reason.CANCELLED, message=message, started_at=record.claimed_at, ended_at=now
        )
        return Ended(result=result)

    # --- keeping ----------------------------------------------------------------------------------------------------

    async def remove(self, run: RunObject, name: str, memory: RouteMemory) -> None:
        """Take away all that leads to the fork by this route."""
        left, woven = await self._left(run, _baseline(name)), await self._woven(run, _baseline(name))
        key = name, run.ledger.unit(name).attempt
        if not (left or woven or key in memory.gone_at or key in memory.led):
            self._cluster.queue.add(run.metadata.name)  # of what is not there nobody hears that it has gone
        for each in left:
            await self._take_away(run, key, each, memory)
        for weft in woven:
            await self._take_out(run, weft, fork_of(run, _baseline(name)).name)

    async def _take_out(self, run: RunObject, seen: VirtualService, fork: str) -> None:
        """The rules for a fork leave somebody's VirtualService; where somebody was faster it is tried anew."""
        try:
            await self._weaver.take_out(run.metadata.name, seen, fork)
        except (errors.Conflict, errors.NotFound):
            self._cluster.queue.add(run.metadata.name, after=CONFLICT_S)

    async def _take_away(
        self, run: RunObject, key: AttemptKey, ours: tuple[Resource[RouteObject], RouteObject], memory: RouteMemory
    ) -> None:
        """First no request fits it any more, and when all proxies know that it goes."""
        kind, seen = ours
        now, uid, after = self._cluster.now(), seen.metadata.uid, CONFLICT_S
        if seen.metadata.deletion_timestamp:
            return
        noted = memory.withdrawn_at.setdefault(key, {})
        if not render.is_withdrawn(seen):
            noted.pop(uid, None)  # it was withdrawn before, and wanted again since
            try:
                await self._routes.update(kind, seen, render.render_withdrawn(kind, seen))
            except (errors.Conflict, errors.NotFound):
                pass  # it is another one by now, or none
            except (AlteredRouteError, errors.Refused):
                await self._routes.remove(kind, seen)  # better a few requests than a sandbox that cannot end
        else:
            due = known_at(seen, noted.setdefault(uid, [now, 0]), now)
            after = (due - now) / 1000 + 0.001
            if now >= due:
                # Remembered until it is done: one that may not be deleted is tried again, and not withdrawn anew.
                await self._routes.remove(kind, seen)
                noted.pop(uid)
                return
        self._cluster.queue.add(run.metadata.name, after=after)

    async def keep(self, run: RunObject, plan: Plan, memory: RouteMemory) -> None:
        """After a turn: what leads to forks is as it is to be, and nothing else of ours is there.

        Raises:
            errors.ApiError: not all is done.
        """
        ledger = run.ledger
        wished = _wished(plan) if ledger.closed is None else {}
        alive = [step for name, step in wished.items() if ledger.unit(name).state in ALIVE]
        led = [name for name in ledger.units if ledger.kind(name) == Kind.ROUTE and ledger.unit(name).state in ALIVE]
        # Also what nobody wishes for any more: it goes when that is ended.
        await self._tidy(run, {fork_of(run, _baseline(name)).name for name in led}, memory.retries)
        if not alive or not self._cluster.routed:
            return
        await self._cluster.gateway.seen()
        await self._cluster.istio.seen()
        for step in alive:
            picture = await self._builder.picture(run, plan, _route(step))
            if picture is not None:
                await self._keep_one(run, step, picture, memory)

    async def _keep_one(self, run: RunObject, step: KeptStep, picture: DesiredRoutes, memory: RouteMemory) -> None:
        of = _route(step).baseline
        faults = self._faults(run, of, picture, memory)
        if not any(faults[1:]):
            self._unstuck(run, step.id, memory)
            memory.withdrawn_at.pop((step.id, run.ledger.unit(step.id).attempt), None)
            # Nothing leads to these any more, and what came by them has had a turn's time.
            await self._drop_services(run, of, {each["metadata"]["name"] for each in picture.services}, memory.retries)
            return
        if not await self._is_newest(run):
            return
        try:
            if await self._mend(run, of, faults, memory):
                self._unstuck(run, step.id, memory)
        except errors.Conflict:
            self._cluster.queue.add(run.metadata.name, after=CONFLICT_S)
        except REFUSALS as error:
            said = objection(error, self._cluster.now())
            before = memory.stuck.get(step.id)
            memory.stuck[step.id] = said
            self._cluster.queue.add(run.metadata.name, after=kept_again(before, said))

    def _faults(self, run: RunObject, of: Baseline, picture: DesiredRoutes, memory: RouteMemory) -> RouteDifferences:
        ours = dict(self._ours(run, of))
        wanted = {(each.kind.plural, each.key): each for each in picture.routes}
        return RouteDifferences(
            ours=ours,
            missing=[each for each in picture.services if not self._has_service(run, each)],
            changed=[each for place, each in wanted.items() if is_off(each, ours.get(place), memory)],
            extra=[found for place, found in ours.items() if place not in wanted],
            off=[each for each in picture.strands if each.is_off],
            loose=self._weaver.unwanted(run, fork_of(run, of).name, of.namespace, picture.strands),
        )

    async def _mend(self, run: RunObject, of: Baseline, faults: RouteDifferences, memory: RouteMemory) -> bool:
        """Write what is other than it is to be; false while the fork's Services have no pods."""
        if faults.missing or faults.changed or faults.off:
            await leave(self._cluster.client, run, of.namespace)
        for manifest in faults.missing:
            await self._services.ensure_service(manifest)
        if not await self._all_answer(run, new_services(of.namespace, faults)):
            return False
        for each in faults.changed:
            await self._write(each, faults.ours.get((each.kind.plural, each.key)), memory)
        for strand in faults.off:
            await self._weaver.weave(run, strand)
        key = route_id(of), run.ledger.unit(route_id(of)).attempt
        for extra in faults.extra:
            await self._take_away(run, key, extra, memory)
        for loose in faults.loose:
            await self._take_out(run, loose, fork_of(run, of).name)
        return True

    async def _all_answer(self, run: RunObject, services: set[Key]) -> bool:
        """Whether these Services have pods by now: a data plane would answer for them with 503."""
        for namespace, name in sorted(services):
            if not await self._routes.has_ready_endpoint(name, namespace):
                self._cluster.queue.add(run.metadata.name, after=EMPTY_S)
                return False
        return True

    async def _drop_services(self, run: RunObject, of: Baseline, but: set[str], retries: Retries) -> None:
        own = fork_of(run, of).name
        unwanted = [each for each in self._own_services(run) if _fork(each.metadata) == own]
        unwanted = [each for each in unwanted if each.metadata.name not in but]
        requests: list[Request] = [(deletion(each), partial(self._services.remove_service, each)) for each in unwanted]
        await attempt_due(self._cluster, run.metadata.name, retries, requests, partial(self._is_newest, run))

    def _own_services(self, run: RunObject) -> list[ForkService]:
        """Those that lead to forks and are not the forks' own."""
        every = belonging(self._cluster.services, run.metadata.name)
        return [each for each in every if FORK_LABEL not in (each.metadata.labels or {})]

    async def _write(
        self, wanted: WantedRoute, found: tuple[Resource[RouteObject], RouteObject] | None, memory: RouteMemory
    ) -> None:
        if found is None:
            made = await self._routes.ensure(wanted.kind, wanted.manifest)
        else:
            made = await self._routes.update(wanted.kind, found[1], wanted.manifest)
        if made.spec != wanted.manifest["spec"]:
            memory.taken[made.metadata.uid] = made.metadata.generation

    def _has_service(self, run: RunObject, manifest: dict[str, object]) -> bool:
        meta = manifest["metadata"]
        assert isinstance(meta, dict), "we have rendered it"
        seen = self._cluster.services.get(meta["name"], meta["namespace"])
        return seen is not None and owned(seen.metadata, run)

    async def _tidy(self, run: RunObject, stays: set[str], retries: Retries) -> None:
        """Take away what leads to a fork that no living route of the run is for: a paused peer may have made it."""
        name = run.metadata.name
        routes = [
            (kind, seen)
            for kind in KINDS
            for seen in belonging(self._cluster.gateway.routes[kind.plural], name)
            if _fork(seen.metadata) not in stays and PREVIEW_LABEL not in (seen.metadata.labels or {})
        ]
        services = [each for each in self._own_services(run) if _fork(each.metadata) not in stays]
        within = namespaces_of(run)
        strays = self._weaver.has_strays(name, stays, within)
        requests: list[Request] = []
        if strays:
            requests.append((("Rules", name, 0), partial(self._weaver.tidy, name, stays, within)))
        requests += [(deletion(seen), partial(self._routes.remove, kind, seen)) for kind, seen in routes]
        requests += [(deletion(each), partial(self._services.remove_service, each)) for each in services]
        await attempt_due(self._cluster, name, retries, requests, partial(self._is_newest, run))

    async def clear(self, run: str, within: Collection[str] | None = None) -> None:
        """The run is over, or gone: take away what is left of its routes; Services go with the forks'.

        `within` are the namespaces that it may have had any in, where that is known.

        Raises:
            errors.ApiError: not all is done.
        """
        await all_done(self._parts(run, within))

    def _parts(self, run: str, within: Collection[str] | None) -> Iterator[Awaitable[object]]:
        for kind in KINDS:
            for seen in belonging(self._cluster.gateway.routes[kind.plural], run):
                yield self._routes.remove(kind, seen)
        yield self._weaver.tidy(run, set(), within)

    def _unstuck(self, run: RunObject, name: str, memory: RouteMemory) -> None:
        if memory.stuck.pop(name, None):
            self._cluster.queue.add(run.metadata.name)

    async def _is_newest(self, run: RunObject) -> bool:
        """Whether the wish is the newest: one that a peer has revised since is its business, or the next turn's."""
        found = await self._cluster.ledger.fresh(run.metadata.name)
        return found is not None and found.metadata.resource_version == run.metadata.resource_version


def _wished(plan: Plan) -> dict[str, KeptStep]:
    return {name: step for name, step in plan.kept.items() if step.unit.kind == Kind.ROUTE}


def _route(step: KeptStep) -> Route:
    assert step.unit.route is not None, "asked of routes alone"
    return step.unit.route


def _baseline(name: str) -> Baseline:
    """Whose requests a route leads away, by its name in the ledger."""
    namespace, _, workload = name.partition(":")[2].partition("/")
    return Baseline(kind="Deployment", namespace=namespace, name=workload)


def namespaces_of(run: RunObject) -> set[str]:
    """Where a run has, or had, routes."""
    return {_baseline(name).namespace for name in run.ledger.units if run.ledger.kind(name) == Kind.ROUTE}


def _fork(meta: ObjectMeta) -> str:
    return (meta.labels or {}).get(ROUTE_LABEL, "")
