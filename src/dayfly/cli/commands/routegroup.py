"""`dayfly routegroup`: apply and get route groups, and the verbs of `crud`."""

from __future__ import annotations

from typing import Any

import click

from dayfly.cli import crud, options
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import Exit


@click.group("routegroup", cls=NounGroup)
def command() -> None:
    """Apply, get, list, extend and delete route groups (rg)."""


@command.command("apply")
@options.server
@options.files()
@options.variables_option
@options.wait
@options.timeout("3m")
@options.output
def apply(files: tuple[str, ...], sets: tuple[str, ...], wait: bool, timeout: float, output: str | None) -> int:
    """Apply the route group in a file and wait until it is ready."""
    from dayfly.cli import apply_spec, watch
    from dayfly.client import files as reading

    wished = reading.load_one(files, sets, "route group", show.print_message)
    client = ServerClient.open()
    group = apply_spec.apply_one(client, wished)
    code = watch.report_until_ready(client, wished.subject, group, timeout)[0] if wait else Exit.OK
    crud.print_one(wished.subject, output)
    return code


@command.command("get")
@options.backend_options
@options.name_argument("name", "routegroups")
@options.output
def get(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Show one route group with its present sandboxes, endpoints and hooks."""
    crud.print_one(subject.group_subject(name), output, context, namespace)


def _row(group: Any) -> tuple[str, ...]:
    return (
        group["name"],
        group.get("routingKey", ""),
        group["spec"].get("cluster", ""),
        show.age(group["createdAt"]),
        ", ".join(group["status"].get("matchedSandboxes") or ()),
        crud.short_state(group),
        group["status"].get("scheduledDeleteTime", ""),
        ",".join(f"{key}={value}" for key, value in sorted((group["spec"].get("labels") or {}).items())),
    )


_KIND = crud.VerbKind("route group", "route groups", "routegroups", "RouteGroup", subject.group_subject)
_HEADER = ("NAME", "ROUTING KEY", "CLUSTER", "CREATED", "SANDBOXES", "STATUS", "EXPIRES", "LABELS")
_DELETE = "Delete route groups, by name, label or file, and wait until their hooks have run. Sandboxes are kept."
crud.add_list(command, _KIND, _HEADER, _row, elastic="SANDBOXES")
crud.add_delete(command, _KIND, _DELETE)
crud.add_extend(command, _KIND)
