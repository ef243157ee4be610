"""What was said last of one object, so that the same is not written twice, and not each little step at once."""

import dataclasses
from typing import Any

from dayfly.execute.pod.read import stamp
from dayfly.operator.cluster.objects import WrittenStatus

# Each saying is a write to the server. A change of phase or reason is said at once. Mere progress is said at once where
# it ends a time of silence; while there is more and more of it, when it has settled, or when the last saying is so long
# ago that whoever looks at it might think that nothing moves.
SETTLED_MS, SILENT_MS, GOING_ON_MS = 5_000, 10_000, 30_000
# The same of trouble, which somebody has to see: a sentence that changes with each try must not hide behind the others.
TROUBLE_SETTLED_MS, TROUBLE_SILENT_MS = 1_000, 3_000


@dataclasses.dataclass(slots=True)
class StatusThrottle:
    """`news` is what people wait for, `rest` whatever else is said with it."""

    news: tuple[Any, ...] = ()
    rest: tuple[Any, ...] = ()
    at: int = 0
    holds: tuple[bool, str] | None = None
    since: str = ""
    untold: tuple[tuple[Any, ...], int] = ((), 0)
    """The rest that is still to be said, and since when it has been as it is."""
    begun: int = 0
    """Since when there has been something to say that was not said."""
    shown: tuple[Any, ...] = ()
    """What was written last, as people see it."""
    version: str = ""
    """The object's version with that."""

    @classmethod
    def found(cls, spoken: WrittenStatus, news: tuple[Any, ...], rest: tuple[Any, ...]) -> "StatusThrottle":
        """What a process before this one has said: the object's status."""
        since = spoken.conditions[0].last_transition_time if spoken.conditions else ""
        return cls(news, rest, 0, (spoken.ready, spoken.reason) if since else None, since)

    def wait(self, news: tuple[Any, ...], rest: tuple[Any, ...], now: int, *, troubled: bool = False) -> float | None:
        """None where this is to be said now, else the seconds after which to ask again: 0 if it was said already."""
        if self.news != news:
            return None
        if self.rest == rest:
            return 0.0
        self.begun = self.begun if self.untold[0] else now
        if self.untold[0] != rest:
            self.untold = rest, now
        # A clock may be set back: what was said, and what has changed, was so by now at the latest.
        self.at, self.begun, self.untold = min(self.at, now), min(self.begun, now), (rest, min(self.untold[1], now))
        left = due(self.at, self.begun, self.untold[1], troubled=troubled) - now
        return left / 1000 + 0.001 if left > 0 else None

    def overwritten(self, version: str, shown: tuple[Any, ...]) -> bool:
        """Whether somebody has written another status since: the object has that version, and shows that."""
        return bool(self.version) and int(version) > int(self.version) and shown != self.shown

    def hold(self, ready: bool, reason: str, now: int) -> str:
        """Since when the condition is as it is."""
        if self.holds != (ready, reason):
            self.holds, self.since = (ready, reason), stamp(now)
        return self.since

    def note(self, news: tuple[Any, ...], rest: tuple[Any, ...], now: int) -> None:
        """It is said."""
        self.news, self.rest, self.at, self.untold = news, rest, now, ((), 0)


def due(said: int, begun: int, changed: int, *, troubled: bool = False) -> int:
    """When mere progress is to be written that began then, and has changed last then, after what was `said`."""
    if troubled:
        return min(said + TROUBLE_SILENT_MS, changed + TROUBLE_SETTLED_MS)
    if begun - said >= SILENT_MS:
        return begun
    return min(said + GOING_ON_MS, changed + SETTLED_MS)
