"""`dayfly logs`: what steps and forks printed, while they run and afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dayfly.cli import hosts, log_tail, options, show
from dayfly.cli.log_tail import Tail
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.report import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.cli.port import Host, When

_POLL = 0.3
_MOVING = ("running", "retrying", "unknown")


class Chosen(NamedTuple):
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
    when = log_tail.when(timestamps=timestamps, since=since, since_time=since_time)
    host = hosts.find(context, namespace)
    chosen = Chosen(resource, step)
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


def _follow(host: Host, sandbox: str, chosen: Chosen, attempt: int | None, when: When, *, prefixed: bool) -> None:
    """Print what comes, from all chosen logs, until nothing more can come."""
    tails: dict[tuple[str, int], Tail] = {}
    first = {info["unit"]: info["attempt"] for info in _attempts(host, sandbox, chosen, attempt, follow=True)}
    while True:
        more = _expects_more(host.report(sandbox), chosen)
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


def _attempts(host: Host, sandbox: str, chosen: Chosen, attempt: int | None, *, follow: bool) -> list[Any]:
    """The chosen logs, attempts of a unit in their order."""
    found = host.attempts(sandbox, follow=follow)
    return [info for info in found if chosen.takes(info["unit"]) and attempt in (None, info["attempt"])]


def _expects_more(report: Any, chosen: Chosen) -> bool:
    """Whether a chosen unit is running, or will in the phase the run is in."""
    if report["phase"] not in ("open", "closed"):
        return False
    due = ("preStart", "start", "postStart") if report["phase"] == "open" else ("preStop", "postStop")
    hopeless = report["reason"] in FAILED
    return any(
        unit["state"] in _MOVING or (unit["state"] == "waiting" and unit["event"] in due and not hopeless)
        for unit in report["units"]
        if chosen.takes(unit["id"])
    )


def _say_why_nothing(host: Host, sandbox: str, chosen: Chosen, report: Any, attempt: int | None, when: When) -> None:
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
