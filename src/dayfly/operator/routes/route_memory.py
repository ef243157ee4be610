"""What is remembered of a run's routes, and what one turn sees of them."""

from collections.abc import Collection
from typing import Any

import msgspec

from dayfly.operator.retries import Retries
from dayfly.plan.world import AttemptKey, Fact, Objection


class RouteMemory:
    """What is remembered of one run's routes."""

    __slots__ = ("gone_at", "heard_at", "led", "retries", "stuck", "taken", "withdrawn_at", "woven_at")

    def __init__(self, retries: Retries | None = None) -> None:
        """`retries` has what was refused of the run's deletions."""
        self.retries = Retries() if retries is None else retries
        self.gone_at: dict[AttemptKey, int] = {}
        """Since when nothing of a route that is to end is there."""
        self.led: dict[AttemptKey, dict[str, list[int]]] = {}
        """By UID the addresses that led to the fork of a route that is to end: since when they do so no more, and since
        when their Gateways know; 0: not yet."""
        self.stuck: dict[str, Objection] = {}
        """Why what leads to a fork cannot be written."""
        self.withdrawn_at: dict[AttemptKey, dict[str, list[int]]] = {}
        """By UID, since when no request fits a route that is to go, and since when its Gateways know; 0: not yet."""
        self.heard_at: dict[str, int] = {}
        """By UID, when a route was first seen to be taken."""
        self.taken: dict[str, int] = {}
        """By UID, the generation that the server made of what was written last: it may have added something."""
        self.woven_at: dict[str, int] = {}
        """By VirtualService and fork, when the rules for it were first seen to be there; 0: before the run rested."""

    def __bool__(self) -> bool:
        return bool(self.gone_at or self.led or self.stuck or any(self.withdrawn_at.values()))

    def keep_only(self, alive: Collection[AttemptKey]) -> None:
        """Forget what belongs to attempts that are over: of what somebody else has deleted nobody else would."""
        known: dict[AttemptKey, Any]
        for known in (self.gone_at, self.led, self.withdrawn_at):
            for key in known.keys() - alive:
                del known[key]


class RouteSight(msgspec.Struct):
    """One turn's view of a run's routes; `lacking` are ways that lead nowhere, and are said wherever Ready is."""

    facts: dict[AttemptKey, Fact] = {}
    made: dict[AttemptKey, str] = {}
    lacking: tuple[str, ...] = ()
