"""Retries: the state of a unit after an attempt, the limit of attempts, and the back-off. Times are milliseconds.

A create step runs at most once, unless it is declared idempotent. A stop step is retried until it succeeds, but preStop
ends after five attempts.

An attempt that never ran does not count for a create step. It may have three of these, or as many as its own `retry`
allows if that is more. A postStop may have any number of them. For a preStop they count among its five attempts,
because a hook that can never run must not keep its target forever.
"""

import enum
from typing import Final

from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import SealedStep
from dayfly.spec.lifecycle import PRE_STOP_TRIES, LifecycleEvent
from dayfly.spec.run import State, UnitRecord

STUCK_AFTER: Final = 5
MAX_NEVER_RAN: Final = 3
# The sealed plan fixes the inputs and the program of a unit, so these reasons apply to each further attempt.
_PERMANENT_REASONS: Final = frozenset(
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
# A fork with one of these reasons waits for a change of the sandbox.
FORK_REFUSAL_REASONS: Final = frozenset(
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
# The time in which an attempt must prove that it never began. A kubelet notices only after its pull of the old image.
RECALL_TIMEOUT_MS: Final = 120_000
# The maximum difference between the clocks of operators that write the same ledger.
MAX_CLOCK_SKEW_MS: Final = 60_000
FORK_BACKOFF_MS: Final = 1_000
FORK_BACKOFF_MAX_MS: Final = 60_000


class UnitState(enum.Enum):
    """The state of a unit within its event, over all attempts."""

    FRESH = "fresh"  # never claimed
    ALIVE = "alive"  # claimed, not known to have ended
    UNKNOWN = "unknown"  # may have run, outcome unknown
    RETRYABLE = "again"  # ended without success, may be retried
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # ended without success, is not retried


def unit_state(step: SealedStep, record: UnitRecord) -> UnitState:
    """Return the state of the unit over all of its attempts."""
    match record.state:
        case State.NONE:
            return UnitState.FRESH
        case State.CLAIMED:
            return UnitState.ALIVE
        case State.UNKNOWN:
            return UnitState.UNKNOWN
        case State.VOID:
            if step.creates:
                hopeless = (
                    record.voids >= max(MAX_NEVER_RAN, attempt_limit(step)) or record.reason in _PERMANENT_REASONS
                )
                return UnitState.FAILED if hopeless else UnitState.RETRYABLE
            return UnitState.RETRYABLE if record.unsuccessful < attempt_limit(step) else UnitState.FAILED
        case State.DONE:
            if record.outcome == "succeeded":
                return UnitState.SUCCEEDED
            spent = record.failures if step.creates else record.unsuccessful
            return UnitState.RETRYABLE if spent < attempt_limit(step) else UnitState.FAILED


def attempt_limit(step: SealedStep) -> float:
    """Return how many attempts the unit may have. Attempts that never ran count only for stop units."""
    retry = step.unit.retry
    if step.event is LifecycleEvent.POST_STOP:
        return float("inf")
    if step.event is LifecycleEvent.PRE_STOP:
        return PRE_STOP_TRIES
    if not retry.idempotent:
        return 1
    return retry.limit or float("inf")


def retry_at(step: SealedStep, record: UnitRecord, now: int) -> int:
    """Return the time from which the next attempt may be claimed."""
    return latest_end(record, now) + backoff(step.unit.retry.backoff_ms, record.unsuccessful, BACKOFF_MAX_MS)


def fork_retry_at(record: UnitRecord, now: int) -> int:
    """Return when a fork may start again. The back-off grows with each attempt since the last long run."""
    count = 1 if ran_long(record) else record.unsuccessful
    return latest_end(record, now) + backoff(FORK_BACKOFF_MS, count, FORK_BACKOFF_MAX_MS)


def ran_long(record: UnitRecord) -> bool:
    """Return whether the last attempt of a fork ran for `FORK_BACKOFF_MAX_MS`, so that its back-off starts again."""
    return record.started_at > 0 and record.ended_at - record.started_at >= FORK_BACKOFF_MAX_MS


def latest_end(record: UnitRecord, now: int) -> int:
    """Return the latest time by our clock at which the last attempt ended; 0 if that cannot be determined.

    The end has a timestamp of the machine where the attempt ran, whose clock may be ahead. The claim has our own
    timestamp. If even the claim is in the future, our clock was set back, and retries must not wait for it to catch up.
    """
    if record.ended_at <= now:
        return record.ended_at
    claimed = min(record.claimed_at, record.ended_at)
    return claimed if claimed <= now + MAX_CLOCK_SKEW_MS else 0


def backoff(first_ms: int, times: int, most_ms: int) -> int:
    """Return the back-off, which doubles with each attempt up to `most_ms`."""
    return min(first_ms << min(max(times - 1, 0), most_ms.bit_length()), max(most_ms, first_ms))
