"""Requests that wait for news: each holds a connection for up to half a minute, and nobody is to hold all of them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dayfly.control.errors import ApiError
from dayfly.control.listeners import Listeners
from dayfly.lib.http_server import most_connections

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of the connections that this process may have.
CALLERS_PART, AGENTS_PART = 1 / 2, 3 / 8


class Waits:
    """So many at once, of which each organisation and key has its share (`Listeners`)."""

    def __init__(self, part: float) -> None:
        self._listeners = Listeners(int(most_connections() * part))

    @contextlib.contextmanager
    def one(self, org: str, key: str, seconds: float) -> Iterator[None]:
        """One of them, for as long as it is answered. What does not wait needs no place.

        Raises:
            ApiError: there is none for that key while others wait.
        """
        if seconds <= 0:
            yield
            return
        place = self._listeners.take(org, key)
        if place is None:
            text = "you wait for news as often as you may while others do: ask again later, or without `wait`"
            raise ApiError(503, text, {"Retry-After": "10"})
        try:
            yield
        finally:
            place.leave()
