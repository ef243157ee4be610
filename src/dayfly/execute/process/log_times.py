"""The file with the print times of a log. `runner/log_times.c` writes it; `runner/README.md` describes its format."""

import struct
import time
from collections.abc import Sequence
from typing import overload

from dayfly.spec.log_times import TimeEntry

_ENTRY = struct.Struct(">qq")


class LogTimes(Sequence[TimeEntry]):
    """The entries in the bytes of a file. The last one may be incomplete and is ignored."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data) // _ENTRY.size

    @overload
    def __getitem__(self, number: int) -> TimeEntry: ...
    @overload
    def __getitem__(self, number: slice) -> list[TimeEntry]: ...
    def __getitem__(self, number: int | slice) -> TimeEntry | list[TimeEntry]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        at, ms = _ENTRY.unpack_from(self._data, number % len(self) * _ENTRY.size)
        return at, ms


def entry_now(at: int) -> bytes:
    """Return an entry for output that starts at the offset `at` and is printed now."""
    return _ENTRY.pack(at, time.time_ns() // 1_000_000)
