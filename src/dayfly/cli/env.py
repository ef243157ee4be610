"""`dayfly env`: a sandbox's outputs as a dotenv file."""

from __future__ import annotations

import click

from dayfly.cli import options, outputs, show
from dayfly.cli.client import Client
from dayfly.cli.sandbox import find


@click.command("env")
@click.argument("sandbox")
@options.json_only
def command(sandbox: str, output: str | None) -> None:
    """Print a sandbox's outputs as a dotenv file, sensitive ones too.

    An output is named <RESOURCE>_<STEP>_<OUTPUT>. Read it with: set -a; . ./FILE
    """
    client = Client.open()
    find(client, sandbox)
    found = client.get("sandboxes", sandbox, "outputs")
    if output:
        show.emit(found, output)
        return
    if not found:
        show.talk(f'Sandbox "{sandbox}" has no outputs yet; see: dayfly why {sandbox}')
    for variable in outputs.variables(found):
        show.put((outputs.dotenv(variable) + "\n").encode())
