"""`dayfly apply`: whatever some files wish for, in the order in which it can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import apply_spec, options, watch
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.output import show
from dayfly.client import files as reading
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command("apply")
@options.server
@options.files()
@options.sets
@options.secrets_file
@options.wait
@options.timeout("3m")
@options.output
def command(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    secrets_file: str | None,
    wait: bool,
    timeout: float,
    output: str | None,
) -> int:
    """Apply plugins, then baselines, sandboxes and route groups from files.

    All files are read and checked before anything is changed. With -o, the objects are printed as a list.
    """
    wishes = reading.load(files, sets)
    _refuse_hooks(wishes)
    client = ServerClient.open()
    secrets: dict[str, Any] = {}
    if secrets_file is not None:
        from dayfly.cli import secret_files

        secrets = secret_files.of_wishes(wishes, secrets_file, client)
    objects = list(_handed_over(client, wishes, secrets))
    code = Exit.OK
    for number, wished in enumerate(wishes):
        if wished.subject and wait:
            ended, objects[number] = watch.settle(client, wished.subject, objects[number], timeout)
            code = code or ended
    if output:
        show.emit(objects, output)
    return code


def _refuse_hooks(wishes: list[reading.Wished]) -> None:
    """A server on one machine has no objects that a hook could go with.

    Raises:
        SpecError: at the first hook.
    """
    for wished in wishes:
        if wished.kind == "lifecycle hook":
            problem = f"{quote(wished.name)} is a lifecycle hook, which goes with objects of a cluster"
            remedy = f"apply it to one with {wished.apply_command} {wished.document.file}"
            raise wished.document.error(f"{problem}; this server has none: {remedy}")


def _handed_over(client: ServerClient, wishes: list[reading.Wished], secrets: dict[str, Any]) -> Iterator[Any]:
    """Each wish as the server has it now.

    Raises:
        DayflyError: it refuses one. The code says that nothing that lives was changed only where that is so.
    """
    for number, wished in enumerate(wishes):
        try:
            yield apply_spec.hand_over(client, wished, secrets.get(wished.name) if wished.kind == "sandbox" else None)
        except DayflyError as fault:
            if fault.code == Exit.USAGE and any(before.subject for before in wishes[:number]):
                advice = fault.advice or "what was made or changed above is in place"
                raise DayflyError(Exit.FAILED, fault.message, advice) from None
            raise
