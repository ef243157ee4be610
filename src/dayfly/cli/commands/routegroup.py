"""`dayfly routegroup`: apply and get, and what it has alike with sandboxes."""

from __future__ import annotations

from typing import Any

import click

from dayfly.cli import crud, options
from dayfly.cli.backends import wire
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.options import Noun
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import Exit


@click.group("routegroup", cls=Noun)
def command() -> None:
    """Apply, get, list, extend and delete route groups (rg)."""


@command.command("apply")
@options.server
@options.files()
@options.sets
@options.wait
@options.timeout("3m")
@options.output
def apply(files: tuple[str, ...], sets: tuple[str, ...], wait: bool, timeout: float, output: str | None) -> int:
    """Apply the one route group of a file and wait until it is ready."""
    from dayfly.cli import apply_spec, watch
    from dayfly.client import files as reading

    wished = reading.load_one(files, sets, "route group")
    client = ServerClient.open()
    group = apply_spec.hand_over(client, wished)
    code = Exit.OK
    if wait:
        code, group = watch.settle(client, wished.subject, group, timeout)
    _print(group, output)
    return code


@command.command("get")
@options.cluster
@options.named("name", "routegroups")
@options.output
def get(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Show one route group, and which sandboxes it has now."""
    _print(wire.one(subject.group(name), context, namespace), output)


def _print(group: Any, output: str | None) -> None:
    if output:
        show.emit(group, output)
        return
    spec, status = group["spec"], group["status"]
    show.facts(
        [
            ("Name", group["name"]),
            ("Cluster", spec.get("cluster", "")),
            ("Routing key", group.get("routingKey", "")),
            ("Description", spec.get("description", "")),
            ("Created", f"{group['createdAt']} ({show.age(group['createdAt'])} ago)"),
            ("Expires", crud.expires(status) or _after(spec)),
            ("Sandboxes", ", ".join(status.get("matchedSandboxes") or ())),
            ("Status", crud.state(group)),
            ("Message", status.get("message", "")),
        ]
    )
    if endpoints := group.get("endpoints"):
        show.line()
        rows = [(each["name"], each["target"], each.get("url", "")) for each in endpoints]
        show.table(("ROUTE GROUP ENDPOINT", "TARGET", "URL"), rows)


def _after(spec: Any) -> str:
    ttl = spec.get("ttl")
    return f"{ttl['duration']} after its last sandbox" if ttl else ""


def _row(group: Any) -> tuple[str, ...]:
    return (
        group["name"],
        group.get("routingKey", ""),
        group["spec"].get("cluster", ""),
        show.age(group["createdAt"]),
        ", ".join(group["status"].get("matchedSandboxes") or ()),
        crud.state(group),
    )


_SORT = crud.Sort("route group", "route groups", "routegroups", "RouteGroup", subject.group)
_HEADER = ("NAME", "ROUTING KEY", "CLUSTER", "CREATED", "SANDBOXES", "STATUS")
_DELETE = "Delete a route group, by name or by its file, and wait until its hooks have run. Its sandboxes stay."
crud.lists(command, _SORT, _HEADER, _row, elastic="SANDBOXES")
crud.deletes(command, _SORT, _DELETE)
crud.extends(command, _SORT)
