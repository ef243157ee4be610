"""Sandboxes and route groups as text and as data, from a server or a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.cli.backends.protocol import Backend, RunView
    from dayfly.cli.output.frame import Report

# A width and height, in cells of a terminal, that no frame reaches.
_UNLIMITED = 1000
_MAX_VALUE_CELLS = 80
_STATUS = ("scheduledDeleteTime", "conditions", "matchedSandboxes")
"""The fields of the status that the reports of servers and clusters lack."""


def phase(report: Report) -> str:
    """Return the phase in one word."""
    from dayfly.plan import phases

    if report["phase"] in ("cleaned", "abandoned"):
        return "Ended"
    begun, closed = bool(report["units"]), bool(report.get("closed"))
    return phases.phase(begun=begun, closed=closed, ready=bool(report.get("ready")), reason=report["reason"])


def reason(report: Report) -> str:
    """Return the reason of the run's state; `Unsupported` for a ready run with unsupported parts."""
    if not (report.get("ready") and report.get("unsupported")):
        reported: str = report["reason"]
        return reported
    from dayfly.plan.reasons import Reason

    return Reason.UNSUPPORTED


def progress(report: Report) -> str:
    """Return the numbers of finished units and of all units."""
    return f"{report.get('done', 0)}/{report.get('total', 0)}"


def labels(run: RunView) -> str:
    """Return the labels as text."""
    return ",".join(f"{key}={value}" for key, value in sorted((run.spec.get("labels") or {}).items()))


def matched_sandboxes(run: RunView) -> list[str]:
    """Return the sandboxes of a route group."""
    found: list[str] = (run.status or {}).get("matchedSandboxes") or []
    return found


def data(run: RunView) -> dict[str, Any]:
    """Return a run as data: its object as in the REST API, with the fields of its report."""
    status = run.status or {}
    unsupported = {"unsupported": run.report["unsupported"]} if run.report.get("unsupported") else {}
    pooled = [each for each in status.get("resources") or () if "pool" in each]
    found = {
        "name": run.name,
        "routingKey": run.routing_key,
        "createdAt": run.created,
        **({"createdBy": run.created_by} if run.created_by else {}),
        "spec": run.spec,
        **run.report,
        "phase": phase(run.report),
        "endpoints": _endpoints(run),
        "status": {
            **{key: status[key] for key in _STATUS if key in status},
            **unsupported,
            **({"resources": pooled} if pooled else {}),
            **{key: run.report.get(key) for key in ("ready", "reason", "message")},
        },
    }
    return found | ({"matchedSandboxes": matched_sandboxes(run)} if "matchedSandboxes" in status else {})


def print_one(host: Backend, name: str, output: str | None) -> None:
    """Print a sandbox or `routegroup/NAME` with its endpoints, steps and outputs."""
    run = host.sandbox(name)
    if output:
        show.emit(data(run), output)
        return
    show.print_facts(_facts(run))
    if endpoints := _endpoints(run):
        show.print_line()
        field, title = ("target", "TARGET") if subject.is_group(name) else ("routeType", "TYPE")
        cells = [(each["name"], each.get(field, ""), each.get("url", "")) for each in endpoints]
        show.print_table(("ENDPOINT", title, "URL"), cells)
    if run.report["units"]:
        from dayfly.cli.output import frame

        show.print_line()
        now = int(time.time() * 1000)
        for line in frame.frame(run.name, run.report, now, width=_UNLIMITED, height=_UNLIMITED):
            show.print_line(line.text, line.style)
    if outputs := list(_outputs(host, name)) if run.created else []:
        show.print_line()
        show.print_table(("OUTPUT", "VALUE"), outputs)


def expiry(status: Any) -> str:
    """Return the expiry time, with a hint if it is soon."""
    end: str = status.get("scheduledDeleteTime") or status.get("expiresAt") or ""
    soon = any(each["type"] == "ExpiresSoon" and each["status"] == "True" for each in status.get("conditions") or ())
    return f"{end} (soon; extend it if it is still needed)" if soon else end


def _facts(run: RunView) -> list[tuple[str, str]]:
    spec, report = run.spec, run.report
    ttl = spec.get("ttl")
    unmatched = f"{ttl['duration']} after its last sandbox" if ttl and "match" in spec else ""
    resources = (f"{each['name']} ({each.get('plugin') or 'its own steps'})" for each in spec.get("resources") or ())
    return [
        ("Name", run.name),
        ("Cluster", spec.get("cluster", "")),
        ("Routing key", run.routing_key),
        ("Description", spec.get("description", "")),
        ("Labels", labels(run)),
        ("Created", f"{run.created} ({show.age(run.created)} ago)" if run.created else ""),
        ("Created by", run.created_by),
        ("Expires", expiry(run.status or {}) or unmatched),
        ("Resources", ", ".join(resources)),
        ("Sandboxes", ", ".join(matched_sandboxes(run))),
        ("Phase", phase(report)),
        ("Reason", reason(report)),
        ("Message", report["message"]),
        *_end_rows(report),
    ]


def _endpoints(run: RunView) -> list[Any]:
    found: list[Any] = (run.status or {}).get("endpoints") or []
    return found


def _outputs(host: Backend, name: str) -> Iterator[tuple[str, str]]:
    """Yield outputs and their values, without sensitive ones. A caller who may not read outputs gets none."""
    try:
        found = host.outputs(name)
    except DayflyError as fault:
        if fault.code not in (Exit.DENIED, Exit.NOT_FOUND):
            raise
        return
    for each in found:
        owner = f"{each['resource']}/{each['step']}" if each.get("resource") else each["step"]
        hidden = "(sensitive)" if each.get("sensitive") else "(binary)" if each.get("encoding") == "base64" else ""
        yield f"{owner}.{each['output']}", hidden or show.truncate(each["value"], _MAX_VALUE_CELLS)


def _end_rows(report: Report) -> list[tuple[str, str]]:
    """Return rows with the reason and the author of a run's end, and of a request to abandon its cleanup."""
    rows = []
    if (closed := report.get("closed")) and phase(report) == "Ended":
        rows.append(("Ended", f"{closed['reason']}: {closed['message']}{_author(closed)}"))
    if abandon := report.get("abandon"):
        rows.append(("Abandoned", f"{abandon['message']}{_author(abandon)}"))
    return rows


def _author(request: Any) -> str:
    return f" (by {request['by']})" if request.get("by") else ""
