"""`dayfly help`: print the help of all commands or of one."""

from __future__ import annotations

import click

from dayfly.cli.command_classes import verb
from dayfly.cli.output import show


@verb("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, or list all commands."""
    found = ctx.find_root()
    for word in words:
        if not isinstance(found.command, click.Group):
            raise click.UsageError(f'"{found.command_path}" has no commands below it', found)
        _, below, _ = found.command.resolve_command(found, [word])
        assert below is not None, "resolve_command has rejected unknown words"
        found = click.Context(below, info_name=below.name, parent=found)
    show.print_block(found.get_help())
