"""A queue of keys: each waits at most once, is worked on by one worker at a time, and comes again later if asked to.

A key, never an event: whoever takes one looks at the world as it is now.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import heapq
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from dayfly.work.pace import Pace, Urgency

K = TypeVar("K", bound=Hashable)

# So often in a row more urgent keys may go first: nobody is starved.
_PATIENCE = {Urgency.URGENT: 0, Urgency.NORMAL: 4, Urgency.BACKGROUND: 16}


class QueueClosedError(Exception):
    """The queue was closed: the worker is to end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds between tries of one key, doubled each time and jittered by up to a half."""

    first: float = 0.2
    most: float = 300.0


class _Line(Generic[K]):
    """Keys of one urgency: turns go round among the owners of keys, and each owner's keys keep their order."""

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

    def add(self, key: K) -> None:
        """At the end of its owner's keys; where it is already, it stays."""
        if key not in self._owners:
            owner = self._owners[key] = self._owner(key)
            self._keys.setdefault(owner, collections.OrderedDict())[key] = None

    def discard(self, key: K) -> None:
        """Take a key out if it is there."""
        if key in self._owners:
            owner = self._owners.pop(key)
            del self._keys[owner][key]
            if not self._keys[owner]:
                del self._keys[owner]

    def next(self) -> K:
        """The first key of the owner whose turn it is; the next turn is somebody else's, if others wait."""
        owner, keys = next(iter(self._keys.items()))
        key = next(iter(keys))
        self._keys.move_to_end(owner)
        self.discard(key)
        return key


def _nobody(_: object) -> None:
    return None


class WorkQueue(Generic[K]):
    """De-duplicating, serial for each key, fair, with urgencies.

    A key added while it is being worked on waits until that is done. First added is first served within an urgency and
    among the keys of one owner, whose turns go round; after four urgent keys in a row a normal one goes, after sixteen
    of either one of the background. `retry` is for failures, `add(after=...)` for appointments.
    """

    def __init__(
        self,
        backoff: Backoff | None = None,
        pace: Pace | None = None,
        *,
        owner: Callable[[K], Hashable] = _nobody,
        seed: int | None = None,
    ) -> None:
        """An empty queue; `pace` bounds how many retries a second all keys together have, `owner` says whose one is."""
        self._backoff = backoff or Backoff()
        self._pace = pace or Pace(rate=100.0, burst=1000)
        self._random = random.Random(seed)  # noqa: S311 - jitter, no secret
        self._lines: dict[Urgency, _Line[K]] = {urgency: _Line(owner) for urgency in Urgency}
        self._working: set[K] = set()
        self._again: dict[K, Urgency] = {}
        self._failures: collections.Counter[K] = collections.Counter()
        self._later: list[tuple[float, int, K, Urgency]] = []
        self._due: dict[K, tuple[float, int]] = {}
        self._order = 0
        self._passed_by: collections.Counter[Urgency] = collections.Counter()
        self._workers: collections.deque[asyncio.Future[None]] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._paced: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        """Keys that wait for a worker now."""
        return sum(map(len, self._lines.values()))

    def add(self, key: K, *, urgency: Urgency = Urgency.NORMAL, after: float = 0.0) -> None:
        """Have a key worked on, at once or in `after` seconds; of two appointments the earlier holds."""
        if self._closed:
            return
        if after > 0:
            self._appoint(key, urgency, asyncio.get_running_loop().time() + after)
        elif key in self._working:
            self._again[key] = min(urgency, self._again.get(key, urgency))
        else:
            self._line_up(key, urgency)

    async def take(self) -> K:
        """The next key; give it back with `done`.

        Raises:
            QueueClosedError: there will be no more.
        """
        while not self._closed and not any(self._lines.values()):
            turn = asyncio.get_running_loop().create_future()
            self._workers.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._workers:
                    self._workers.remove(turn)
                self._wake()  # the key we were woken for is another worker's
                raise
        if self._closed:
            raise QueueClosedError
        key = self._next()
        self._working.add(key)
        return key

    def is_working_on(self, key: K) -> bool:
        """Whether a worker has taken it and not given it back."""
        return key in self._working

    def done(self, key: K) -> None:
        """The work on a taken key has ended; if it was added meanwhile, it waits again."""
        self._working.remove(key)
        if key in self._again:
            self._line_up(key, self._again.pop(key))

    def retry(self, key: K, *, urgency: Urgency = Urgency.NORMAL) -> float:
        """Have a key tried again after its own back-off; the seconds until then. Ends with `forget`."""
        ceiling = min(self._backoff.most, self._backoff.first * 2.0 ** min(self._failures[key], 60))
        self._failures[key] += 1
        wait = ceiling * self._random.uniform(0.5, 1.0)
        task = asyncio.get_running_loop().create_task(self._retry_paced(key, urgency, wait))
        self._paced.add(task)
        task.add_done_callback(self._paced.discard)
        return wait

    def failures(self, key: K) -> int:
        """How often in a row it was to be tried again."""
        return self._failures[key]

    def forget(self, key: K) -> None:
        """It went well: the next failure starts the back-off afresh."""
        del self._failures[key]

    def close(self) -> None:
        """Let all workers end; what waits is dropped."""
        self._closed = True
        if self._timer:
            self._timer.cancel()
        for task in self._paced:
            task.cancel()
        for turn in self._workers:
            if not turn.done():
                turn.set_result(None)

    async def _retry_paced(self, key: K, urgency: Urgency, wait: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + wait
        await self._pace.take(urgency)
        self.add(key, urgency=urgency, after=due - loop.time())

    def _line_up(self, key: K, urgency: Urgency) -> None:
        self._due.pop(key, None)
        if any(key in line for each, line in self._lines.items() if each < urgency):
            return
        for each, line in self._lines.items():
            if each > urgency:
                line.discard(key)
        self._lines[urgency].add(key)
        self._wake()

    def _next(self) -> K:
        waiting = [urgency for urgency, line in self._lines.items() if line]
        overdue = (urgency for urgency in waiting[1:] if self._passed_by[urgency] >= _PATIENCE[urgency])
        chosen = next(overdue, waiting[0])
        self._passed_by[chosen] = 0
        self._passed_by.update(urgency for urgency in waiting if urgency > chosen)
        return self._lines[chosen].next()

    def _wake(self) -> None:
        if not self._workers:
            return
        free = len(self)
        while free and self._workers:
            turn = self._workers.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def _appoint(self, key: K, urgency: Urgency, at: float) -> None:
        if key in self._due and self._due[key][0] <= at:
            return
        self._order += 1
        self._due[key] = (at, self._order)
        heapq.heappush(self._later, (at, self._order, key, urgency))
        self._arm()

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._later and not self._closed:
            self._timer = asyncio.get_running_loop().call_at(self._later[0][0], self._ring)

    def _ring(self) -> None:
        """Those whose time has come; appointments that were overtaken are passed over."""
        now = asyncio.get_running_loop().time() + 1e-6
        while self._later and self._later[0][0] <= now:
            at, order, key, urgency = heapq.heappop(self._later)
            if self._due.get(key) == (at, order):
                del self._due[key]
                self.add(key, urgency=urgency)
        self._arm()


async def work(queue: WorkQueue[K], handle: Callable[[K], Awaitable[None]]) -> None:
    """One worker: take keys until the queue is closed. Whatever `handle` raises ends it, and its key waits again: what
    it was taken for is not done, and nobody else may know of it.
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
