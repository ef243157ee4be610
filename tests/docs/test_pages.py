"""What the pages show is what one gets."""

import importlib
import os
import re
import shutil
from pathlib import Path

import click
import pytest
from tests.cluster.waiting import eventually
from tests.docs.conftest import ROOT, Person
from tests.docs.transcript import Command, commands, differences, follow
from tests.processes import processes

from dayfly.cli.verbs import root
from dayfly.client.errors import Exit
from dayfly.server.http import openapi

DOCS = ROOT / "docs"


@pytest.mark.slow
def test_cli_page_shows_the_real_output(person: Person):
    found = person.follow(DOCS / "cli.md")
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.builds("page")
def test_server_page_shows_the_real_output(person: Person):
    found = person.follow(DOCS / "server.md")
    assert not found, "\n".join(found)


def every_command() -> list[str]:
    """`up`, `sandbox apply` and so on, as the command line itself has them."""
    found = []
    context = click.Context(root)
    for name in root.list_commands(context):
        verb = root.get_command(context, name)
        below = list(verb.commands) if isinstance(verb, click.Group) else [""]
        found += [f"{name} {sub}".strip() for sub in below]
    return found


@pytest.mark.parametrize("name", every_command())
def test_every_command_is_shown(name: str):
    pages = [*commands(DOCS / "cli.md"), *commands(DOCS / "server.md")]
    typed = "\n".join(command.text for command in pages if command.shown is not None)
    assert re.search(rf"^dayfly {name}\b", typed, re.MULTILINE)


def test_every_command_that_asks_a_cluster_is_shown_there():
    """Of those that answer: `page`, `operator` and `routeserver` serve. What it prints is compared in tests/cluster."""
    typed = "\n".join(command.text for command in commands(DOCS / "cluster.md"))
    context = click.Context(root)
    asking = [
        name
        for name in root.list_commands(context)
        if name not in ("operator", "page", "routeserver")
        and any(param.name == "context" for param in root.get_command(context, name).params)
    ]
    assert len(asking) == 7
    for name in asking:
        assert re.search(rf"^dayfly {name}\b.* --context ", typed, re.MULTILINE), name


def test_the_exit_codes_are_those_of_the_program():
    section = (DOCS / "cli.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)} == set(Exit)


def test_cli_page_lists_every_variable_and_file():
    page = (DOCS / "cli.md").read_text()
    source = "\n".join(
        path.read_text()
        for room in ("dayfly.cli", "dayfly.client")
        for path in Path(importlib.import_module(room).__file__).parent.rglob("*.py")
    )
    read = set(re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", source))
    assert {"DAYFLY_HOME", "DAYFLY_URL"} <= read, "the search finds what is there"
    assert {name for name in read if f"`{name}`" not in page} - {"XDG_STATE_HOME"} == set()
    assert "$XDG_STATE_HOME" in page


@pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: curl is not on this machine: install it")
def test_api_page_shows_the_real_answers(person: Person):
    found = person.follow(DOCS / "api.md")
    assert not found, "\n".join(found)


def test_api_page_requests_each_address_and_method():
    # Only hosts use the addresses below /agent/.
    paths = {path: of for path, of in openapi.document("0")["paths"].items() if "/agent/" not in path}
    typed = [command.text for command in commands(DOCS / "api.md") if command.shown is not None]
    assert len(paths) > 10
    missing = []
    for path, methods in paths.items():
        below = path.replace("/orgs/{org}", "$org") if path.startswith("/orgs/") else f"$server{openapi.API}{path}"
        address = '"' + re.sub(r"\\\{\w+\\\}", '[^/"?]+', re.escape(below)) + '["?]'
        for method in (each.upper() for each in methods if each != "parameters"):
            asks = [
                text
                for text in typed
                if (f"-X {method} " in text) == (method != "GET") and ("-X " in text) == (method != "GET")
            ]
            if not any(re.search(address, text) for text in asks):
                missing.append(f"{method} {path}")
    assert missing == []


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["ready in 3 s"], ["ready in 250 ms"]),
        (["a 2026-01-02T03:04:05.678Z b"], ["a 2027-01-02T03:04:05Z b"]),
        (["it is ... there"], ["it is anything there"]),
        (["one", "demo: db/make: running", "two"], ["one", "two"]),
        (["one", "demo: db/make: succeeded after 3 ms", "two"], ["one", "two"]),
    ],
)
def test_transcript_ignores_times_and_progress(shown: list[str], printed: list[str]):
    assert differences(Command("c", shown), printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["ready"], ["Ready"]),
        (["one", "two"], ["one"]),
        ([], ["one"]),
        (["demo: db/make: succeeded"], ["demo: db/make: failed: ExitCode"]),
        ([], ["demo: db/make: succeeded"]),
        (["it is ... there"], ["it is anything here"]),
    ],
)
def test_another_text_is_a_difference(shown: list[str], printed: list[str]):
    assert "it prints:" in differences(Command("c", shown), printed)


def test_hanging_page_is_killed_with_its_processes(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one\none\n$ cat pipe\n```\n")
    os.mkfifo(tmp_path / "pipe")
    environment = {**os.environ, "PLAYED_IN": str(tmp_path)}
    with pytest.raises(AssertionError, match=r"page\.md has printed nothing for 0\.5 s, so far:[^$]*\none\n"):
        follow(page, tmp_path, environment, {}, seconds=0.5)
    # It is killed, and the kernel takes its time to take it down.
    eventually(lambda: not processes(str(tmp_path)), "the end of what the page has started")
