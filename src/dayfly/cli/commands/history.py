"""`dayfly history`: show what happened to a sandbox, step by step."""

from __future__ import annotations

from typing import Any

from dayfly.cli import options
from dayfly.cli.backends import lookup
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit

_MEANINGS = {
    "Born": "created",
    "Claim": "may start",
    "Bind": "starts",
    "Record": "ended",
    "Doubt": "outcome is unknown",
    "Void": "has not run",
    "Started": "forks have started",
    "Stopped": "forks have stopped",
    "Close": "deletion requested",
    "Leave": "its holder left",
    "GiveUp": "cleanup abandoned",
    "Join": "taken from a pool",
    "Finish": "is over",
}
"""The events of the moves in a ledger."""


@verb("history")
@options.server
@options.name_argument("name", "subjects")
@options.list_output
def command(name: str, output: str | None) -> None:
    """Show what happened to a sandbox, oldest first: each attempt of a step, and who deleted it.

    The history is kept for a week after the end. NAME is a sandbox, routegroup/NAME or pool/NAME.
    """
    subject.check(name)
    client = ServerClient.open()
    try:
        found: list[Any] = client.get(*subject.path(name), "history")
    except DayflyError as fault:
        if fault.code == Exit.NOT_FOUND:
            raise lookup.not_found_error(client, name) from None
        raise
    if output:
        show.emit(found, output)
        return
    rows = [
        (
            show.timestamp(each["at"]),
            each["unit"],
            str(each["attempt"] or ""),
            _MEANINGS.get(each["move"], each["move"]),
            each["reason"],
            "" if each["move"] == "Born" else each["message"],
        )
        for each in found
    ]
    show.print_table(("TIME", "UNIT", "ATTEMPT", "EVENT", "REASON", "MESSAGE"), rows, elastic="MESSAGE")
