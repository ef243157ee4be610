"""What is to stand beside the routes of a baseline as they are now, or in them, and what leads to its fork."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import LIKE_LABEL, fork_name
from dayfly.execute.gateway import render
from dayfly.execute.gateway.read import RouteObject, accepting
from dayfly.execute.gateway.render import RouteTarget
from dayfly.execute.gateway.rules import RuleTargets, build_key_matches
from dayfly.execute.istio.rules import MAX_PATTERN_CHARS, ForkRules, RuleOwner
from dayfly.kube.objects import Key, Resource
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, owned, owner
from dayfly.operator.forks.pod_labels import PodLabels
from dayfly.operator.routes.vs_edits import Concerned, Strand, concerned, leads_of, strands
from dayfly.plan import messages
from dayfly.plan.sealed import Plan
from dayfly.spec.lifecycle import Baseline, Route
from dayfly.spec.routing.routing_keys import Forms

KIND = "Deployment"
MOST_ROUTES = 64
"""Of a baseline, beside which ours stand for one fork, the oldest first: whoever may write one writes as many as they
like, and each sandbox would have as many again.
"""
MOST_SERVICES = 32
"""That lead to a baseline, and have one of ours for one fork: as above."""
NAMED, MOST_REMARKS = 3, 8
"""So many routes of other namespaces are named, and so much is said of one fork at all."""


class WantedRoute(NamedTuple):
    """One route of ours that is to be there, and the one beside which it stands."""

    kind: Resource[RouteObject]
    manifest: dict[str, Any]
    beside: RouteObject

    @property
    def key(self) -> Key:
        meta = self.manifest["metadata"]
        return Key(meta["namespace"], meta["name"])


class DesiredRoutes(NamedTuple):
    """All that leads to a fork, as it is to be; `remark` is what cannot be, in words."""

    routes: tuple[WantedRoute, ...]
    services: tuple[dict[str, Any], ...]
    remark: str = ""
    strands: tuple[Strand, ...] = ()


class RouteBuilder:
    """Renders routes. `forms` are the ways in which requests may carry keys here, beside the usual ones."""

    def __init__(self, cluster: ClusterWatches, labels: PodLabels, forms: Forms) -> None:
        self._cluster = cluster
        self._labels = labels
        self._forms = forms

    async def picture(self, run: RunObject, plan: Plan, route: Route) -> DesiredRoutes | None:
        """What leads to a fork, as it is to be now; None if its baseline is gone, and all stays as it is.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        of = route.baseline
        labels = await self._labels.of(of)
        if labels is None:
            return None
        local = [each for each in self._cluster.services if each.metadata.namespace == of.namespace]
        services, unfollowed = _oldest(render.services_for(local, labels))
        names = [each.metadata.name for each in services]
        if not names:
            return DesiredRoutes((), (), f"no Service leads to {KIND} {of.namespace}/{of.name}")
        others = await self._others(plan, route, local)
        fork, every = fork_of(run, of), list(self._concerned(names, of.namespace))
        found = every[:MOST_ROUTES]
        meshed = concerned(self._cluster.virtual_services if self._cluster.by_istio else (), of, names)
        if not self._cluster.by_istio:
            meshed = meshed._replace(shared=(), services=frozenset())
        foreign = list(self._foreign(names, of.namespace))
        if not found and not meshed.services:
            return DesiredRoutes((), (), _brief([*meshed.remarks, *foreign]) or self._nothing(of))
        asked = {name for _, each in found for name in render.services_of(each.rules, names, of.namespace)}
        leads = {name: self._service(run, of, fork, name) for name in sorted(asked | meshed.services)}
        ways = build_key_matches(route.keys, self._forms)
        wanted: list[WantedRoute] = []
        remarks = [messages.services_left_out(unfollowed)] if unfollowed else []
        remarks += [messages.routes_left_out(len(every) - MOST_ROUTES)] if len(every) > MOST_ROUTES else []
        for kind, each in found:
            made = render.render_routes(kind, each, fork, RuleTargets(leads, others), ways)
            wanted += (WantedRoute(kind, manifest, each) for manifest in made.manifests)
            remarks += _remarks(kind, each, made)
        own = [each for each in services if leads.get(each.metadata.name, fork.name) != fork.name]
        woven = tuple(self._strands(run, route, meshed, leads))
        remarks += [*meshed.remarks, *foreign, *(remark for each in woven for remark in each.remarks)]
        return DesiredRoutes(
            tuple(wanted), tuple(render.render_service(each, fork) for each in own), _brief(remarks), woven
        )

    def _strands(self, run: RunObject, route: Route, meshed: Concerned, leads: dict[str, str]) -> Iterator[Strand]:
        """What is to be woven into VirtualServices."""
        mark = RuleOwner(run.ledger.born_at, run.metadata.name, fork_of(run, route.baseline).name)
        ways = build_key_matches(route.keys, self._forms, max_chars=MAX_PATTERN_CHARS)
        thread = ForkRules(mark, route.baseline.namespace, leads_of(leads, meshed.services), ways)
        return strands(meshed, thread, lambda key: self._cluster.virtual_services.get(key.name, key.namespace))

    def _nothing(self, of: Baseline) -> str:
        what = f"no HTTPRoute or GRPCRoute leads to {KIND} {of.namespace}/{of.name}"
        unused = bool(self._cluster.istio.kinds) and not self._cluster.by_istio
        return f"{what}, and by Istio requests are led where the operator has --istio always" if unused else what

    async def _others(self, plan: Plan, route: Route, local: list[ForkService]) -> frozenset[str]:
        """The Services whose rules the routes to other forks of the sandbox see to."""
        found: set[str] = set()
        for step in plan.kept.values():
            other = step.unit.route
            if other is None or other.baseline.namespace != route.baseline.namespace:
                continue
            if other.baseline != route.baseline:
                labels = await self._labels.of(other.baseline)
                found |= {each.metadata.name for each in render.services_for(local, labels or {})}
        return frozenset(found)

    def _concerned(self, services: list[str], namespace: str) -> Iterator[tuple[Resource[RouteObject], RouteObject]]:
        for kind in self._cluster.gateway.kinds:
            local = (each for each in self._cluster.gateway.routes[kind.plural] if each.metadata.namespace == namespace)
            for each in render.routes_to(local, services):
                yield kind, each

    def _foreign(self, services: list[str], namespace: str) -> Iterator[str]:
        """Whoever may write routes anywhere may have thousands lead here: what is said of them stays short."""
        every = [
            f"{kind.kind} {Key.of(each)}"
            for kind in self._cluster.gateway.kinds
            for each in render.routes_of_other_namespaces(
                self._cluster.gateway.routes[kind.plural], services, namespace
            )
        ]
        for called in every[:NAMED]:
            yield f"{called} leads to the baseline from another namespace: requests by it reach that one alone"
        if more := len(every[NAMED:]):
            yield f"so {'does' if more == 1 else 'do'} {more} more"

    def _service(self, run: RunObject, of: Baseline, fork: RouteTarget, like: str) -> str:
        """The fork's Service for one of its baseline's: the one that it has anyway, if that has the same ports."""
        own = self._cluster.services.get(fork.name, of.namespace)
        if own is not None and owned(own.metadata, run) and (own.metadata.labels or {}).get(LIKE_LABEL) == like:
            return fork.name
        return render.service_name(fork, like)


def fork_of(run: RunObject, of: Baseline) -> RouteTarget:
    """The fork that a route leads to."""
    name = fork_name(run.ledger.target.name, run.ledger.uid, of.namespace, of.name)
    return RouteTarget(name, run.metadata.name, owner(run))


def _oldest(services: tuple[ForkService, ...]) -> tuple[tuple[ForkService, ...], int]:
    """As many as have one of ours, by name; and how many there are beside them."""
    by_age = sorted(services, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name))
    found = tuple(sorted(by_age[:MOST_SERVICES], key=lambda each: each.metadata.name))
    return found, len(services) - len(found)


def _brief(remarks: list[str]) -> str:
    more = len(remarks) - MOST_REMARKS
    return "; ".join((*remarks[:MOST_REMARKS], *([f"and {more} more like these"] if more > 0 else ())))


def _remarks(kind: Resource[RouteObject], route: RouteObject, made: render.ForkRoutes) -> Iterator[str]:
    called = f"{kind.kind} {Key.of(route)}"
    if not accepting(route):
        yield f"no Gateway has taken {called}"
    if made.crowded:
        rules, one = ", ".join(str(number + 1) for number in made.crowded), len(made.crowded) == 1
        what = f"rule {rules} of {called} asks" if one else f"rules {rules} of {called} ask"
        yield f"{what} for so many headers that there is no room for a key"
    if made.cut:
        yield f"{called} has so many rules, or the sandbox so many groups, that some keys reach the baseline"
