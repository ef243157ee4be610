"""Rows that cannot be read: a newer Dayfly wrote them, as while servers are updated one by one, or a disk lost them.

They hold nobody else up: a list goes on without them, and it is said once which they are. But nothing is concluded from
such a list: who ends what has nobody left, or tells hosts what leads where, asks first whether it is whole. And whoever
asks for one by its name hears that it cannot be read, so that nobody writes over it.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dayfly.server.http.errors import RequestError
from dayfly.spec.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Row

T = TypeVar("T")

FAULTS = (msgspec.DecodeError, UnicodeError, RecursionError, SpecError)
"""What comes of reading one."""

log = logging.getLogger(__name__)


class UnreadableError(RequestError):
    """What is stored there is not understood here: `what` names it, and `fault` is why, where one is meant."""

    def __init__(self, what: str, fault: Exception | None = None) -> None:
        text = f"{what} is stored in a form that this server does not know, as a newer one may have written it"
        super().__init__(503, f"{text}; nothing was changed")
        self._said = f"{text}: {fault}" if fault else text

    def say(self) -> None:
        """In the log, once in this process."""
        _say(self._said)


def read(rows: Iterable[Row[Any]], record: Callable[[Row[Any]], T]) -> tuple[list[T], bool]:
    """The records of the rows that can be read, and whether those are all; of each other one it is said.

    `record` makes one, or raises `UnreadableError`.
    """
    found, whole = list[T](), True
    for row in rows:
        try:
            found.append(record(row))
        except UnreadableError as fault:
            fault.say()
            whole = False
    return found, whole


@functools.lru_cache(maxsize=1024)
def _say(said: str) -> None:
    log.warning("%s", said)
