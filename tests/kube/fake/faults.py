"""What goes wrong with a request, decided by a hook that sees each of them."""

from __future__ import annotations

import dataclasses
import enum
import random
from collections.abc import Callable

from dayfly.kube.transport import Request


class Crash(BaseException):
    """The client's process dies here: it is no `Exception`, so nothing in the client can go on after it."""


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
    """One harm; `lag` is how many versions old a stale view is, `after` after how many pieces a stream breaks."""

    harm: Harm
    lag: int = 0
    after: int = 0
    retry_after: int = 1


@dataclasses.dataclass(frozen=True)
class Call:
    """One request: the `number`th of all, the `write`th of all changes (None for a read), from that client."""

    client: str
    number: int
    write: int | None
    request: Request


Hook = Callable[[Call], Fault | None]

WRITE_HARMS = (
    Harm.CRASH_BEFORE, Harm.CRASH_AFTER, Harm.LOST_REQUEST, Harm.LOST_ANSWER, Harm.UNREACHABLE, Harm.CONFLICT,
    Harm.TROUBLE_BEFORE, Harm.TROUBLE_AFTER, Harm.THROTTLE,
)  # fmt: skip


def at_write(number: int, harm: Harm) -> Hook:
    """Just this fault at just that change, to enumerate them all."""
    return lambda call: Fault(harm) if call.write == number else None


def at_random(seed: int, rate: float, harms: tuple[Harm, ...]) -> Hook:
    """One of these faults in that share of all changes (and reads, for those that fit); the same for the same seed."""
    dice = random.Random(seed)

    def hook(call: Call) -> Fault | None:
        if dice.random() >= rate:
            return None
        fault = Fault(dice.choice(harms), lag=dice.randint(1, 20), after=dice.randint(0, 3))
        reading = fault.harm in (Harm.STALE, Harm.BREAK, Harm.GONE)
        return fault if reading is (call.write is None) else None

    return hook
