"""The process of a proxy (the holder of its lock, its watch and its end), and probes of ports."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess

import pytest
from tests.embedded.attempts_bench import is_reaped, sleeping
from tests.embedded.machine import until

from dayfly.embedded.process_exits import reap
from dayfly.embedded.routes import envoy_process
from dayfly.embedded.routes.envoy_process import Process, build_stamp, holder, is_closed, unbindable


class TestHolder:
    def test_lock_holder_is_the_process_with_the_open_file(self, tmp_path):
        lock = tmp_path / "lock"
        held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(["sleep", "60"], pass_fds=(held,)) as child:
            os.close(held)
            assert holder(str(lock)) == child.pid
            child.kill()
        assert holder(str(lock)) == 0, "the lock exists, and no process holds it"

    def test_lock_holder_is_never_this_process(self, tmp_path):
        """A process that only checks the lock has the file open as well."""
        lock = tmp_path / "lock"
        ours = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        with lock.open() as held, subprocess.Popen(["sleep", "60"], pass_fds=(held.fileno(),)) as child:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert holder(str(lock)) == child.pid
            child.kill()
        os.close(ours)

    def test_missing_lock_has_no_holder(self, tmp_path):
        assert holder(str(tmp_path / "lock")) == 0


def test_port_in_use_cannot_be_bound():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert unbindable(port) == "address already in use"
    assert unbindable(port) == ""


def test_port_without_listener_is_closed(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_closed(port)
    assert is_closed(port)
    asked = []
    monkeypatch.setattr(socket, "create_connection", lambda to, timeout: asked.append((to, timeout)) or server)
    assert not is_closed(port)
    assert asked == [(("127.0.0.1", port), 2.0)], "the probe has a timeout"


def test_another_build_of_a_program_has_another_stamp(tmp_path):
    program = tmp_path / "envoy"
    assert build_stamp(str(program)) == []
    stamps = []
    for text, at in (("1", 1), ("12", 1), ("12", 2)):
        program.write_text(text)
        os.utime(program, ns=(at, at))
        stamps.append(tuple(build_stamp(str(program))))
    assert len(set(stamps)) == 3
    assert tuple(build_stamp(str(program))) == stamps[-1]


class TestProcess:
    @pytest.fixture
    def opened(self, monkeypatch):
        """Return the opened pidfds, in order."""
        found, opens = [], os.pidfd_open
        monkeypatch.setattr(os, "pidfd_open", lambda *given: found.append(opens(*given)) or found[-1])
        return found

    @pytest.fixture(params=[True])
    async def begun(self, request, opened):
        """A watched process, our child by default, and the number of its end notifications."""
        self.told = []
        self.child = sleeping()
        found = Process(self.child, child=request.param, ended=lambda: self.told.append(self.child))
        yield found
        if not self.is_gone():
            os.kill(self.child, signal.SIGKILL)
            await until(self.is_gone)

    def is_gone(self) -> bool:
        return reap(self.child)

    async def test_end_of_process_is_reported_once_and_reaped(self, begun, opened):
        os.kill(self.child, signal.SIGKILL)
        await until(lambda: self.told)
        assert is_reaped(self.child)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(opened[0])
        await begun.end()
        assert self.told == [self.child]

    @pytest.mark.parametrize("heeds", [True, False])
    async def test_process_ignoring_sigterm_is_killed_without_a_report(self, begun, monkeypatch, heeds):
        sent, send = [], signal.pidfd_send_signal

        def noted(descriptor, number):
            sent.append(number)
            if heeds or number == signal.SIGKILL:
                send(descriptor, number)

        monkeypatch.setattr(envoy_process, "KILL_AFTER_S", 60 if heeds else 0.01)
        monkeypatch.setattr(signal, "pidfd_send_signal", noted)
        await begun.end()
        assert sent == [signal.SIGTERM, signal.SIGKILL][: 1 if heeds else 2]
        await until(self.is_gone)
        assert self.told == []

    async def test_released_process_continues_without_reports(self, begun, opened):
        begun.detach()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(opened[0])
        assert not self.is_gone()
        os.kill(self.child, signal.SIGKILL)
        await until(self.is_gone)
        assert self.told == []

    @pytest.mark.parametrize("begun", [False], indirect=True)
    async def test_process_of_another_parent_is_not_waited_for(self, begun, monkeypatch):
        monkeypatch.setattr(
            envoy_process.os, "waitpid", lambda *_: pytest.fail("the number may belong to another process")
        )
        os.kill(self.child, signal.SIGKILL)
        await until(lambda: self.told)
        monkeypatch.undo()
