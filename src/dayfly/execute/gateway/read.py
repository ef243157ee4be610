"""The status of a route: whether Gateways have accepted its current generation. Pure."""

from typing import Any, NamedTuple

import msgspec

from dayfly.execute.pod.read import parse_time
from dayfly.kube.objects import AnnotatedMeta, KubeStruct, ObjectCondition


class ParentCondition(ObjectCondition, frozen=True):
    """A condition with the generation of the route that it refers to."""

    observed_generation: int = 0


class RouteParent(KubeStruct, frozen=True):
    """The status that a controller reports for a route at one parent: a Gateway, a listener, or a Service."""

    parent_ref: dict[str, Any] = msgspec.field(default_factory=dict)
    controller_name: str = ""
    conditions: list[ParentCondition] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies controller and parent."""
        ref = {"group": "gateway.networking.k8s.io", "kind": "Gateway", **self.parent_ref}
        return (self.controller_name, *(f"{key}={ref[key]}" for key in sorted(ref)))

    @property
    def title(self) -> str:
        """Kind and name, for messages."""
        return f"{self.parent_ref.get('kind', 'Gateway')} {self.parent_ref.get('name', '')}"

    def find(self, type_: str) -> ParentCondition | None:
        return next((each for each in self.conditions or () if each.type == type_), None)

    def is_condition_true(self, type_: str) -> bool:
        """Return whether the condition is true."""
        found = self.find(type_)
        return found is not None and found.status == "True"


class RouteStatus(KubeStruct, frozen=True):
    """The status of a route."""

    parents: list[RouteParent] | None = None


class RouteObject(KubeStruct, frozen=True):
    """An HTTPRoute or GRPCRoute, created by Dayfly or by another owner."""

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: RouteStatus = RouteStatus()

    @property
    def rules(self) -> list[dict[str, Any]]:
        found = self.spec.get("rules")
        return found if isinstance(found, list) else []


class RouteProblem(NamedTuple):
    """Why requests may not be routed yet; `is_refused` if a user must act."""

    message: str
    is_refused: bool = False


_CONDITIONS = ("Accepted", "ResolvedRefs")
_NEVER = 1 << 60


def accepting_parents(route: RouteObject) -> dict[tuple[str, ...], RouteParent]:
    """Return the parents that have accepted a route in any generation."""
    return {parent.key: parent for parent in route.status.parents or () if parent.is_condition_true("Accepted")}


def accepted_at(ours: RouteObject) -> int:
    """Return when the last Gateway accepted a route, in unix milliseconds; 0 if none has reported."""
    found = (parent.find("Accepted") for parent in ours.status.parents or ())
    return max((parse_time_ms(each.last_transition_time) for each in found if each is not None), default=0)


def parse_time_ms(text: str | None) -> int:
    """Return a time as unix milliseconds. Another client may have stored an invalid time: it is in the far future."""
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        return _NEVER


def is_newest(ours: RouteObject) -> bool:
    """Return whether all parents have observed the current generation."""
    found = (parent.find("Accepted") for parent in ours.status.parents or ())
    return all(each is not None and each.observed_generation >= ours.metadata.generation for each in found)


def find_problem(ours: RouteObject, beside: RouteObject) -> RouteProblem | None:
    """Return why a route does not work yet; None if it does wherever the existing route `beside` works.

    Only conditions that are true for the existing route are required.
    """
    parents = {parent.key: parent for parent in ours.status.parents or ()}
    for key, parent in accepting_parents(beside).items():
        for type_ in (each for each in _CONDITIONS if parent.is_condition_true(each)):
            found = parents[key].find(type_) if key in parents else None
            if found is None or found.observed_generation < ours.metadata.generation:
                return RouteProblem(f"{parent.title} has not accepted route {ours.metadata.name} yet")
            if found.status != "True":
                message = f"{parent.title} rejects route {ours.metadata.name}: {found.reason}: {found.message}"
                return RouteProblem(message, is_refused=True)
    return None
