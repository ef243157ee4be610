"""`dayfly schema`: print the JSON Schema of a kind of file, for editors and checks. It needs no server."""

from __future__ import annotations

import click

from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.spec.schema import json_schema


@verb("schema")
@click.argument("kind", type=click.Choice(json_schema.file_kinds()))
def command(kind: str) -> None:
    """Print the JSON Schema of plugins, sandboxes, route groups, pools, hooks or baselines.

    An editor with the YAML language server uses it after a comment at the top of a file:
    # yaml-language-server: $schema=plugin.schema.json
    """
    show.emit(json_schema.file_schema(kind), "json")
