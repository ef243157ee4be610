"""Requests that the API server has refused: when each is retried, and what to report until then.

Each change of a run brings a turn, and each turn repeats the same requests. Without a backoff, a refused request would
be sent with every turn. Each request has a separate backoff, so the rest of the run does not wait for it. Backoffs are
not stored: after a restart, each request is tried at once.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from dayfly.kube import errors
from dayfly.kube.objects import HasMeta
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.refusals import error_message, failures_until_report, is_down

log = logging.getLogger(__name__)

RequestKey = tuple[str, str, int]
"""Kind of request and its object: an effect with its unit and attempt, or a deletion with a UID."""


Request = tuple[RequestKey, Callable[[], Awaitable[object]]]
"""A request and the function that sends it."""


class _Refused(msgspec.Struct, frozen=True):
    """The latest refusal of one request; times in unix milliseconds."""

    failures: int
    since: int
    due: int
    message: str
    report_after: int


class Retries:
    """The refused requests of one run."""

    __slots__ = ("_refused", "_wanted")

    def __init__(self) -> None:
        self._refused: dict[RequestKey, _Refused] = {}
        self._wanted: set[RequestKey] = set()
        """Requests that were wanted since the last `sweep`."""

    def __bool__(self) -> bool:
        return bool(self._refused)

    def failures(self, key: RequestKey) -> int:
        """Return how many tries in a row were refused."""
        found = self._refused.get(key)
        return found.failures if found is not None else 0

    def message(self, key: RequestKey) -> str:
        """Return the latest refusal of a request; empty if there is none."""
        found = self._refused.get(key)
        return found.message if found is not None else ""

    def wait(self, key: RequestKey, now: int) -> float:
        """Return the seconds until the request may be tried again; 0 if it may be tried `now`, in unix milliseconds."""
        found = self._refused.get(key)
        if found is None:
            return 0.0
        self._wanted.add(key)
        if not found.since <= now < found.due:  # a clock may be set back
            return 0.0
        return (found.due - now) / 1000 + 0.001  # one millisecond later, so that it is certainly due

    def refuse(self, key: RequestKey, error: errors.ApiError, now: int, wait: float) -> None:
        """Record a refusal at `now`: the request may be tried again `wait` seconds later."""
        count, due = self.failures(key) + 1, now + round(wait * 1000)
        self._wanted.add(key)
        self._refused[key] = _Refused(count, now, due, error_message(error), failures_until_report(error))

    def drop(self, key: RequestKey) -> None:
        """Forget a request that succeeded."""
        self._refused.pop(key, None)
        self._wanted.discard(key)

    def sweep(self) -> None:
        """Forget the requests that the turn did not want; called at its end."""
        if self._refused:
            self._refused = {key: found for key, found in self._refused.items() if key in self._wanted}
        self._wanted.clear()

    def reportable_refusal(self, besides: RequestKey | None = None) -> str:
        """Return the first refusal that has lasted long enough to be reported; empty if there is none.

        `besides` is the request that writes the report: if that succeeds, its own refusal is over.
        """
        found = ((key, each) for key, each in self._refused.items() if each.failures >= each.report_after)
        return next((each.message for key, each in found if key != besides), "")


def deletion(item: HasMeta) -> RequestKey:
    """Return the key for the deletion of an object."""
    return "Delete", item.metadata.uid, 0


def is_due(cluster: ClusterWatches, run: str, retries: Retries, key: RequestKey) -> bool:
    """Return whether a request may be sent now. Otherwise queue the run for the time when it may."""
    wait = retries.wait(key, cluster.now())
    if wait:
        cluster.queue.add(run, after=wait)
    return not wait


async def attempt(
    cluster: ClusterWatches, run: str, retries: Retries, key: RequestKey, send: Callable[[], Awaitable[object]]
) -> bool:
    """Send a request if it is due. Return whether it succeeded.

    Raises:
        errors.ApiError: the API server is down or throttles us, so other requests would fail as well.
    """
    if not is_due(cluster, run, retries, key):
        return False
    try:
        await send()
    except errors.ApiError as error:
        if is_down(error):
            raise
        log.warning("run %s: %s", run, error)
        now = cluster.now()
        retries.refuse(key, error, now, cluster.queue.backoff(retries.failures(key)))
        is_due(cluster, run, retries, key)
        return False
    retries.drop(key)
    return True


async def attempt_due(
    cluster: ClusterWatches,
    run: str,
    retries: Retries,
    requests: Iterable[Request],
    is_wanted: Callable[[], Awaitable[bool]],
) -> None:
    """Send the requests that are due. If there are any, `is_wanted` must confirm them first.

    Raises:
        errors.ApiError: the API server is down or throttles us, so other requests would fail as well.
    """
    due = [(key, send) for key, send in requests if is_due(cluster, run, retries, key)]
    if due and await is_wanted():
        for key, send in due:
            await attempt(cluster, run, retries, key, send)
