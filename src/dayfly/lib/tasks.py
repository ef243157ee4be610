"""Helpers for asyncio tasks: wait for the first, cancel, run in the background, try all, and notify of changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_until_first(*awaitables: Awaitable[Any]) -> None:
    """Wait until one of them ends, and cancel the others. Raise the error of that one, if any."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(*tasks)
    for task in done:
        task.result()


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended. Their errors are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def background(work: Coroutine[Any, Any, T], name: str = "") -> AsyncIterator[asyncio.Task[T]]:
    """Run `work` while the block runs, then cancel it and wait until it has ended."""
    task = asyncio.create_task(work, name=name or None)
    try:
        yield task
    finally:
        await cancel_and_wait(task)


async def attempt_all(awaitables: Iterable[Awaitable[object]], errors: tuple[type[Exception], ...]) -> None:
    """Run one after the other. An error in `errors` does not prevent the next.

    Raises:
        Exception: the first of `errors`, after all were tried; any other error at once.
    """
    failed: Exception | None = None
    for each in awaitables:
        try:
            await each
        except errors as error:
            failed = failed or error
    if failed is not None:
        raise failed


class ChangeNotifier:
    """Wakes tasks of this process after a change. Call `notify` in the event loop, after the change."""

    def __init__(self) -> None:
        self.changes = 0
        """The number of notifications. A task that reads it before it searches for changes misses none."""
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake all waiting tasks."""
        self.changes += 1
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, since: int, seconds: float, closing: asyncio.Future[Any]) -> None:
        """Return after a change later than `since`, when `closing` is done, or after `seconds`."""
        if self.changes != since or closing.done():
            return
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        try:
            await asyncio.wait({changed, closing}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.discard(changed)
