"""Wakes whoever waits for anything at all to happen in this process. What did, they find out by themselves."""

from __future__ import annotations

import asyncio
from typing import Any


class Bell:
    """One for each store. It is rung in its event loop alone, after what happened."""

    def __init__(self) -> None:
        self.rings = 0
        """So often it was rung. Who remembers this before they look for news misses nothing that comes meanwhile."""
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Something has happened."""
        self.rings += 1
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, since: int, seconds: float, closing: asyncio.Future[Any]) -> None:
        """Until it is rung again after its ring `since`, or `closing` is done, but at most so long."""
        if self.rings != since or closing.done():
            return
        rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(rung)
        try:
            await asyncio.wait({rung, closing}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.discard(rung)
