"""State of a run's routes: the memory of the process, and the view of one turn."""

from collections.abc import Collection
from typing import Any

import msgspec

from dayfly.operator.retries import Retries
from dayfly.plan.world import AttemptKey, Fact, UnitRefusal


class RouteMemory:
    """Remembered state of the routes of one run."""

    __slots__ = (
        "accepted_at",
        "address_left_at",
        "gone_at",
        "retries",
        "rules_seen_at",
        "stuck",
        "withdrawn_at",
        "written_generation",
    )

    def __init__(self, retries: Retries | None = None) -> None:
        """`retries` has the refused deletions of the run."""
        self.retries = Retries() if retries is None else retries
        self.gone_at: dict[AttemptKey, int] = {}
        """Since when nothing of an ending route exists."""
        self.address_left_at: dict[AttemptKey, dict[str, list[int]]] = {}
        """For an ending route, by UID of each address that led to its fork: when the address was changed, and when its
        Gateways accepted that, or 0."""
        self.stuck: dict[str, UnitRefusal] = {}
        """Why a route cannot be written."""
        self.withdrawn_at: dict[AttemptKey, dict[str, list[int]]] = {}
        """By UID, when an ending route was changed to match no request, and when its Gateways accepted that, or 0."""
        self.accepted_at: dict[str, int] = {}
        """By UID, when a route was first seen to be accepted."""
        self.written_generation: dict[str, int] = {}
        """By UID, the generation after our last write. The API server may have added defaults to the spec."""
        self.rules_seen_at: dict[str, int] = {}
        """By VirtualService and fork, when its rules were first seen; 0 means before the run rested."""

    def __bool__(self) -> bool:
        return bool(self.gone_at or self.address_left_at or self.stuck or any(self.withdrawn_at.values()))

    def keep_only(self, alive: Collection[AttemptKey]) -> None:
        """Forget attempts that have ended. Nothing else would forget objects that another user has deleted."""
        known: dict[AttemptKey, Any]
        for known in (self.gone_at, self.address_left_at, self.withdrawn_at):
            for key in known.keys() - alive:
                del known[key]


class RouteSight(msgspec.Struct):
    """One turn's view of a run's routes; `lacking` lists routes that lead nowhere, for the message of Ready."""

    facts: dict[AttemptKey, Fact] = {}
    object_refs: dict[AttemptKey, str] = {}
    lacking: tuple[str, ...] = ()
