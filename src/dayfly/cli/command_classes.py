"""The classes of commands: help with examples and complete summaries, and suggestions for unknown commands.

Each verb imports this module, so it has few imports itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.shell_completion import CompletionItem

# Verbs of other tools, and Dayfly's verbs for the same.
_VERBS_OF_OTHER_TOOLS = {
    "rm": ("delete", "remove"),
    "remove": ("delete",),
    "delete": ("remove",),
    "destroy": ("delete", "remove"),
    "ls": ("list",),
    "create": ("apply", "add"),
    "publish": ("apply",),
    "update": ("apply",),
    "show": ("get",),
    "describe": ("get",),
    "status": ("get",),
    "why": ("get",),
    "pull": ("show",),
    "get": ("show",),
}
# Verbs of other tools that change an object by its file here.
_VERBS_THAT_CHANGE_SPECS = frozenset({"apply", "create", "edit", "patch", "replace", "scale", "set"})
_MIN_GUESSED = 5
"""The shortest word for which a similar command is suggested, in characters."""
_NEVER_GUESSED = frozenset({"abandon", "delete", "down", "drain", "remove", "reset"})


class Verb(click.Command):
    """A command whose help ends with examples."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [*args]  # the parser removes them
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as fault:
            fault.ctx = fault.ctx or ctx  # the parser does not know it, and the message names the help of this command
            if isinstance(fault, click.MissingParameter) and fault.param is not None and fault.param.name == "files":
                file = next((word for word in words if word.endswith((".yaml", ".yml", ".json"))), "")
                if file:
                    raise click.UsageError(f"name the file with -f: {ctx.command_path} -f {file}", ctx) from None
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from dayfly.cli.examples import EXAMPLES

        examples = EXAMPLES[" ".join(ctx.command_path.split()[1:])]
        with formatter.section("Examples"):
            formatter.write("".join(f"{' ' * formatter.current_indent}{line}\n" for line in examples))


def verb(name: str, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Return the decorator of a verb that has no group."""
    return click.command(name, cls=Verb, **more)


class NounGroup(click.Group):
    """A group that suggests a verb for an unknown command: by its name in other tools, or by similar spelling."""

    command_class = Verb
    group_class = type  # groups below it have this class too

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        wanted = args[0]
        if not ctx.resilient_parsing and not wanted.startswith("-") and self.get_command(ctx, wanted) is None:
            close = self._meant(wanted) or similar_command(wanted, self.commands)
            if not close and (word := similar_command(wanted, _VERBS_OF_OTHER_TOOLS)):
                close = self._meant(word) if self._meant(word) not in _NEVER_GUESSED else ""
            hint = f"; did you mean: {ctx.command_path} {close}" if close else ""
            if wanted in _VERBS_THAT_CHANGE_SPECS and not close:
                hint = "; did you mean: dayfly apply -f FILE"
            ctx.fail(f'no such command "{wanted}"{hint}')
        return super().resolve_command(ctx, args)

    def _meant(self, word: str) -> str:
        """Return the command of this group for a word that other tools use, or an empty string."""
        return next((name for name in _VERBS_OF_OTHER_TOOLS.get(word, ()) if name in self.commands), "")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 # click's signature
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(command)) for name, command in self.commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands with their summaries."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=summary(command))
            for name, command in self.commands.items()
            if name.startswith(incomplete)
        ]
        return found or super().shell_complete(ctx, incomplete)


def similar_command(wanted: str, known: Iterable[str]) -> str:
    """Return the command with the most similar name, or an empty string.

    Short words are similar to too many others, and a command that deletes or stops something is never a guess.
    """
    import difflib

    if len(wanted) < _MIN_GUESSED:
        return ""
    safe = [name for name in known if name not in _NEVER_GUESSED]
    return next(iter(difflib.get_close_matches(wanted, safe, 1, 0.6)), "")


def summary(command: click.Command) -> str:
    """Return the first paragraph of the help of a command."""
    return " ".join((command.help or "").partition("\n\n")[0].split())
