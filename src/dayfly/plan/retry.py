"""What follows the end of an attempt. Rules, no exceptions to them; times are milliseconds.

Create: at most once, unless declared idempotent. Stop: again until it is confirmed, but preStop gives up after five.
An attempt that never ran does not count. A create may have three of these, or as many as its own `retry` allows if that
is more. A postStop may have any number. For a preStop they count among its five attempts: a hook that can never run
must not keep its target forever.
"""

import enum
from typing import Final

from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import SealedStep
from dayfly.spec.lifecycle import PRE_STOP_TRIES, LifecycleEvent
from dayfly.spec.run import State, UnitRecord

STUCK_AFTER: Final = 5
VOID_LIMIT: Final = 3
# The sealed plan fixes the inputs and the program of a unit, so these reasons apply to each further attempt.
_ALWAYS_SO: Final = frozenset(
    {
        Reason.INPUT_TOO_LARGE,
        Reason.INPUT_NOT_TEXT,
        Reason.SCRIPT_TOO_LARGE,
        Reason.INPUT_INVALID,
        Reason.KIND_REFUSED,
        Reason.NOT_EXECUTABLE,
        Reason.ADDRESS_REFUSED,
        Reason.FIELD_REFUSED,
        Reason.POD_REFUSED,
        Reason.FIELD_INVALID,
    }
)
# A fork that waits for one of these waits for a change to the sandbox.
FORK_REFUSED: Final = frozenset(
    {
        Reason.UNSUPPORTED_KIND,
        Reason.KIND_NOT_FORKED,
        Reason.BAD_PATCH,
        Reason.EXCEEDS_BASELINE,
        Reason.CONTAINER_NOT_FOUND,
        Reason.INPUT_TOO_LARGE,
        Reason.INPUT_NOT_TEXT,
        Reason.FIELD_INVALID,
    }
)
BACKOFF_MAX_MS: Final = 600_000
# So long an attempt may take to say that it never began: a kubelet notices only once its try at the old image is over.
RECALL_MS: Final = 120_000
# By so much the clocks of operators may differ that write the same ledger.
CLOCKS_MS: Final = 60_000
FORK_BACKOFF_MS: Final = 1_000
FORK_BACKOFF_MAX_MS: Final = 60_000


class UnitState(enum.Enum):
    """A unit's place in its event, all attempts considered."""

    FRESH = "fresh"  # never claimed
    ALIVE = "alive"  # claimed, not known to have ended
    UNKNOWN = "unknown"  # may have run, outcome not known
    AGAIN = "again"  # ended without success, may be tried again
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # ended without success, for good


REST: Final = frozenset({UnitState.FRESH, UnitState.AGAIN, UnitState.SUCCEEDED, UnitState.FAILED})


def standing(step: SealedStep, record: UnitRecord) -> UnitState:
    """Where the unit stands."""
    match record.state:
        case State.NONE:
            return UnitState.FRESH
        case State.CLAIMED:
            return UnitState.ALIVE
        case State.UNKNOWN:
            return UnitState.UNKNOWN
        case State.VOID:
            if step.creates:
                hopeless = record.voids >= max(VOID_LIMIT, tries(step)) or record.reason in _ALWAYS_SO
                return UnitState.FAILED if hopeless else UnitState.AGAIN
            return UnitState.AGAIN if record.vain < tries(step) else UnitState.FAILED
        case State.DONE:
            if record.outcome == "succeeded":
                return UnitState.SUCCEEDED
            spent = record.failures if step.creates else record.vain
            return UnitState.AGAIN if spent < tries(step) else UnitState.FAILED


def tries(step: SealedStep) -> float:
    """Return how many attempts the unit may have; those that never ran count only for stop units."""
    retry = step.unit.retry
    if step.event is LifecycleEvent.POST_STOP:
        return float("inf")
    if step.event is LifecycleEvent.PRE_STOP:
        return PRE_STOP_TRIES
    if not retry.idempotent:
        return 1
    return retry.limit or float("inf")


def again_at(step: SealedStep, record: UnitRecord, now: int) -> int:
    """The moment from which the next attempt may be claimed."""
    return ended_by(record, now) + backoff(step.unit.retry.backoff_ms, record.vain, BACKOFF_MAX_MS)


def ended_by(record: UnitRecord, now: int) -> int:
    """When the last attempt had ended at the latest, by our own clock as it goes `now`; 0 if that tells nothing.

    Its end is told by the clock of wherever it ran, which may be ahead of ours. That it was claimed we wrote ourselves:
    what lies ahead of that, our clock was set back, and nobody is to wait until it has caught up.
    """
    if record.ended_at <= now:
        return record.ended_at
    claimed = min(record.claimed_at, record.ended_at)
    return claimed if claimed <= now + CLOCKS_MS else 0


def backoff(first_ms: int, times: int, most_ms: int) -> int:
    """Twice as long after each attempt, never longer than `most_ms`."""
    return min(first_ms << min(max(times - 1, 0), most_ms.bit_length()), max(most_ms, first_ms))
