"""The times of a log: each entry is the offset of a byte and the time at which it and the bytes after it were printed.

The log itself has no times. Entries are pairs of an offset and Unix milliseconds; both increase. The time of bytes
before the first entry is unknown: a log that an older release wrote has no entries. A line has the time of its first
byte.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Entry = tuple[int, int]
"""An offset in a log, and the time from there on in Unix milliseconds."""

# Output within this time has one entry (twin: `runner/times.h`).
STEP_MS = 10
# The last millisecond that RFC 3339 can represent.
LAST_MS = 253_402_300_799_999
# The time of the end of a longer line is not determined.
_LINE_LIMIT = 1 << 20
_PIECE = 64 * 1024
# The maximum number of entries for one piece of a log.
_MAX_ENTRIES = 8_192


def entries_between(entries: Sequence[Entry], begin: int, end: int) -> tuple[Entry, ...]:
    """Return the valid entries for the bytes from `begin` to `end`, in order.

    The step's own processes can write the file of entries, so invalid ones are left out.
    """
    first = max(bisect_right(entries, begin, key=itemgetter(0)) - 1, 0)
    last = bisect_left(entries, end, lo=first, key=itemgetter(0))
    stride = (last - first) // _MAX_ENTRIES + 1
    found: list[Entry] = []
    for number in range(first, last, stride):
        at, ms = entries[number]
        rises = not found or (at > found[-1][0] and ms >= found[-1][1])
        if rises and 0 <= at < end and 0 < ms <= LAST_MS:
            found.append((at, ms))
    return tuple(found)


def time_at(entries: Sequence[Entry], byte: int) -> int:
    """Return the time at which that byte was printed; 0 if it is not known."""
    number = bisect_right(entries, byte, key=itemgetter(0))
    return entries[number - 1][1] if number else 0


def first_line_since(entries: Sequence[Entry], ms: int, size: int, read: Callable[[int, int], bytes]) -> int:
    """Return the offset of the first line that was printed at that time or later; `size` if there is none yet.

    Bytes without a known time count as later. `read(offset, limit)` returns bytes of the log.
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


def thin_out(entries: list[Entry], most: int) -> list[Entry]:
    """Return at most `most` entries. Entries close to the one before are dropped first."""
    apart = STEP_MS
    while len(entries) > most:
        apart *= 2
        kept = entries[:1]
        for entry in entries[1:]:
            if entry[1] >= kept[-1][1] + apart:
                kept.append(entry)
        entries = kept if len(kept) > 1 else entries[:: len(entries) // most + 1]
    return entries


def flatten(entries: Iterable[Entry]) -> tuple[int, ...]:
    """Return the entries as one sequence of numbers: offset, time, offset, time."""
    return tuple(number for entry in entries for number in entry)


def entries_from(numbers: Sequence[int]) -> tuple[Entry, ...]:
    """Return the entries of such a sequence; none if it is invalid."""
    found = tuple(zip(numbers[::2], numbers[1::2], strict=False))
    fit = all(at >= 0 and 0 < ms <= LAST_MS for at, ms in found)
    rises = all(one[0] < next_[0] and one[1] <= next_[1] for one, next_ in pairwise(found))
    return found if fit and rises and len(numbers) % 2 == 0 else ()


class LineCutter:
    """A cutter of a log's pieces into lines, each with its time (0: not known)."""

    def __init__(self) -> None:
        # Kept as pieces: a line may be as long as its log.
        self._rest: list[bytes] = []
        self._ms = 0
        self._last: Entry | None = None

    @property
    def waits(self) -> bool:
        """Return whether there is a line without its end."""
        return bool(self._rest)

    def feed(self, offset: int, data: bytes, entries: Sequence[Entry] = ()) -> Iterator[tuple[int, bytes]]:
        """Return the complete lines without line ends. `entries` belong to this piece, which begins at `offset`."""
        told = [*([self._last] if self._last and (not entries or self._last[0] < entries[0][0]) else ()), *entries]
        at = 0
        while at < len(data):
            if not self._rest:
                self._ms = time_at(told, offset + at)
            end = data.find(b"\n", at)
            if end < 0:
                self._rest.append(data[at:])
                break
            yield self._ms, b"".join([*self._rest, data[at:end]])
            self._rest, at = [], end + 1
        self._last = told[-1] if told else None

    def end(self) -> Iterator[tuple[int, bytes]]:
        """Return the last line if it has no line end."""
        if self._rest:
            yield self._ms, b"".join(self._rest)
            self._rest = []
