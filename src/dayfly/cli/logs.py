"""`dayfly logs`: what steps and forks printed, while they run and afterwards."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dayfly.cli import show
from dayfly.cli.client import ApiError, Client
from dayfly.cli.exits import CliError, Exit
from dayfly.cli.sandbox import ask
from dayfly.spec import names

if TYPE_CHECKING:
    from collections.abc import Iterable

_POLL = 0.3
_NOT_FOUND = 404
_MOVING = ("running", "retrying", "unknown")


class Chosen(NamedTuple):
    """Which units are meant: all, those of a resource (or a hook or fork of that name), or one step."""

    resource: str
    step: str

    def takes(self, unit: str) -> bool:
        """Whether a unit, by its name within the run, is meant."""
        if not self.resource:
            return True
        if self.step:
            return unit == f"{self.resource}/{self.step}"
        if unit.startswith("fork:"):
            return self.resource in (unit, unit.rpartition("/")[2])
        return unit == self.resource or unit.startswith(f"{self.resource}/")


class Tail:
    """One attempt's log as far as it has been printed. With a prefix, whole lines only are printed."""

    def __init__(self, unit: str, attempt: int) -> None:
        self.unit = unit
        self.attempt = attempt
        self.offset = 0
        self.rest = b""

    def pour(self, client: Client, sandbox: str, prefix: str, *, last: bool) -> None:
        """Print what is new, each line behind the prefix; with `last` also a line that has no end yet."""
        while True:
            where = {"unit": self.unit, "attempt": self.attempt, "offset": self.offset}
            answer = client.get("sandboxes", sandbox, "log", **where)
            if answer["next"] == self.offset:
                break
            self.offset = answer["next"]
            data: str = answer["data"]
            self._write(base64.b64decode(data) if answer["encoding"] == "base64" else data.encode(), prefix)
        if last and self.rest:
            self._write(b"\n", prefix)

    def _write(self, new: bytes, prefix: str) -> None:
        if prefix:
            *lines, self.rest = (self.rest + new).split(b"\n")
            new = b"".join(prefix.encode() + line + b"\n" for line in lines)
        show.put(new)


@click.command("logs")
@click.argument("sandbox")
@click.argument("resource", required=False, default="")
@click.argument("step", required=False, default="")
@click.option("-f", "--follow", is_flag=True, help="Go on until what is followed has ended.")
@click.option("--attempt", type=click.IntRange(min=1), help="This attempt, not the latest.")
def command(sandbox: str, resource: str, step: str, follow: bool, attempt: int | None) -> None:
    """Show the logs of a sandbox's steps and forks, also after its end.

    RESOURCE may also be the name of a hook or of a forked workload. Where there are several logs, each line begins
    with the name of its unit.
    """
    names.check("sandbox", sandbox)
    client = Client.open()
    chosen = Chosen(resource, step)
    report = _report(client, sandbox)
    found = _attempts(client, sandbox, chosen, attempt)
    if not found:
        _say_why_nothing(client, sandbox, chosen, report, attempt)
    # Whether lines get a prefix depends on what was asked for, not on how far it has come.
    several = max(sum(chosen.takes(unit["id"]) for unit in report["units"]), len({info["unit"] for info in found})) > 1
    if follow:
        _follow(client, sandbox, chosen, attempt, prefixed=several)
        return
    latest = {info["unit"]: info for info in found}
    for info in latest.values():
        prefix = f"{info['unit']} | " if several else ""
        Tail(info["unit"], info["attempt"]).pour(client, sandbox, prefix, last=True)


def _follow(client: Client, sandbox: str, chosen: Chosen, attempt: int | None, *, prefixed: bool) -> None:
    """Print what comes, from all chosen logs, until nothing more can come."""
    tails: dict[tuple[str, int], Tail] = {}
    first = {info["unit"]: info["attempt"] for info in _attempts(client, sandbox, chosen, attempt)}
    while True:
        more = _expects_more(_report(client, sandbox), chosen)
        for info in _attempts(client, sandbox, chosen, attempt):
            key = (info["unit"], info["attempt"])
            if info["attempt"] < first.setdefault(*key):
                continue
            tail = tails.setdefault(key, Tail(*key))
            if info["size"] > tail.offset or (info["sealed"] and tail.rest):
                prefix = f"{info['unit']} | " if prefixed else ""
                tail.pour(client, sandbox, prefix, last=info["sealed"])
            more = more or not info["sealed"]
        if not more:
            return
        time.sleep(_POLL)


def _attempts(client: Client, sandbox: str, chosen: Chosen, attempt: int | None) -> list[Any]:
    """The chosen logs, attempts of a unit in their order."""
    found = ask(client, sandbox, "attempts")
    return [info for info in found if chosen.takes(info["unit"]) and attempt in (None, info["attempt"])]


def _report(client: Client, sandbox: str) -> Any:
    """The run's report; nothing for one that is over and forgotten but for its logs."""
    try:
        return client.get("sandboxes", sandbox, "report")
    except ApiError as fault:
        if fault.status == _NOT_FOUND:
            return {"phase": "cleaned", "units": []}
        raise


def _expects_more(report: Any, chosen: Chosen) -> bool:
    """Whether a chosen unit is running, or will in the phase the run is in."""
    if report["phase"] not in ("open", "closed"):
        return False
    due = ("preStart", "start", "postStart") if report["phase"] == "open" else ("preStop", "postStop")
    hopeless = report["reason"] in ("ResourceFailed", "HookFailed")
    return any(
        unit["state"] in _MOVING or (unit["state"] == "waiting" and unit["event"] in due and not hopeless)
        for unit in report["units"]
        if chosen.takes(unit["id"])
    )


def _say_why_nothing(client: Client, sandbox: str, chosen: Chosen, report: Any, attempt: int | None) -> None:
    """There is no log to show: no such unit, no such attempt, or not yet.

    Raises:
        CliError: there is no such unit or attempt.
    """
    logs = client.get("sandboxes", sandbox, "attempts")
    known: Iterable[str] = dict.fromkeys([*(unit["id"] for unit in report["units"]), *(log["unit"] for log in logs)])
    units = [unit for unit in known if chosen.takes(unit)]
    wanted = " ".join(filter(None, chosen)) or "step, hook or fork"
    if not units:
        there = f"there is {', '.join(known)}" if known else "so it has no logs"
        raise CliError(Exit.NOT_FOUND, f'"{sandbox}" has no {wanted}', there)
    if attempt is not None:
        numbers = sorted({log["attempt"] for log in logs if chosen.takes(log["unit"])})
        there = f"there is {', '.join(map(str, numbers))}" if numbers else "it has not started"
        raise CliError(Exit.NOT_FOUND, f"{', '.join(units)} has no attempt {attempt}", there)
    show.talk(f"{', '.join(units)}: not started yet; see: dayfly why {sandbox}")
