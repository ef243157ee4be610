"""Who listens to changes: so many at once in all, of which nobody can take all from everybody else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class Listeners:
    """The places that there are: an organisation may have half of those that the others leave, and each of its keys
    half of what its other keys leave of these. So none ever has all.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_key: Counter[tuple[str, str]] = Counter()
        self._of_org: Counter[str] = Counter()

    def take(self, org: str, key: str) -> ListenerSlot | None:
        """One more for that key; None if it has to wait for one of its own, or of its organisation, to go."""
        mine, ours = self._of_key[org, key], self._of_org[org]
        for_us = _half(self._most - (self._of_org.total() - ours))
        if mine >= _half(for_us - (ours - mine)):
            return None
        return ListenerSlot(self, org, key)

    def count(self, org: str, key: str, change: int) -> None:
        """So many more, or fewer. Who has none is forgotten."""
        self._of_key[org, key] += change
        self._of_org[org] += change
        # A counter keeps a name with none otherwise.
        self._of_key, self._of_org = +self._of_key, +self._of_org


class ListenerSlot:
    """One of them, from its beginning until it is left."""

    def __init__(self, listeners: Listeners, org: str, key: str) -> None:
        self._whose = listeners, org, key
        self._is_left = False
        listeners.count(org, key, 1)

    def leave(self) -> None:
        """It is free for the next one; again is nothing."""
        if not self._is_left:
            self._is_left = True
            listeners, org, key = self._whose
            listeners.count(org, key, -1)


class Listened(StreamingResponse):
    """An answer that holds a place, for as long as it is sent: it may be given up before its first piece."""

    place: ListenerSlot | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self.place is not None:
                self.place.leave()


def _half(places: int) -> int:
    return (places + 1) // 2
