"""What pages tell people to type exists, and what they are told they may see is said by us."""

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
    """The commands in the middle of sentences; blocks are typed by other tests."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`(?:\./)?dayfly ([a-z][^`|]*)", prose)


def trouble(words: list[str]) -> str:
    """What is wrong with a command line; empty if its verb and all its options are there."""
    context = click.Context(root)
    command: click.Command | None = root
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return "" if command.invoke_without_command else f"there is no {words[0]!r}"
        command, words = found, words[1:]
    assert command is not None
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
    for word in words[: words.index("--")] if "--" in words else words:
        if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word) and word.partition("=")[0] not in known:
            return f"{word} is no option of it"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_in_a_sentence_is_one(page):
    text = page.read_text()
    wrong = {
        each: said for each in inline(text) if (said := trouble(shlex.split(each.replace("'", ""), comments=True)))
    }
    assert wrong == {}


def test_a_command_that_is_none_would_be_found():
    assert trouble(["sandbox", "destroy", "x"]) == "there is no 'destroy'"
    assert trouble(["why", "x", "--loud"]) == "--loud is no option of it"
    assert trouble(["with", "-f", "x", "--", "make", "--loud"]) == ""


def test_every_reason_in_troubleshooting_is_one():
    page = (ROOT / "docs" / "guides/troubleshoot.md").read_text()
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][A-Za-z]*))`", page))
    assert len(named) >= 9
    assert named - {reason.value for reason in Reason} == set()
