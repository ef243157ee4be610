"""What stood against the last try of making a unit's pod or fork. Memory only: after a restart it is tried, and said,
again. And how long one waits for what may pass by itself.
"""

from collections.abc import Awaitable, Iterable

from dayfly.kube import errors
from dayfly.lib.tasks import attempt_all
from dayfly.plan.world import AttemptKey, Fact, NeverRan, Objection
from dayfly.spec.run import Run

AGAIN_S = 5.0
# What keeps something that is there already from its form is tried again so often.
KEPT_AGAIN_S = 30.0
# So many turns over one run may fail in a row before it is said: what the server refuses hardly passes by itself, other
# trouble mostly does. With the queue's back-off these are half a second, and three to six.
HINDERED_AFTER, TROUBLED_AFTER = 3, 6


def hindrance(error: Exception) -> str:
    """Return the sentence for an error in a status. Only text from the API server is repeated."""
    if isinstance(error, errors.ApiError):
        return error.message
    return f"a bug in the operator, {type(error).__name__}; see its log"


def is_down(error: Exception) -> bool:
    """Whether the server answers nothing at the moment, or asks for a pause: then no other request helps."""
    unanswered = isinstance(error, errors.ApiError) and not isinstance(error, errors.Refused) and error.status == 0
    return unanswered or isinstance(error, errors.Throttled)


def patience(error: Exception) -> int:
    """So many turns in a row have to fail by it until it is said."""
    return HINDERED_AFTER if isinstance(error, errors.Refused) else TROUBLED_AFTER


async def all_done(parts: Iterable[Awaitable[object]]) -> None:
    """Do one after the other, whatever the server refuses of those before: rights may be taken back in one namespace.

    Raises:
        errors.Refused: the first refusal, once all were tried.
    """
    await attempt_all(parts, (errors.Refused,))


class Refusals:
    """Those of one run. An `Objection` may pass and is tried again; `NeverRan` is for good and uses the attempt up."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[AttemptKey, Objection | NeverRan] = {}

    def __bool__(self) -> bool:
        return bool(self._said)

    def put(self, key: AttemptKey, said: Objection | NeverRan) -> None:
        """Note what was said of one attempt."""
        self._said[key] = said

    def drop(self, key: AttemptKey) -> None:
        """It went well."""
        self._said.pop(key, None)

    def again_at(self) -> int:
        """When the next objected unit is to be tried again, in unix milliseconds; 0 if there is none."""
        return min((_again(each) for each in self._said.values() if isinstance(each, Objection)), default=0)

    def of(self, run: Run, now: int) -> tuple[dict[str, Objection], dict[AttemptKey, Fact]]:
        """What stands in the way of units at this moment, and attempts that will never be."""
        objections: dict[str, Objection] = {}
        facts: dict[AttemptKey, Fact] = {}
        for (name, attempt), said in list(self._said.items()):
            passed = isinstance(said, Objection) and not said.since <= now < _again(said)  # a clock may be set back
            if run.unit(name).attempt >= attempt or passed:
                del self._said[name, attempt]
            elif isinstance(said, NeverRan):
                facts[name, attempt] = said
            else:
                objections[name] = said
        return objections, facts


def kept_again(before: Objection | None, said: Objection) -> float:
    """Seconds until what is kept is looked at again, against which `said` stands now and `before` did the last time.

    What is new is said at once. A server may have other words for each try (a webhook that numbers them, a quota that
    counts), so that is not done again before its time, whatever they are.
    """
    waited = before is None or not before.since <= said.since < before.since + round(KEPT_AGAIN_S * 1000)
    return 0.0 if waited and (before is None or before.message != said.message) else KEPT_AGAIN_S


def _again(said: Objection) -> int:
    return said.since + round(AGAIN_S * 1000)
