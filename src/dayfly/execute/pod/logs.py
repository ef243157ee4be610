"""Splitting of a pod's log into the output of the step and the sealed receipt that the runner appends. Pure.

See `runner/README.md`, "The log": a line that begins with one 0x1E is from the runner. If a line of the step begins
with 0x1E, the runner adds a second one. If the request had `timestamps=true`, each line begins with its time.
"""

import base64
import binascii
import hashlib
from datetime import datetime
from typing import NamedTuple

from dayfly.execute import receipt
from dayfly.spec.frames import FrameError, decode
from dayfly.spec.log_times import STEP_MS, TimeEntry, entries_between, thin_out

MARK = b"\x1e"
TAIL_LIMIT = 64 * 1024
# A longer line is handled in parts, so that it needs no more memory.
_LINE_LIMIT = 1 << 20
# Number of recorded print times. If there are more, the closest ones are merged.
MAX_TIMES = 512
# Number of characters up to hundredths of a second: `2026-01-02T03:04:05.67`.
_STAMP_CHARS_10_MS = 22


class PrintedOutput(NamedTuple):
    """The end of a step's output, the size of the whole output in bytes, and the print times of the end."""

    tail: bytes
    size: int
    times: tuple[TimeEntry, ...] = ()


class LogSplitter:
    """Splits a log that it receives in pieces. `records` is the runner's sealed receipt after its last line.

    With `timed`, the log has timestamps, and `times` are those of the step's output, by offset from its first byte.
    """

    def __init__(self, *, timed: bool = False, limit: int = TAIL_LIMIT) -> None:
        """Keep at most the last `limit` bytes of the output."""
        self.tail = bytearray()
        self._limit = limit
        self.dropped = 0
        self.times: list[TimeEntry] = []
        self._timed = timed
        self._now = self._last_time = self._size = 0
        self._is_inside_line = False
        self._last_stamp = b""
        self.records: list[tuple[str, bytes]] | None = None
        self.digest = ""
        self._rest = b""
        self._coded: list[bytes] = []

    @property
    def is_complete(self) -> bool:
        """Return whether the log contains the complete receipt."""
        return self.records is not None

    def feed(self, piece: bytes) -> None:
        """Add the next piece of the log."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._line(self._strip_time(line))
        if len(self._rest) > _LINE_LIMIT:
            self._append(self._strip_time(self._rest))
            self._rest, self._is_inside_line = b"", True

    def end(self) -> None:
        """Handle the end of the log: the last line may have no newline."""
        rest = self._strip_time(self._rest) if self._rest else b""
        if not rest.startswith(MARK):
            self._append(rest)
        elif rest.startswith(MARK * 2):
            self._append(rest[1:])
        self._rest = b""

    def printed(self, total: int = 0) -> PrintedOutput:
        """Return the end of the output. Offsets of its times are from the first byte of the tail.

        `total` is the size of the output according to the runner, 0 if it is not known. A container runtime can lose a
        part of a log: the beginning if the log contains the receipt, otherwise the end.
        """
        size, lost = self.dropped + len(self.tail), b""
        if size < total and not self.is_complete:
            lost = _lost(total - size, starts_line=not self.tail or self.tail.endswith(b"\n"))
        tail = bytes(self.tail[max(len(self.tail) + len(lost) - self._limit, 0) :])
        begin = size - len(tail)
        times = entries_between(self.times, begin, size) if tail else ()
        return PrintedOutput(tail + lost, max(size, total), tuple((max(at - begin, 0), ms) for at, ms in times))

    def _strip_time(self, line: bytes) -> bytes:
        """Return the line without its timestamp, and store the time."""
        inside, self._is_inside_line = self._is_inside_line, False
        if not self._timed or inside:
            return line
        stamp, _, rest = line.partition(b" ")
        # Parsing a timestamp is expensive, and most lines are printed within 10 ms.
        if self._last_stamp and stamp.startswith(self._last_stamp):
            return rest
        ms = _unix_ms(stamp)
        if not ms:
            return line  # a message of the kubelet, which has no timestamp
        self._now, self._last_stamp = ms, stamp[:_STAMP_CHARS_10_MS]
        return rest

    def _line(self, line: bytes) -> None:
        if not line.startswith(MARK):
            self._append(line + b"\n")
        elif line.startswith(MARK * 2):
            self._append(line[1:] + b"\n")
        elif line.startswith(MARK + b"="):
            self._coded.append(line[2:])
        elif line.startswith(MARK + b"dayfly-end "):
            self._seal(line.removeprefix(MARK + b"dayfly-end ").decode(errors="replace").strip())
        else:
            self._coded = []

    def _record_time(self) -> None:
        """Record the time of the next output. Times never decrease, even if the clock is set back."""
        if self._now < self._last_time + STEP_MS:
            return
        self._last_time = self._now
        self.times.append((self._size, self._now))
        if len(self.times) > MAX_TIMES:
            self.times = thin_out(list(entries_between(self.times, self.dropped, self._size + 1)), MAX_TIMES // 2)

    def _append(self, text: bytes) -> None:
        if text and self._now:
            self._record_time()
        self._size += len(text)
        self.tail += text
        if len(self.tail) > self._limit:
            self.dropped += len(self.tail) - self._limit
            del self.tail[: len(self.tail) - self._limit]

    def _seal(self, digest: str) -> None:
        try:
            document = base64.b64decode(b"".join(self._coded), validate=True)
            if hashlib.sha256(document).hexdigest() == digest:
                self.records, self.digest = decode("dayfly-receipt", document), digest
        except (binascii.Error, FrameError):
            self.records = None

    def field(self, key: str) -> str:
        """Return a text record of the receipt; empty if there is none."""
        return next((value.decode(errors="replace") for name, value in self.records or () if name == key), "")

    def contents(self) -> dict[str, bytes]:
        """Return the outputs in the receipt."""
        return receipt.contents(self.records or ())


def _lost(count: int, *, starts_line: bool) -> bytes:
    """Return the line that marks a missing end of a log, as the runner marks a log that it cut."""
    note = f"[dayfly: this log is incomplete: the container runtime lost its last {count} bytes]\n"
    return (note if starts_line else f"\n{note}").encode()


def _unix_ms(stamp: bytes) -> int:
    """Parse the timestamp of a line; 0 if it is not a timestamp."""
    try:
        found = datetime.fromisoformat(stamp.decode("ascii"))
        return max(int(found.timestamp() * 1000), 0) if found.tzinfo else 0
    except (ValueError, OverflowError):
        return 0
