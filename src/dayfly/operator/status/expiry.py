"""When what is spoken of ends by itself, and whether that is said to be soon."""

from typing import Any, NamedTuple

from dayfly.execute.pod.read import stamp
from dayfly.operator.cluster.objects import WrittenStatus
from dayfly.plan.route_groups import EXPIRES_SOON_CONDITION, expires_soon
from dayfly.plan.world import World
from dayfly.spec.errors import SpecError
from dayfly.spec.run import Phase
from dayfly.spec.sandbox import ttl_seconds
from dayfly.spec.scalars import ttl


class Expiry(NamedTuple):
    """`at` in unix milliseconds, 0 for never; `warns` from when on its end is said to be near, `soon` whether it is."""

    at: int = 0
    warns: int = 0
    soon: bool = False

    @classmethod
    def of(cls, world: World | None, spec: dict[str, Any], now: int) -> "Expiry":
        """Of the target of a run, as its owner wrote it; nothing where there is no run, or it closes."""
        at = world.wish.expires_at if world is not None and world.run.phase is Phase.OPEN else 0
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
        """What the warning says."""
        return expires_soon(stamp(self.at))[1]

    def wait(self, now: int) -> float:
        """Seconds until it is to be said; 0 if it was, or never is."""
        return (self.warns - now) / 1000 + 0.001 if self.at and not self.soon else 0.0

    def conditions(self, generation: int) -> list[dict[str, Any]]:
        """The condition that warns, once it is time."""
        if not self.soon:
            return []
        reason, message = expires_soon(stamp(self.at))
        said = {"reason": reason, "message": message, "observedGeneration": generation}
        return [{"type": EXPIRES_SOON_CONDITION, "status": "True", **said, "lastTransitionTime": stamp(self.warns)}]

    @staticmethod
    def was_said(spoken: WrittenStatus | None) -> bool:
        """Whether the warning stands in the status already."""
        return spoken is not None and any(each.type == EXPIRES_SOON_CONDITION for each in spoken.conditions)
