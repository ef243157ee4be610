"""The desired routes of a fork: derived from the current routes, VirtualServices and Services of its baseline."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import LIKE_LABEL, fork_name
from dayfly.execute.gateway import render
from dayfly.execute.gateway.read import RouteObject, accepting_parents
from dayfly.execute.gateway.render import RouteTarget
from dayfly.execute.gateway.rules import RuleTargets, build_key_matches
from dayfly.execute.istio.rules import MAX_PATTERN_CHARS, ForkRules, RuleOwner
from dayfly.kube.objects import ApiResource, Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject, is_owned_by, run_owner_reference
from dayfly.operator.forks.baselines import PodLabels
from dayfly.operator.routes.vs_edits import RelevantServices, VirtualServiceEdit, build_edits, find_relevant, leads_of
from dayfly.plan import messages
from dayfly.plan.sealed import Plan
from dayfly.spec.lifecycle import Baseline, Route
from dayfly.spec.routing.routing_keys import Forms

KIND = "Deployment"
MAX_ROUTES = 64
"""Routes of a baseline that get a copy for each fork, oldest first. A user who may write routes could otherwise
multiply them by the number of sandboxes.
"""
MAX_SERVICES = 32
"""Services of a baseline that get a copy for each fork. The limit has the same reason."""
MAX_NAMED_ROUTES, MAX_REMARKS = 3, 8
"""Routes of other namespaces that a remark names, and remarks about one fork."""


class WantedRoute(NamedTuple):
    """A route to write, and the existing route that it is derived from."""

    kind: ApiResource[RouteObject]
    manifest: dict[str, Any]
    beside: RouteObject

    @property
    def key(self) -> Key:
        meta = self.manifest["metadata"]
        return Key(meta["namespace"], meta["name"])


class DesiredRoutes(NamedTuple):
    """The desired state of all that leads to a fork; `remark` explains what is impossible."""

    routes: tuple[WantedRoute, ...]
    services: tuple[dict[str, Any], ...]
    remark: str = ""
    edits: tuple[VirtualServiceEdit, ...] = ()


class RouteBuilder:
    """Derives desired routes. `forms` are additional places where requests carry routing keys in this cluster."""

    def __init__(self, cluster: ClusterWatches, labels: PodLabels, forms: Forms) -> None:
        self._cluster = cluster
        self._labels = labels
        self._forms = forms

    async def build(self, run: RunObject, plan: Plan, route: Route) -> DesiredRoutes | None:
        """Derive the desired routes. Return None if the baseline is gone; existing routes then stay as they are.

        Raises:
            errors.ApiError: the API server does not answer.
        """
        baseline = route.baseline
        labels = await self._labels.read(baseline)
        if labels is None:
            return None
        local = [each for each in self._cluster.services if each.metadata.namespace == baseline.namespace]
        services, unfollowed = _oldest(render.services_for(local, labels))
        names = [each.metadata.name for each in services]
        if not names:
            return DesiredRoutes((), (), f"no Service leads to {KIND} {baseline.namespace}/{baseline.name}")
        others = await self._other_services(plan, route, local)
        fork, relevant = fork_of(run, baseline), list(self._relevant_routes(names, baseline.namespace))
        found = relevant[:MAX_ROUTES]
        mesh = find_relevant(self._cluster.virtual_services if self._cluster.uses_istio else (), baseline, names)
        if not self._cluster.uses_istio:
            mesh = mesh._replace(shared=(), services=frozenset())
        foreign = list(self._foreign_route_remarks(names, baseline.namespace))
        if not found and not mesh.services:
            return DesiredRoutes((), (), _join_remarks([*mesh.remarks, *foreign]) or self._no_route_remark(baseline))
        requested = {name for _, each in found for name in render.services_of(each.rules, names, baseline.namespace)}
        leads = {name: self._service_name(run, baseline, fork, name) for name in sorted(requested | mesh.services)}
        key_signs = build_key_matches(route.keys, self._forms)
        wanted: list[WantedRoute] = []
        remarks = [messages.services_left_out(unfollowed)] if unfollowed else []
        remarks += [messages.routes_left_out(len(relevant) - MAX_ROUTES)] if len(relevant) > MAX_ROUTES else []
        for kind, each in found:
            made = render.render_routes(kind, each, fork, RuleTargets(leads, others), key_signs)
            wanted += (WantedRoute(kind, manifest, each) for manifest in made.manifests)
            remarks += _remarks(kind, each, made)
        own = [each for each in services if leads.get(each.metadata.name, fork.name) != fork.name]
        edits = tuple(self._build_edits(run, route, mesh, leads))
        remarks += [*mesh.remarks, *foreign, *(remark for each in edits for remark in each.remarks)]
        return DesiredRoutes(
            tuple(wanted), tuple(render.render_service(each, fork) for each in own), _join_remarks(remarks), edits
        )

    def _build_edits(
        self, run: RunObject, route: Route, mesh: RelevantServices, leads: dict[str, str]
    ) -> Iterator[VirtualServiceEdit]:
        mark = RuleOwner(run.ledger.born_at, run.metadata.name, fork_of(run, route.baseline).name)
        key_signs = build_key_matches(route.keys, self._forms, max_chars=MAX_PATTERN_CHARS)
        thread = ForkRules(mark, route.baseline.namespace, leads_of(leads, mesh.services), key_signs)
        return build_edits(mesh, thread, lambda key: self._cluster.virtual_services.get(key.name, key.namespace))

    def _no_route_remark(self, baseline: Baseline) -> str:
        what = f"no HTTPRoute or GRPCRoute leads to {KIND} {baseline.namespace}/{baseline.name}"
        unused = bool(self._cluster.istio.kinds) and not self._cluster.uses_istio
        return (
            f"{what}, and Istio routes requests only if the operator has the option --istio always" if unused else what
        )

    async def _other_services(self, plan: Plan, route: Route, local: list[ForkService]) -> frozenset[str]:
        """Return the Services that the sandbox's routes to its other forks handle."""
        found: set[str] = set()
        for step in plan.kept.values():
            other = step.unit.route
            if other is None or other.baseline.namespace != route.baseline.namespace:
                continue
            if other.baseline != route.baseline:
                labels = await self._labels.read(other.baseline)
                found |= {each.metadata.name for each in render.services_for(local, labels or {})}
        return frozenset(found)

    def _relevant_routes(
        self, services: list[str], namespace: str
    ) -> Iterator[tuple[ApiResource[RouteObject], RouteObject]]:
        for kind in self._cluster.gateway.kinds:
            local = (each for each in self._cluster.gateway.routes[kind.plural] if each.metadata.namespace == namespace)
            for each in render.routes_to(local, services):
                yield kind, each

    def _foreign_route_remarks(self, services: list[str], namespace: str) -> Iterator[str]:
        """Yield remarks on routes of other namespaces. There can be thousands, so only the first are named."""
        relevant = [
            f"{kind.kind} {Key.from_object(each)}"
            for kind in self._cluster.gateway.kinds
            for each in render.routes_of_other_namespaces(
                self._cluster.gateway.routes[kind.plural], services, namespace
            )
        ]
        for called in relevant[:MAX_NAMED_ROUTES]:
            yield f"{called} leads to the baseline from another namespace: its requests reach only the baseline"
        if more := len(relevant[MAX_NAMED_ROUTES:]):
            yield f"so {'does' if more == 1 else 'do'} {more} more"

    def _service_name(self, run: RunObject, baseline: Baseline, fork: RouteTarget, like: str) -> str:
        """Return the fork's Service for one of the baseline's: the fork's own one if it has the same ports."""
        own = self._cluster.services.get(fork.name, baseline.namespace)
        if own is not None and is_owned_by(own.metadata, run) and (own.metadata.labels or {}).get(LIKE_LABEL) == like:
            return fork.name
        return render.service_name(fork, like)


def fork_of(run: RunObject, baseline: Baseline) -> RouteTarget:
    """Return the fork that a route leads to."""
    name = fork_name(run.ledger.target.name, run.ledger.uid, baseline.namespace, baseline.name)
    return RouteTarget(name, run.metadata.name, run_owner_reference(run))


def _oldest(services: tuple[ForkService, ...]) -> tuple[tuple[ForkService, ...], int]:
    """Return the oldest Services, sorted by name, and the number of the others."""
    by_age = sorted(services, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name))
    found = tuple(sorted(by_age[:MAX_SERVICES], key=lambda each: each.metadata.name))
    return found, len(services) - len(found)


def _join_remarks(remarks: list[str]) -> str:
    more = len(remarks) - MAX_REMARKS
    return "; ".join((*remarks[:MAX_REMARKS], *([f"and {more} more like these"] if more > 0 else ())))


def _remarks(kind: ApiResource[RouteObject], route: RouteObject, made: render.ForkRoutes) -> Iterator[str]:
    called = f"{kind.kind} {Key.from_object(route)}"
    if not accepting_parents(route):
        yield f"no Gateway has accepted {called}"
    if made.full_rules:
        rules, one = ", ".join(str(number + 1) for number in made.full_rules), len(made.full_rules) == 1
        what = f"rule {rules} of {called} matches" if one else f"rules {rules} of {called} match"
        yield f"{what} on too many headers to add a routing key"
    if made.is_cut:
        yield f"{called} has too many rules, or the sandbox too many groups: some keys reach the baseline"
