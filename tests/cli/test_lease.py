"""What `dayfly with` does while its command runs: it keeps the sandbox, wherever the server is by then."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import threading
from typing import TYPE_CHECKING, Any

import pytest

from cli.command import until
from cli.fake import ORG, Fake, serving
from control import client as control
from control.fake_host import FakeHost
from dayfly.cli import lock, server, with_
from dayfly.cli.child import Signals
from dayfly.cli.client import Address, Client
from dayfly.cli.sharing import Sharing
from dayfly.client.home import Home
from dayfly.control.sandboxes import Sandboxes

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


def test_a_wish_that_is_still_on_its_way_when_we_are_interrupted_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else it is made behind our back, and a server that was started for us is stopped with it in its ledger."""
    wished, ended = threading.Event(), threading.Event()
    host, stop, delete = FakeHost(), FakeHost.stop, Sandboxes.delete

    async def stopping(self: FakeHost, uid: str, request: Any, *, known: bool) -> Any:
        verdict = await stop(self, uid, request, known=known)
        if uid in self.offers:
            self.finish(uid)
        return verdict

    async def deleting(self: Sandboxes, request: Any) -> Any:
        ended.set()
        return await delete(self, request)

    monkeypatch.setattr(FakeHost, "stop", stopping)
    monkeypatch.setattr(Sandboxes, "delete", deleting)
    with control.serving(tmp_path / "control.db", {"local": host}) as there:
        write = there.store.write

        async def slow(work: Any, *of: str) -> Any:
            wished.set()
            while not ended.is_set():  # noqa: ASYNC110 - it is another thread that says so
                await asyncio.sleep(0.01)
            return await write(work, *of)

        monkeypatch.setattr(there.store, "write", slow)
        wishing = threading.Thread(target=there.put, args=("sandboxes/w", {"spec": {"cluster": "local"}}))
        wishing.start()
        assert wished.wait(10)
        client = Client(Address(f"http://127.0.0.1:{there.port}", control.KEY))
        assert with_._clean_up(client, Signals(), "w") == 0
        client.close()
        ended.set()
        wishing.join(10)
        assert there.get("sandboxes") == []


@pytest.mark.parametrize(("runs", "stopped"), [(4, [4]), (5, []), (None, [])])
def test_a_server_that_somebody_else_started_meanwhile_is_not_stopped(
    home: Home, monkeypatch: pytest.MonkeyPatch, runs: int | None, stopped: list[int]
):
    asked: list[int] = []
    monkeypatch.setattr(lock, "process", lambda _: runs)
    monkeypatch.setattr(server, "stop", lambda _home, pid, _seconds: asked.append(pid))
    fake = Fake()
    fake.say("GET", "sandboxes", [])
    with serving(fake) as url:
        client = Client(Address(url, "key"))
        with_._stop_unless_used(home, client, 4)
        client.close()
    assert asked == stopped


class TestSharing:
    """Of two commands the first has started the server; the second has found it, and wished for nothing yet."""

    @pytest.fixture
    def stopped(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        found: list[int] = []
        monkeypatch.setattr(with_, "_reach", lambda _home: (Client(Address("http://127.0.0.1:9", "key")), self.ours))
        monkeypatch.setattr(with_, "_stop_unless_used", lambda _home, _client, ours: found.append(ours))
        return found

    def test_a_server_that_another_command_has_found_is_stopped_by_that_one(self, home: Home, stopped: list[int]):
        self.ours = 4
        first = with_._running_server(home)
        assert first.__enter__().ours
        self.ours = None
        with with_._running_server(home) as second:
            assert not second.ours
            first.__exit__(None, None, None)
            assert stopped == []
        assert stopped == [4], "the last of them does what the first would have done"
        with with_._running_server(home):
            pass
        assert stopped == [4], "what is kept is the user's"
        self.ours = 5
        with with_._running_server(home):
            assert stopped == [4]
        assert stopped == [4, 5]

    @pytest.mark.parametrize("note", ["", "x", "9" * 5000, "-4"])
    def test_a_note_that_is_none_stops_nobodys_server(self, home: Home, stopped: list[int], note: str):
        home.make()
        (home.path / "with.lock").write_text(note)
        self.ours = None
        with with_._running_server(home):
            pass
        assert stopped == []

    def test_of_two_that_end_at_once_the_last_one_stops_it(self, home: Home):
        """Each finds the other's lock at first: whoever let go last is alone."""
        with Sharing(home, 1) as first, Sharing(home, 1) as second:
            assert not first.alone()
            assert second.alone()

    def test_who_comes_while_it_is_being_stopped_waits_for_that(self, home: Home, stopped: list[int]):
        self.ours, came, found = 4, threading.Event(), []

        def comes() -> None:
            came.set()
            with with_._running_server(home):
                found.extend(stopped)

        coming = threading.Thread(target=comes)

        def stop(_home: Home, _client: Client, ours: int) -> None:
            self.ours = None
            coming.start()
            assert came.wait(10)
            coming.join(0.1)
            stopped.append(ours)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(with_, "_stop_unless_used", stop)
            with with_._running_server(home):
                pass
        coming.join(10)
        assert found == stopped == [4]

    def test_where_nothing_can_be_locked_a_command_goes_on(self, home: Home, stopped: list[int]):
        def refuse(_descriptor: int, _how: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        self.ours = 4
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(fcntl, "flock", refuse)
            with with_._running_server(home):
                pass
        (home.path / "with.lock").unlink()
        (home.path / "with.lock").mkdir()
        with with_._running_server(home):
            pass
        assert stopped == [4, 4]


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
    assert capsys.readouterr().err == f"dayfly: w has ended, and the command is still running: {words}\n"
