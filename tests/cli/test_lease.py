"""What `dayfly with` does while its command runs: it keeps the sandbox, wherever the server is by then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.command import until
from cli.fake import ORG, Fake, serving
from dayfly.cli import server, with_
from dayfly.cli.child import Signals
from dayfly.cli.client import Address, Client
from dayfly.cli.home import Home

if TYPE_CHECKING:
    from pathlib import Path

LEASE = f"{ORG}sandboxes/w/lease"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home to which a test says where its server is."""
    monkeypatch.setenv("DAYFLY_HOME", str(tmp_path))
    monkeypatch.delenv("DAYFLY_URL", raising=False)
    monkeypatch.setattr(with_, "RENEW_S", 0.02)
    return Home(tmp_path)


def _asked(fake: Fake, method: str) -> bool:
    return any(asked[0] == method for asked in fake.asked)


def test_a_server_that_was_started_again_elsewhere_is_found(home: Home):
    """Else the lease runs out, and the next server takes the resource away under the running command."""
    first, second = Fake(), Fake()
    for fake in (first, second):
        fake.say("PUT", "sandboxes/w/lease", {"seconds": 30})
    with serving(first) as url:
        home.url.write_text(url)
        client = Client(Address(url, "key"))
        lease = with_._Lease(client, "w")
        lease.__enter__()
        until(lambda: _asked(first, "PUT"))
    try:
        with serving(second) as url:
            home.url.write_text(url)
            until(lambda: ("PUT", LEASE, {"seconds": 30}) in second.asked)
    finally:
        lease.__exit__(None, None, None)
        lease._thread.join(10)


def test_the_cleanup_is_asked_of_the_server_that_is_there_by_then(home: Home):
    over = {"uid": "u", "phase": "cleaned", "version": 1, "reason": "Cleaned", "message": "", "units": []}
    fake = Fake()
    fake.say("GET", "sandboxes/w/report", over)
    fake.say("DELETE", "sandboxes/w", {})
    with serving(fake) as url:
        home.url.write_text(url)
        client = Client(Address("http://127.0.0.1:1", "key"))
        assert with_._clean_up(client, Signals(), "w") == 0
        client.close()
    assert _asked(fake, "DELETE")


@pytest.mark.parametrize(("runs", "stopped"), [(4, [4]), (5, []), (None, [])])
def test_a_server_that_somebody_else_started_meanwhile_is_not_stopped(
    home: Home, monkeypatch: pytest.MonkeyPatch, runs: int | None, stopped: list[int]
):
    asked: list[int] = []
    monkeypatch.setattr(server, "process", lambda _: runs)
    monkeypatch.setattr(server, "stop", lambda _home, pid, _seconds: asked.append(pid))
    fake = Fake()
    fake.say("GET", "sandboxes", [])
    with serving(fake) as url:
        client = Client(Address(url, "key"))
        with_._stop_unless_used(home, client, 4)
        client.close()
    assert asked == stopped


@pytest.mark.parametrize(("status", "words"), [(404, "not found"), (409, "is being deleted")])
def test_a_sandbox_that_somebody_ends_meanwhile_is_said_once(
    home: Home, capsys: pytest.CaptureFixture[str], status: int, words: str
):
    fake = Fake()
    fake.say("PUT", "sandboxes/w/lease", {"error": words}, status=status)
    with serving(fake) as url, with_._Lease(Client(Address(url, "key")), "w") as lease:
        until(lambda: len(fake.asked) > 1)
        assert capsys.readouterr().err == "", "it may not have been made yet"
        lease.kept = True
        before = len(fake.asked)
        until(lambda: len(fake.asked) > before + 3)
    lease._thread.join(10)
    assert capsys.readouterr().err == f"dayfly: w has been ended, and the command still runs: {words}\n"
