"""When a changed status is written: not twice, and not for each small step of progress."""

import dataclasses
from typing import Any

from dayfly.execute.pod.read import format_time
from dayfly.operator.cluster.objects import StoredStatus

# Each write is a request to the API server. Progress is written at once if nothing was written for QUIET_MS. Further
# progress is written when it has not changed for SETTLED_MS, or PROGRESS_INTERVAL_MS after the latest write.
SETTLED_MS, QUIET_MS, PROGRESS_INTERVAL_MS = 5_000, 10_000, 30_000
# The same while a unit has a problem. Its message may change with each try and must not hide behind that.
TROUBLE_SETTLED_MS, TROUBLE_INTERVAL_MS = 1_000, 3_000


@dataclasses.dataclass(slots=True)
class StatusThrottle:
    """The latest written status of one object.

    Changes of `urgent` are written at once, those of `deferred` may wait.
    """

    urgent: tuple[Any, ...] = ()
    deferred: tuple[Any, ...] = ()
    written_at: int = 0
    ready_condition: tuple[bool, str] | None = None
    """Status and reason of the condition Ready."""
    ready_since: str = ""
    pending: tuple[tuple[Any, ...], int] = ((), 0)
    """Deferred values that are not written yet, and when they last changed."""
    pending_since: int = 0
    visible: tuple[Any, ...] = ()
    """The parts of the latest written status that users see."""
    version: str = ""
    """The resource version of the latest write."""

    @classmethod
    def from_status(cls, stored: StoredStatus, urgent: tuple[Any, ...], deferred: tuple[Any, ...]) -> "StatusThrottle":
        """Return a throttle for a stored status, which an earlier process may have written."""
        since = stored.conditions[0].last_transition_time if stored.conditions else ""
        return cls(urgent, deferred, 0, (stored.ready, stored.reason) if since else None, since)

    def delay(
        self, urgent: tuple[Any, ...], deferred: tuple[Any, ...], now: int, *, troubled: bool = False
    ) -> float | None:
        """Return None if the status is to be written now, 0 if it is written already, else the seconds to wait."""
        if self.urgent != urgent:
            return None
        if self.deferred == deferred:
            return 0.0
        self.pending_since = self.pending_since if self.pending[0] else now
        if self.pending[0] != deferred:
            self.pending = deferred, now
        # The clock may be set back: no stored time may be later than now.
        self.written_at, self.pending_since = min(self.written_at, now), min(self.pending_since, now)
        self.pending = deferred, min(self.pending[1], now)
        left = due_at(self.written_at, self.pending_since, self.pending[1], troubled=troubled) - now
        return left / 1000 + 0.001 if left > 0 else None

    def is_overwritten(self, version: str, shown: tuple[Any, ...]) -> bool:
        """Return whether another program has written a different status: the object has this version and status."""
        return bool(self.version) and int(version) > int(self.version) and shown != self.visible

    def transition_time(self, ready: bool, reason: str, now: int) -> str:
        """Return since when the condition Ready has this status and reason."""
        if self.ready_condition != (ready, reason):
            self.ready_condition, self.ready_since = (ready, reason), format_time(now)
        return self.ready_since

    def record_write(self, urgent: tuple[Any, ...], deferred: tuple[Any, ...], now: int) -> None:
        """Store what was written."""
        self.urgent, self.deferred, self.written_at, self.pending = urgent, deferred, now, ((), 0)


def due_at(written: int, begun: int, changed: int, *, troubled: bool = False) -> int:
    """Return when progress is to be written that began and last changed at these times, in unix milliseconds."""
    if troubled:
        return min(written + TROUBLE_INTERVAL_MS, changed + TROUBLE_SETTLED_MS)
    if begun - written >= QUIET_MS:
        return begun
    return min(written + PROGRESS_INTERVAL_MS, changed + SETTLED_MS)
