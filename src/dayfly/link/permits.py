"""The server's permission to start sandboxes, requested for many at once.

One request is under way at a time, and later callers share the next one. So an answer is never older than its request,
and hundreds of sandboxes that start together do not take a request each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dayfly.link.envelope import MAX_MESSAGES

# A server ignores UIDs beyond this limit.
BATCH_SIZE = MAX_MESSAGES


class _Request:
    def __init__(self) -> None:
        self.uids: set[str] = set()
        self.is_sent = False
        self.living: frozenset[str] | None = None


class StartPermits:
    """`request` returns which of some sandboxes may start; None if the server cannot be reached."""

    def __init__(self, request: Callable[[tuple[str, ...]], Awaitable[frozenset[str] | None]]) -> None:
        self._send = request
        self._next = _Request()
        self._turn = asyncio.Lock()

    async def may_start(self, uid: str) -> bool | None:
        """Return whether the sandbox may start; None if the server cannot be reached now."""
        if self._next.is_sent or len(self._next.uids) >= BATCH_SIZE:
            self._next = _Request()
        request = self._next
        request.uids.add(uid)
        async with self._turn:
            if not request.is_sent:
                request.is_sent = True
                request.living = await self._send(tuple(sorted(request.uids)))
        return None if request.living is None else uid in request.living
