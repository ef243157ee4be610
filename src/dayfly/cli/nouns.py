"""The group of a noun's verbs (`sandbox`, `plugin`, ...), which knows what others call them."""

from __future__ import annotations

import click

_MEANT = {
    "rm": "delete",
    "remove": "delete",
    "destroy": "delete",
    "ls": "list",
    "create": "apply",
    "update": "apply",
    "show": "get",
    "describe": "get",
    "status": "get",
}


class Noun(click.Group):
    """A group that says which of its verbs is meant by a word from elsewhere, or by one that is misspelt."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        wanted = args[0]
        if not ctx.resilient_parsing and not wanted.startswith("-") and self.get_command(ctx, wanted) is None:
            import difflib

            meant = _MEANT.get(wanted)
            close = [meant] if meant in self.commands else difflib.get_close_matches(wanted, self.commands, 1, 0.5)
            hint = f"; did you mean: {ctx.command_path} {close[0]}" if close else ""
            ctx.fail(f'no such command "{wanted}"{hint}')
        return super().resolve_command(ctx, args)
