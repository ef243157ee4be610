"""The CPU time of a coroutine, so that expensive rounds can be less frequent."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

from dayfly.server.db.store import StoreError

if TYPE_CHECKING:
    import logging
    from collections.abc import Coroutine, Generator


class CpuTimer:
    """Awaits a coroutine and counts the CPU seconds of its own steps, but not of other tasks between them."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.seconds = 0.0
        self._coroutine = coroutine

    async def wait(self) -> None:
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


async def run_round(work: Coroutine[Any, Any, None], what: str, log: logging.Logger) -> float:
    """Run one round of a background task; return its CPU seconds.

    A failure is logged and not raised, because it must not end the rounds after it.
    """
    timer = CpuTimer(work)
    try:
        await timer
    except StoreError as fault:
        log.warning("cannot use the store: %s", fault)
    except Exception:
        log.exception("%s failed", what)
    return timer.seconds
