"""Notify tasks of this process that something has changed. What has changed, they find out by themselves."""

from __future__ import annotations

import asyncio
from typing import Any


class ChangeNotifier:
    """One for each store. `notify` is called in its event loop only, after the change."""

    def __init__(self) -> None:
        self.changes = 0
        """How often it was notified. A task that reads this before it searches for changes misses none."""
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
