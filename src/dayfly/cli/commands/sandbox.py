"""`dayfly sandbox`: apply and get sandboxes, and the verbs of `crud`."""

from __future__ import annotations

from typing import Any

import click

from dayfly.cli import crud, options
from dayfly.cli.backends import wire
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import show
from dayfly.client.errors import Exit


@click.group("sandbox", cls=NounGroup)
def command() -> None:
    """Apply, get, list, extend and delete sandboxes (sb)."""


@command.command("apply")
@options.server
@options.files()
@options.variables_option
@options.secrets_file
@options.wait
@options.timeout("3m")
@options.output
def apply(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    secrets_file: str | None,
    wait: bool,
    timeout: float,
    output: str | None,
) -> int:
    """Apply the sandbox in a file and wait until it is ready."""
    from dayfly.cli import apply_spec, watch
    from dayfly.client import files as reading

    wished = reading.load_one(files, sets, "sandbox")
    client = ServerClient.open()
    secrets = None
    if secrets_file is not None:
        from dayfly.cli import secret_files

        secrets = secret_files.choose_for_files([wished], secrets_file, client)[wished.name]
    sandbox = apply_spec.apply_one(client, wished, secrets)
    code = Exit.OK
    if wait:
        code, sandbox = watch.report_until_ready(client, wished.subject, sandbox, timeout)
    _print(sandbox, output)
    return code


@command.command("get")
@options.backend_options
@options.name_argument("name", "sandboxes")
@options.output
def get(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Show one sandbox."""
    _print(wire.fetch(name, context, namespace), output)


def _print(sandbox: Any, output: str | None) -> None:
    if output:
        show.emit(sandbox, output)
        return
    spec, status = sandbox["spec"], sandbox["status"]
    show.print_facts(
        [
            ("Name", sandbox["name"]),
            ("Cluster", spec["cluster"]),
            ("Routing key", sandbox.get("routingKey", "")),
            ("Description", spec.get("description", "")),
            ("Created", f"{sandbox['createdAt']} ({show.age(sandbox['createdAt'])} ago)"),
            ("Expires", crud.expiry(status)),
            ("Resources", ", ".join(_resource(resource) for resource in spec.get("resources") or [])),
            ("Status", crud.short_state(sandbox)),
            ("Message", status.get("message", "")),
        ]
    )
    if endpoints := sandbox.get("endpoints"):
        show.print_line()
        rows = [(each["name"], each.get("routeType", ""), each.get("url", "")) for each in endpoints]
        show.print_table(("SANDBOX ENDPOINT", "TYPE", "URL"), rows)


def _resource(resource: Any) -> str:
    return f"{resource['name']} ({resource.get('plugin') or 'its own steps'})"


def _row(sandbox: Any) -> tuple[str, ...]:
    spec = sandbox["spec"]
    return (
        sandbox["name"],
        sandbox.get("routingKey", ""),
        spec.get("description", ""),
        spec["cluster"],
        show.age(sandbox["createdAt"]),
        crud.short_state(sandbox),
    )


_KIND = crud.VerbKind("sandbox", "sandboxes", "sandboxes", "Sandbox", str)
_HEADER = ("NAME", "ROUTING KEY", "DESCRIPTION", "CLUSTER", "CREATED", "STATUS")
crud.add_list(command, _KIND, _HEADER, _row, elastic="DESCRIPTION")
crud.add_delete(command, _KIND, "Delete a sandbox, by name or by its file, and wait until all its resources are gone.")
crud.add_extend(command, _KIND)
