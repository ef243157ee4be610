"""Sandboxes and route groups of a server or of a cluster, in the one form in which a server shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.cli.backends import lookup
from dayfly.cli.backends.target_server import ServerClient
from dayfly.client import subject

if TYPE_CHECKING:
    from dayfly.cli.backends.protocol import RunView

_STATUS = ("scheduledDeleteTime", "conditions", "matchedSandboxes", "endpoints")
"""What a cluster's status says in the words of a server's."""


def every(plural: str, labels: tuple[str, ...], context: str | None, namespace: str | None) -> list[Any]:
    """All of a server or of a namespace, by name, or those whose labels match."""
    if context is None and namespace is None:
        found: list[Any] = ServerClient.open().get(plural, label=",".join(labels) or None)
        return found
    from dayfly.cli.backends import hosts  # not above: `list` of a server is measured
    from dayfly.spec.scalars.label_selector import matches, parse

    terms = parse(labels)
    host = hosts.find(context, namespace)
    there = host.groups() if plural == "routegroups" else host.sandboxes()
    return [_wire(one) for one in there if matches(terms, one.spec.get("labels") or {})]


def one(name: str, context: str | None, namespace: str | None) -> Any:
    """A sandbox by name, or `routegroup/NAME`.

    Raises:
        DayflyError: none has it.
    """
    subject.check(name)
    if context is None and namespace is None:
        return lookup.find(ServerClient.open(), name)
    from dayfly.cli.backends import hosts

    return _wire(hosts.find(context, namespace).sandbox(name))


def _wire(one: RunView) -> dict[str, Any]:
    report, spoken = one.report, one.status or {}
    status = {key: spoken[key] for key in _STATUS if key in spoken}
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
