"""Wait until a sandbox or route group is ready or gone, and show its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from dayfly.cli.output import progress
from dayfly.cli.output.show import capitalize, print_message
from dayfly.client import subject, waiting
from dayfly.client.connection import run
from dayfly.client.errors import DayflyError, Exit, FailedError, RefusedError

if TYPE_CHECKING:
    from dayfly.cli.backends.target_server import ServerClient
    from dayfly.cli.output.frame import Report, Unit

GONE = 404
_TAIL_LINES = 10
_RUNNING_LINES = 5


def until_ready(client: ServerClient, name: str, seconds: float, *, first: str = "") -> None:
    """Wait until a sandbox is ready, showing its progress.

    Args:
        client: A client of the server.
        name: The sandbox, or `routegroup/NAME`.
        seconds: How long to wait.
        first: Commands that an error's advice starts with, because the server will be stopped.

    Raises:
        DayflyError: the sandbox failed, ended, or was not ready in time.
    """
    run_ = waiting.WaitedRun(client.json, name, is_patient=False, before=first)
    try:
        with progress.begin(name) as shown:

            def show(report: Any) -> None:
                shown.show(to_builtins(report), _running_log(run_, report) if shown.shows_logs else ())

            run(waiting.until_ready(run_, seconds, show, shown.pause))
    except FailedError as fault:
        for line in fault.log.splitlines()[-_TAIL_LINES:]:
            print_message(f"{fault.unit} | {line}")
        fault.log = ""
        raise


def _running_log(run_: waiting.WaitedRun, report: Any) -> list[str]:
    """Return the last lines of the running step that started last; empty if there is none or it has no log."""
    running = [unit for unit in report.units if unit.state == "running" and unit.kind != "fork"]
    if not running:
        return []
    latest = max(running, key=lambda unit: unit.started_at)
    try:
        return (run(run_.tail(latest.id, latest.attempt)) or [])[-_RUNNING_LINES:]
    except DayflyError:
        return []  # the display goes on without the log


def report_until_ready(client: ServerClient, name: str, applied: Any, seconds: float) -> tuple[Exit, Any]:
    """Wait until a sandbox is ready. Print a failure instead of raising it.

    Return the exit code and the current object.

    Args:
        client: A client of the server.
        name: The sandbox, or `routegroup/NAME`.
        applied: The server's response to the apply; returned if the object is gone.
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
        print_message(f"dayfly: {fault}")
        code = fault.code
    else:
        print_message(f"{capitalize(subject.title(name))} is ready.")
    try:
        return code, client.get(*subject.path(name))
    except RefusedError as fault:
        if fault.status != GONE:
            raise
        return code or Exit.FAILED, applied


def until_gone(client: ServerClient, name: str, uid: str, seconds: float) -> str:
    """Wait until a sandbox is gone, showing its cleanup. Return how it ended, `cleaned` or `abandoned`.

    Args:
        client: A client of the server.
        name: The sandbox, or `routegroup/NAME`.
        uid: The UID, so that a later sandbox of the same name is not waited for. Empty if it is unknown.
        seconds: How long to wait.

    Raises:
        DayflyError: the sandbox still exists after that time.
    """
    run_, last = waiting.WaitedRun(client.json, name, is_patient=False), {}

    def show(report: Any) -> None:
        nonlocal last
        found = to_builtins(report)
        if report.phase == "open" or report.units:
            last = found
            if report.phase != "open":  # the cleanup has begun
                shown.show(found)
        elif report.phase == "cleaned" and last:
            shown.show(_final_report(last, found))

    with progress.begin(name) as shown:
        return run(waiting.until_gone(run_, seconds, show, shown.pause, uid=uid, requested=True))


def _final_report(last: Report, end: Report) -> Report:
    """Return the report of a cleaned run with the units of the last report; each due delete step has succeeded."""
    ends = {"postStop": "succeeded", "start": "stopped"}
    creating = [unit for unit in last["units"] if unit["event"] == "preStart"]
    # If no create step of a resource has run, none of its delete steps is due.
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
