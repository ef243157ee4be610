"""Slots for requests that wait for a change: each keeps a connection for up to half a minute."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dayfly.lib.http_server import most_connections
from dayfly.server.http.errors import RequestError
from dayfly.server.http.listener_slots import Listeners

if TYPE_CHECKING:
    from collections.abc import Iterator

# Shares of the connections that this process may have.
CALLERS_SHARE, AGENTS_SHARE = 1 / 2, 3 / 8


class LongPollSlots:
    """A limited number of waiting requests, which organisations and keys share fairly (`Listeners`)."""

    def __init__(self, share: float) -> None:
        self._listeners = Listeners(int(most_connections() * share))

    @contextlib.contextmanager
    def one(self, org: str, key: str, seconds: float) -> Iterator[None]:
        """Hold a slot while a request is answered. A request that does not wait needs none.

        Raises:
            ApiError: the key has its share of the slots already.
        """
        if seconds <= 0:
            yield
            return
        place = self._listeners.take(org, key)
        if place is None:
            text = "you wait for news as often as you may while others do: ask again later, or without `wait`"
            raise RequestError(503, text, {"Retry-After": "10"})
        try:
            yield
        finally:
            place.leave()
