"""The end of `dayfly mcp` and of its sandboxes: no file and no session stays behind, whatever its calls are doing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli import fake_server
from tests.cli.fake_server import Fake

from dayfly.cli.mcp.agent_api import ServedSession
from dayfly.cli.mcp.connection_files import ConnectionFiles
from dayfly.cli.mcp.tools import Tools
from dayfly.client.address import Address
from dayfly.client.errors import DayflyError

if TYPE_CHECKING:
    from collections.abc import Iterator


def _user(**more: str) -> dict[str, Any]:
    return {"orgs": [{"name": "local"}], "user": {"agent": {"prefix": "p-", "limits": {}, **more}}}


@pytest.fixture
def fake() -> Fake:
    fake = Fake()
    fake.say("GET", "/api/v2/orgs", _user(), _user(session="s"))
    fake.say("POST", "sessions", {"name": "s", "key": "dfs_s_x"})
    fake.say("DELETE", "sessions/s", {})
    return fake


@pytest.fixture
def session(fake: Fake) -> Iterator[ServedSession]:
    with fake_server.serving(fake) as url:
        yield ServedSession(Address(url, "dfk_a_b"), 600)


async def _call(session: ServedSession) -> None:
    async with session.use(None):
        pass


def _changes(fake: Fake) -> list[tuple[str, str]]:
    return [(method, path.rpartition("/local/")[2]) for method, path, _ in fake.asked if method != "GET"]


async def test_call_after_the_end_starts_no_session(fake: Fake, session: ServedSession):
    await _call(session)
    await session.close()
    with pytest.raises(DayflyError, match="is ending"):
        await _call(session)
    assert _changes(fake) == [("POST", "sessions"), ("DELETE", "sessions/s")]


async def test_session_that_is_being_started_is_ended(fake: Fake, session: ServedSession):
    calling = asyncio.create_task(_call(session))
    await asyncio.sleep(0)
    await session.close()
    await calling
    assert _changes(fake) == [("POST", "sessions"), ("DELETE", "sessions/s")]


def test_no_file_is_written_after_the_end():
    files = ConnectionFiles()
    written = Path(files.write("a", "A=1\n"))
    files.close()
    with pytest.raises(DayflyError, match="no file was written"):
        files.write("b", "B=2\n")
    assert not written.parent.exists()


async def _ignore(_done: int, _total: int, _message: str) -> None:
    pass


@pytest.mark.parametrize("report", [{"uid": "u"}, {"uid": "u", "phase": "cleaned", "ready": False}])
async def test_ended_sandbox_is_absent(fake: Fake, session: ServedSession, report: dict[str, Any]):
    """A host forgets the reports of ended sandboxes after some time."""
    fake.say("GET", "sandboxes/p-x/report", report)
    async with session.use(None) as api:
        tools = Tools(api, None)
        for answer in (await tools.wait("x", 1, _ignore), await tools.connect("x", _ignore)):
            assert answer == {"sandbox": "p-x", "state": "absent"}
    await session.close()


async def test_create_succeeds_if_the_old_sandbox_is_just_gone(fake: Fake, session: ServedSession):
    created = {"metadata": {"name": "p-x"}}
    fake.answers["PUT", "sandboxes/p-x"] = [(412, {"error": "it exists already"}), (200, created)]
    async with session.use(None) as api:
        assert await api.create_sandbox("p-x", {"cluster": "local"}) == (created, False)
    assert ("GET", "/api/v2/orgs/local/sandboxes/p-x", None) in fake.asked
    await session.close()
