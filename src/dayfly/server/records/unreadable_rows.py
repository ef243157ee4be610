"""Rows that this version cannot read: a newer Dayfly wrote them during a rolling update, or they are corrupt.

Lists omit such rows, and each is logged once. An incomplete list is no reason to end a run or to change routing: code
that does so first checks that all rows could be read. A request for one such object fails, so it is not overwritten.
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
"""Exceptions of decoding a row."""

log = logging.getLogger(__name__)


class UnreadableError(RequestError):
    """A stored object that this version cannot read.

    Args:
        what: Kind and name of the object.
        fault: The reason, if a single object is meant.
    """

    def __init__(self, what: str, fault: Exception | None = None) -> None:
        text = f"{what} is stored in a form that this server does not know; a newer server may have written it"
        super().__init__(503, f"{text}. Nothing was changed")
        self._log_line = f"{text}: {fault}" if fault else text

    def log_once(self) -> None:
        """Log it, once in this process."""
        _log_once(self._log_line)


def read_readable(rows: Iterable[Row[Any]], decode: Callable[[Row[Any]], T]) -> tuple[list[T], bool]:
    """Return the records that can be read, and whether these are all. The other rows are logged once.

    Args:
        rows: Rows of a query.
        decode: Returns the record of a row, or raises `UnreadableError`.
    """
    found, is_complete = list[T](), True
    for row in rows:
        try:
            found.append(decode(row))
        except UnreadableError as fault:
            fault.log_once()
            is_complete = False
    return found, is_complete


@functools.lru_cache(maxsize=1024)
def _log_once(line: str) -> None:
    log.warning("%s", line)
