"""What Gateways say of a route: whether they have taken it as it is now. Pure."""

from typing import Any, NamedTuple

import msgspec

from dayfly.execute.pod.read import milliseconds
from dayfly.kube.objects import AnnotatedMeta, Condition, Slim


class ParentCondition(Condition, frozen=True):
    """One of what a Gateway says, and of which form of the route."""

    observed_generation: int = 0


class Parent(Slim, frozen=True):
    """What one controller says of a route at one Gateway (or at a part of it, or at a Service of a mesh)."""

    parent_ref: dict[str, Any] = msgspec.field(default_factory=dict)
    controller_name: str = ""
    conditions: list[ParentCondition] | None = None

    @property
    def who(self) -> tuple[str, ...]:
        """Whom this is said of, and by whom."""
        ref = {"group": "gateway.networking.k8s.io", "kind": "Gateway", **self.parent_ref}
        return (self.controller_name, *(f"{key}={ref[key]}" for key in sorted(ref)))

    @property
    def called(self) -> str:
        """Its name, for people."""
        return f"{self.parent_ref.get('kind', 'Gateway')} {self.parent_ref.get('name', '')}"

    def find(self, type_: str) -> ParentCondition | None:
        return next((each for each in self.conditions or () if each.type == type_), None)

    def holds(self, type_: str) -> bool:
        """Whether it says so."""
        found = self.find(type_)
        return found is not None and found.status == "True"


class RouteStatus(Slim, frozen=True):
    """What Gateways say."""

    parents: list[Parent] | None = None


class RouteObject(Slim, frozen=True):
    """An HTTPRoute or GRPCRoute: somebody's, or one of ours."""

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: RouteStatus = RouteStatus()

    @property
    def rules(self) -> list[dict[str, Any]]:
        found = self.spec.get("rules")
        return found if isinstance(found, list) else []


class Lack(NamedTuple):
    """Why requests may not be led yet; `refused` if somebody has to do something about it."""

    message: str
    refused: bool = False


_TOLD = ("Accepted", "ResolvedRefs")
_NEVER = 1 << 60


def accepting(route: RouteObject) -> dict[tuple[str, ...], Parent]:
    """The Gateways that have taken a route, in whatever form."""
    return {parent.who: parent for parent in route.status.parents or () if parent.holds("Accepted")}


def taken_at(ours: RouteObject) -> int:
    """When the last of its Gateways has taken a route, in unix milliseconds; 0 if none says."""
    found = (parent.find("Accepted") for parent in ours.status.parents or ())
    return max((moment(each.last_transition_time) for each in found if each is not None), default=0)


def moment(text: str | None) -> int:
    """As the server keeps it, it need not be a time that can be read: then it is one that never comes."""
    try:
        return milliseconds(text)
    except (ValueError, OverflowError):
        return _NEVER


def is_newest(ours: RouteObject) -> bool:
    """Whether all that have taken a route have it as it is now."""
    told = (parent.find("Accepted") for parent in ours.status.parents or ())
    return all(each is not None and each.observed_generation >= ours.metadata.generation for each in told)


def lacking(ours: RouteObject, beside: RouteObject) -> Lack | None:
    """Why a route of ours does not lead yet where the one beside it does; None if all have taken it as it is now.

    What a Gateway has against that one it may have against ours.
    """
    said = {parent.who: parent for parent in ours.status.parents or ()}
    for who, parent in accepting(beside).items():
        for type_ in (each for each in _TOLD if parent.holds(each)):
            told = said[who].find(type_) if who in said else None
            if told is None or told.observed_generation < ours.metadata.generation:
                return Lack(f"{parent.called} has not taken route {ours.metadata.name} yet")
            if told.status != "True":
                said_no = f"{parent.called} does not take route {ours.metadata.name}: {told.reason}: {told.message}"
                return Lack(said_no, refused=True)
    return None
