"""One log on its way to the terminal: as it was printed, or line by line with a prefix, a time, or both."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from dayfly.cli import show
from dayfly.cli.port import NO_TIMES, When
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec import log_times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.cli.port import Host, Piece

_AGO = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
_NO_TIME = b"-"


def when(*, timestamps: bool, since: str | None, since_time: str | None) -> When:
    """What the options ask for.

    Raises:
        DayflyError: both ways to say since when, or a form that neither has.
    """
    import datetime as dt

    if since is not None and since_time is not None:
        raise DayflyError(Exit.USAGE, "--since and --since-time name two different times", "give one of them")
    if since is not None:
        parts = _AGO.fullmatch(since)
        seconds = (
            sum(int(part or 0) * size for part, size in zip(parts.groups(), (3600, 60, 1), strict=True)) if parts else 0
        )
        if not seconds:
            raise DayflyError(
                Exit.USAGE, f"{since!r} is not a length of time", "write e.g. --since 10m or --since 1h30m"
            )
        return When(timestamps, max(int(dt.datetime.now(dt.UTC).timestamp()) - seconds, 1) * 1000)
    if since_time is None:
        return When(timestamps)
    moment: dt.datetime | None = None
    with contextlib.suppress(ValueError, OverflowError):  # the latter of what is in the year 10000 by UTC
        written = dt.datetime.fromisoformat(since_time)
        moment = written.astimezone(dt.UTC) if written.tzinfo else None
    if moment is None or moment.timestamp() <= 0:
        message = f"{since_time!r} is not a time with its zone"
        raise DayflyError(Exit.USAGE, message, "write e.g. --since-time 2026-01-02T03:04:05Z")
    return When(timestamps, int(moment.timestamp() * 1000))


class Tail:
    """One attempt's log as far as it has been printed. With a prefix or times, whole lines only are printed."""

    def __init__(self, info: Any, when: When = NO_TIMES) -> None:
        self.unit: str = info["unit"]
        self.attempt: int = info["attempt"]
        self.offset = 0
        self._when = when
        self._lines = log_times.LineCutter()
        self._doubted = when == NO_TIMES

    @property
    def waits(self) -> bool:
        """Whether a line that has no end yet is held back."""
        return self._lines.waits

    def pour(self, host: Host, sandbox: str, prefix: str, info: Any) -> None:
        """Print what is new, each line behind the prefix; of a log that is sealed also a line that has no end.

        What has come since `info` was told waits for the next call, all but the rest of a piece: a step that prints
        faster than it is read would keep everybody here, also whoever does not follow it.
        """
        missing = bool(info["cut"]) and self.offset < abs(info["cut"])
        begin = max(self.offset, info["cut"])
        while begin < info["size"]:
            piece = host.read(sandbox, self.unit, self.attempt, begin, self._when)
            if not piece.data:
                break
            if missing and piece.offset == begin:
                show.talk(f"{self.unit}: {_cut(info, self.offset)}")
            missing = False
            self._doubt(piece)
            self.offset = begin = piece.offset + len(piece.data)
            self._write(piece, prefix)
        if info["sealed"]:
            self._put(self._lines.end(), prefix)

    def _write(self, piece: Piece, prefix: str) -> None:
        if prefix or self._when.shown:
            self._put(self._lines.feed(*piece), prefix)
        else:
            show.put(piece.data)

    def _put(self, lines: Iterable[tuple[int, bytes]], prefix: str) -> None:
        head = prefix.encode()
        if self._when.shown:
            timed = (head + (show.moment(ms).encode() if ms else _NO_TIME) + b" " + line for ms, line in lines)
            show.put(b"".join(line + b"\n" for line in timed))
        else:
            show.put(b"".join(head + line + b"\n" for _, line in lines))

    def _doubt(self, piece: Piece) -> None:
        """Say once of a log whose beginning has no time that it has none: none is made up."""
        if self._doubted or log_times.time_of(piece.times, piece.offset):
            return
        self._doubted = True
        so = "its lines begin with -" if self._when.shown else "all of that is shown"
        show.talk(f"{self.unit}: when attempt {self.attempt} began to print was not noted, so {so}")


def _cut(info: Any, heard: int) -> str:
    """What is said of a log whose beginning is not there, to somebody who has `heard` so many bytes of it."""
    if heard:
        return f"{info['cut'] - heard} bytes are missing here"
    if info["cut"] < 0:
        last = f"only the last {info['size']} bytes of attempt {info['attempt']} are kept"
        return f"{last}; how many there were is not known"
    there = info["size"] - info["cut"]
    return f"attempt {info['attempt']} printed {info['size']} bytes, of which the last {there} are kept"
