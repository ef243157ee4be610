"""Waiting for a run: until it is ready, or until it is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from dayfly.cli.output import progress
from dayfly.cli.output.show import talk
from dayfly.client import subject, waiting
from dayfly.client.connection import run
from dayfly.client.errors import DayflyError, Exit, FailedError, RefusedError

if TYPE_CHECKING:
    from dayfly.cli.backends.target_server import ServerClient
    from dayfly.cli.output.frame import Report, Unit

GONE = 404
_TAIL_LINES = 10


def until_ready(client: ServerClient, name: str, seconds: float, *, first: str = "") -> None:
    """Wait until a sandbox is ready, showing its progress.

    Args:
        client: Of the server.
        name: The sandbox, or `routegroup/NAME`.
        seconds: How long to wait.
        first: Commands to type before those that an error advises, because the server will be stopped.

    Raises:
        DayflyError: it failed, ended, or is not ready in time.
    """
    run_ = waiting.WaitedRun(client.json, name, is_patient=False, before=first)
    try:
        with progress.begin(name) as shown:
            run(waiting.until_ready(run_, seconds, lambda report: shown.show(to_builtins(report)), shown.pause))
    except FailedError as fault:
        for line in fault.log.splitlines()[-_TAIL_LINES:]:
            talk(f"{fault.unit} | {line}")
        fault.log = ""
        raise


def settle(client: ServerClient, name: str, applied: Any, seconds: float) -> tuple[Exit, Any]:
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
    except RefusedError:
        raise
    except DayflyError as fault:
        if fault.code == Exit.NO_SERVER:
            raise
        talk(f"dayfly: {fault}")
        code = fault.code
    else:
        title = subject.title(name)
        talk(f"{title[0].upper()}{title[1:]} is ready.")
    try:
        return code, client.get(*subject.at(name))
    except RefusedError as fault:
        if fault.status != GONE:
            raise
        return code or Exit.FAILED, applied


def until_gone(client: ServerClient, name: str, uid: str, seconds: float) -> str:
    """Wait until a sandbox is gone, showing its cleanup. Return how it ended, `cleaned` or `abandoned`.

    Args:
        client: Of the server.
        name: The sandbox, or `routegroup/NAME`.
        uid: Its identity: another one of the same name is not waited for. Empty if it is not known.
        seconds: How long to wait.

    Raises:
        DayflyError: it is still there after that time.
    """
    run_, last = waiting.WaitedRun(client.json, name, is_patient=False), {}

    def show(report: Any) -> None:
        nonlocal last
        found = to_builtins(report)
        if report.phase == "open" or report.units:
            last = found
            if report.phase != "open":  # until its end begins there is no progress of the cleanup
                shown.show(found)
        elif report.phase == "cleaned" and last:
            shown.show(_finished(last, found))

    with progress.begin(name) as shown:
        return run(waiting.until_gone(run_, seconds, show, shown.pause, uid=uid, requested=True))


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
