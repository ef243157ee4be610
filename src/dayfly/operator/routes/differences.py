"""How what leads to forks stands against what is wished for, and what is said where it cannot be. Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dayfly.execute.fork.run import ForeignForkError
from dayfly.execute.gateway import read, render
from dayfly.execute.gateway.read import Lack, RouteObject
from dayfly.execute.gateway.run import AlteredRouteError, ForeignRouteError, differs
from dayfly.execute.istio.read import VirtualService
from dayfly.execute.istio.run import AlteredRulesError, ForeignVirtualServiceError
from dayfly.kube import errors
from dayfly.kube.objects import Key, Resource
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.routes.route_builder import DesiredRoutes, WantedRoute
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.operator.routes.vs_edits import Strand
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Objection

# So long after a Gateway has taken a route for the first time its proxies may not know yet.
SETTLE_MS = 2_000
# So long it is waited for that Gateways say something of a route that leads where it is not to any more.
PATIENCE_MS = 10_000

_ALTERED = (AlteredRouteError, AlteredRulesError)
_FOREIGN = (ForeignForkError, ForeignRouteError, ForeignVirtualServiceError)
REFUSALS = (*_ALTERED, *_FOREIGN, NotGrantedError, errors.Refused)

Ours = dict[tuple[str, Key], tuple[Resource[RouteObject], RouteObject]]
"""Routes that lead to one fork, by plural and place."""


class RouteDifferences(NamedTuple):
    """What of all that leads to one fork is other than it is to be; `ours` are the routes that there are."""

    ours: Ours
    missing: list[dict[str, Any]]
    changed: list[WantedRoute]
    extra: list[tuple[Resource[RouteObject], RouteObject]]
    off: list[Strand]
    loose: list[VirtualService]


def is_off(wanted: WantedRoute, found: tuple[Resource[RouteObject], RouteObject] | None, memory: RouteMemory) -> bool:
    if found is None:
        return True
    meta = found[1].metadata
    if meta.deletion_timestamp:
        return False  # it is made again once it is gone
    return differs(found[1], wanted.manifest) and memory.taken.get(meta.uid) != meta.generation


def lacking(picture: DesiredRoutes, ours: Ours, memory: RouteMemory) -> Iterator[Lack]:
    """Why requests with a key may not be led to the fork yet."""
    for wanted in picture.routes:
        found = ours.get((wanted.kind.plural, wanted.key))
        if found is None or found[1].metadata.deletion_timestamp or is_off(wanted, found, memory):
            yield Lack(messages.route_written(wanted.kind.kind, str(Key.of(wanted.beside))))
        elif lack := read.find_lack(found[1], wanted.beside):
            yield lack
    if any(place not in {(each.kind.plural, each.key) for each in picture.routes} for place in ours):
        yield Lack(messages.route_being_removed())


def known_at(seen: RouteObject, noted: list[int], now: int) -> int:
    """From when on all proxies go by a route as it is now, whatever its Gateways say.

    `noted` is since when it is so, and since when its Gateways know, 0 for not yet: that is noted here.
    """
    since, newest = noted
    if read.is_newest(seen):
        newest = noted[1] = newest or now
    return min(newest + SETTLE_MS if newest else since + PATIENCE_MS, since + PATIENCE_MS)


def unrouted(name: str, trouble: str) -> str:
    why = f"routes cannot be read: {trouble}" if trouble else "neither the Gateway API nor Istio is installed"
    return f"{name} ({why}: requests with its key reach the baseline)"


def new_services(namespace: str, faults: RouteDifferences) -> set[Key]:
    """The forks' Services to which nothing has led so far."""
    new = [each.manifest for each in faults.changed if (each.kind.plural, each.key) not in faults.ours]
    rules = [rule for manifest in new for rule in manifest["spec"]["rules"]]
    names = {ref["name"] for ref in render.backend_refs(rules) if ref["name"].startswith("f-")}
    names |= {name for each in faults.off if each.is_new for name in each.thread.leads.values()}
    return {Key(namespace, name) for name in names}


def objection(error: Exception, now: int) -> Objection:
    """What stands in the way, with what to do about it where somebody can."""
    if isinstance(error, NotGrantedError):
        return Objection(reason=error.reason, message=str(error), since=now)
    if isinstance(error, errors.Refused):
        message = error.message
        if isinstance(error, errors.Forbidden) and error.not_granted:
            message += "; an administrator can bind the ClusterRole dayfly-forks to the operator in that namespace"
        return Objection(reason=error.reason or Reason.REFUSED, message=message, since=now)
    reason = Reason.REFUSED if isinstance(error, _ALTERED) else Reason.NAME_CONFLICT
    return Objection(reason=reason, message=str(error), since=now)
