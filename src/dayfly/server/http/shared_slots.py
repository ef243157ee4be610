"""A limited number of slots for waiting requests and streams, which organisations and keys share fairly."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

from dayfly.lib.http_server import max_connections
from dayfly.server.http.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

# Shares of this process's connections.
CALLERS_SHARE, AGENTS_SHARE = 1 / 2, 3 / 8


class SharedSlots:
    """The slots. No organisation and no key can occupy all of them.

    An organisation may have half of the slots that the other organisations leave, and each of its keys half of those
    that its other keys leave.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._by_key: Counter[tuple[str, str]] = Counter()
        self._by_org: Counter[str] = Counter()

    def acquire(self, org: str, key: str) -> Slot | None:
        """Occupy a slot; None if the key or its organisation already has its share."""
        of_key, of_org = self._by_key[org, key], self._by_org[org]
        share = _half(self._size - (self._by_org.total() - of_org))
        if of_key >= _half(share - (of_org - of_key)):
            return None
        return Slot(self, org, key)

    def adjust(self, org: str, key: str, change: int) -> None:
        """Add `change` to the occupied slots of a key."""
        self._by_key[org, key] += change
        self._by_org[org] += change
        # Unary plus removes entries of 0.
        self._by_key, self._by_org = +self._by_key, +self._by_org


class Slot:
    """An occupied slot."""

    def __init__(self, slots: SharedSlots, org: str, key: str) -> None:
        self._owner = slots, org, key
        self._is_released = False
        slots.adjust(org, key, 1)

    def release(self) -> None:
        """Release the slot. Further calls do nothing."""
        if not self._is_released:
            self._is_released = True
            slots, org, key = self._owner
            slots.adjust(org, key, -1)


class SlotResponse(StreamingResponse):
    """A streaming response that releases its slot at the end, even if it was cancelled before its first chunk."""

    slot: Slot | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self.slot is not None:
                self.slot.release()


class LongPollSlots:
    """Slots for a share of the connections, which organisations and keys share fairly (`SharedSlots`)."""

    def __init__(self, share: float) -> None:
        self._slots = SharedSlots(int(max_connections() * share))

    @contextlib.contextmanager
    def acquire(self, org: str, key: str, seconds: float) -> Iterator[None]:
        """Hold a slot while a request is answered. A request that does not wait needs none.

        Raises:
            RequestError: 503, if the key already has its share of the slots.
        """
        if seconds <= 0:
            yield
            return
        slot = self._slots.acquire(org, key)
        if slot is None:
            text = "your key has its share of the waiting requests: retry later, or omit `wait`"
            raise RequestError(503, text, {"Retry-After": "10"})
        try:
            yield
        finally:
            slot.release()


def _half(slots: int) -> int:
    return (slots + 1) // 2
