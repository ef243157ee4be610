"""The times at which the bytes of a log were printed. They are stored beside the log, because the log has no times.

An entry is an offset in the log and a time: the bytes from that offset to the next entry were printed then. Offsets
increase from entry to entry, and times never decrease. The time of bytes before the first entry is unknown; a log that
an older release wrote has no entries. The time of a line is that of its first byte.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

TimeEntry = tuple[int, int]
"""An offset in bytes, and the time of the bytes from there on in Unix milliseconds."""

# Output within this time shares one entry. The runner has the same constant, `LOG_TIMES_STEP_MS`.
STEP_MS = 10
# The last millisecond that RFC 3339 can represent.
LAST_MS = 253_402_300_799_999
# The number of bytes in which `first_line_since` searches for the end of a line, and the bytes of each read.
_LINE_LIMIT = 1 << 20
_PIECE = 64 * 1024
# The maximum number of entries that `entries_between` returns.
_MAX_ENTRIES = 8_192


def entries_between(entries: Sequence[TimeEntry], begin: int, end: int) -> tuple[TimeEntry, ...]:
    """Return the valid entries for the bytes from `begin` to `end`, in order.

    The processes of the step can write to the file of entries, so invalid entries are left out. If there are too many,
    they are thinned out evenly.
    """
    first = max(bisect_right(entries, begin, key=itemgetter(0)) - 1, 0)
    last = bisect_left(entries, end, lo=first, key=itemgetter(0))
    stride = (last - first) // _MAX_ENTRIES + 1
    found: list[TimeEntry] = []
    for number in range(first, last, stride):
        at, ms = entries[number]
        rises = not found or (at > found[-1][0] and ms >= found[-1][1])
        if rises and 0 <= at < end and 0 < ms <= LAST_MS:
            found.append((at, ms))
    return tuple(found)


def time_at(entries: Sequence[TimeEntry], byte: int) -> int:
    """Return the time at which the byte with this offset was printed; 0 if it is unknown."""
    number = bisect_right(entries, byte, key=itemgetter(0))
    return entries[number - 1][1] if number else 0


def first_line_since(entries: Sequence[TimeEntry], ms: int, size: int, read: Callable[[int, int], bytes]) -> int:
    """Return the offset of the first line that was printed at `ms` or later; `size` if there is none yet.

    If no entry is older than `ms`, return 0, so that bytes without a known time are included. If the line before has no
    end within 1 MiB, return an offset inside of it.

    Args:
        entries: All entries of the log.
        ms: The time in Unix milliseconds.
        size: The size of the log.
        read: Called with an offset and a maximum number of bytes; returns bytes of the log.
    """
    number = bisect_left(entries, ms, key=itemgetter(1))
    if number == 0:
        return 0
    if number == len(entries):
        return size
    at = begin = entries[number][0]
    if read(at - 1, 1) == b"\n":
        return at
    while at - begin < _LINE_LIMIT and (piece := read(at, _PIECE)):
        if (end := piece.find(b"\n")) >= 0:
            return at + end + 1
        at += len(piece)
    return begin if at - begin >= _LINE_LIMIT else size


def thin_out(entries: list[TimeEntry], max_entries: int) -> list[TimeEntry]:
    """Return at most `max_entries` entries. The entries that follow the one before most closely are dropped first."""
    apart = STEP_MS
    while len(entries) > max_entries:
        apart *= 2
        kept = entries[:1]
        for entry in entries[1:]:
            if entry[1] >= kept[-1][1] + apart:
                kept.append(entry)
        entries = kept if len(kept) > 1 else entries[:: len(entries) // max_entries + 1]
    return entries


def flatten(entries: Iterable[TimeEntry]) -> tuple[int, ...]:
    """Return the entries as one sequence of numbers: offset, time, offset, time, and so on."""
    return tuple(number for entry in entries for number in entry)


def entries_from(numbers: Sequence[int]) -> tuple[TimeEntry, ...]:
    """Return the entries of a sequence from `flatten`; an empty tuple if the sequence is invalid."""
    found = tuple(zip(numbers[::2], numbers[1::2], strict=False))
    valid = all(at >= 0 and 0 < ms <= LAST_MS for at, ms in found)
    rises = all(one[0] < next_[0] and one[1] <= next_[1] for one, next_ in pairwise(found))
    return found if valid and rises and len(numbers) % 2 == 0 else ()


class LineSplitter:
    """Joins consecutive pieces of a log and splits them into lines, each with its time (0: unknown)."""

    def __init__(self) -> None:
        # The beginning of an incomplete line, as a list: repeated concatenation of a long line would be slow.
        self._rest: list[bytes] = []
        self._ms = 0
        self._last: TimeEntry | None = None

    @property
    def has_partial_line(self) -> bool:
        """Return whether an incomplete line is held back."""
        return bool(self._rest)

    def feed(self, offset: int, data: bytes, entries: Sequence[TimeEntry] = ()) -> Iterator[tuple[int, bytes]]:
        """Yield the time and the bytes of each complete line, without line ends.

        Args:
            offset: The offset of the piece in the log.
            data: The piece. It follows the piece before.
            entries: The entries for the bytes of this piece.
        """
        known = [*([self._last] if self._last and (not entries or self._last[0] < entries[0][0]) else ()), *entries]
        at = 0
        while at < len(data):
            if not self._rest:
                self._ms = time_at(known, offset + at)
            end = data.find(b"\n", at)
            if end < 0:
                self._rest.append(data[at:])
                break
            yield self._ms, b"".join([*self._rest, data[at:end]])
            self._rest, at = [], end + 1
        self._last = known[-1] if known else None

    def flush(self) -> Iterator[tuple[int, bytes]]:
        """Yield the incomplete last line, if there is one."""
        if self._rest:
            yield self._ms, b"".join(self._rest)
            self._rest = []
