"""Whether sandboxes are to live, asked of the control plane for many at once.

One question is under way at a time. Whoever comes meanwhile is in the next one, so an answer is never older than the
asking; and of hundreds that begin together none waits for one request each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dayfly.link.envelope import MOST_MESSAGES

# A server passes over what is beyond.
MOST_AT_ONCE = MOST_MESSAGES


class _Question:
    def __init__(self) -> None:
        self.uids: set[str] = set()
        self.is_asked = False
        self.living: frozenset[str] | None = None


class Births:
    """`ask` asks of some which of them are to live; it answers None if nobody says."""

    def __init__(self, ask: Callable[[tuple[str, ...]], Awaitable[frozenset[str] | None]]) -> None:
        self._ask = ask
        self._next = _Question()
        self._turn = asyncio.Lock()

    async def may_begin(self, uid: str) -> bool | None:
        """Whether it is to live; None: nobody says so now."""
        if self._next.is_asked or len(self._next.uids) >= MOST_AT_ONCE:
            self._next = _Question()
        question = self._next
        question.uids.add(uid)
        async with self._turn:
            if not question.is_asked:
                question.is_asked = True
                question.living = await self._ask(tuple(sorted(question.uids)))
        return None if question.living is None else uid in question.living
