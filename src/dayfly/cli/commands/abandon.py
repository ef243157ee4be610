"""`dayfly abandon`: the only way out of a cleanup that cannot succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.cli.backends.protocol import Backend

_LONGEST = 200


@click.command("abandon")
@options.named("sandbox", "subjects")
@click.option("--reason", required=True, help="Why; it is recorded with who asked and when.")
@click.option("--force", is_flag=True, help="Abandon a sandbox that is not being deleted, and leave everything behind.")
@options.cluster
def command(sandbox: str, reason: str, force: bool, context: str | None, namespace: str | None) -> None:
    """Give up the cleanup of a sandbox that is being deleted: its delete steps are no longer run, and it is removed.

    What they would have removed may be left over, and is listed. To delete a sandbox with everything it has, do not
    abandon it: use dayfly sandbox delete.
    """
    if not reason.strip():
        raise click.UsageError("--reason is empty; say why, it is recorded", click.get_current_context())
    host = hosts.find(context, namespace)
    # The outputs that name what stays behind go with the sandbox.
    remains = list(_remains(host, sandbox))
    host.abandon(sandbox, reason, force=force)
    end = ":" if remains else "."
    show.talk(f'Abandoned sandbox "{sandbox}"; what its delete steps would have removed may be left over{end}')
    for line in remains:
        show.talk(f"  {line}")
    for resource in _states(host, sandbox, namespace):
        show.talk(f"The Terraform state of {resource} is kept; see: dayfly state show {sandbox} {resource}{host.flags}")


def _states(host: Backend, sandbox: str, namespace: str | None) -> list[str]:
    """The resources of which there is a state, as far as whoever asks may know that."""
    from dayfly.cli.commands import state

    try:
        return state.resources(state.kept_by(host), sandbox, namespace)
    except DayflyError:
        return []


def _remains(host: Backend, sandbox: str) -> Iterator[str]:
    """A line for each resource that was begun and is not cleaned up, with the outputs that may tell which it is."""
    found = host.sandbox(sandbox)
    if not found.created:
        raise DayflyError(Exit.NOT_FOUND, f'no sandbox "{sandbox}": it has ended', f"see: dayfly get sandbox {sandbox}")
    units = found.report["units"]
    begun = {
        unit.get("resource") for unit in units if unit["event"] in ("preStart", "postStart") and unit.get("attempt")
    }
    left = {unit.get("resource") for unit in units if unit["event"] == "postStop" and unit["state"] != "succeeded"}
    wishes = [wish for wish in found.spec.get("resources") or () if wish["name"] in begun & left]
    if not wishes:
        return
    unread = ""
    outputs: list[Any] = []
    try:
        outputs = host.outputs(sandbox)
    except DayflyError as fault:
        if fault.code != Exit.DENIED:
            raise
        unread = f"its outputs cannot be shown: {fault.message}"
    for wish in wishes:
        told = [_told(each) for each in outputs if each.get("resource") == wish["name"]]
        yield f"{wish['name']} ({wish.get('plugin') or 'its own steps'}): {unread or ', '.join(told) or 'no outputs'}"


def _told(each: Any) -> str:
    name = f"{each['step']}.{each['output']}"
    if each.get("sensitive"):
        return f"{name} (sensitive)"
    return f"{name} (binary)" if each.get("encoding") == "base64" else f"{name}={show.cut(each['value'], _LONGEST)}"
