"""`dayfly abandon`: the only way out of a cleanup that cannot succeed."""

from __future__ import annotations

import click

from dayfly.cli import show
from dayfly.cli.client import Client
from dayfly.cli.sandbox import find


@click.command("abandon")
@click.argument("sandbox")
@click.option("--reason", required=True, help="Why; it is recorded with who asked and when.")
def command(sandbox: str, reason: str) -> None:
    """Give up a sandbox's cleanup: its delete steps are not run (any more), and it goes.

    What they would have removed may be left over. To delete a sandbox with everything it has: dayfly sandbox delete.
    """
    if not reason.strip():
        raise click.UsageError("--reason is empty; say why, it is recorded", click.get_current_context())
    client = Client.open()
    find(client, sandbox)
    client.post("sandboxes", sandbox, "abandon", body={"reason": reason})
    show.talk(f'Abandoned sandbox "{sandbox}"; what its delete steps would have removed may be left over.')
