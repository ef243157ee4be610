"""The CPU time of a coroutine, so that expensive rounds can be less frequent."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator


class CpuTimer:
    """Awaits a coroutine and counts the CPU seconds of its own steps, but not of other tasks between them."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.seconds = 0.0
        self._coroutine = coroutine

    async def done(self) -> None:
        """Await it, for use in a task."""
        await self

    def close(self) -> None:
        """Close it if it was never awaited: a task that is cancelled before its first step does not await it."""
        if inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CREATED:
            self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        steps, thrown = self._coroutine.__await__(), None
        while True:
            began = time.thread_time()
            try:
                waits_for = steps.throw(thrown) if thrown else next(steps)
            except StopIteration:
                return
            finally:
                self.seconds += time.thread_time() - began
            thrown = None
            try:
                yield waits_for
            except BaseException as fault:  # noqa: BLE001  -- passed on to the coroutine, cancellations above all
                thrown = fault
