"""The file beside a log that says when the log was printed (twin: `runner/times.c`; its form: `runner/README.md`)."""

import struct
import time
from collections.abc import Sequence
from typing import overload

from dayfly.spec.log_times import Entry

_ENTRY = struct.Struct(">qq")


class LogTimes(Sequence[Entry]):
    """The entries in the file's bytes, of which one at the end may be cut."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data) // _ENTRY.size

    @overload
    def __getitem__(self, number: int) -> Entry: ...
    @overload
    def __getitem__(self, number: slice) -> list[Entry]: ...
    def __getitem__(self, number: int | slice) -> Entry | list[Entry]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        at, ms = _ENTRY.unpack_from(self._data, number % len(self) * _ENTRY.size)
        return at, ms


def entry_now(at: int) -> bytes:
    """That what comes from there on is printed now."""
    return _ENTRY.pack(at, time.time_ns() // 1_000_000)
