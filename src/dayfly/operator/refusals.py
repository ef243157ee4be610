"""Refused tries to create a unit's pod or fork, and how long errors are tolerated before they are reported.

They are not stored: after a restart, the operator tries and reports again.
"""

from collections.abc import Awaitable, Iterable

from dayfly.kube import errors
from dayfly.lib.tasks import attempt_all
from dayfly.plan.world import AttemptKey, Fact, NeverRan, UnitRefusal
from dayfly.spec.run import Run

RETRY_AFTER_S = 5.0
# Retry interval for changes of an existing object.
KEPT_RETRY_AFTER_S = 30.0
# Number of failed turns in a row over a run until an error is reported: a refusal of the API server rarely passes by
# itself, other errors usually do. With the queue's backoff these take half a second, and three to six seconds.
REPORT_REFUSAL_AFTER, REPORT_ERROR_AFTER = 3, 6


def error_message(error: Exception) -> str:
    """Return the error as a message for a status. Only messages of the API server are repeated."""
    if isinstance(error, errors.ApiError):
        return error.message
    return f"a bug in the operator, {type(error).__name__}; see its log"


def is_down(error: Exception) -> bool:
    """Return whether the API server is down or throttles us, so that other requests would fail as well."""
    unanswered = isinstance(error, errors.ApiError) and not isinstance(error, errors.Refused) and error.status == 0
    return unanswered or isinstance(error, errors.Throttled)


def failures_until_report(error: Exception) -> int:
    """Return the number of failed turns in a row after which the error is reported."""
    return REPORT_REFUSAL_AFTER if isinstance(error, errors.Refused) else REPORT_ERROR_AFTER


async def all_done(parts: Iterable[Awaitable[object]]) -> None:
    """Await one after the other, even if the API server refuses earlier ones: permissions differ between namespaces.

    Raises:
        errors.Refused: the first refusal, after all were tried.
    """
    await attempt_all(parts, (errors.Refused,))


class Refusals:
    """The refusals of one run.

    An `UnitRefusal` is temporary and retried; `NeverRan` is permanent and ends the attempt.
    """

    __slots__ = ("_refusals",)

    def __init__(self) -> None:
        self._refusals: dict[AttemptKey, UnitRefusal | NeverRan] = {}

    def __bool__(self) -> bool:
        return bool(self._refusals)

    def put(self, key: AttemptKey, refusal: UnitRefusal | NeverRan) -> None:
        """Store the refusal of an attempt."""
        self._refusals[key] = refusal

    def drop(self, key: AttemptKey) -> None:
        """Forget the refusal of an attempt that was accepted."""
        self._refusals.pop(key, None)

    def retry_at(self) -> int:
        """Return when the next refused unit is tried again, in unix milliseconds; 0 if there is none."""
        return min((_retry_at(each) for each in self._refusals.values() if isinstance(each, UnitRefusal)), default=0)

    def current(self, run: Run, now: int) -> tuple[dict[str, UnitRefusal], dict[AttemptKey, Fact]]:
        """Return the current objections against units, and the facts about attempts that never run."""
        objections: dict[str, UnitRefusal] = {}
        facts: dict[AttemptKey, Fact] = {}
        for (name, attempt), refusal in list(self._refusals.items()):
            passed = isinstance(refusal, UnitRefusal) and not refusal.since <= now < _retry_at(
                refusal
            )  # a clock may be set back
            if run.unit(name).attempt >= attempt or passed:
                del self._refusals[name, attempt]
            elif isinstance(refusal, NeverRan):
                facts[name, attempt] = refusal
            else:
                objections[name] = refusal
        return objections, facts


def seconds_until_kept_retry(before: UnitRefusal | None, refusal: UnitRefusal) -> float:
    """Return the seconds until a kept unit is tried again, given its objections at the previous try and now.

    A new objection is reported at once. The message may differ at each try (a webhook that numbers its answers, a quota
    with a count), so a different message does not make the next try earlier.
    """
    waited = before is None or not before.since <= refusal.since < before.since + round(KEPT_RETRY_AFTER_S * 1000)
    return 0.0 if waited and (before is None or before.message != refusal.message) else KEPT_RETRY_AFTER_S


def _retry_at(refusal: UnitRefusal) -> int:
    return refusal.since + round(RETRY_AFTER_S * 1000)
