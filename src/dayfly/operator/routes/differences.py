"""Differences between the actual and the desired routes of a fork, and the reasons why some cannot be written. Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dayfly.execute.fork.run import ForeignForkError
from dayfly.execute.gateway import read, render
from dayfly.execute.gateway.read import RouteObject, RouteProblem
from dayfly.execute.gateway.run import AlteredRouteError, ForeignRouteError, differs
from dayfly.execute.istio.read import VirtualService
from dayfly.execute.istio.run import AlteredRulesError, ForeignVirtualServiceError
from dayfly.kube import errors
from dayfly.kube.objects import ApiResource, Key
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.routes.route_builder import DesiredRoutes, WantedRoute
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.operator.routes.vs_edits import VirtualServiceEdit
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.world import UnitRefusal

# Time that a Gateway's proxies need after the Gateway has accepted a route for the first time.
SETTLE_MS = 2_000
# Longest wait for a Gateway that reports nothing about a new or withdrawn route.
PATIENCE_MS = 10_000

_ALTERED = (AlteredRouteError, AlteredRulesError)
_FOREIGN = (ForeignForkError, ForeignRouteError, ForeignVirtualServiceError)
REFUSALS = (*_ALTERED, *_FOREIGN, NotGrantedError, errors.Refused)

Ours = dict[tuple[str, Key], tuple[ApiResource[RouteObject], RouteObject]]
"""Routes that lead to one fork, by plural and key."""


class RouteDifferences(NamedTuple):
    """Differences for one fork; `ours` are the existing routes."""

    ours: Ours
    missing: list[dict[str, Any]]
    changed: list[WantedRoute]
    extra: list[tuple[ApiResource[RouteObject], RouteObject]]
    outdated: list[VirtualServiceEdit]
    unwanted: list[VirtualService]


def is_outdated(
    wanted: WantedRoute, found: tuple[ApiResource[RouteObject], RouteObject] | None, memory: RouteMemory
) -> bool:
    if found is None:
        return True
    meta = found[1].metadata
    if meta.deletion_timestamp:
        return False  # it is created again once it is gone
    return differs(found[1], wanted.manifest) and memory.written_generation.get(meta.uid) != meta.generation


def find_problems(desired: DesiredRoutes, ours: Ours, memory: RouteMemory) -> Iterator[RouteProblem]:
    """Yield why requests with a key may not reach the fork yet."""
    for wanted in desired.routes:
        found = ours.get((wanted.kind.plural, wanted.key))
        if found is None or found[1].metadata.deletion_timestamp or is_outdated(wanted, found, memory):
            yield RouteProblem(messages.route_written(wanted.kind.kind, str(Key.from_object(wanted.beside))))
        elif lack := read.find_problem(found[1], wanted.beside):
            yield lack
    if any(place not in {(each.kind.plural, each.key) for each in desired.routes} for place in ours):
        yield RouteProblem(messages.route_being_removed())


def propagated_at(seen: RouteObject, noted: list[int], now: int) -> int:
    """Return when all proxies use the current version of a route, whatever its Gateways report.

    `noted` has the time of that version and the time when its Gateways have accepted it, or 0; it is updated here.
    """
    since, newest = noted
    if read.is_newest(seen):
        newest = noted[1] = newest or now
    return min(newest + SETTLE_MS if newest else since + PATIENCE_MS, since + PATIENCE_MS)


def unrouted_message(name: str, trouble: str) -> str:
    why = f"routes cannot be read: {trouble}" if trouble else "neither the Gateway API nor Istio is installed"
    return f"{name} ({why}: requests with its key reach the baseline)"


def new_services(namespace: str, differences: RouteDifferences) -> set[Key]:
    """Return the fork's Services to which no route leads yet."""
    new = [each.manifest for each in differences.changed if (each.kind.plural, each.key) not in differences.ours]
    rules = [rule for manifest in new for rule in manifest["spec"]["rules"]]
    names = {ref["name"] for ref in render.backend_refs(rules) if ref["name"].startswith("f-")}
    names |= {name for each in differences.outdated if each.is_new for name in each.fork_rules.leads.values()}
    return {Key(namespace, name) for name in names}


def to_objection(error: Exception, now: int) -> UnitRefusal:
    """Return why a route cannot be written, with advice if a user can resolve it."""
    if isinstance(error, NotGrantedError):
        return UnitRefusal(reason=error.reason, message=str(error), since=now)
    if isinstance(error, errors.Refused):
        message = error.message
        if isinstance(error, errors.Forbidden) and error.is_not_granted:
            message += "; an administrator can bind the ClusterRole dayfly-forks to the operator in that namespace"
        return UnitRefusal(reason=error.reason or Reason.REFUSED, message=message, since=now)
    reason = Reason.REFUSED if isinstance(error, _ALTERED) else Reason.NAME_CONFLICT
    return UnitRefusal(reason=reason, message=str(error), since=now)
