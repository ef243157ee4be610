"""`dayfly routegroup`: apply, get, list, extend, delete."""

from __future__ import annotations

from typing import Any

import click

from dayfly.cli import extending, of_cluster, options, sandbox, show
from dayfly.cli.client import Client
from dayfly.cli.exits import Exit
from dayfly.cli.nouns import Noun
from dayfly.client import subject


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
    from dayfly.cli import applying, watch
    from dayfly.client import files as reading

    wished = reading.load_one(files, sets, "route group")
    client = Client.open()
    group = applying.hand_over(client, wished)
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
    _print(of_cluster.one(subject.group(name), context, namespace), output)


@command.command("list")
@options.cluster
@options.labels
@options.output
def list_(labels: tuple[str, ...], context: str | None, namespace: str | None, output: str | None) -> None:
    """List all route groups, or those whose labels match."""
    found = of_cluster.every("routegroups", labels, context, namespace)
    if output:
        show.emit(found, output)
    elif found:
        header = ("NAME", "ROUTING KEY", "CLUSTER", "CREATED", "SANDBOXES", "STATUS")
        show.table(header, map(_row, found), elastic="SANDBOXES")
    elif labels:
        show.talk("No route group has matching labels.")
    else:
        show.talk("There are no route groups; create one with: dayfly apply -f FILE")


@command.command("delete")
@options.named("name", "routegroups", required=False)
@options.files(required=False)
@options.sets
@options.wait
@options.timeout("5m")
@options.cluster
def delete(
    name: str | None,
    files: tuple[str, ...],
    sets: tuple[str, ...],
    wait: bool,
    timeout: float,
    context: str | None,
    namespace: str | None,
) -> int:
    """Delete a route group, by name or by its file, and wait until its hooks have run. Its sandboxes stay."""
    from dayfly.cli import ending

    chosen = [subject.group(each) for each in sandbox.named(name, files, sets, "RouteGroup")]
    return ending.end(chosen, wait=wait, timeout=timeout, context=context, namespace=namespace)


@command.command("extend")
@options.named("name", "routegroups")
@extending.how_long
@options.cluster
def extend(name: str, seconds: float | None, until: str | None, context: str | None, namespace: str | None) -> None:
    """Let a route group live longer: by default for its full time to live again, counted from now.

    This never makes its life shorter.
    """
    extending.extend(subject.group(name), seconds, until, context, namespace)


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
            ("Expires", extending.expires(status) or _after(spec)),
            ("Sandboxes", ", ".join(status.get("matchedSandboxes") or ())),
            ("Status", _state(group)),
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
        _state(group),
    )


def _state(group: Any) -> str:
    status = group["status"]
    if status.get("ready"):
        return "Ready (Unserved)" if status.get("unserved") else "Ready"
    return str(status.get("reason") or "Not Ready")
