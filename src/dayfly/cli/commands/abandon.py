"""`dayfly abandon`: give up a cleanup that cannot succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts, lookup
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.cli.backends.protocol import Backend

_MAX_VALUE_CELLS = 200


@verb("abandon")
@options.name_argument("sandbox", "subjects")
@click.option("--reason", required=True, help="The reason, which is recorded with your name and the time.")
@click.option("--force", is_flag=True, help="Abandon a sandbox that is not being deleted, and leave everything behind.")
@options.backend_options
def command(sandbox: str, reason: str, force: bool, context: str | None, namespace: str | None) -> None:
    """Give up the cleanup of a sandbox that is being deleted: it is removed without its remaining delete steps.

    Resources that may be left over are listed. To delete a sandbox with all its resources, use dayfly sandbox delete
    instead.
    """
    if not reason.strip():
        raise click.UsageError("--reason is empty; it is recorded, so write a reason", click.get_current_context())
    host = hosts.find(context, namespace)
    # The outputs are deleted with the sandbox, so they are read first.
    remains = list(_remains(host, sandbox))
    host.abandon(sandbox, reason, force=force)
    end = ":" if remains else "."
    show.print_message(f"Abandoned {subject.title(sandbox)}; its resources may be left over{end}")
    for line in remains:
        show.print_message(f"  {line}")
    for resource in _resources_with_state(host, sandbox, namespace):
        show.print_message(
            f"The Terraform state of {resource} is kept; see: dayfly state show {sandbox} {resource}{host.flags}"
        )


def _resources_with_state(host: Backend, sandbox: str, namespace: str | None) -> list[str]:
    """Return the resources with a Terraform state; none if the user may not read states."""
    from dayfly.cli.commands import state

    try:
        return state.resources(state.store_of(host), sandbox, namespace)
    except DayflyError:
        return []


def _remains(host: Backend, sandbox: str) -> Iterator[str]:
    """Yield a line for each resource that was started and not cleaned up, with its outputs, which may identify it."""
    found = host.sandbox(sandbox)
    if not found.created:
        raise lookup.ended_error(sandbox, host.flags)
    units = found.report["units"]
    begun = {
        unit.get("resource") for unit in units if unit["event"] in ("preStart", "postStart") and unit.get("attempt")
    }
    left = {unit.get("resource") for unit in units if unit["event"] == "postStop" and unit["state"] != "succeeded"}
    resources = [each for each in found.spec.get("resources") or () if each["name"] in begun & left]
    if not resources:
        return
    unread = ""
    outputs: list[Any] = []
    try:
        outputs = host.outputs(sandbox)
    except DayflyError as fault:
        if fault.code != Exit.DENIED:
            raise
        unread = f"its outputs cannot be shown: {fault.message}"
    for resource in resources:
        name, plugin = resource["name"], resource.get("plugin") or "its own steps"
        shown = [_describe_output(each) for each in outputs if each.get("resource") == name]
        yield f"{name} ({plugin}): {unread or ', '.join(shown) or 'no outputs'}"


def _describe_output(each: Any) -> str:
    name = f"{each['step']}.{each['output']}"
    if each.get("sensitive"):
        return f"{name} (sensitive)"
    return (
        f"{name} (binary)"
        if each.get("encoding") == "base64"
        else f"{name}={show.truncate(each['value'], _MAX_VALUE_CELLS)}"
    )
