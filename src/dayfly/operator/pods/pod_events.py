"""Reasons from Events why a pod does not start, if its status has none.

Kubelets report some causes only in Events: a missing Secret or volume, and an image that is being pulled. After a pod
has ended without a start, its Events still have the cause.
"""

import weakref
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from dayfly.execute.pod.read import format_time, parse_time
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import EVENTS, Event, Pod
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.world import NeverRan, Waiting
from dayfly.spec.run import Result

End = TypeVar("End", Result, NeverRan)

# Delay of the first query, since most pods start in that time, and interval of queries after an answer. Until there is
# one, the delay is also the interval. A message should be in the status within ten seconds.
FIRST_QUERY_MS, QUERY_INTERVAL_MS = 3_000, 5_000
# Additional delay of the first query if the pod has no status of its kubelet, which may be busy. It grows with the
# number of waiting pods, up to `BUSY_PODS` pods.
NO_STATUS_WAIT_MS, BUSY_PODS = 3_000, 20
# Minimum interval between all queries: for each one the API server scans all Events of the namespace.
MIN_INTERVAL_MS = 10
# With many waiting pods, an API server may answer each query slowly. Then pods queue, for at most the maximum. The
# pause after a query is its duration times this factor.
PAUSE_FACTOR, MAX_QUEUE_MS = 5, 60_000
# Reasons of the kubelet's Events about images, with their order within one second, the resolution of Event times.
_PULLING, _PULLED = str(Reason.PULLING), "Pulled"
_RANK_WITHIN_SECOND = {_PULLING: 1, "Failed": 2, _PULLED: 3}


class _PodMessage(NamedTuple):
    """The latest Event of a pod as reason and message, and whether the image is being pulled."""

    reason: str
    message: str
    is_pulling: bool


class EventQuery:
    """One waiting pod: when its Events are queried next, and the latest answer."""

    def __init__(self) -> None:
        self.next_query_at = 0
        self.is_queued = False
        """Whether the queue for a slow API server has set `next_query_at`."""
        self.answer: _PodMessage | None = None


class PodEvents:
    """Queries the Events of waiting pods whose status does not say why they wait."""

    def __init__(self, client: KubeClient, now: Callable[[], int]) -> None:
        self._client = client
        self._now = now
        self._waiting: weakref.WeakSet[EventQuery] = weakref.WeakSet()
        """The waiting pods. The references are weak, so a pod is dropped with the memory of its run."""
        self._interval = float(MIN_INTERVAL_MS)
        self._queue_end = 0
        """The earliest time for the query of the next pod in the queue: after the last query and its pause."""

    async def with_reason(
        self, pod: Pod, fact: Waiting, query: EventQuery, *, recallable: bool, is_urgent: bool = False
    ) -> Waiting:
        """Return the fact with the kubelet's message, if it has one. A refused query is ignored.

        `recallable`: a recall could prove that nothing of the pod has run.
        `is_urgent`: the answer decides what happens with the pod now, so do not wait before the first query.
        """
        if fact.message:
            return fact
        now = self._now()
        if query not in self._waiting:
            extra = NO_STATUS_WAIT_MS if fact.reason == Reason.STARTING else 0
            wait = FIRST_QUERY_MS + extra * min(len(self._waiting), BUSY_PODS) // BUSY_PODS
            # The kubelet's clock may be ahead of our clock.
            query.next_query_at, query.answer, query.is_queued = min(fact.since, now) + self._pause(wait), None, False
            self._waiting.add(query)
        is_urgent = is_urgent and query.answer is None and not pod.metadata.deletion_timestamp
        if is_urgent or (now >= query.next_query_at and not self._must_queue(query, now)):
            query.is_queued = False
            query.answer = await self._query(pod, fact.reason)
            query.next_query_at = now + self._pause(QUERY_INTERVAL_MS if query.answer else FIRST_QUERY_MS)
        answer = query.answer
        if answer is None:
            return fact
        is_recallable = answer.is_pulling and recallable
        return msgspec.structs.replace(fact, reason=answer.reason, message=answer.message, recallable=is_recallable)

    def seconds_until_query(self, query: EventQuery) -> float:
        """Return the seconds until the Events of a waiting pod are queried next."""
        return max(query.next_query_at - self._now(), 0) / 1000 + 0.001

    def forget(self, query: EventQuery) -> None:
        """Forget a pod that has started or is gone."""
        self._waiting.discard(query)

    async def add_cause(self, pod: Pod, end: End) -> End:
        """Return the result of a container that may not have started, with the latest warning about it."""
        warnings = [event for event in await self._events(pod) if event.type == "Warning" and not _is_redundant(event)]
        if not warnings:
            return end
        answer = messages.with_last_report(end.message, max(warnings, key=_occurrence).note)
        return msgspec.structs.replace(end, message=answer)

    def _must_queue(self, query: EventQuery, now: int) -> bool:
        """Return whether the pod has to queue first, because the API server is slow."""
        if query.is_queued or self._interval <= MIN_INTERVAL_MS:
            return False
        query_at = max(self._queue_end, now)
        if query_at > now + MAX_QUEUE_MS:
            query.next_query_at = now + MAX_QUEUE_MS  # most pods before it have started by then
            return True
        self._queue_end = query_at + round(self._interval)
        query.next_query_at, query.is_queued = query_at, query_at > now
        return query.is_queued

    def _pause(self, least: int) -> int:
        """Return the pause before the next query of a pod, which grows with the number of waiting pods."""
        return max(least, len(self._waiting) * MIN_INTERVAL_MS)

    async def _query(self, pod: Pod, reason: str) -> _PodMessage | None:
        known = [
            event for event in await self._events(pod) if event.type == "Warning" or event.reason in _RANK_WITHIN_SECOND
        ]
        latest = max(known, key=_occurrence, default=None)
        if latest is None or latest.reason == _PULLED:
            return None
        if latest.reason != _PULLING:
            return _PodMessage(latest.reason or reason, latest.note, is_pulling=False)
        image = latest.note.removeprefix("Pulling image ").strip('"')
        return _PodMessage(_PULLING, messages.pulling(image, format_time(_occurrence(latest)[0])), is_pulling=True)

    async def _events(self, pod: Pod) -> list[Event]:
        began = self._now()
        try:
            page = await self._client.page(
                EVENTS, pod.metadata.namespace, fields=f"regarding.uid={pod.metadata.uid}", limit=50
            )
        except (errors.Refused, errors.Throttled, errors.ServerError):
            return []
        finally:
            # Each further query halves the effect of a slow one.
            self._interval = max(self._interval / 2, PAUSE_FACTOR * (self._now() - began), MIN_INTERVAL_MS)
        return page.items


def _occurrence(event: Event) -> tuple[int, int]:
    """Return the time of the latest occurrence in unix milliseconds, and its order within that second."""
    series = event.series.last_observed_time if event.series else None
    at = parse_time(series or event.deprecated_last_timestamp or event.event_time)
    return at, _RANK_WITHIN_SECOND.get(event.reason, 0)


def _is_redundant(event: Event) -> bool:
    """Return whether the Event only repeats a reason of the status, as `Error: ErrImagePull` does."""
    return event.note.startswith("Error: ") and " " not in event.note.removeprefix("Error: ")
