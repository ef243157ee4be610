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

# The number of more urgent keys in a row that may overtake a waiting key, so that none starves.
_MAX_OVERTAKES = {Urgency.URGENT: 0, Urgency.NORMAL: 4, Urgency.BACKGROUND: 16}


# The ratio of overtaken to valid appointments above which the heap is cleaned.
_HEAP_SLACK = 4
# Seconds for which an owner keeps a share of the workers after its last work, and the divisor of the smallest share.
_SHARE_LIFETIME_S, _MIN_SHARE_DIVISOR = 10.0, 4


class QueueClosedError(Exception):
    """The queue was closed, and the worker must end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds between retries of a key, doubled each time and jittered by up to a half."""

    first: float = 0.2
    maximum: float = 300.0

    def longest(self, failures: int) -> float:
        """Return the seconds until the next try without jitter, after `failures` failures before the latest one."""
        return min(self.maximum, self.first * 2.0 ** min(failures, 60))

    def wait(self, failures: int, dice: random.Random) -> float:
        """Return the seconds until the next try, after `failures` failures before the latest one."""
        return self.longest(failures) * dice.uniform(0.5, 1.0)


class _UrgencyQueue(Generic[K]):
    """Keys of one urgency: owners take turns, and the keys of an owner keep their order."""

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
        """Append a key to those of its owner; no effect if it is there already. Return the owner."""
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
        """Remove a key if it is there."""
        if key in self._owners:
            owner = self._owners.pop(key)
            del self._keys[owner][key]
            if not self._keys[owner]:
                del self._keys[owner]

    def first(self, may: Callable[[Hashable], bool]) -> K | None:
        """Return the first key of the next owner for whom `may` is true; None if there is none."""
        for owner, keys in self._keys.items():
            if may(owner):
                return next(iter(keys))
        return None

    def take(self, key: K) -> Hashable:
        """Remove an existing key and return its owner; the next turn goes to another owner, if others wait."""
        owner = self._owners[key]
        self._keys.move_to_end(owner)
        self.discard(key)
        return owner


class _Shares:
    """The number of workers for each owner: all of them, unless other owners had work recently.

    Turns are not enough for fairness: the requests of a started key wait behind those of all other running keys, here
    and at the server.
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
        """Return whether another worker may work for the owner."""
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
    the keys of an owner are first in, first out. After four urgent keys in a row a normal one follows, and after
    sixteen others one of the background. `retry` is for failures, `add(after=...)` for appointments.
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
            workers: The number of workers, if concurrent owners should share them; 0 for no limit per owner.
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
        # The worker of each key, and what the worker itself has requested for the key.
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
        """Queue a key, at once or in `after` seconds; the earlier of two appointments is valid."""
        if self._closed or self._paused:
            return
        if after > 0:
            self._schedule(key, urgency, asyncio.get_running_loop().time() + after)
        elif key in self._working:
            asked = self._own_requests if _current_task() is self._tasks[key] else self._other_requests
            asked[key] = min(urgency, asked.get(key, urgency))
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
        """Return a taken key. If it was added since, it waits again."""
        self._shares.release(self._working.pop(key))
        del self._tasks[key]
        for asked in (self._own_requests, self._other_requests):
            if key in asked:
                self._enqueue(key, asked.pop(key))
        self._wake()

    def retry(self, key: K, *, urgency: Urgency = Urgency.NORMAL) -> float:
        """Queue the key again after its back-off; return the seconds until then. `forget` resets the back-off.

        A request for the key by its own failed worker is dropped: it must wait as well. Requests by others stay, as
        they report changes.
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
        """Return the seconds to wait after `failures` failures before the latest one.

        For parts of the work on a key that are retried separately: add the key again after this time.
        """
        return self._backoff.wait(failures, self._random)

    def failures(self, key: K) -> int:
        """Return the number of failures in a row."""
        return self._failures[key]

    def forget(self, key: K) -> None:
        """Reset the back-off of a key after a success."""
        del self._failures[key]

    def pause(self) -> set[K]:
        """Drop all keys, appointments and failures, and ignore new keys until `resume`. Return the dropped keys.

        A queue without workers would only grow. No worker may have a key at this moment. After `resume` the caller adds
        every key that may need work.
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
        """Return the lines of more urgent keys, and those of less urgent ones."""
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
            # Most entries are overtaken, some of them hours before they are due, so they are removed.
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
        """Queue the keys whose time has come; skip overtaken appointments."""
        now = asyncio.get_running_loop().time() + 1e-6
        while self._later and self._later[0][0] <= now:
            at, order, key, urgency = heapq.heappop(self._later)
            if self._due.get(key) == (at, order):
                del self._due[key]
                self.add(key, urgency=urgency)
        self._set_timer()


async def work(queue: WorkQueue[K], handle: Callable[[K], Awaitable[None]]) -> None:
    """Run one worker: take keys until the queue is closed.

    An exception of `handle` ends the worker. Its key is queued again, because its work is not done.
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
