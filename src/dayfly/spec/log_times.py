"""When a log was printed: entries, each of which says from which byte on which time holds, until the next one.

A log's own bytes hold no times. Entries are rows of pairs: a byte's place in the log, Unix milliseconds; both rise. Of
bytes before the first entry nobody knows when they were printed, and nothing is made up: a log that an older release
wrote has no entries at all. A line's time is that of its first byte.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Entry = tuple[int, int]
"""From this byte of a log on it was printed at this time, in Unix milliseconds."""

# What is printed within so many ms counts as printed at once (twin: `runner/times.h`).
STEP_MS = 10
# The last millisecond that has a name in RFC 3339.
LAST_MS = 253_402_300_799_999
# Nobody prints longer lines than that and wants to know when.
_LINE_LIMIT = 1 << 20
_PIECE = 64 * 1024
# So many entries tell of one piece of a log at most.
_MOST = 8_192


def within(entries: Sequence[Entry], begin: int, end: int) -> tuple[Entry, ...]:
    """Those that tell of the bytes from `begin` up to `end`, in order.

    A step's own processes can write where they lie: what is no entry is left out.
    """
    first = max(bisect_right(entries, begin, key=itemgetter(0)) - 1, 0)
    last = bisect_left(entries, end, lo=first, key=itemgetter(0))
    stride = (last - first) // _MOST + 1
    found: list[Entry] = []
    for number in range(first, last, stride):
        at, ms = entries[number]
        rises = not found or (at > found[-1][0] and ms >= found[-1][1])
        if rises and 0 <= at < end and 0 < ms <= LAST_MS:
            found.append((at, ms))
    return tuple(found)


def time_of(entries: Sequence[Entry], byte: int) -> int:
    """When that byte was printed; 0 if nobody knows."""
    number = bisect_right(entries, byte, key=itemgetter(0))
    return entries[number - 1][1] if number else 0


def since(entries: Sequence[Entry], ms: int, size: int, read: Callable[[int, int], bytes]) -> int:
    """Where the first line begins that was printed at that time or later; `size` if there is none yet.

    Of what nobody knows the time of, all counts as later. `read(offset, limit)` gives bytes of the log.
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


def spread(entries: list[Entry], most: int) -> list[Entry]:
    """No more than so many of them: those nearest to the one before go first."""
    apart = STEP_MS
    while len(entries) > most:
        apart *= 2
        kept = entries[:1]
        for entry in entries[1:]:
            if entry[1] >= kept[-1][1] + apart:
                kept.append(entry)
        entries = kept if len(kept) > 1 else entries[:: len(entries) // most + 1]
    return entries


def flat(entries: Iterable[Entry]) -> tuple[int, ...]:
    """As one row of numbers: place, time, place, time."""
    return tuple(number for entry in entries for number in entry)


def paired(numbers: Sequence[int]) -> tuple[Entry, ...]:
    """What `flat` made a row of; none if that is no such row."""
    found = tuple(zip(numbers[::2], numbers[1::2], strict=False))
    fit = all(at >= 0 and 0 < ms <= LAST_MS for at, ms in found)
    rises = all(one[0] < next_[0] and one[1] <= next_[1] for one, next_ in pairwise(found))
    return found if fit and rises and len(numbers) % 2 == 0 else ()


class LineCutter:
    """Cuts a log that comes in pieces into lines, each with its time (0: not known)."""

    def __init__(self) -> None:
        # In pieces as they came: a line may be as long as its log.
        self._rest: list[bytes] = []
        self._ms = 0
        self._last: Entry | None = None

    @property
    def waits(self) -> bool:
        """Whether the beginning of a line is there without its end."""
        return bool(self._rest)

    def feed(self, offset: int, data: bytes, entries: Sequence[Entry] = ()) -> Iterator[tuple[int, bytes]]:
        """Whole lines, without their ends. `entries` tell of this piece, which begins at `offset`."""
        told = [*([self._last] if self._last and (not entries or self._last[0] < entries[0][0]) else ()), *entries]
        at = 0
        while at < len(data):
            if not self._rest:
                self._ms = time_of(told, offset + at)
            end = data.find(b"\n", at)
            if end < 0:
                self._rest.append(data[at:])
                break
            yield self._ms, b"".join([*self._rest, data[at:end]])
            self._rest, at = [], end + 1
        self._last = told[-1] if told else None

    def end(self) -> Iterator[tuple[int, bytes]]:
        """Nothing more comes: a line that has no end is one."""
        if self._rest:
            yield self._ms, b"".join(self._rest)
            self._rest = []
