"""`dayfly with` renews the lease while its command runs, also after a restart of the server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import until
from tests.cli.fake_server import serving
from tests.cli.sample_specs import waiting
from tests.cli.with_command import FakeServer, fake_home, run_with
from tests.server import client as control
from tests.server.fake_host import FakeHost

from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.commands import with_command
from dayfly.cli.local import server_process
from dayfly.cli.local.temporary_server import UserLock
from dayfly.client.address import Address
from dayfly.client.home import Home
from dayfly.server.runs.run_service import RunService

__all__ = ["fake_home"]


def test_with_follows_server_restarted_elsewhere(fake_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Else the lease runs out, and the next server takes the resource away under the running command."""
    monkeypatch.setattr(with_command, "RENEW_INTERVAL_S", 0.02)
    first, second, done = FakeServer(), FakeServer(), tmp_path / "done"
    with serving(second) as there, contextlib.ExitStack() as stack:
        fake_home.url.write_text(stack.enter_context(serving(first)))

        def restart() -> None:
            until(lambda: first.count("GET", "/outputs"))
            fake_home.url.write_text(there)
            stack.close()
            until(lambda: second.count("PUT", "/lease") > 1)
            done.touch()

        restarting = threading.Thread(target=restart)
        restarting.start()
        assert run_with(tmp_path, "--", "sh", "-c", waiting(done)) == 0
        restarting.join()
    assert done.exists()
    assert second.deleted, "the cleanup is requested from the server that runs by then"
    assert not first.deleted


def test_with_interrupted_during_apply_deletes_sandbox(
    fake_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else the server makes it later, and a server that was started for us is stopped with it in its ledger."""
    applying, deleted = threading.Event(), threading.Event()
    host, stop, delete = FakeHost(), FakeHost.stop, RunService.delete

    async def stopping(self: FakeHost, uid: str, request: Any, *, known: bool) -> Any:
        verdict = await stop(self, uid, request, known=known)
        if uid in self.offers:
            self.finish(uid)
        return verdict

    async def deleting(self: RunService[Any], request: Any) -> Any:
        deleted.set()
        return await delete(self, request)

    monkeypatch.setattr(FakeHost, "stop", stopping)
    monkeypatch.setattr(RunService, "delete", deleting)
    with control.serving(tmp_path / "control.db", {"local": host}) as there:
        write = there.store.write

        async def slow(work: Any, *of: str) -> Any:
            applying.set()
            while not deleted.is_set():  # noqa: ASYNC110 - it is another thread that says so
                await asyncio.sleep(0.01)
            return await write(work, *of)

        def interrupt() -> None:
            if applying.wait(30):
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(there.store, "write", slow)
        fake_home.url.write_text(f"http://127.0.0.1:{there.port}")
        fake_home.key.write_text(control.KEY)
        fake_home.key.chmod(0o600)
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        assert run_with(tmp_path, "--", "true") == 128 + signal.SIGINT
        interrupting.join()
        assert deleted.is_set()
        until(lambda: there.get("sandboxes") == [])


@pytest.mark.parametrize(("status", "words"), [(404, "not found"), (409, "is being deleted")])
def test_with_reports_deleted_sandbox_once(
    fake_home: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    words: str,
):
    monkeypatch.setattr(with_command, "RENEW_INTERVAL_S", 0.02)
    fake, done = FakeServer(), tmp_path / "done"
    fake.lease, fake.ready = (status, {"error": words}), False
    early = []

    def go_on() -> None:
        until(lambda: fake.count("PUT", "/lease") > 2)
        early.append(capsys.readouterr().err)
        fake.ready = True
        until(lambda: fake.count("GET", "/outputs"))
        before = fake.count("PUT", "/lease")
        until(lambda: fake.count("PUT", "/lease") > before + 4)
        done.touch()

    with serving(fake) as url:
        fake_home.url.write_text(url)
        going_on = threading.Thread(target=go_on)
        going_on.start()
        assert run_with(tmp_path, "--", "sh", "-c", waiting(done)) == 0
        going_on.join()
    assert "has ended" not in early[0], "it may not have been made yet"
    assert capsys.readouterr().err.count(f" has ended, and the command is still running: {words}\n") == 1


class TestStopping:
    """A server that was started for `dayfly with` is stopped after the last command that uses it."""

    @pytest.fixture
    def stopped(self, fake_home: Home, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The servers that were stopped. `self.runs` is the process of the server that runs after the command."""
        found: list[int] = []
        monkeypatch.setattr(server_process, "stop", lambda _home, pid, _seconds: found.append(pid))
        return found

    def run(self, fake_home: Home, folder: Path, *, starts: int = 0, runs: int | None = None) -> int:
        """Run a command that starts a server as this process, or finds one; then the process `runs` is the server."""
        processes = iter([starts] if starts else [])
        with serving(FakeServer()) as url, pytest.MonkeyPatch.context() as patched:
            patched.setattr(Home, "server_process", lambda _home: next(processes, starts if runs is None else runs))
            patched.setattr(server_process, "start", lambda *_: ServerClient(Address(url, "key")))
            fake_home.url.unlink(missing_ok=True)
            if not starts:
                fake_home.url.write_text(url)
            return run_with(folder, "--", "true")

    @pytest.mark.parametrize(("runs", "stops"), [(4, [4]), (5, [])])
    def test_with_stops_only_the_server_it_started(
        self, fake_home: Home, tmp_path: Path, stopped: list[int], runs: int, stops: list[int]
    ):
        assert self.run(fake_home, tmp_path, starts=4, runs=runs) == 0
        assert stopped == stops

    def test_last_command_stops_server_of_the_first(self, fake_home: Home, tmp_path: Path, stopped: list[int]):
        with UserLock(fake_home, 1):
            self.run(fake_home, tmp_path, starts=4)
            assert stopped == [], "another command uses it"
        self.run(fake_home, tmp_path, runs=4)
        assert stopped == [4]
        self.run(fake_home, tmp_path, runs=4)
        assert stopped == [4], "a server that was already running stays"
        self.run(fake_home, tmp_path, starts=5)
        assert stopped == [4, 5]

    @pytest.mark.parametrize("note", ["", "x", "9" * 5000, "-4"])
    def test_invalid_note_stops_no_server(self, fake_home: Home, tmp_path: Path, stopped: list[int], note: str):
        fake_home.users.write_text(note)
        assert self.run(fake_home, tmp_path, runs=4) == 0
        assert stopped == []

    def test_only_one_of_two_ending_commands_is_alone(self, fake_home: Home):
        """Only the command that releases its lock last is the last user."""
        with UserLock(fake_home, 1) as first, UserLock(fake_home, 1) as second:
            assert not first.release_as_last()
            assert second.release_as_last()

    def test_new_command_waits_while_server_stops(
        self, fake_home: Home, tmp_path: Path, stopped: list[int], monkeypatch: pytest.MonkeyPatch
    ):
        came, found = threading.Event(), []

        def come() -> None:
            came.set()
            with UserLock(fake_home, 10):
                found.extend(stopped)

        coming = threading.Thread(target=come)

        def stop(_home: Home, pid: int, _seconds: float) -> None:
            coming.start()
            assert came.wait(10)
            coming.join(0.1)
            stopped.append(pid)

        monkeypatch.setattr(server_process, "stop", stop)
        self.run(fake_home, tmp_path, starts=4)
        coming.join(10)
        assert found == stopped == [4]

    def test_with_runs_where_no_lock_is_possible(self, fake_home: Home, tmp_path: Path, stopped: list[int]):
        def refuse(_descriptor: int, _how: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(fcntl, "flock", refuse)
            assert self.run(fake_home, tmp_path, starts=4) == 0
        fake_home.users.unlink()
        fake_home.users.mkdir()
        assert self.run(fake_home, tmp_path, starts=4) == 0
        assert stopped == [4, 4]
