"""A work queue of keys: each key waits at most once, is processed by one worker at a time, and can be delayed.

The queue has keys, not events: a worker reads the current state of the object.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import heapq
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from dayfly.lib.pace import Pace, Urgency

K = TypeVar("K", bound=Hashable)

# By urgency: after this many more urgent keys in a row, a waiting key of this urgency is next, so that none starves.
_MAX_OVERTAKES = {Urgency.URGENT: 0, Urgency.NORMAL: 4, Urgency.BACKGROUND: 16}
# The heap of appointments (keys to be queued at a time) may have this many times the valid ones before it is cleaned.
_HEAP_SLACK = 4
# Seconds for which an owner keeps a share of the workers after its last work.
_SHARE_LIFETIME_S = 10.0
# The smallest share is the number of workers divided by this.
_MIN_SHARE_DIVISOR = 4


class QueueClosedError(Exception):
    """The queue was closed, and the worker must end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds between retries of a key, doubled each time and jittered by up to a half."""

    first: float = 0.2
    maximum: float = 300.0

    def longest(self, failures: int) -> float:
        """Return the seconds until the next try without jitter; `failures` does not count the latest failure."""
        return min(self.maximum, self.first * 2.0 ** min(failures, 60))

    def wait(self, failures: int, dice: random.Random) -> float:
        """Return the seconds until the next try with jitter; `failures` does not count the latest failure."""
        return self.longest(failures) * dice.uniform(0.5, 1.0)


class _UrgencyQueue(Generic[K]):
    """The waiting keys of one urgency: owners take turns, and the keys of an owner are first in, first out."""

    def __init__(self, owner: Callable[[K], Hashable]) -> None:
        self._owner = owner
        self._owners: dict[K, Hashable] = {}
        self._keys: collections.OrderedDict[Hashable, collections.OrderedDict[K, None]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._owners)

    def __bool__(self) -> bool:
        return bool(self._owners)

    def __contains__(self, key: K) -> bool:
        return key in self._owners

    def add(self, key: K) -> Hashable:
        """Append a key to those of its owner, unless it waits already. Return the owner."""
        if key not in self._owners:
            owner = self._owners[key] = self._owner(key)
            self._keys.setdefault(owner, collections.OrderedDict())[key] = None
        return self._owners[key]

    def keys(self) -> Iterable[K]:
        """Return all keys, in no particular order."""
        return self._owners.keys()

    def clear(self) -> None:
        """Drop all keys."""
        self._owners.clear()
        self._keys.clear()

    def discard(self, key: K) -> None:
        """Remove a key if it waits."""
        if key in self._owners:
            owner = self._owners.pop(key)
            del self._keys[owner][key]
            if not self._keys[owner]:
                del self._keys[owner]

    def first(self, may: Callable[[Hashable], bool]) -> K | None:
        """Return the first key of the next owner that `may` accepts; None if there is none."""
        for owner, keys in self._keys.items():
            if may(owner):
                return next(iter(keys))
        return None

    def take(self, key: K) -> Hashable:
        """Remove a waiting key and return its owner, which is last in turn now."""
        owner = self._owners[key]
        self._keys.move_to_end(owner)
        self.discard(key)
        return owner


class _Shares:
    """Limits the workers of each owner: to equal shares of the owners with recent work, but at least a quarter of all.

    Taking turns is not enough. Once a worker has a key, its requests wait behind those of all other workers, in this
    process and at the API server.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._busy: collections.Counter[Hashable] = collections.Counter()
        self._requesting: set[Hashable] = set()
        self._last_work: collections.OrderedDict[Hashable, float] = collections.OrderedDict()

    def request(self, owner: Hashable) -> None:
        """Record that an owner has work."""
        if self._workers:
            self._requesting.add(owner)

    def may_work_for(self, owner: Hashable) -> bool:
        """Return whether one more worker may work for the owner."""
        if not self._workers:
            return True
        now = asyncio.get_running_loop().time()
        while self._requesting:
            self._record_work(self._requesting.pop(), now)
        while self._last_work and next(iter(self._last_work.values())) < now - _SHARE_LIFETIME_S:
            self._last_work.popitem(last=False)
        least = -(-self._workers // _MIN_SHARE_DIVISOR)
        return self._busy[owner] < max(least, -(-self._workers // max(len(self._last_work), 1)))

    def acquire(self, owner: Hashable) -> None:
        """Record that a worker has started to work for the owner."""
        if self._workers:
            self._busy[owner] += 1

    def release(self, owner: Hashable) -> None:
        """Record that a worker has finished."""
        if self._workers:
            self._record_work(owner, asyncio.get_running_loop().time())
            self._busy[owner] -= 1
            if not self._busy[owner]:
                del self._busy[owner]

    def _record_work(self, owner: Hashable, now: float) -> None:
        self._last_work[owner] = now
        self._last_work.move_to_end(owner)


def _single_owner(_: object) -> None:
    return None


def _current_task() -> asyncio.Task[object] | None:
    """Return the calling task; None for a timer or a callback."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class WorkQueue(Generic[K]):
    """A fair work queue with urgencies: without duplicates, and with one worker per key.

    A key that is added while a worker has it waits until the worker is done. Within an urgency, owners take turns, and
    the keys of an owner are first in, first out. After four more urgent keys in a row, a waiting normal key is
    next, and after sixteen a background key. `retry` is for failures. `add(after=...)` makes an appointment: the key is
    queued after that time.
    """

    def __init__(
        self,
        backoff: Backoff | None = None,
        pace: Pace | None = None,
        *,
        owner: Callable[[K], Hashable] = _single_owner,
        workers: int = 0,
        seed: int | None = None,
    ) -> None:
        """Create an empty queue.

        Args:
            backoff: The back-off of each key.
            pace: Limits the retries per second of all keys together.
            owner: Returns the owner of a key.
            workers: The number of workers, which limits those of each owner; 0 for no limit per owner.
            seed: The seed of the jitter, for tests.
        """
        self._backoff = backoff or Backoff()
        self._pace = pace or Pace(rate=100.0, burst=1000)
        self._random = random.Random(seed)  # noqa: S311 - jitter, no secret
        self._lines: dict[Urgency, _UrgencyQueue[K]] = {urgency: _UrgencyQueue(owner) for urgency in Urgency}
        self._others = {urgency: self._lines_around(urgency) for urgency in Urgency}
        self._shares = _Shares(workers)
        self._working: dict[K, Hashable] = {}
        self._other_requests: dict[K, Urgency] = {}
        # The task of the worker that has the key, and the requests for the key by that task itself.
        self._tasks: dict[K, asyncio.Task[object] | None] = {}
        self._own_requests: dict[K, Urgency] = {}
        self._failures: collections.Counter[K] = collections.Counter()
        self._later: list[tuple[float, int, K, Urgency]] = []
        self._due: dict[K, tuple[float, int]] = {}
        self._order = 0
        self._overtaken: collections.Counter[Urgency] = collections.Counter()
        self._workers: collections.deque[asyncio.Future[None]] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._paced: set[asyncio.Task[None]] = set()
        self._closed = self._paused = False

    def __len__(self) -> int:
        """Return the number of keys that wait for a worker."""
        return sum(map(len, self._lines.values()))

    def add(self, key: K, *, urgency: Urgency = Urgency.NORMAL, after: float = 0.0) -> None:
        """Queue a key, at once or in `after` seconds. The earlier of two appointments for a key is valid."""
        if self._closed or self._paused:
            return
        if after > 0:
            self._schedule(key, urgency, asyncio.get_running_loop().time() + after)
        elif key in self._working:
            requests = self._own_requests if _current_task() is self._tasks[key] else self._other_requests
            requests[key] = min(urgency, requests.get(key, urgency))
        else:
            self._enqueue(key, urgency)

    async def take(self) -> K:
        """Wait for the next key. The worker must return it with `done`.

        Raises:
            QueueClosedError: the queue is closed.
        """
        while not self._closed:
            if (chosen := self._choose()) is not None:
                return self._take(*chosen)
            turn = asyncio.get_running_loop().create_future()
            self._workers.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._workers:
                    self._workers.remove(turn)
                self._wake()  # another worker takes the key that this one was woken for
                raise
        raise QueueClosedError

    def is_working_on(self, key: K) -> bool:
        """Return whether a worker has the key."""
        return key in self._working

    def done(self, key: K) -> None:
        """Return a taken key to the queue. If it was added since, it waits for a worker again."""
        self._shares.release(self._working.pop(key))
        del self._tasks[key]
        for requests in (self._own_requests, self._other_requests):
            if key in requests:
                self._enqueue(key, requests.pop(key))
        self._wake()

    def retry(self, key: K, *, urgency: Urgency = Urgency.NORMAL) -> float:
        """Queue the key again after its back-off; return the seconds until then. `forget` resets the back-off.

        If the worker that failed has added the key too, that request is dropped, so that it does not shorten the
        back-off. Requests by others stay, because they report changes.
        """
        if _current_task() is self._tasks.get(key, self):
            self._own_requests.pop(key, None)
        wait = self.backoff(self._failures[key])
        self._failures[key] += 1
        task = asyncio.get_running_loop().create_task(self._retry_paced(key, urgency, wait))
        self._paced.add(task)
        task.add_done_callback(self._paced.discard)
        return wait

    def backoff(self, failures: int) -> float:
        """Return the seconds to wait after a failure; `failures` does not count this one.

        It is for a part of the work on a key that is retried separately: add the key again after this time.
        """
        return self._backoff.wait(failures, self._random)

    def failures(self, key: K) -> int:
        """Return the number of failures of the key in a row."""
        return self._failures[key]

    def forget(self, key: K) -> None:
        """Reset the back-off of a key after a success."""
        del self._failures[key]

    def pause(self) -> set[K]:
        """Drop all keys, appointments and failures, and ignore new keys until `resume`. Return the dropped keys.

        Without workers, the queue would only grow. Call it when no worker has a key. After `resume`, add every key that
        may need work.
        """
        self._paused = True
        dropped = {*self._other_requests, *self._own_requests, *self._failures, *self._due}
        dropped.update(*(line.keys() for line in self._lines.values()))
        for line in self._lines.values():
            line.clear()
        self._other_requests.clear()
        self._own_requests.clear()
        self._failures.clear()
        self._overtaken.clear()
        self._later.clear()
        self._due.clear()
        self._cancel_timers()
        return dropped

    @property
    def is_paused(self) -> bool:
        """Whether new keys are ignored."""
        return self._paused

    def resume(self) -> None:
        """Accept keys again."""
        self._paused = False

    def close(self) -> None:
        """Drop all waiting keys and let the workers end."""
        self._closed = True
        self._cancel_timers()
        for turn in self._workers:
            if not turn.done():
                turn.set_result(None)

    def _cancel_timers(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        for task in self._paced:
            task.cancel()

    async def _retry_paced(self, key: K, urgency: Urgency, wait: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + wait
        await self._pace.take(urgency)
        self.add(key, urgency=urgency, after=due - loop.time())

    def _enqueue(self, key: K, urgency: Urgency) -> None:
        self._due.pop(key, None)
        more, less = self._others[urgency]
        for line in more:
            if key in line:
                return
        for line in less:
            line.discard(key)
        self._shares.request(self._lines[urgency].add(key))
        self._wake()

    def _lines_around(self, urgency: Urgency) -> tuple[list[_UrgencyQueue[K]], list[_UrgencyQueue[K]]]:
        """Return the queues of more urgent keys, and those of less urgent keys."""
        more = [line for each, line in self._lines.items() if each < urgency]
        return more, [line for each, line in self._lines.items() if each > urgency]

    def _choose(self) -> tuple[Urgency, K] | None:
        """Return the next key and its urgency; None if no key waits, or all owners have their share of workers."""
        chosen = None
        for urgency, line in self._lines.items():
            if line and (key := line.first(self._shares.may_work_for)) is not None:
                if chosen is None:
                    chosen = urgency, key
                elif self._overtaken[urgency] >= _MAX_OVERTAKES[urgency]:
                    return urgency, key
        return chosen

    def _take(self, chosen: Urgency, key: K) -> K:
        self._overtaken[chosen] = 0
        for urgency, line in self._lines.items():
            if line and urgency > chosen:
                self._overtaken[urgency] += 1
        owner = self._working[key] = self._lines[chosen].take(key)
        self._tasks[key] = _current_task()
        self._shares.acquire(owner)
        return key

    def _wake(self) -> None:
        """Wake one worker if a key waits."""
        while self._workers and any(self._lines.values()):
            turn = self._workers.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _schedule(self, key: K, urgency: Urgency, at: float) -> None:
        if key in self._due and self._due[key][0] <= at:
            return
        self._order += 1
        self._due[key] = (at, self._order)
        heapq.heappush(self._later, (at, self._order, key, urgency))
        if len(self._later) > _HEAP_SLACK * (len(self._due) + _HEAP_SLACK):
            # Most entries are superseded by earlier appointments, and may be due only in hours, so they are removed.
            self._later = [each for each in self._later if self._due.get(each[2]) == each[:2]]
            heapq.heapify(self._later)
        if self._later[0][1] == self._order:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._later and not self._closed:
            self._timer = asyncio.get_running_loop().call_at(self._later[0][0], self._queue_due)

    def _queue_due(self) -> None:
        """Queue the keys whose appointment is due; skip superseded appointments."""
        now = asyncio.get_running_loop().time() + 1e-6
        while self._later and self._later[0][0] <= now:
            at, order, key, urgency = heapq.heappop(self._later)
            if self._due.get(key) == (at, order):
                del self._due[key]
                self.add(key, urgency=urgency)
        self._set_timer()


async def work(queue: WorkQueue[K], handle: Callable[[K], Awaitable[None]]) -> None:
    """Run one worker: take keys and `handle` them until the queue is closed.

    An exception of `handle` ends the worker. The key is queued again, because the work on it is not done.
    """
    while True:
        try:
            key = await queue.take()
        except QueueClosedError:
            return
        try:
            await handle(key)
        except BaseException:
            queue.add(key)
            raise
        finally:
            queue.done(key)
