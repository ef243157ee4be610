"""How much of this thread a piece of work took, for those who do it the less often the more it is."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator


class Worked:
    """Awaits something, and knows how many seconds of this thread its own steps took, whoever else had it between them.

    Whoever looks only at a clock before and after counts what all others do while this one waits.
    """

    def __init__(self, what: Coroutine[Any, Any, None]) -> None:
        self.seconds = 0.0
        self._what = what

    async def done(self) -> None:
        """Awaits it in a task."""
        await self

    def close(self) -> None:
        """Let it go if nobody has awaited it: a task that is cancelled before its first step never does."""
        if inspect.getcoroutinestate(self._what) == inspect.CORO_CREATED:
            self._what.close()

    def __await__(self) -> Generator[Any, Any, None]:
        steps, thrown = self._what.__await__(), None
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
            except BaseException as fault:  # noqa: BLE001  -- handed on to whom it is meant for, a cancellation above all
                thrown = fault
