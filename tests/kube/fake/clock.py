"""An event loop with virtual time: if all tasks wait, the clock jumps to the next event."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class DeadlockError(Exception):
    """Every task waits, and no event can wake them."""


class _Jump(selectors.BaseSelector):
    """A selector that never waits, but adds the time to the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._real = selectors.DefaultSelector()
        self._loop = loop

    def select(self, timeout=None):
        ready = self._real.select(0)
        if not ready:
            if timeout is None:
                raise DeadlockError("no timer is due and no event can wake a task")
            self._loop.now += timeout
        return ready

    def register(self, fileobj, events, data=None):
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj):
        return self._real.unregister(fileobj)

    def modify(self, fileobj, events, data=None):
        return self._real.modify(fileobj, events, data)

    def close(self):
        self._real.close()

    def get_map(self):
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """For coroutines without sockets, threads and processes; `now` is in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time that begins at 0."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def rest(seconds: float) -> None:
    """Let virtual time pass, in which other tasks run."""
    assert isinstance(asyncio.get_running_loop(), VirtualLoop), "only for virtual time"
    await asyncio.sleep(seconds)
