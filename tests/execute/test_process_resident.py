"""The resident runner: it leaves no process, and no request waits for its answer forever."""

import asyncio
import errno
import os
import signal
import socket
from pathlib import Path

import pytest
from tests.embedded.machine import until
from tests.execute.fake_resident import resident

from dayfly.execute.process.resident import Resident, UnansweredError

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def children():
    """Return our child processes, zombies included."""
    return {int(each) for each in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def leads_to(process, number):
    """Return the target of a file descriptor."""
    return str(Path(f"/proc/{process}/fd/{number}").readlink())


@pytest.fixture
def idle():
    """A child process that waits for a folder."""
    return os.posix_spawn("/bin/sleep", ["sleep", "60"], {})


def lives(process):
    """Return whether the process has not ended."""
    return os.waitpid(process, os.WNOHANG) == (0, 0)


@pytest.fixture
def begun():
    """Return the processes that the test has started and that still exist."""
    before = children()
    return lambda: children() - before


@pytest.fixture
def mute(tmp_path):
    """A runner that never answers."""
    return Resident(resident(tmp_path), ENVIRONMENT)


async def send_requests(runner, count=1):
    """Send requests."""
    questions = [asyncio.ensure_future(runner.fork(f"/folder/{number}", "none")) for number in range(count)]
    await asyncio.sleep(0)
    return questions


async def test_closed_runner_ends_and_answers_all_requests(mute, begun):
    for _ in range(2):
        questions = await send_requests(mute, 2)
        assert len(begun()) == 1
        questions[0].cancel()
        await asyncio.sleep(0)
        mute.close()
        assert not begun(), "no zombie is left"
        with pytest.raises(UnansweredError):
            await questions[1]
    mute.close()


@pytest.fixture
def ignoring_children():
    """Ignore SIGCHLD, as a program that embeds us may: the kernel reaps our children."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


async def test_runner_closes_if_the_kernel_reaps_its_children(ignoring_children, mute, begun):
    [question] = await send_requests(mute)
    mute.close()
    assert not begun()
    with pytest.raises(UnansweredError):
        await question


async def test_runner_does_not_write_to_our_terminal(mute, begun):
    """The runner and its launchers may outlive the server."""
    [question] = await send_requests(mute)
    [process] = begun()
    printed = [leads_to(process, number) for number in (1, 2)]
    mute.close()
    with pytest.raises(UnansweredError):
        await question
    assert printed == [os.devnull, os.devnull]


async def test_runner_that_ends_before_it_reads_raises_an_os_error(monkeypatch):
    """The caller can start the step in another way."""
    runner, spawn = Resident("/bin/false", {}), os.posix_spawn

    def ended(*how, **options):
        child = spawn(*how, **options)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        return child

    monkeypatch.setattr(os, "posix_spawn", ended)
    with pytest.raises(OSError, match="/bin/false") as told:
        await runner.fork("/folder", "none")
    assert told.value.errno == errno.EPIPE


async def test_stopped_runner_ends_when_it_is_closed(tmp_path, begun):
    """The runner has no state to lose."""
    path = tmp_path / "runner"
    path.write_text("#!/bin/sh\nkill -STOP $$\n")
    path.chmod(0o700)
    runner = Resident(str(path), ENVIRONMENT)
    [question] = await send_requests(runner)
    [process] = begun()
    await asyncio.to_thread(os.waitid, os.P_PID, process, os.WSTOPPED | os.WNOWAIT)
    runner.close()
    assert not begun()
    with pytest.raises(UnansweredError):
        await question


class Full(socket.socket):
    """A socket that fails with ENOBUFS for the next packets of these kinds."""

    refused: tuple[bytes, ...] = ()
    left = 0

    def send(self, packet, *flags):
        if self.left and packet.startswith(self.refused):
            type(self).left -= 1
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return super().send(packet, *flags)


@pytest.fixture
def full(monkeypatch):
    """Make the next packets of a kind fail."""
    pair = socket.socketpair

    def filled(*kind):
        ours, theirs = pair(*kind)
        return Full(fileno=ours.detach()), theirs

    monkeypatch.setattr(socket, "socketpair", filled)

    def refuse(packet, times):
        monkeypatch.setattr(Full, "refused", packet)
        monkeypatch.setattr(Full, "left", times)

    return refuse


async def test_failed_preparation_does_not_fail_the_fork(mute, full):
    """Otherwise the step would run twice."""
    full(b"prepare", 1)
    question = asyncio.ensure_future(mute.fork("/folder", "user"))
    await asyncio.sleep(0)
    assert not question.done()
    mute.close()
    with pytest.raises(UnansweredError):
        await question
    assert Full.left == 0


@pytest.mark.parametrize("refused", [0, 1])
async def test_idle_launcher_is_killed_after_its_release(tmp_path, full, begun, idle, refused):
    """Before that it may become the launcher of a step. Until it ends, it holds a copy of all mounts."""
    gate = tmp_path / "gate"
    full(b"release", refused)
    runner = Resident(resident(tmp_path, {"user": 1, "prepare": idle, "release": 0}, gate=gate), ENVIRONMENT)
    await runner.fork("/folder", "user")
    await asyncio.sleep(1.3)  # longer than one may wait for its folder
    assert Full.left == 0
    assert lives(idle)
    gate.touch()
    await until(lambda: idle not in begun(), "it to end")
    runner.close()
    assert not begun()


async def test_failure_to_fork_is_reported_with_its_reason(tmp_path):
    program = resident(tmp_path, {"/folder": -errno.ENOMEM})
    runner = Resident(program, ENVIRONMENT)
    with pytest.raises(OSError, match="Cannot allocate memory") as told:
        await runner.fork("/folder", "none")
    assert (told.value.errno, told.value.filename) == (errno.ENOMEM, program)
    runner.close()
