"""The page about agents shows real output, and the page, the skill and the manifest name what exists."""

import json
import re

import pytest
from tests.docs.conftest import ROOT, Person

from dayfly import __version__
from dayfly.cli.mcp.connection_files import ConnectionFiles
from dayfly.cli.mcp.server import build_server
from dayfly.server.runs.agent_sessions import DEFAULT_LEASE_S

PAGE = (ROOT / "docs/guides/agents.md").read_text()


@pytest.mark.slow
def test_agents_page_shows_the_real_output(person: Person):
    found = person.follow(ROOT / "docs/guides/agents.md")
    assert not found, "\n".join(found)


async def test_page_and_skill_name_only_tools_that_exist():
    tools = {each.name for each in await build_server(_NoAccess(), ConnectionFiles()).list_tools()}
    described = re.findall(r"^\| (`[a-z`, ]+`) \|", PAGE.partition("| tool | does |")[2], re.MULTILINE)
    assert set(re.findall(r"[a-z]+", " ".join(described))) == tools
    skill = (ROOT / "skills/dayfly/SKILL.md").read_text()
    assert set(re.findall(r"[Cc]all `([a-z]+)`", skill)) < tools


def test_manifest_has_the_version_of_the_package():
    manifest = json.loads((ROOT / "skills/server.json").read_text())
    (package,) = manifest["packages"]
    assert (manifest["version"], package["version"]) == (__version__, __version__)
    assert package["packageArguments"] == [{"type": "positional", "value": "mcp"}]


def test_page_has_the_lease_of_a_session():
    assert f"a lease of {DEFAULT_LEASE_S // 60} minutes" in PAGE


class _NoAccess:
    """For tests that call no tool."""

    def use(self, headers):
        raise AssertionError(headers)
