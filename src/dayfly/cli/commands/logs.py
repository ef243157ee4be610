"""`dayfly logs`: what steps and forks printed, while they run and afterwards."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.backends.protocol import NO_TIMES, When
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec import log_times
from dayfly.spec.report import expects_more

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.cli.backends.protocol import Backend, Piece

_POLL = 0.3
_AGO = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
_NO_TIME = b"-"


class LogSelection(NamedTuple):
    """Which units are meant: all, those of a resource (or a hook or fork of that name), or one step."""

    resource: str
    step: str

    def takes(self, unit: str) -> bool:
        """Whether a unit, by its name within the run, is meant."""
        from dayfly.spec.lifecycle import workload_of

        if not self.resource:
            return True
        if self.step:
            return unit == f"{self.resource}/{self.step}"
        if of := workload_of(unit):
            return self.resource in (unit, of.name)
        return unit == self.resource or unit.startswith(f"{self.resource}/")


@click.command("logs")
@options.named("sandbox", "subjects")
@options.named("resource", "resources", required=False, default="")
@options.named("step", "steps", required=False, default="")
@click.option("-f", "--follow", is_flag=True, help="Follow the log to its end.")
@click.option("--timestamps", is_flag=True, help="Start each line with the time at which it was printed.")
@click.option("--since", metavar="DURATION", help="Leave out lines older than this, such as 10m or 1h30m.")
@click.option("--since-time", metavar="TIME", help="Leave out lines printed before this time (RFC 3339).")
@click.option("--attempt", type=click.IntRange(min=1), help="Show this attempt, not the latest.")
@options.cluster
def command(
    sandbox: str,
    resource: str,
    step: str,
    *,
    follow: bool,
    timestamps: bool,
    since: str | None,
    since_time: str | None,
    attempt: int | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Show the logs of a sandbox's steps and forks, also after their end.

    RESOURCE may also be the name of a hook or of a forked workload. Where there are several logs, each line
    begins with the name of its unit.
    """
    when = _when(timestamps=timestamps, since=since, since_time=since_time)
    host = hosts.find(context, namespace)
    chosen = LogSelection(resource, step)
    report = host.report(sandbox)
    found = _attempts(host, sandbox, chosen, attempt, follow=follow)
    if not found:
        _say_why_nothing(host, sandbox, chosen, report, attempt, when)
    # Whether lines get a prefix depends on what was asked for, not on how far it has come.
    several = max(sum(chosen.takes(unit["id"]) for unit in report["units"]), len({info["unit"] for info in found})) > 1
    if follow:
        _follow(host, sandbox, chosen, attempt, when, prefixed=several)
        show.finish()
        return
    latest = {info["unit"]: info for info in found}
    for info in latest.values():
        prefix = f"{info['unit']} | " if several else ""
        Tail(info, when).pour(host, sandbox, prefix, {**info, "sealed": True})
        show.finish()


def _follow(
    host: Backend, sandbox: str, chosen: LogSelection, attempt: int | None, when: When, *, prefixed: bool
) -> None:
    """Print what comes, from all chosen logs, until nothing more can come."""
    tails: dict[tuple[str, int], Tail] = {}
    first = {info["unit"]: info["attempt"] for info in _attempts(host, sandbox, chosen, attempt, follow=True)}
    while True:
        report = host.report(sandbox)
        states = [(unit["state"], unit["event"]) for unit in report["units"] if chosen.takes(unit["id"])]
        more = expects_more(report["phase"], report["reason"], states)
        for info in _attempts(host, sandbox, chosen, attempt, follow=True):
            key = (info["unit"], info["attempt"])
            if info["attempt"] < first.setdefault(*key):
                continue
            tail = tails.setdefault(key, Tail(info, when))
            if info["size"] > tail.offset or (info["sealed"] and tail.waits):
                prefix = f"{info['unit']} | " if prefixed else ""
                tail.pour(host, sandbox, prefix, info)
            more = more or not info["sealed"]
        if not more:
            return
        host.pause(_POLL)


def _attempts(host: Backend, sandbox: str, chosen: LogSelection, attempt: int | None, *, follow: bool) -> list[Any]:
    """The chosen logs, attempts of a unit in their order."""
    found = host.attempts(sandbox, follow=follow)
    return [info for info in found if chosen.takes(info["unit"]) and attempt in (None, info["attempt"])]


def _say_why_nothing(
    host: Backend, sandbox: str, chosen: LogSelection, report: Any, attempt: int | None, when: When
) -> None:
    """There is no log to show: no such unit, no such attempt, or not yet.

    Raises:
        DayflyError: there is no such unit or attempt.
    """
    logs = host.attempts(sandbox, follow=False)
    known: Iterable[str] = dict.fromkeys([*(unit["id"] for unit in report["units"]), *(log["unit"] for log in logs)])
    units = [unit for unit in known if chosen.takes(unit)]
    wanted = " ".join(filter(None, chosen)) or "step, hook or fork"
    if not units:
        there = f"it has {', '.join(known)}" if known else "so it has no logs"
        raise DayflyError(Exit.NOT_FOUND, f'"{sandbox}" has no {wanted}', there)
    if attempt is not None:
        numbers = sorted({log["attempt"] for log in logs if chosen.takes(log["unit"])})
        there = f"kept: {', '.join(map(str, numbers))}" if numbers else "it has not started"
        if numbers and attempt < numbers[-1]:
            # It has been tried so often: only the last logs are kept, and of an attempt that never ran there is none.
            raise DayflyError(Exit.NOT_FOUND, f"no log of attempt {attempt} of {', '.join(units)} is kept", there)
        raise DayflyError(Exit.NOT_FOUND, f"{', '.join(units)} has no attempt {attempt}", there)
    if other := [command for unit in units if (command := host.elsewhere(sandbox, unit, when))]:
        show.talk(f"the logs of forks are those of their pods: {'; '.join(other)}")
        return
    begun = [unit for unit in report["units"] if unit["id"] in units and unit.get("attempt")]
    state = "no log of it is kept" if begun else "not started yet"
    show.talk(f"{', '.join(units)}: {state}; see: dayfly why {sandbox}{host.flags}")


def _when(*, timestamps: bool, since: str | None, since_time: str | None) -> When:
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

    def pour(self, host: Backend, sandbox: str, prefix: str, info: Any) -> None:
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
        if self._doubted or log_times.time_at(piece.times, piece.offset):
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
