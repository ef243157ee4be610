"""The resident runner: it leaves no process, and no request waits for its answer forever."""

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest

from dayfly.execute.process.resident import Resident, UnansweredError
from execute.residents import resident

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def children():
    """Return our child processes, zombies included."""
    return {int(each) for each in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def leads_to(process, number):
    """Return the target of a file descriptor."""
    return str(Path(f"/proc/{process}/fd/{number}").readlink())


@pytest.fixture
def begun():
    """Return the processes that the test has started and that still exist."""
    before = children()
    return lambda: children() - before


@pytest.fixture
def mute(tmp_path):
    """A runner that never answers."""
    return Resident(resident(tmp_path), ENVIRONMENT)


async def asked(runner, count=1):
    """Send requests."""
    questions = [asyncio.ensure_future(runner.fork(f"/folder/{number}", "none")) for number in range(count)]
    await asyncio.sleep(0)
    return questions


async def test_closed_runner_is_gone_and_leaves_no_question_open(mute, begun):
    for _ in range(2):
        questions = await asked(mute, 2)
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
    [question] = await asked(mute)
    mute.close()
    assert not begun()
    with pytest.raises(UnansweredError):
        await question


async def test_runner_does_not_write_to_our_terminal(mute, begun):
    """The runner and its launchers may outlive the server."""
    [question] = await asked(mute)
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
    """It has no state to lose."""
    path = tmp_path / "runner"
    path.write_text("#!/bin/sh\nkill -STOP $$\n")
    path.chmod(0o700)
    runner = Resident(str(path), ENVIRONMENT)
    [question] = await asked(runner)
    [process] = begun()
    await asyncio.to_thread(os.waitid, os.P_PID, process, os.WSTOPPED | os.WNOWAIT)
    runner.close()
    assert not begun()
    with pytest.raises(UnansweredError):
        await question


async def test_failure_to_fork_is_reported_with_its_reason(tmp_path):
    program = resident(tmp_path, {"/folder": -errno.ENOMEM})
    runner = Resident(program, ENVIRONMENT)
    with pytest.raises(OSError, match="Cannot allocate memory") as told:
        await runner.fork("/folder", "none")
    assert (told.value.errno, told.value.filename) == (errno.ENOMEM, program)
    runner.close()
