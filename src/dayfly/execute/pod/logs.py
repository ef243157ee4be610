"""A pod's log, piece by piece: the step's own lines, and the sealed document that the runner puts behind them. Pure.

See `runner/README.md`, "The log": a line that begins with one 0x1E is the runner's; one of the step's that begins so
has a second 0x1E in front. Where the kubelet was asked for times, each line has its time in front of all that.
"""

import base64
import binascii
import hashlib
from datetime import datetime
from typing import NamedTuple

from dayfly.execute import receipt
from dayfly.spec.frames import FrameError, decode
from dayfly.spec.log_times import STEP_MS, Entry, entries_between, thin_out

MARK = b"\x1e"
TAIL_LIMIT = 64 * 1024
# A line of the step may be as long as it likes; nobody keeps more than the tail of it.
_LINE_LIMIT = 1 << 20
# So many entries tell when the tail was printed: beyond that those that are nearest to each other become one.
MOST_TIMES = 512
# So much of a kubelet's time is alike in times less than 10 ms apart: `2026-01-02T03:04:05.67`.
_TO_10_MS = 22


class Printed(NamedTuple):
    """The end of what a step printed, how many bytes that was in all, and when the end was printed."""

    tail: bytes
    size: int
    times: tuple[Entry, ...] = ()


class Splitter:
    """Fed with pieces of a log in their order; `records` is the runner's sealed receipt once it was seen whole.

    `timed` says that the kubelet was asked for times. `times` are of the step's own bytes then, counted from the first.
    """

    def __init__(self, *, timed: bool = False) -> None:
        self.tail = bytearray()
        self.dropped = 0
        self.times: list[Entry] = []
        self._timed = timed
        self._now = self._noted = self._said = 0
        self._within = False
        self._stamped = b""
        self.records: list[tuple[str, bytes]] | None = None
        self.digest = ""
        self._rest = b""
        self._coded: list[bytes] = []

    @property
    def whole(self) -> bool:
        """Whether the receipt was seen to its end."""
        return self.records is not None

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._line(self._bare(line))
        if len(self._rest) > _LINE_LIMIT:
            self._say(self._bare(self._rest))
            self._rest, self._within = b"", True

    def end(self) -> None:
        """The log has ended: a line that has no end is the step's too."""
        rest = self._bare(self._rest) if self._rest else b""
        if not rest.startswith(MARK):
            self._say(rest)
        elif rest.startswith(MARK * 2):
            self._say(rest[1:])
        self._rest = b""

    def printed(self, total: int = 0) -> Printed:
        """Return the end of the log. Its times are counted from the tail's own first byte.

        `total` is how many bytes the step printed according to the runner, 0 if that is not known. A container runtime
        can lose part of a log. A log with the runner's receipt lacks its beginning then, one without it lacks its end.
        """
        size, lost = self.dropped + len(self.tail), b""
        if size < total and not self.whole:
            lost = _lost(total - size, starts_line=not self.tail or self.tail.endswith(b"\n"))
        tail = bytes(self.tail[max(len(self.tail) + len(lost) - TAIL_LIMIT, 0) :])
        begin = size - len(tail)
        told = entries_between(self.times, begin, size) if tail else ()
        return Printed(tail + lost, max(size, total), tuple((max(at - begin, 0), ms) for at, ms in told))

    def _bare(self, line: bytes) -> bytes:
        """The line without the time in front of it, which is noted."""
        inside, self._within = self._within, False
        if not self._timed or inside:
            return line
        stamp, _, rest = line.partition(b" ")
        # To read a time costs more than all else, and most lines come at once.
        if self._stamped and stamp.startswith(self._stamped):
            return rest
        ms = _unix_ms(stamp)
        if not ms:
            return line  # not of the step's: what the kubelet says of itself has none
        self._now, self._stamped = ms, stamp[:_TO_10_MS]
        return rest

    def _line(self, line: bytes) -> None:
        if not line.startswith(MARK):
            self._say(line + b"\n")
        elif line.startswith(MARK * 2):
            self._say(line[1:] + b"\n")
        elif line.startswith(MARK + b"="):
            self._coded.append(line[2:])
        elif line.startswith(MARK + b"dayfly-end "):
            self._seal(line.removeprefix(MARK + b"dayfly-end ").decode(errors="replace").strip())
        else:
            self._coded = []

    def _note(self) -> None:
        """What comes next was printed now. A clock that was set back stands still until it has caught up."""
        if self._now < self._noted + STEP_MS:
            return
        self._noted = self._now
        self.times.append((self._said, self._now))
        if len(self.times) > MOST_TIMES:
            self.times = thin_out(list(entries_between(self.times, self.dropped, self._said + 1)), MOST_TIMES // 2)

    def _say(self, text: bytes) -> None:
        if text and self._now:
            self._note()
        self._said += len(text)
        self.tail += text
        if len(self.tail) > TAIL_LIMIT:
            self.dropped += len(self.tail) - TAIL_LIMIT
            del self.tail[: len(self.tail) - TAIL_LIMIT]

    def _seal(self, digest: str) -> None:
        try:
            document = base64.b64decode(b"".join(self._coded), validate=True)
            if hashlib.sha256(document).hexdigest() == digest:
                self.records, self.digest = decode("dayfly-receipt", document), digest
        except (binascii.Error, FrameError):
            self.records = None

    def field(self, key: str) -> str:
        """A text record of the receipt; empty if there is none."""
        return next((value.decode(errors="replace") for name, value in self.records or () if name == key), "")

    def contents(self) -> dict[str, bytes]:
        """The outputs that the receipt carries."""
        return receipt.contents(self.records or ())


def _lost(count: int, *, starts_line: bool) -> bytes:
    """Return the line that marks a missing end of a log, as the runner marks a log that it cut."""
    note = f"[dayfly: this log is incomplete: the container runtime lost its last {count} bytes]\n"
    return (note if starts_line else f"\n{note}").encode()


def _unix_ms(stamp: bytes) -> int:
    """A kubelet's time; 0 for something else."""
    try:
        found = datetime.fromisoformat(stamp.decode("ascii"))
        return max(int(found.timestamp() * 1000), 0) if found.tzinfo else 0
    except (ValueError, OverflowError):
        return 0
