"""`dayfly get`: show the state of sandboxes, resources, route groups and pools, or one run with all its steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit, unknown_name_error
from dayfly.spec.scalars.label_selector import matches, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dayfly.cli.backends.protocol import RunView
    from dayfly.cli.output.frame import Report

_KINDS = {
    "sandbox": "sandboxes",
    "sandboxes": "sandboxes",
    "sb": "sandboxes",
    "dfs": "sandboxes",
    "resource": "resources",
    "resources": "resources",
    "dfr": "resources",
    "routegroup": "routegroups",
    "routegroups": "routegroups",
    "rg": "routegroups",
    "dfg": "routegroups",
    "pool": "pools",
    "pools": "pools",
    "resourcepool": "pools",
    "resourcepools": "pools",
}
# A width and height, in cells of a terminal, that no frame reaches.
_UNLIMITED = 1000


@verb("get")
@options.name_argument("kind", "kinds", required=False, default="sandboxes")
@options.name_argument("name", "names_of_kind", required=False, default="")
@options.labels
@options.backend_options
@options.output
def command(
    kind: str, name: str, labels: tuple[str, ...], context: str | None, namespace: str | None, output: str | None
) -> None:
    """Show the state of sandboxes, resources, route groups or pools, or of NAME with all its steps.

    KIND is sandboxes (the default), resources, routegroups or pools.
    """
    if kind not in _KINDS:
        message = f"unknown kind {kind!r}: the kinds are sandboxes, resources, routegroups and pools"
        raise DayflyError(Exit.USAGE, message, f"for one sandbox: dayfly get sandbox {kind}")
    if name and labels and _KINDS[kind] != "resources":
        raise click.UsageError("give either a name or --label", click.get_current_context())
    if _KINDS[kind] == "pools":
        _print_pools(name, labels, context, namespace, output)
        return
    terms = parse(labels)
    host = hosts.find(context, namespace)
    if name and _KINDS[kind] == "sandboxes":
        _print_one(host.sandbox(name), output)
        return
    if _KINDS[kind] == "routegroups":
        if name:
            _print_one(host.sandbox(subject.group_subject(name)), output, "Route group")
            return
        _print_groups([one for one in host.groups() if matches(terms, one.spec.get("labels") or {})], output, labels)
        return
    found = [one for one in host.sandboxes() if matches(terms, one.spec.get("labels") or {})]
    if _KINDS[kind] == "resources":
        _print_resources(found, name, host.flags, output, labels)
    else:
        _print_sandboxes(found, output, labels)


def _print_pools(
    name: str, labels: tuple[str, ...], context: str | None, namespace: str | None, output: str | None
) -> None:
    from dayfly.cli.commands import pool

    if context is not None or namespace is not None:
        raise hosts.pools_of_cluster(context)
    if labels:
        raise DayflyError(Exit.USAGE, "pools have no labels", "leave --label out")
    if name:
        pool.print_one(name, output)
    else:
        pool.print_all(output)


def _phase(report: Report) -> str:
    from dayfly.plan import phases

    if report["phase"] in ("cleaned", "abandoned"):
        return "Ended"
    begun, closed = bool(report["units"]), bool(report.get("closed"))
    return phases.phase(begun=begun, closed=closed, ready=bool(report.get("ready")), reason=report["reason"])


def _reason(report: Report) -> str:
    """Return the reason of the run's state; `Unsupported` for a ready run with unsupported parts."""
    from dayfly.plan.reasons import Reason

    unsupported = report.get("ready") and report.get("unsupported")
    return Reason.UNSUPPORTED if unsupported else report["reason"]


def _print_sandboxes(found: list[RunView], output: str | None, labels: Sequence[str]) -> None:
    if output:
        show.emit([_data(each) for each in found], output)
    elif found:
        rows = [
            (one.name, _phase(one.report), _reason(one.report), _progress(one.report), show.age(one.created))
            for one in found
        ]
        show.print_table(("SANDBOX", "PHASE", "REASON", "PROGRESS", "AGE"), rows)
    else:
        show.print_message("No sandbox has matching labels." if labels else "There are no sandboxes.")


def _print_groups(found: list[RunView], output: str | None, labels: Sequence[str]) -> None:
    if output:
        show.emit([_data(each) for each in found], output)
    elif found:
        rows = [
            (
                one.name,
                _phase(one.report),
                _reason(one.report),
                ", ".join(_matched_sandboxes(one)),
                show.age(one.created),
            )
            for one in found
        ]
        show.print_table(("ROUTE GROUP", "PHASE", "REASON", "SANDBOXES", "AGE"), rows, elastic="SANDBOXES")
    else:
        show.print_message("No route group has matching labels." if labels else "There are no route groups.")


def _matched_sandboxes(one: RunView) -> list[str]:
    found: list[str] = (one.status or {}).get("matchedSandboxes") or []
    return found


def _endpoints_with_url(one: RunView) -> list[Any]:
    return [each for each in (one.status or {}).get("endpoints") or [] if each.get("url")]


def _print_one(found: RunView, output: str | None, kind: str = "Sandbox") -> None:
    from dayfly.cli.output import frame

    report = found.report
    if output:
        show.emit(_data(found), output)
        return
    show.print_facts(
        [
            (kind, found.name),
            ("Phase", _phase(report)),
            ("Reason", _reason(report)),
            ("Message", report["message"]),
            ("Sandboxes", ", ".join(_matched_sandboxes(found))),
            ("Routing key", found.routing_key),
            *(("Endpoint", f"{each['name']}: {each['url']}") for each in _endpoints_with_url(found)),
            ("Created", f"{found.created} ({show.age(found.created)} ago)" if found.created else ""),
            *_end_rows(report),
        ]
    )
    if not report["units"]:
        return
    show.print_line()
    now = int(time.time() * 1000)
    for line in frame.frame(found.name, report, now, width=_UNLIMITED, height=_UNLIMITED):
        show.print_line(line.text, line.style)


def _end_rows(report: Report) -> list[tuple[str, str]]:
    """Return rows with the reason and the author of a run's end, and of a request to abandon its cleanup."""
    rows = []
    if (closed := report.get("closed")) and _phase(report) == "Ended":
        rows.append(("Ended", f"{closed['reason']}: {closed['message']}{_author(closed)}"))
    if abandon := report.get("abandon"):
        rows.append(("Abandoned", f"{abandon['message']}{_author(abandon)}"))
    return rows


def _author(request: Any) -> str:
    return f" (by {request['by']})" if request.get("by") else ""


def _print_resources(
    sandboxes: list[RunView], name: str, flags: str, output: str | None, labels: Sequence[str]
) -> None:
    every = [each for one in sandboxes for each in _resources_of(one)]
    found = [each for each in every if name in ("", each["name"])]
    if name and not found:
        raise unknown_name_error(
            f'no resource "{name}"', name, [each["name"] for each in every], f"dayfly get resources{flags}"
        )
    if output:
        show.emit(found, output)
    elif found:
        rows = [
            (each["name"], each["sandbox"], each["plugin"], each["phase"], each["progress"], each["message"])
            for each in found
        ]
        header = ("RESOURCE", "SANDBOX", "PLUGIN", "PHASE", "PROGRESS", "MESSAGE")
        show.print_table(header, rows, elastic="MESSAGE")
    else:
        show.print_message("No sandbox with matching labels has a resource." if labels else "There are no resources.")


def _resources_of(one: RunView) -> Iterator[dict[str, Any]]:
    import msgspec

    from dayfly.plan.phases import resource_progress
    from dayfly.plan.status import describe_unit
    from dayfly.spec.report import UnitReport

    units = msgspec.convert(one.report["units"], list[UnitReport])
    for resource in one.spec.get("resources") or ():
        status = resource_progress(units, resource["name"], closed=bool(one.report.get("closed")))
        worst = status.worst
        yield {
            "name": resource["name"],
            "sandbox": one.name,
            "plugin": resource.get("plugin") or "(its own steps)",
            "phase": status.phase if units else _phase(one.report),
            "progress": f"{status.done}/{status.total}",
            "message": f"{worst.name}: {describe_unit(worst, worst.message)}" if worst and status.has_trouble else "",
        }


def _progress(report: Report) -> str:
    return f"{report.get('done', 0)}/{report.get('total', 0)}"


def _data(one: RunView) -> dict[str, Any]:
    data = {"name": one.name, "createdAt": one.created, **one.report, "phase": _phase(one.report)}
    return data | ({"matchedSandboxes": _matched_sandboxes(one)} if "matchedSandboxes" in (one.status or {}) else {})
