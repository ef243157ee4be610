"""Faults of requests, ordered by a hook that is called with each request."""

from __future__ import annotations

import dataclasses
import enum
import random
from collections.abc import Callable

from dayfly.kube.transport import KubeRequest


class Crash(BaseException):
    """The process of the client dies. Not an `Exception`, so that no handler in the client runs after it."""


class Harm(enum.Enum):
    """The kinds of fault."""

    CRASH_BEFORE = "the client dies before the request is executed"
    CRASH_AFTER = "the client dies after the request is executed"
    LOST_REQUEST = "the connection breaks before the request is executed; the client cannot know"
    LOST_ANSWER = "the connection breaks after the request is executed; the client cannot know"
    UNREACHABLE = "there is no connection, and the client knows it"
    CONFLICT = "409, nothing executed"
    TROUBLE_BEFORE = "500, nothing executed"
    TROUBLE_AFTER = "500, though it was executed"
    THROTTLE = "429, nothing executed"
    STALE = "a read is answered as of an older version"
    BREAK = "a watch or log ends in the middle"
    GONE = "a watch or page ends with 410"


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault; `lag` is the age of a stale view in versions, `after` the number of pieces before a stream breaks."""

    harm: Harm
    lag: int = 0
    after: int = 0
    retry_after: int = 1


@dataclasses.dataclass(frozen=True)
class Call:
    """One request: its number among all, its number among the writes (None for a read), and its client."""

    client: str
    number: int
    write: int | None
    request: KubeRequest


Hook = Callable[[Call], Fault | None]

WRITE_HARMS = (
    Harm.CRASH_BEFORE, Harm.CRASH_AFTER, Harm.LOST_REQUEST, Harm.LOST_ANSWER, Harm.UNREACHABLE, Harm.CONFLICT,
    Harm.TROUBLE_BEFORE, Harm.TROUBLE_AFTER, Harm.THROTTLE,
)  # fmt: skip


def at_write(number: int, harm: Harm) -> Hook:
    """Order this fault at this write, to enumerate all."""
    return lambda call: Fault(harm) if call.write == number else None


def at_random(seed: int, rate: float, harms: tuple[Harm, ...]) -> Hook:
    """Order one of the faults in this share of all writes (and reads, if they fit), reproducible by the seed."""
    dice = random.Random(seed)

    def hook(call: Call) -> Fault | None:
        if dice.random() >= rate:
            return None
        fault = Fault(dice.choice(harms), lag=dice.randint(1, 20), after=dice.randint(0, 3))
        reading = fault.harm in (Harm.STALE, Harm.BREAK, Harm.GONE)
        return fault if reading is (call.write is None) else None

    return hook
