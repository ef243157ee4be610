"""Commands in sentences of the docs have existing verbs and options, and the reasons of Troubleshoot exist."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from tests.docs.conftest import ROOT

from dayfly.cli.verbs import root
from dayfly.plan.reasons import Reason

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "deploy" / "README.md")


def inline(text: str) -> list[str]:
    """Return the commands in sentences and tables. Other tests type the blocks."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).replace("\\|", "|")
    return re.findall(r"`(?:\./)?dayfly ([a-z][^`|]*)", prose)


def find_mistake(words: list[str]) -> str:
    """Return the mistake in a command line; empty if its verb and all its options exist."""
    context = click.Context(root)
    command: click.Command | None = root
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return "" if command.invoke_without_command else f"unknown command {words[0]!r}"
        command, words = found, words[1:]
    assert command is not None
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
    for word in words[: words.index("--")] if "--" in words else words:
        if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word) and word.partition("=")[0] not in known:
            return f"unknown option {word}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_in_a_sentence_exists(page):
    text = page.read_text()
    wrong = {
        each: mistake
        for each in inline(text)
        if (mistake := find_mistake(shlex.split(each.replace("'", ""), comments=True)))
    }
    assert wrong == {}


def test_unknown_command_or_option_is_found():
    assert find_mistake(["sandbox", "destroy", "x"]) == "unknown command 'destroy'"
    assert find_mistake(["why", "x", "--loud"]) == "unknown option --loud"
    assert find_mistake(["with", "-f", "x", "--", "make", "--loud"]) == ""


def test_every_reason_on_the_troubleshooting_page_exists():
    page = (ROOT / "docs" / "guides/troubleshoot.md").read_text()
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][A-Za-z]*))`", page))
    assert len(named) >= 9
    assert named - {reason.value for reason in Reason} == set()
