"""When a target expires, and the warning before that."""

from typing import Any, NamedTuple

from dayfly.execute.pod.read import format_time
from dayfly.operator.cluster.objects import StoredStatus
from dayfly.plan.route_groups import EXPIRES_SOON_CONDITION, expires_soon
from dayfly.plan.world import World
from dayfly.spec.errors import SpecError
from dayfly.spec.run import Phase
from dayfly.spec.sandbox import ttl_seconds
from dayfly.spec.scalars import ttl


class Expiry(NamedTuple):
    """Unix milliseconds of the end (0: never) and of its warning, and whether the warning is due."""

    at: int = 0
    warns: int = 0
    soon: bool = False

    @classmethod
    def from_world(cls, world: World | None, spec: dict[str, Any], now: int) -> "Expiry":
        """Return the expiry of a run's target; the default if there is no run, no TTL, or the run is closed."""
        at = world.intent.expires_at if world is not None and world.run.phase is Phase.OPEN else 0
        written = spec.get("ttl")
        if not at or not isinstance(written, dict):
            return cls()
        try:
            begin = at - ttl_seconds(str(written.get("duration", ""))) * 1000
        except SpecError:
            return cls()
        warns = ttl.warning_time(begin, at)
        return cls(at, warns, now >= warns)

    @property
    def message(self) -> str:
        """Message of the warning."""
        return expires_soon(format_time(self.at))[1]

    def seconds_until_warning(self, now: int) -> float:
        """Return the seconds until the warning is due; 0 if it is due already or never."""
        return (self.warns - now) / 1000 + 0.001 if self.at and not self.soon else 0.0

    def conditions(self, generation: int) -> list[dict[str, Any]]:
        """Return the condition of the warning if it is due."""
        if not self.soon:
            return []
        reason, message = expires_soon(format_time(self.at))
        fields = {"reason": reason, "message": message, "observedGeneration": generation}
        return [
            {"type": EXPIRES_SOON_CONDITION, "status": "True", **fields, "lastTransitionTime": format_time(self.warns)}
        ]

    @staticmethod
    def is_warned_in(stored: StoredStatus | None) -> bool:
        """Return whether the status contains the warning."""
        return stored is not None and any(each.type == EXPIRES_SOON_CONDITION for each in stored.conditions)
