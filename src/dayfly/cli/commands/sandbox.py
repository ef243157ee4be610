"""`dayfly sandbox`: apply and get sandboxes, and the verbs of `crud`."""

from __future__ import annotations

from typing import Any

import click

from dayfly.cli import crud, options
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import Exit


@click.group("sandbox", cls=NounGroup)
def command() -> None:
    """Apply, get, list, extend and delete sandboxes (sb)."""


@command.command("apply")
@options.server
@options.files()
@options.variables_option
@options.secrets_file
@options.recreate
@options.wait
@options.timeout("3m")
@options.output
def apply(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    secrets_file: str | None,
    *,
    recreate: bool,
    wait: bool,
    timeout: float,
    output: str | None,
) -> int:
    """Apply the sandbox in a file and wait until it is ready."""
    from dayfly.cli import apply_spec, watch
    from dayfly.client import files as reading

    wished = reading.load_one(files, sets, "sandbox", show.print_message)
    client = ServerClient.open()
    secrets = None
    if secrets_file is not None:
        from dayfly.cli import secret_files

        secrets = secret_files.choose_for_files([wished], secrets_file, client)[wished.name]
    sandbox = apply_spec.apply_one(client, wished, secrets, timeout if recreate else None)
    code = watch.report_until_ready(client, wished.subject, sandbox, timeout)[0] if wait else Exit.OK
    crud.print_one(wished.subject, output)
    return code


@command.command("get")
@options.backend_options
@options.name_argument("name", "sandboxes")
@options.output
def get(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Show one sandbox with its endpoints, outputs and steps."""
    crud.print_one(subject.normalize(name), output, context, namespace)


def _row(sandbox: Any) -> tuple[str, ...]:
    spec = sandbox["spec"]
    return (
        sandbox["name"],
        sandbox.get("routingKey", ""),
        spec.get("description", ""),
        spec["cluster"],
        show.age(sandbox["createdAt"]),
        crud.short_state(sandbox),
        sandbox["status"].get("scheduledDeleteTime", ""),
        ",".join(f"{key}={value}" for key, value in sorted((spec.get("labels") or {}).items())),
    )


_KIND = crud.VerbKind("sandbox", "sandboxes", "sandboxes", "Sandbox", str)
_HEADER = ("NAME", "ROUTING KEY", "DESCRIPTION", "CLUSTER", "CREATED", "STATUS", "EXPIRES", "LABELS")
crud.add_list(command, _KIND, _HEADER, _row, elastic="DESCRIPTION")
crud.add_delete(
    command, _KIND, "Delete sandboxes, by name, label or file, and wait until all their resources are gone."
)
crud.add_extend(command, _KIND)
