"""`dayfly completion`: print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.cli.verbs import COMPLETION, PROGRAM


@verb("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    bash: eval "$(dayfly completion bash)"; likewise in zsh; fish: dayfly completion fish | source
    """
    known = get_completion_class(shell)
    assert known is not None, "click has all choices"
    root = ctx.find_root()
    show.print_block(known(root.command, {}, PROGRAM, COMPLETION).source())
