"""`scripts/prose.py` finds each habit in pages, comments and docstrings, and no habit in clear prose."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "prose.py"


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dayfly_scripts_prose", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def reasons(prose: ModuleType, path: str, source: str) -> list[tuple[int, str]]:
    """Return the line and the reason of each place."""
    places = [place.split(": ")[:2] for place in prose.check(path, source)[1]]
    return [(int(place.removeprefix(f"{path}:")), reason) for place, reason in places]


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("Where a file exists, it is read.", "clause as subject"),
        ("What is owed is sent again.", "clause as subject"),
        ("Who holds the lease writes.", "clause as subject"),
        ("Of several servers the first publishes.", "clause as subject"),
        ("One that is older is deleted.", "clause as subject"),
        ("The file is read if nobody writes it.", "unnamed person"),
        ("The lock belongs to whoever took it.", "unnamed person"),
        ("The server is told about the change.", "speaking program"),
        ("The log says that the server stopped.", "speaking program"),
        ("The server hears from the operator.", "speaking program"),
        ("The operator asks the server.", "speaking program"),
        ("The queue keeps so many events.", "vague amount"),
        ("The request waits so long.", "vague amount"),
        ("The server starts anew.", "archaic word"),
        ("Only the owner alone may write.", "archaic word"),
        ("The pod is no more there.", "archaic word"),
        ("The record is kept for ever.", "archaic word"),
        ("Meanwhile the server waits.", "archaic word"),
        ("The file lies in a folder.", "archaic word"),
        ("The parser passes over the field.", "archaic word"),
        ("The fork has a name of its own.", "archaic word"),
        ("The pod is to end now.", "archaic word"),
        (" ".join(["The", *["word"] * 29, "ends."]), "31 words"),
    ],
)
def test_each_habit_is_found_once(prose: ModuleType, sentence: str, reason: str):
    assert reasons(prose, "page.md", f"{sentence}\n") == [(1, reason)]


@pytest.mark.parametrize(
    "sentence",
    [
        "The operator reports the state, and the server stores it.",
        "If there are no subscribers, the event is dropped.",
        "What happens if the lease expires?",
        "You asked for a plan: the user says which one.",
        "No more than 20 connections are open, so leave it alone.",
        "The command `so many anew` is code, as is `Where it lies in`.",
        "The start time tells the process apart from a later one.",
        " ".join(["The", *["word"] * 28, "ends."]),
    ],
)
def test_clear_sentences_have_no_habit(prose: ModuleType, sentence: str):
    assert reasons(prose, "page.md", f"{sentence}\n") == []


def test_code_blocks_and_headings_of_a_page_are_skipped(prose: ModuleType):
    page = "# What it says\n\n```\nThe log says no more.\n```\n\n- The list is long.\n- The item\n  says so.\n\n| a | it says |\n"
    assert reasons(prose, "page.md", page) == [(8, "speaking program"), (11, "speaking program")]


def test_places_in_python_have_the_line_of_their_sentence(prose: ModuleType):
    source = '''"""It is a module.

The first line is clear. The second one
is to end.
"""

TEXT = ["'", "The log says so. # It says so."]


class Runner:
    def run():
        """Run.

        Args:
            name: The name.
            command: The command
                says so.
        """
        return 1  # The log says so. # noqa


# A comment of two lines, which
# says so.
'''
    assert sorted(reasons(prose, "module.py", source)) == [
        (1, "pronoun as subject"),
        (3, "archaic word"),
        (16, "speaking program"),
        (19, "speaking program"),
        (22, "speaking program"),
    ]


@pytest.mark.parametrize(
    ("path", "source", "line"),
    [
        ("run.sh", '#!/bin/sh\necho "# it says"\n# The log says so.\n', 3),
        ("run.c", 'char *text = "// it says";\n\n/* The log\n * says so. */\n', 3),
        ("run.ts", "const url = `https://says.example/`; // The log says so.\n", 1),
    ],
)
def test_comments_of_each_language_are_read(prose: ModuleType, path: str, source: str, line: int):
    assert reasons(prose, path, source) == [(line, "speaking program")]


def test_command_prints_the_rate_and_the_places():
    run = subprocess.run([sys.executable, SCRIPT, "CONTRIBUTING.md"], capture_output=True, text=True, check=False)
    assert run.stdout.startswith("CONTRIBUTING.md: ")
    assert run.returncode == int("FAILED" in run.stdout.split("\n")[0])
