"""The help of all commands: groups, examples and complete summaries."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import click
import pytest
from tests.cli.command import Cli, refused

from dayfly.cli.command_classes import Verb, summary
from dayfly.cli.examples import EXAMPLES
from dayfly.cli.verbs import GROUPS, root

if TYPE_CHECKING:
    from collections.abc import Iterator


def _verbs(context: click.Context, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield each command that is not only a group, with its path."""
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _verbs(click.Context(command, context, name), f"{path}{name} ")
        else:
            yield f"{path}{name}", command


VERBS = dict(_verbs(click.Context(root)))
LINES = [(verb, line) for verb, lines in EXAMPLES.items() for line in lines]


def test_each_verb_has_examples():
    assert set(VERBS) - set(EXAMPLES) == set()
    assert all(isinstance(command, Verb) for command in VERBS.values())


@pytest.mark.parametrize(("verb", "line"), LINES, ids=[line for _, line in LINES])
def test_example_is_a_valid_command_line(verb: str, line: str):
    words = (
        re.sub(r"""^.*?\$\(|\).*$| \|.*$|\s[<>].*$""", "", line) if "$(" in line else re.split(r" \||\s[<>]", line)[0]
    )
    program, *given = shlex.split(words, comments=True)
    assert program == "dayfly"
    assert " ".join(given).startswith(verb)
    context = click.Context(root)
    command: click.Command = root
    for word in verb.split():
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None
        command, context = found, click.Context(found, context, word)
    command.make_context(verb, given[len(verb.split()) :], parent=context.parent)


def test_help_verb_prints_the_help_of_each_level(cli: Cli):
    assert cli("help").out == cli("--help").out
    assert cli("help", "sandbox", "delete").out == cli("sandbox", "delete", "--help").out
    assert "\nExamples:\n  dayfly sandbox delete demo other\n" in cli("help", "sandbox", "delete").out
    refused(cli("help", "sandbox", "lsit"), 2, 'no such command "lsit"')
    refused(cli("help", "apply", "more"), 2, '"dayfly apply" has no commands below it')


def test_completion_offers_complete_summaries(cli: Cli):
    def completions(words: str) -> str:
        count = str(len(words.split(" ")) - 1)
        return cli(_DAYFLY_COMPLETE="zsh_complete", COMP_WORDS=words, COMP_CWORD=count).out

    found = completions("dayfly ")
    for verb, text in ((verb, text) for verbs in GROUPS.values() for verb, text in verbs.items()):
        assert f"plain\n{verb}\n{text}\n" in found
    assert f"plain\ndelete\n{summary(VERBS['sandbox delete'])}\n" in completions("dayfly sandbox ")


def test_group_help_has_complete_summaries(cli: Cli):
    shown = " ".join(cli("sandbox", "--help").out.split())
    for verb in ("delete", "extend"):
        assert summary(VERBS[f"sandbox {verb}"]) in shown
