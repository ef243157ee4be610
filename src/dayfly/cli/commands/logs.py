"""`dayfly logs`: print the logs of steps and forks, while they run and afterwards."""

from __future__ import annotations

import collections
import contextlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.backends.protocol import NO_TIMES, LogTimeOptions
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec import log_times
from dayfly.spec.report import expects_more

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.cli.backends.protocol import Backend, LogPart

_POLL_INTERVAL_S = 0.3
_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
_NO_TIME = b"-"


class LogSelection(NamedTuple):
    """The selected units: all (both fields are empty), those of one resource, hook or fork, or one step."""

    resource: str
    step: str

    def selects(self, unit: str) -> bool:
        """Whether a unit ID is selected."""
        from dayfly.spec.lifecycle import workload_of

        if not self.resource:
            return True
        if self.step:
            return unit == f"{self.resource}/{self.step}"
        if of := workload_of(unit):
            return self.resource in (unit, of.name)
        return unit == self.resource or unit.startswith(f"{self.resource}/")


@verb("logs")
@options.name_argument("sandbox", "subjects", required=False, default="")
@options.name_argument("resource", "resources", required=False, default="")
@options.name_argument("step", "steps", required=False, default="")
@click.option("-f", "--follow", is_flag=True, help="Follow the log to its end.")
@click.option("--timestamps", is_flag=True, help="Start each line with the time at which it was printed.")
@click.option("--since", metavar="DURATION", help="Omit lines older than this, such as 10m or 1h30m.")
@click.option("--since-time", metavar="TIME", help="Omit lines printed before this time (RFC 3339).")
@click.option("--tail", type=click.IntRange(min=0), help="Begin with the last lines of each log, this many.")
@options.labels
@click.option("--attempt", type=click.IntRange(min=1), help="Show this attempt, not the latest.")
@options.backend_options
def command(
    sandbox: str,
    resource: str,
    step: str,
    *,
    follow: bool,
    timestamps: bool,
    since: str | None,
    since_time: str | None,
    tail: int | None,
    labels: tuple[str, ...],
    attempt: int | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Show the logs of a sandbox's steps and forks, also after their end.

    RESOURCE may also be the name of a hook or of a forked workload. If there are several logs, each line begins with
    the name of its unit. With --label, the logs of all these sandboxes are shown.
    """
    if context is None and namespace is not None and namespace.isdecimal():
        advice = f"for the last {namespace} lines of each log, type: --tail {namespace}"
        raise DayflyError(Exit.USAGE, "-n is the namespace of a cluster", advice)
    if bool(sandbox) == bool(labels) or (labels and follow):
        rule = "give either a sandbox or --label, and --follow only with a sandbox"
        raise click.UsageError(rule, click.get_current_context())
    times = _parse_times(timestamps=timestamps, since=since, since_time=since_time)._replace(tail=tail)
    host = hosts.find(context, namespace)
    chosen = LogSelection(resource, step)
    if not labels:
        _show_logs(host, sandbox, chosen, attempt, times, follow=follow)
        return
    from dayfly.spec.scalars.label_selector import matches, parse

    terms, every = parse(labels), host.sandboxes()
    names = [one.name for one in every if matches(terms, one.spec.get("labels") or {})]
    if not names:
        show.print_message(show.describe_empty("sandbox", "sandboxes", len(every)))
    for name in names:
        host.reset_logs()
        _show_logs(host, name, chosen, attempt, times, head=f"{name}/")


def _show_logs(
    host: Backend,
    sandbox: str,
    chosen: LogSelection,
    attempt: int | None,
    times: LogTimeOptions,
    *,
    follow: bool = False,
    head: str = "",
) -> None:
    """Print the selected logs of a sandbox. With a `head`, each line begins with it and with the name of its unit."""
    report = host.report(sandbox)
    found = _attempts(host, sandbox, chosen, attempt, follow=follow)
    if not found:
        _explain_missing_logs(host, sandbox, chosen, report, attempt, times)
    # Whether lines get a prefix depends on the selection, not on the progress of the run.
    selected = sum(chosen.selects(unit["id"]) for unit in report["units"])
    several = bool(head) or max(selected, len({info["unit"] for info in found})) > 1
    if follow:
        _follow(host, sandbox, chosen, attempt, times, prefixed=several)
        show.flush_terminal()
        return
    latest = {info["unit"]: info for info in found}
    for info in latest.values():
        prefix = f"{head}{info['unit']} | " if several else ""
        LogPrinter(info, times).print_new(host, sandbox, prefix, {**info, "sealed": True})
        show.flush_terminal()


def _follow(
    host: Backend, sandbox: str, chosen: LogSelection, attempt: int | None, times: LogTimeOptions, *, prefixed: bool
) -> None:
    """Print all selected logs until none of them can grow.

    Attempts that a later one of their unit has replaced before the start are skipped.
    """
    printers: dict[tuple[str, int], LogPrinter] = {}
    oldest = {info["unit"]: info["attempt"] for info in _attempts(host, sandbox, chosen, attempt, follow=True)}
    while True:
        report = host.report(sandbox)
        states = [(unit["state"], unit["event"]) for unit in report["units"] if chosen.selects(unit["id"])]
        more = expects_more(report["phase"], report["reason"], states)
        for info in _attempts(host, sandbox, chosen, attempt, follow=True):
            key = (info["unit"], info["attempt"])
            if info["attempt"] < oldest.setdefault(*key):
                continue
            printer = printers.setdefault(key, LogPrinter(info, times))
            if info["size"] > printer.offset or (info["sealed"] and printer.has_partial_line):
                prefix = f"{info['unit']} | " if prefixed else ""
                printer.print_new(host, sandbox, prefix, info)
            more = more or not info["sealed"]
        if not more:
            return
        host.pause(_POLL_INTERVAL_S)


def _attempts(host: Backend, sandbox: str, chosen: LogSelection, attempt: int | None, *, follow: bool) -> list[Any]:
    """Return the selected logs as in `Backend.attempts`; with an `attempt`, only those of that attempt."""
    found = host.attempts(sandbox, follow=follow)
    return [info for info in found if chosen.selects(info["unit"]) and attempt in (None, info["attempt"])]


def _explain_missing_logs(
    host: Backend, sandbox: str, chosen: LogSelection, report: Any, attempt: int | None, times: LogTimeOptions
) -> None:
    """Print why there is no selected log, for example because the step has not started.

    Raises:
        DayflyError: the unit or attempt does not exist.
    """
    logs = host.attempts(sandbox, follow=False)
    known: Iterable[str] = dict.fromkeys([*(unit["id"] for unit in report["units"]), *(log["unit"] for log in logs)])
    units = [unit for unit in known if chosen.selects(unit)]
    wanted = " ".join(filter(None, chosen)) or "step, hook or fork"
    if not known and subject.is_pool(sandbox):
        raise _pool_without_logs(host, sandbox, report)
    if not units:
        advice = f"it has {', '.join(known)}" if known else "so it has no logs"
        raise DayflyError(Exit.NOT_FOUND, f'"{sandbox}" has no {wanted}', advice)
    if attempt is not None:
        numbers = sorted({log["attempt"] for log in logs if chosen.selects(log["unit"])})
        advice = f"stored: {', '.join(map(str, numbers))}" if numbers else "it has not started"
        if numbers and attempt < numbers[-1]:
            # Only the last logs are stored, and an attempt that never ran has no log.
            raise DayflyError(Exit.NOT_FOUND, f"no log of attempt {attempt} of {', '.join(units)} is stored", advice)
        raise DayflyError(Exit.NOT_FOUND, f"{', '.join(units)} has no attempt {attempt}", advice)
    if other := [command for unit in units if (command := host.external_log_command(sandbox, unit, times))]:
        show.print_message(f"the logs of forks are in their pods: {'; '.join(other)}")
        return
    begun = [unit for unit in report["units"] if unit["id"] in units and unit.get("attempt")]
    state = "its log is not stored" if begun else "not started yet"
    show.print_message(f"{', '.join(units)}: {state}; see: dayfly why {sandbox}{host.flags}")


def _pool_without_logs(host: Backend, pool: str, report: Any) -> DayflyError:
    """Return the error for a pool without members, or one that has ended."""
    problem, see = "has no members, so it has no logs", f"pool get {subject.bare_name(pool)}"
    if report["phase"] in ("cleaned", "abandoned"):
        problem, see = "has ended, and the logs of its members are gone", f"why {pool}"
    advice = f"see: dayfly {see}{host.flags}, or dayfly pool list{host.flags}"
    return DayflyError(Exit.NOT_FOUND, f"{subject.title(pool)} {problem}", advice)


def _parse_times(*, timestamps: bool, since: str | None, since_time: str | None) -> LogTimeOptions:
    """Parse the options for times.

    Raises:
        DayflyError: --since and --since-time are combined, or one is malformed.
    """
    import datetime as dt

    if since is not None and since_time is not None:
        raise DayflyError(Exit.USAGE, "--since and --since-time cannot be combined", "use one of them")
    if since is not None:
        parts = _DURATION.fullmatch(since)
        seconds = (
            sum(int(part or 0) * size for part, size in zip(parts.groups(), (3600, 60, 1), strict=True)) if parts else 0
        )
        if not seconds:
            raise DayflyError(Exit.USAGE, f"{since!r} is not a duration", "write e.g. --since 10m or --since 1h30m")
        return LogTimeOptions(timestamps, max(int(dt.datetime.now(dt.UTC).timestamp()) - seconds, 1) * 1000)
    if since_time is None:
        return LogTimeOptions(timestamps)
    moment: dt.datetime | None = None
    with contextlib.suppress(ValueError, OverflowError):  # OverflowError: a time after the year 9999 in UTC
        written = dt.datetime.fromisoformat(since_time)
        moment = written.astimezone(dt.UTC) if written.tzinfo else None
    if moment is None or moment.timestamp() <= 0:
        message = f"{since_time!r} is not a time with its zone"
        raise DayflyError(Exit.USAGE, message, "write e.g. --since-time 2026-01-02T03:04:05Z")
    return LogTimeOptions(timestamps, int(moment.timestamp() * 1000))


class LogPrinter:
    """Prints the log of one attempt incrementally. With a prefix or times, it holds an incomplete line back."""

    def __init__(self, info: Any, times: LogTimeOptions = NO_TIMES) -> None:
        self.unit: str = info["unit"]
        self.attempt: int = info["attempt"]
        self.offset = 0
        self._times = times
        self._lines = log_times.LineSplitter()
        self._is_time_checked = not times.shown and not times.since
        self._tail = None if times.tail is None else collections.deque[tuple[int, bytes]](maxlen=times.tail)
        """The last lines of the log so far; None after they were printed."""

    @property
    def has_partial_line(self) -> bool:
        """Whether an incomplete line is held back."""
        return self._lines.has_partial_line

    def print_new(self, host: Backend, sandbox: str, prefix: str, info: Any) -> None:
        """Print the part of the log that is not printed yet, up to the size in `info`, in whole chunks.

        The next call prints later output. Without this limit, a step that prints faster than its log is read would
        block the other logs, and the command without `--follow` would not end. At the end of a sealed log, an
        incomplete last line is printed as well.
        """
        missing = bool(info["cut"]) and self.offset < abs(info["cut"])
        begin = max(self.offset, info["cut"])
        while begin < info["size"]:
            chunk = host.read(sandbox, self.unit, self.attempt, begin, self._times)
            if not chunk.data:
                break
            if missing and chunk.offset == begin:
                show.print_message(f"{self.unit}: {_describe_gap(info, self.offset)}")
            missing = False
            self._check_time(chunk)
            self.offset = begin = chunk.offset + len(chunk.data)
            self._write(chunk, prefix)
        last = list(self._lines.flush()) if info["sealed"] else []
        if self._tail is not None:
            self._tail.extend(last)
            last, self._tail = list(self._tail), None
        self._print_lines(last, prefix)

    def _write(self, chunk: LogPart, prefix: str) -> None:
        if self._tail is not None:
            self._tail.extend(self._lines.feed(*chunk))
        elif prefix or self._times.shown or self._times.tail is not None:
            self._print_lines(self._lines.feed(*chunk), prefix)
        else:
            show.print_bytes(chunk.data)

    def _print_lines(self, lines: Iterable[tuple[int, bytes]], prefix: str) -> None:
        head = prefix.encode()
        if self._times.shown:
            timed = (head + (show.timestamp(ms).encode() if ms else _NO_TIME) + b" " + line for ms, line in lines)
            show.print_bytes(b"".join(line + b"\n" for line in timed))
        else:
            show.print_bytes(b"".join(head + line + b"\n" for _, line in lines))

    def _check_time(self, chunk: LogPart) -> None:
        """Print a message once if the time of the first printed line is unknown."""
        if self._is_time_checked or log_times.time_at(chunk.times, chunk.offset):
            return
        self._is_time_checked = True
        effect = "have - instead of a time" if self._times.shown else "are all shown"
        show.print_message(f"{self.unit}: the first lines of attempt {self.attempt} have no known time and {effect}")


def _describe_gap(info: Any, printed: int) -> str:
    """Describe the bytes that are missing in a log after its first `printed` bytes, which were printed."""
    if printed:
        return f"{info['cut'] - printed} bytes are missing here"
    if info["cut"] < 0:
        last = f"only the last {info['size']} bytes of attempt {info['attempt']} are stored"
        return f"{last}; the number of missing bytes is unknown"
    stored = info["size"] - info["cut"]
    return f"attempt {info['attempt']} printed {info['size']} bytes, of which the last {stored} are stored"
