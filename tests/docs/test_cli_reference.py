"""The generated references of commands and reasons are current, and list every command, option and reason."""

import runpy

import click
import pytest
from tests.docs.conftest import ROOT

from dayfly.cli.verbs import root
from dayfly.plan.reasons import Reason
from dayfly.spec.report import STATES
from dayfly.spec.run import Phase

REFERENCE = ROOT / "docs" / "reference"
COMMANDS = (REFERENCE / "cli.md").read_text()


@pytest.mark.parametrize(("name", "script"), [("cli.md", "cli_reference.py"), ("reasons.md", "reason_reference.py")])
def test_generated_page_is_current(name: str, script: str):
    page = runpy.run_path(str(ROOT / "scripts" / script))["page"]
    assert (REFERENCE / name).read_text() == page(), "run: .venv/bin/python scripts/reference.py"


def options(command: click.Command, path: str = "dayfly") -> dict[str, set[str]]:
    """Return the options of each command below this one, by heading."""
    found = {} if path == "dayfly" else {path: {option for param in command.params for option in _shown(param)}}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found |= options(command.get_command(context, name), f"{path} {name}")
    return found


def _shown(param: click.Parameter) -> list[str]:
    return param.opts if isinstance(param, click.Option) and not param.hidden else []


@pytest.mark.parametrize(("heading", "names"), options(root).items())
def test_each_command_has_a_section_with_its_options(heading: str, names: set[str]):
    section = COMMANDS.partition(f"# {heading}\n")[2].partition("\n#")[0]
    rows = [line.partition(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert section.startswith(f"\n```text\n{heading} ")
    assert {name for name in names if not any(name in row for row in rows)} == set()
    assert len(rows) == len({row for row in rows if any(name in row for name in names)})


def test_reasons_page_lists_each_word():
    states, _, reasons = (REFERENCE / "reasons.md").read_text().partition("## Severities")
    assert [word for word in (*STATES, *Phase) if states.count(f"\n| `{word}` |") != 1] == []
    assert [word for word in Reason if reasons.count(f"\n| `{word}` |") != 1] == []
