"""`dayfly env`: a sandbox's outputs as a dotenv file."""

from __future__ import annotations

import click

from dayfly.cli import hosts, options, outputs, show


@click.command("env")
@options.named("sandbox", "sandboxes")
@options.cluster
@options.json_only
def command(sandbox: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Print a sandbox's outputs as a dotenv file, including sensitive ones.

    An output is named <RESOURCE>_<STEP>_<OUTPUT>. Read it with: set -a; . ./FILE
    """
    host = hosts.find(context, namespace)
    found = host.outputs(sandbox)
    if output:
        show.emit(found, output)
        return
    if not found:
        show.talk(f'Sandbox "{sandbox}" has no outputs yet; see: dayfly why {sandbox}{host.flags}')
    for variable in outputs.variables(found):
        show.put((outputs.dotenv(variable) + "\n").encode())
