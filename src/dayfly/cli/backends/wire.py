"""Sandboxes and route groups of a server or a cluster, as JSON of the REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.cli.backends.target_server import ServerClient

if TYPE_CHECKING:
    from dayfly.cli.backends.protocol import RunView

_STATUS = ("scheduledDeleteTime", "conditions", "matchedSandboxes", "endpoints")
"""The fields of a cluster's status that the REST API has as well."""


def list_all(plural: str, labels: tuple[str, ...], context: str | None, namespace: str | None) -> list[Any]:
    """Return all runs of a server or a namespace, or those whose labels match, sorted by name."""
    if context is None and namespace is None:
        found: list[Any] = ServerClient.open().get(plural, label=",".join(labels) or None)
        return found
    from dayfly.cli.backends import hosts  # imported here, because a benchmark measures the start of `list`
    from dayfly.spec.scalars.label_selector import matches, parse

    terms = parse(labels)
    host = hosts.find(context, namespace)
    runs = host.groups() if plural == "routegroups" else host.sandboxes()
    return [_wire(one) for one in runs if matches(terms, one.spec.get("labels") or {})]


def _wire(one: RunView) -> dict[str, Any]:
    report, reported = one.report, one.status or {}
    status = {key: reported[key] for key in _STATUS if key in reported}
    endpoints = status.pop("endpoints", [])
    if unsupported := report.get("unsupported"):
        status["unsupported"] = unsupported
    status |= {key: report[key] for key in ("ready", "reason", "message")}
    return {
        "name": one.name,
        "routingKey": one.routing_key,
        "createdAt": one.created,
        "spec": one.spec,
        "endpoints": endpoints,
        "status": status,
    }
