"""`dayfly apply`: apply the documents in files, in the order of their dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.cli import apply_spec, options, watch
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client import files as reading
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterator


@verb("apply")
@options.server
@options.files()
@options.variables_option
@options.secrets_file
@options.recreate
@options.wait
@options.timeout("3m")
@options.output
def command(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    secrets_file: str | None,
    *,
    recreate: bool,
    wait: bool,
    timeout: float,
    output: str | None,
) -> int:
    """Apply plugins, then baselines, pools, leak checks, sandboxes and route groups from files.

    All files are read and checked before anything is changed. With -o, the objects are printed as a list.
    """
    wishes = reading.load(files, sets, show.print_message)
    _reject_hooks(wishes)
    client = ServerClient.open()
    secrets: dict[str, Any] = {}
    if secrets_file is not None:
        from dayfly.cli import secret_files

        secrets = secret_files.choose_for_files(wishes, secrets_file, client)
    objects = list(_apply_all(client, wishes, secrets, timeout if recreate else None))
    code = Exit.OK
    for number, wished in enumerate(wishes):
        if wished.subject and wait:
            ended, objects[number] = watch.report_until_ready(client, wished.subject, objects[number], timeout)
            code = code or ended
    if output:
        show.emit(objects, output)
    return code


def _reject_hooks(wishes: list[reading.LoadedDocument]) -> None:
    """Reject lifecycle hooks: a server has no objects of a cluster.

    Raises:
        SpecError: a document is a lifecycle hook.
    """
    for wished in wishes:
        if wished.kind == "lifecycle hook":
            problem = f"{quote(wished.name)} is a lifecycle hook, which selects objects of a cluster"
            remedy = f"apply it to a cluster with {wished.apply_command}"
            raise wished.document.error(f"{problem}; {remedy}")


def _apply_all(
    client: ServerClient, wishes: list[reading.LoadedDocument], secrets: dict[str, Any], recreate_within: float | None
) -> Iterator[Any]:
    """Apply all documents and yield the stored objects. `recreate_within` is as in `apply_spec.apply_one`.

    Raises:
        DayflyError: the server rejects a document. Exit code `USAGE` means that no sandbox or route group was changed.
    """
    for number, wished in enumerate(wishes):
        try:
            of_sandbox = secrets.get(wished.name) if wished.kind == "sandbox" else None
            yield apply_spec.apply_one(client, wished, of_sandbox, recreate_within)
        except DayflyError as fault:
            if fault.code == Exit.USAGE and any(before.subject for before in wishes[:number]):
                advice = fault.advice or "the objects above were created or changed"
                raise DayflyError(Exit.FAILED, fault.message, advice) from None
            raise
