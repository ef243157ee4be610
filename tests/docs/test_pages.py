"""The commands on the pages print what the pages show, and the pages list every command, variable and file."""

import functools
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
from dayfly.client.home import Home
from dayfly.server.http import openapi

DOCS = ROOT / "docs"
ENVIRONMENT = (DOCS / "reference/environment.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("page", ["command-line.md", "automate-the-command-line.md"])
def test_command_line_page_shows_the_real_output(person: Person, page: str):
    found = person.follow(DOCS / "guides" / page)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.builds("page")
def test_server_page_shows_the_real_output(person: Person):
    found = person.follow(DOCS / "guides/server.md")
    assert not found, "\n".join(found)


def every_command() -> list[str]:
    """Return all commands, such as `up` and `sandbox apply`."""
    found = []
    context = click.Context(root)
    for name in root.list_commands(context):
        verb = root.get_command(context, name)
        below = list(verb.commands) if isinstance(verb, click.Group) else [""]
        found += [f"{name} {sub}".strip() for sub in below]
    return found


@functools.cache
def typed_commands() -> str:
    """Return the commands of all pages whose output a test compares, one in a line."""
    pages = [page for page in DOCS.rglob("*.md") if "\n```console\n" in page.read_text()]
    return "\n".join(command.text for page in pages for command in commands(page) if command.shown is not None)


@pytest.mark.parametrize("name", every_command())
def test_every_command_is_shown(name: str):
    assert re.search(rf"^dayfly {name}\b", typed_commands(), re.MULTILINE)


def test_cluster_page_shows_every_command_with_context():
    """`page`, `operator` and `routeserver` do not return by themselves. tests/cluster compares the output."""
    typed = "\n".join(command.text for command in commands(DOCS / "guides/cluster.md"))
    context = click.Context(root)
    names = [
        name
        for name in root.list_commands(context)
        if name not in ("operator", "page", "routeserver")
        and any(param.name == "context" for param in root.get_command(context, name).params)
    ]
    assert len(names) == 11
    for name in names:
        assert re.search(rf"^dayfly {name}\b.* --context ", typed, re.MULTILINE), name


def test_environment_page_lists_each_exit_code():
    section = ENVIRONMENT.partition("## Exit codes")[2].partition("\n## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)} == set(Exit)


def test_environment_page_lists_each_variable_of_the_source():
    source = "\n".join(
        path.read_text()
        for package in ("dayfly.cli", "dayfly.client")
        for path in Path(importlib.import_module(package).__file__).parent.rglob("*.py")
    )
    read = set(re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", source))
    assert {"DAYFLY_HOME", "DAYFLY_URL"} <= read, "the search finds what is there"
    assert {name for name in read if f"`{name}`" not in ENVIRONMENT} - {"XDG_STATE_HOME"} == set()
    assert "$XDG_STATE_HOME" in ENVIRONMENT


def test_environment_page_lists_each_variable_of_an_option():
    def variables(command: click.Command) -> set[str]:
        found = {param.envvar for param in command.params if param.envvar}
        names = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ()
        return found.union(*(variables(command.get_command(click.Context(command), name)) for name in names))

    found = variables(root)
    assert {"DAYFLY_DATABASE", "DAYFLY_STEPS"} <= found
    assert {name for name in found if f"| `{name}` |" not in ENVIRONMENT} == set()


def test_environment_page_lists_each_file_of_a_home():
    home = Home.of("/home")
    files = {value.name for name in dir(Home) if isinstance(value := getattr(home, name), Path)} - {"home"}
    assert {"key", "url", "servers"} <= files
    assert {name for name in files if f"| `{name}` |" not in ENVIRONMENT} == set()


@pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: curl is not on this machine: install it")
def test_api_page_shows_the_real_answers(person: Person):
    found = person.follow(DOCS / "guides/rest-api.md")
    assert not found, "\n".join(found)


def test_api_page_requests_each_address_and_method():
    # Only hosts use the addresses below /agent/.
    paths = {path: of for path, of in openapi.document("0")["paths"].items() if "/agent/" not in path}
    typed = [command.text for command in commands(DOCS / "guides/rest-api.md") if command.shown is not None]
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
def test_transcript_reports_different_text(shown: list[str], printed: list[str]):
    assert "it prints:" in differences(Command("c", shown), printed)


def test_hanging_page_is_killed_with_its_processes(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one\none\n$ cat pipe\n```\n")
    os.mkfifo(tmp_path / "pipe")
    environment = {**os.environ, "PLAYED_IN": str(tmp_path)}
    with pytest.raises(AssertionError, match=r"page\.md has printed nothing for 0\.5 s, so far:[^$]*\none\n"):
        follow(page, tmp_path, environment, {}, seconds=0.5)
    # The kernel needs some time to end a killed process.
    eventually(lambda: not processes(str(tmp_path)), "the end of the processes of the page")
