"""The start of a runner: with the environment of the machine, and nothing else of the server."""

import asyncio
import fcntl
import os
import signal
import subprocess
from pathlib import Path

import pytest

from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.launch import ProcessStarter
from dayfly.execute.process.resident import Resident, UnansweredError
from dayfly.execute.process.run import AttemptFolder
from dayfly.spec.lifecycle import Exec, Unit

UNIT = Unit(name="a", kind="exec", exec=Exec(script="#!/bin/sh\n"))
# A stand-in for the resident runner that exits on its first request. `Hasty` exits before.
ASKED = "head -c 1 >/dev/null"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    folder = AttemptFolder(
        AttemptStorage(str(tmp_path / "work"), str(tmp_path), "boot", "boot", str(tmp_path)), "run", "a", 1
    )
    Path(folder.path).mkdir()
    return folder


def seen(folder, name="receipt"):
    """Return the content of a file in the folder."""
    return Path(folder.path, name).read_text()


def reaped(child):
    """Wait for a child; return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stand_in(tmp_path, script):
    """A program in place of the runner."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


async def started(tmp_path, folder, script, isolation="none"):
    """The script of a program in place of the resident runner, which answers nothing."""
    with pytest.raises(UnansweredError):
        await ProcessStarter(stand_in(tmp_path, f"{script}\n{ASKED}"), isolation, os.environ).start(folder, UNIT)
    return seen(folder, "seen")


async def test_runner_starts_in_its_own_session_without_our_variables(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("DAYFLY_SECRET", "of the server")
    monkeypatch.setenv("PLAIN", "of the machine")
    said = await started(tmp_path, folder, f'(echo "$@"; ps -o sid= -p $$; echo $$; env) >"{folder.path}/seen"')
    words = said.split()
    assert words[0] == "serve"
    assert words[1] == words[2]
    assert "PLAIN=of" in words
    assert "DAYFLY_SECRET" not in said


@pytest.mark.parametrize(("isolation", "how"), [("none", "serve"), ("root", "serve"), ("user", "serve user")])
async def test_runner_without_root_serves_one_user_namespace(tmp_path, folder, isolation, how):
    assert await started(tmp_path, folder, f'echo "$@" >"{folder.path}/seen"', isolation) == f"{how}\n"


async def test_runner_that_ends_before_a_request_is_started_again(tmp_path, folder, runner, monkeypatch):
    spawn, begun = os.posix_spawn, []

    def ended(*given, **more):
        """As on a busy machine: the runner has exited before the request."""
        begun.append(spawn(*given, **more))
        os.waitid(os.P_PID, begun[-1], os.WEXITED | os.WNOWAIT)
        return begun[-1]

    resident = Resident(stand_in(tmp_path, "exit 0"), {})
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_spawn", ended)
        with pytest.raises(OSError, match="ends immediately after its start"):
            await resident.fork(folder.path, "none")
    assert len(begun) == 2, "a request that was not sent is sent again"
    stand_in(tmp_path, f'exec {runner} "$@"')
    assert reaped(await resident.fork(folder.path, "none")) == 0
    resident.close()


async def test_runner_gets_every_signal_despite_our_masks(tmp_path, folder):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        said = await started(tmp_path, folder, f'grep -E "SigBlk|SigIgn" /proc/self/status >"{folder.path}/seen"')
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN, "as in every Python program"
    masks = dict(line.split(":\t") for line in said.splitlines())
    assert int(masks["SigBlk"], 16) & 1 << signal.SIGTERM - 1 == 0
    assert int(masks["SigIgn"], 16) & 1 << signal.SIGPIPE - 1 == 0


async def test_a_program_that_is_not_there_is_an_error_that_names_it(folder):
    with pytest.raises(FileNotFoundError, match="/nowhere/runner"):
        await ProcessStarter("/nowhere/runner", "none", {}).start(folder, UNIT)


async def test_launchers_are_our_children_and_outlive_the_resident(runner, folder):
    starter = ProcessStarter(runner, "none", {})
    children = [await starter.start(folder, UNIT) for _ in range(3)]
    starter.close()
    # Each finds the folder without an order, and writes a receipt about it, one of them or one after the other.
    codes = [reaped(child) for child in children]
    assert set(codes) <= {0, 3}
    assert 0 in codes
    assert "refused" in seen(folder)


async def test_many_at_once_are_all_answered_and_in_their_order(runner, tmp_path):
    place = AttemptStorage(str(tmp_path), str(tmp_path), "boot", "boot", str(tmp_path))
    folders = [AttemptFolder(place, "run", "a", number) for number in range(200)]
    for each in folders:
        each.write_order(b"not an order")
    starter = ProcessStarter(runner, "none", {})
    children = await asyncio.gather(*(starter.start(each, UNIT) for each in folders))
    assert [reaped(child) for child in children] == [0] * len(folders)
    starter.close()
    assert len(set(children)) == len(folders)
    assert all("refused" in seen(each) for each in folders)


def test_reused_process_number_is_not_watched(folder):
    """The runner was killed, its child holds the lock, and the process ID was reused."""
    with Path(folder.path, "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stranger = subprocess.Popen(["sleep", "60"])
        holder = subprocess.Popen(["sleep", "60"], pass_fds=[lock.fileno()])
        try:
            for process, watched in ((stranger, False), (holder, True)):
                Path(folder.path, "marker").write_text(f"started\n{process.pid}\n")
                found = folder.open_runner_pidfd()
                assert (found is not None) is watched
                if found is not None:
                    os.close(found)
        finally:
            for process in (stranger, holder):
                process.kill()
                process.wait()
