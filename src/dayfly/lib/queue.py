"""A queue of keys: each waits at most once, is worked on by one worker at a time, and comes again later if asked to.

A key, never an event: whoever takes one looks at the world as it is now.
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

# So often in a row more urgent keys may go first: nobody is starved.
_PATIENCE = {Urgency.URGENT: 0, Urgency.NORMAL: 4, Urgency.BACKGROUND: 16}


# So many appointments are remembered for each that holds.
_OVERTAKEN = 4
# An owner who had work so lately has a share of the workers, and nobody's share is less than this part of them.
_LATELY_S, _LEAST = 10.0, 4


class QueueClosedError(Exception):
    """The queue was closed: the worker is to end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds between tries of one key, doubled each time and jittered by up to a half."""

    first: float = 0.2
    most: float = 300.0

    def longest(self, failures: int) -> float:
        """Return the seconds until the next try without jitter, after `failures` failures before the latest one."""
        return min(self.most, self.first * 2.0 ** min(failures, 60))

    def wait(self, failures: int, dice: random.Random) -> float:
        """Return the seconds until the next try, after `failures` failures before the latest one."""
        return self.longest(failures) * dice.uniform(0.5, 1.0)


class _UrgencyQueue(Generic[K]):
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

    def add(self, key: K) -> Hashable:
        """At the end of its owner's keys; where it is already, it stays. Whose it is."""
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
        """Take a key out if it is there."""
        if key in self._owners:
            owner = self._owners.pop(key)
            del self._keys[owner][key]
            if not self._keys[owner]:
                del self._keys[owner]

    def first(self, may: Callable[[Hashable], bool]) -> K | None:
        """The first key of the owner whose turn it is, of those who may have one; None if nobody may."""
        for owner, keys in self._keys.items():
            if may(owner):
                return next(iter(keys))
        return None

    def take(self, key: K) -> Hashable:
        """Take out a key that is there, and tell whose it is; the next turn is somebody else's, if others wait."""
        owner = self._owners[key]
        self._keys.move_to_end(owner)
        self.discard(key)
        return owner


class _Shares:
    """How many workers each owner may keep at work: all of them, unless others have asked for some lately.

    Turns alone do not make one owner bear with another: once a turn has begun, its requests stand in line with those of
    all that are under way, here and at the server.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._kept: collections.Counter[Hashable] = collections.Counter()
        self._asked: set[Hashable] = set()
        self._heard: collections.OrderedDict[Hashable, float] = collections.OrderedDict()

    def ask(self, owner: Hashable) -> None:
        """An owner has something to do."""
        if self._workers:
            self._asked.add(owner)

    def may(self, owner: Hashable) -> bool:
        """Whether one worker more may work for it."""
        if not self._workers:
            return True
        now = asyncio.get_running_loop().time()
        while self._asked:
            self._hear(self._asked.pop(), now)
        while self._heard and next(iter(self._heard.values())) < now - _LATELY_S:
            self._heard.popitem(last=False)
        least = -(-self._workers // _LEAST)
        return self._kept[owner] < max(least, -(-self._workers // max(len(self._heard), 1)))

    def keep(self, owner: Hashable) -> None:
        """A worker has begun to work for it."""
        if self._workers:
            self._kept[owner] += 1

    def release(self, owner: Hashable) -> None:
        """One has ended."""
        if self._workers:
            self._hear(owner, asyncio.get_running_loop().time())
            self._kept[owner] -= 1
            if not self._kept[owner]:
                del self._kept[owner]

    def _hear(self, owner: Hashable, now: float) -> None:
        self._heard[owner] = now
        self._heard.move_to_end(owner)


def _nobody(_: object) -> None:
    return None


def _task() -> asyncio.Task[object] | None:
    """Who asks: None for a timer or a callback."""
    try:
        return asyncio.current_task()
    except RuntimeError:
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
        workers: int = 0,
        seed: int | None = None,
    ) -> None:
        """An empty queue; `pace` bounds how many retries a second all keys together have, `owner` says whose one is.

        Where `workers` says how many there are, owners share them: several at once have a part of them each.
        """
        self._backoff = backoff or Backoff()
        self._pace = pace or Pace(rate=100.0, burst=1000)
        self._random = random.Random(seed)  # noqa: S311 - jitter, no secret
        self._lines: dict[Urgency, _UrgencyQueue[K]] = {urgency: _UrgencyQueue(owner) for urgency in Urgency}
        self._others = {urgency: self._apart_from(urgency) for urgency in Urgency}
        self._shares = _Shares(workers)
        self._working: dict[K, Hashable] = {}
        self._again: dict[K, Urgency] = {}
        # Whoever works on a key, and what they have asked for it themselves.
        self._tasks: dict[K, asyncio.Task[object] | None] = {}
        self._own: dict[K, Urgency] = {}
        self._failures: collections.Counter[K] = collections.Counter()
        self._later: list[tuple[float, int, K, Urgency]] = []
        self._due: dict[K, tuple[float, int]] = {}
        self._order = 0
        self._passed_by: collections.Counter[Urgency] = collections.Counter()
        self._workers: collections.deque[asyncio.Future[None]] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._paced: set[asyncio.Task[None]] = set()
        self._closed = self._paused = False

    def __len__(self) -> int:
        """Keys that wait for a worker now."""
        return sum(map(len, self._lines.values()))

    def add(self, key: K, *, urgency: Urgency = Urgency.NORMAL, after: float = 0.0) -> None:
        """Have a key worked on, at once or in `after` seconds; of two appointments the earlier holds."""
        if self._closed or self._paused:
            return
        if after > 0:
            self._appoint(key, urgency, asyncio.get_running_loop().time() + after)
        elif key in self._working:
            asked = self._own if _task() is self._tasks[key] else self._again
            asked[key] = min(urgency, asked.get(key, urgency))
        else:
            self._line_up(key, urgency)

    async def take(self) -> K:
        """The next key; give it back with `done`.

        Raises:
            QueueClosedError: there will be no more.
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
                self._wake()  # the key we were woken for is another worker's
                raise
        raise QueueClosedError

    def is_working_on(self, key: K) -> bool:
        """Whether a worker has taken it and not given it back."""
        return key in self._working

    def done(self, key: K) -> None:
        """The work on a taken key has ended; if it was added meanwhile, it waits again."""
        self._shares.release(self._working.pop(key))
        del self._tasks[key]
        for asked in (self._own, self._again):
            if key in asked:
                self._line_up(key, asked.pop(key))
        self._wake()

    def retry(self, key: K, *, urgency: Urgency = Urgency.NORMAL) -> float:
        """Have a key tried again after its own back-off; the seconds until then. Ends with `forget`.

        Whoever worked on it may have asked for it to be looked at again at once, before that failed: now it waits. What
        others ask meanwhile is news, and does not.
        """
        if _task() is self._tasks.get(key, self):
            self._own.pop(key, None)
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
        """How often in a row it was to be tried again."""
        return self._failures[key]

    def forget(self, key: K) -> None:
        """It went well: the next failure starts the back-off afresh."""
        del self._failures[key]

    def pause(self) -> set[K]:
        """Drop all keys, appointments and failures, and ignore new keys until `resume`. Return the dropped keys.

        A queue without workers would only grow. No worker may have a key at this moment. After `resume` the caller adds
        every key that may need work.
        """
        self._paused = True
        dropped = {*self._again, *self._own, *self._failures, *self._due}
        dropped.update(*(line.keys() for line in self._lines.values()))
        for line in self._lines.values():
            line.clear()
        self._again.clear()
        self._own.clear()
        self._failures.clear()
        self._passed_by.clear()
        self._later.clear()
        self._due.clear()
        self._cancel_timers()
        return dropped

    @property
    def paused(self) -> bool:
        """Whether new keys are ignored."""
        return self._paused

    def resume(self) -> None:
        """Accept keys again."""
        self._paused = False

    def close(self) -> None:
        """Let all workers end; what waits is dropped."""
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

    def _line_up(self, key: K, urgency: Urgency) -> None:
        self._due.pop(key, None)
        more, less = self._others[urgency]
        for line in more:
            if key in line:
                return
        for line in less:
            line.discard(key)
        self._shares.ask(self._lines[urgency].add(key))
        self._wake()

    def _apart_from(self, urgency: Urgency) -> tuple[list[_UrgencyQueue[K]], list[_UrgencyQueue[K]]]:
        """The lines of more urgent keys, and those of less urgent ones."""
        more = [line for each, line in self._lines.items() if each < urgency]
        return more, [line for each, line in self._lines.items() if each > urgency]

    def _choose(self) -> tuple[Urgency, K] | None:
        """The next key, and where it waits; None if there is none, or whose they are have all their workers."""
        chosen = None
        for urgency, line in self._lines.items():
            if line and (key := line.first(self._shares.may)) is not None:
                if chosen is None:
                    chosen = urgency, key
                elif self._passed_by[urgency] >= _PATIENCE[urgency]:
                    return urgency, key
        return chosen

    def _take(self, chosen: Urgency, key: K) -> K:
        self._passed_by[chosen] = 0
        for urgency, line in self._lines.items():
            if line and urgency > chosen:
                self._passed_by[urgency] += 1
        owner = self._working[key] = self._lines[chosen].take(key)
        self._tasks[key] = _task()
        self._shares.keep(owner)
        return key

    def _wake(self) -> None:
        """Have one worker look whether there is something to do."""
        while self._workers and any(self._lines.values()):
            turn = self._workers.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _appoint(self, key: K, urgency: Urgency, at: float) -> None:
        if key in self._due and self._due[key][0] <= at:
            return
        self._order += 1
        self._due[key] = (at, self._order)
        heapq.heappush(self._later, (at, self._order, key, urgency))
        if len(self._later) > _OVERTAKEN * (len(self._due) + _OVERTAKEN):
            # Most are overtaken, some by hours: they need not be kept until then.
            self._later = [each for each in self._later if self._due.get(each[2]) == each[:2]]
            heapq.heapify(self._later)
        if self._later[0][1] == self._order:
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
