"""Waiting for a run: until it is ready, or until it is gone."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

from dayfly.cli import progress
from dayfly.cli.exits import CliError, Exit
from dayfly.cli.show import talk
from dayfly.cli.target_server import ApiError
from dayfly.client import subject
from dayfly.spec.report import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.cli.frame import Report, Unit
    from dayfly.cli.target_server import Client

GONE = 404
# How much of a failed unit's log is shown at once.
_TAIL_BYTES = 4096
_TAIL_LINES = 10

OVER = {"phase": "cleaned", "reason": "Cleaned", "message": "", "units": []}
"""What a host that has forgotten a run, or never heard of it, leaves out of its report."""


def until_ready(client: Client, name: str, seconds: float, *, first: str = "") -> Report:
    """Wait until a sandbox is ready, showing how far it is.

    Args:
        client: Of the server.
        name: The sandbox.
        seconds: How long to wait.
        first: What has to be typed before a command can ask this server again, which will be stopped.

    Raises:
        CliError: it failed, ended, or is not ready in time.
    """
    uid = ""
    with progress.begin(name) as shown:
        for report in _reports(client, name, seconds, shown.pause):
            if report["uid"] != (uid := uid or report["uid"]):
                message = f"{name} was deleted, and the sandbox of that name that exists now is another one"
                see = f"see: dayfly {subject.verb(name)} get {subject.bare(name)}{client.flags}"
                raise CliError(Exit.FAILED, message, see)
            shown.show(report)
            if report.get("ready"):
                return report
            if report["reason"] in FAILED:
                break
            closed = report.get("closed") or {}
            if closed or report["phase"] != "open":
                why = closed.get("message") or closed.get("reason") or report["message"]
                advice = f"follow it with: dayfly why {name}{client.flags}"
                raise CliError(Exit.FAILED, f"{name} is being deleted: {why}", advice)
        else:
            still = f"{name} is not ready after {seconds:g} s, and is still being worked on"
            message = f"{still}: {report['reason']}: {report['message']}"
            raise CliError(Exit.TIMED_OUT, message, f"see: dayfly why {name}{client.flags}")
    raise _failure(client, name, report, first)


def settle(client: Client, name: str, applied: Any, seconds: float) -> tuple[Exit, Any]:
    """As `until_ready`, but a failure is told and returned, with the object as it is then.

    Args:
        client: Of the server.
        name: The sandbox, or `routegroup/NAME`.
        applied: As the server answered when it was applied; returned again if it is gone by then.
        seconds: How long to wait.
    """
    code = Exit.OK
    try:
        until_ready(client, name, seconds)
    except ApiError:
        raise
    except CliError as fault:
        if fault.code == Exit.NO_SERVER:
            raise
        talk(f"dayfly: {fault}")
        code = fault.code
    else:
        title = subject.title(name)
        talk(f"{title[0].upper()}{title[1:]} is ready.")
    try:
        return code, client.get(*subject.at(name))
    except ApiError as fault:
        if fault.status != GONE:
            raise
        return code or Exit.FAILED, applied


def until_gone(client: Client, name: str, uid: str, seconds: float) -> str:
    """Wait until a sandbox is gone, showing how far its cleanup is; returns how it ended: cleaned or abandoned.

    Args:
        client: Of the server.
        name: The sandbox.
        uid: Its identity: another one of the same name is not waited for. Empty if it is not known.
        seconds: How long to wait.

    Raises:
        CliError: it is still there after that time.
    """
    last: Report = {}
    ends = ("cleaned", "abandoned")
    with progress.begin(name) as shown:
        try:
            for report in _reports(client, name, seconds, shown.pause):
                if uid and report["uid"] != uid:
                    return "cleaned"
                if report["phase"] == "open" or report["units"]:
                    last = report
                    if report["phase"] != "open":  # its end is wished for and not yet taken up: no news of a cleanup
                        shown.show(report)
                elif report["phase"] == "cleaned" and last:
                    shown.show(_finished(last, report))
                if report["phase"] in ends and not _is_there(client, name):
                    return str(report["phase"])
        except ApiError as fault:
            if fault.status != GONE:
                raise
            return str(last["phase"]) if last.get("phase") in ends else "cleaned"
    because = f": {last['reason']}: {last['message']}" if last else ""
    message = f"{name} is still being deleted after {seconds:g} s{because}"
    raise CliError(Exit.TIMED_OUT, message, f"see: dayfly why {name}{client.flags}")


def _reports(client: Client, name: str, seconds: float, pause: float) -> Iterator[Report]:
    """Each new report, and the latest one again after `pause` seconds without news, until the time is over."""
    deadline = time.monotonic() + seconds
    version: int | None = None
    while True:
        left = deadline - time.monotonic()
        wait = int(min(pause, max(left, 0))) if version is not None else None
        asked = time.monotonic()
        report = {**OVER, **client.get(*subject.at(name), "report", after=version, wait=wait)}
        stale = report["version"] == version
        version = report["version"]
        yield report
        if time.monotonic() >= deadline:
            return
        if report["phase"] in ("cleaned", "abandoned") or (stale and time.monotonic() - asked < pause / 2):
            time.sleep(min(0.1, max(deadline - time.monotonic(), 0)))  # it answers at once and has nothing new


def _finished(last: Report, end: Report) -> Report:
    """Return the report of a cleaned run with the units of the last one: each due delete step has succeeded."""
    ends = {"postStop": "succeeded", "start": "stopped"}
    creating = [unit for unit in last["units"] if unit["event"] == "preStart"]
    # Where no create step has run, no delete step is due.
    idle = {unit.get("resource") for unit in creating} - {unit.get("resource") for unit in creating if _has_run(unit)}
    units = []
    for unit in last["units"]:
        skipped = unit["state"] == "skipped" or (unit["event"] == "postStop" and unit.get("resource") in idle)
        state = "skipped" if skipped else ends.get(unit["event"], unit["state"])
        units.append({**unit, "state": state, "message": ""})
    count = sum(unit["event"] in ("preStop", "postStop") and unit["state"] != "skipped" for unit in units)
    return {**end, "closed": last.get("closed"), "units": units, "done": count, "total": count}


def _has_run(unit: Unit) -> bool:
    return bool(unit.get("startedAt")) or unit["state"] == "succeeded"


def _is_there(client: Client, name: str) -> bool:
    try:
        client.get(*subject.at(name))
    except ApiError as fault:
        if fault.status == GONE:
            return False
        raise
    return True


def _failure(client: Client, name: str, report: Report, first: str) -> CliError:
    """What failed, after the end of its log has been shown."""
    failed = next((unit for unit in report["units"] if unit["state"] == "failed"), None)
    message = f"{name}: {report['reason']}: {report['message']}"
    if failed is None:
        return CliError(Exit.FAILED, message, f"read: {first}dayfly logs {name}{client.flags}")
    try:
        lines = _last_lines(client, name, failed)
    except CliError:
        lines = []  # that it failed is the news
    if lines is None:
        return CliError(Exit.FAILED, message, "it printed nothing")
    for line in lines:
        talk(f"{failed['id']} | {line}")
    advice = f"read: {first}dayfly logs {name} {failed['id'].replace('/', ' ', 1)}{client.flags}"
    return CliError(Exit.FAILED, message, advice)


def _last_lines(client: Client, name: str, unit: Unit) -> list[str] | None:
    """The end of what a unit printed, if that is text; None if it printed nothing."""
    attempts = client.get(*subject.at(name), "attempts")
    size = max(
        (log["size"] for log in attempts if log["unit"] == unit["id"] and log["attempt"] == unit["attempt"]), default=0
    )
    if not size:
        return None
    query = {"unit": unit["id"], "attempt": unit["attempt"], "offset": max(size - _TAIL_BYTES, 0)}
    return last_lines(client.get(*subject.at(name), "log", **query), _TAIL_LINES)


def last_lines(piece: Any, most: int) -> list[str]:
    """The last lines of a piece of a log, as a server answers it; none if that is no text.

    It may begin within a character, of which the rest is left out: a server says of such a piece that it is binary.
    """
    if piece["encoding"] == "utf-8":
        return list(piece["data"].splitlines()[-most:])
    data = base64.b64decode(piece["data"])
    begins = next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
    try:
        return data[begins:].decode().splitlines()[-most:]
    except UnicodeDecodeError:
        return []
