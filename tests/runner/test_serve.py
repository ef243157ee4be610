"""The resident runner: it forks launchers that are children of its caller, and ends with its caller."""

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runner.attempts import processes_with, wait_until


@pytest.fixture
def serving(runner):
    """A resident runner and a function that requests launchers."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        resident = subprocess.Popen([runner, "serve"], stdin=theirs, cwd="/var/tmp")

    def fork(folder: Path, into: str = "") -> int:
        ours.send(into.encode() + bytes(folder))
        return int.from_bytes(ours.recv(4), sys.byteorder, signed=True)

    with ours:
        ours.settimeout(30)
        yield resident, fork, ours
    assert resident.wait(30) in (0, -signal.SIGKILL)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _reap(process: int) -> bool:
    return os.waitpid(process, os.WNOHANG)[0] == process


def test_a_launcher_is_its_callers_child_and_runs_the_order(attempt, isolation, serving):
    one = attempt().write("#!/bin/sh\necho $PPID\n", isolation=isolation)
    _, fork, _ = serving
    launcher = fork(one.dir)
    assert parent(launcher) == os.getpid()
    assert os.waitpid(launcher, 0) == (launcher, 0)
    assert (one.receipt().outcome, one.receipt().code) == ("exited", 0)
    assert isolation != "none" or one.marker[1] == str(launcher)


def test_a_launcher_is_forked_into_the_namespaces_of_its_order(attempt, isolated, serving):
    one = attempt().write("#!/bin/sh\necho $$ $PPID\n", isolation=isolated)
    _, fork, _ = serving
    launcher = fork(one.dir, f"{isolated} ")
    assert parent(launcher) == os.getpid()
    assert os.waitpid(launcher, 0) == (launcher, 0)
    assert (one.receipt().outcome, one.receipt().code, one.log) == ("exited", 0, "2 1\n"), "one process less"
    assert one.marker[1:3] == [str(launcher)] * 2


def test_order_with_another_isolation_is_refused(attempt, isolated, serving):
    one = attempt().write("#!/bin/sh\n", isolation="user" if isolated == "root" else "root")
    _, fork, _ = serving
    os.waitpid(fork(one.dir, f"{isolated} "), 0)
    assert (one.receipt().outcome, "another isolation" in one.receipt().detail) == ("refused", True)


def test_signal_from_the_step_does_not_end_its_runner(attempt, isolated, serving):
    one = attempt().write("#!/bin/sh\nkill -TERM $PPID; kill -9 $PPID; sleep 0.1; exit 4\n", isolation=isolated)
    _, fork, _ = serving
    os.waitpid(fork(one.dir, f"{isolated} "), 0)
    assert (one.receipt().outcome, one.receipt().code) == ("exited", 4)


def test_sigterm_is_honoured_from_the_first_moment(attempt, isolated, serving):
    """The kernel drops signals to the first process of a namespace that has no handler for them."""
    _, fork, _ = serving
    ones = [attempt().write("#!/bin/sh\nexec sleep 600\n", isolation=isolated) for _ in range(100)]
    for one in ones:
        launcher = fork(one.dir, f"{isolated} ")
        os.kill(launcher, signal.SIGTERM)
        try:
            wait_until(functools.partial(_reap, launcher), 30)
        except AssertionError:
            os.kill(launcher, signal.SIGKILL)
            os.waitpid(launcher, 0)
            raise
        assert one.is_free()


def test_a_launcher_that_is_killed_takes_its_namespace_with_it(attempt, isolated, serving, mark):
    one = attempt().write("#!/bin/sh\nexec sleep 600\n", isolation=isolated, env=[f"M={mark}"])
    _, fork, _ = serving
    launcher = fork(one.dir, f"{isolated} ")
    wait_until(lambda: processes_with(mark), 30)
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    assert processes_with(mark) == []
    assert one.is_free()


def test_steps_outlive_the_resident_runner_however_it_ends(attempt, isolation, serving, place, mark):
    resident, fork, ours = serving
    one = attempt().write(
        f"#!/bin/sh\nuntil [ -e {place}/go ]; do sleep 0.01; done\nexit 5\n", isolation=isolation, env=[f"M={mark}"]
    )
    launcher = fork(one.dir)
    wait_until(lambda: processes_with(mark), 30)
    resident.kill()
    resident.wait(30)
    assert ours.recv(4) == b""
    (place / "go").touch()
    assert os.waitpid(launcher, 0) == (launcher, 0)
    assert (one.receipt().outcome, one.receipt().code) == ("exited", 5)


@pytest.fixture
def told(runner):
    """A resident runner with two sockets: one for requests, and one on which its launchers report their receipts."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ears, tellers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, ears:
        with theirs, tellers:
            pid = os.posix_spawn(
                runner,
                [runner, "serve"],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), (os.POSIX_SPAWN_DUP2, tellers.fileno(), 3)],
            )
        ears.settimeout(30)
        yield ours, ears
    assert os.waitpid(pid, 0) == (pid, 0)


def test_launcher_notifies_once_when_its_receipt_exists(attempt, isolation, told):
    ours, ears = told
    one = attempt().write("#!/bin/sh\nls /proc/self/fd\n", isolation=isolation)
    unread = attempt()
    unread.dir.joinpath("order").write_bytes(b"not an order")
    for each in (unread.dir, one.dir):
        ours.send(("" if isolation == "none" else f"{isolation} ").encode() + bytes(each))
        launcher = int.from_bytes(ours.recv(4), sys.byteorder)
        if each == one.dir:
            assert int.from_bytes(ears.recv(4), sys.byteorder) == launcher
            assert (one.receipt().outcome, one.receipt().code) == ("exited", 0)
        os.waitpid(launcher, 0)
    assert "4" not in one.log.split(), "the step has not got the socket"
    ears.setblocking(False)
    with pytest.raises(BlockingIOError):
        ears.recv(4)


def test_launcher_ends_without_a_listener(attempt, isolation, told):
    ours, ears = told
    ears.close()
    one = attempt().write("#!/bin/sh\nexit 3\n", isolation=isolation)
    ours.send(("" if isolation == "none" else f"{isolation} ").encode() + bytes(one.dir))
    launcher = int.from_bytes(ours.recv(4), sys.byteorder)
    assert os.waitpid(launcher, 0) == (launcher, 0)
    assert (one.receipt().outcome, one.receipt().code) == ("exited", 3)


def test_a_launcher_holds_nothing_of_the_resident_runner(attempt, serving, mark):
    resident, fork, _ = serving
    one = attempt().write("#!/bin/sh\nexec sleep 600\n", env=[f"M={mark}"])
    launcher = fork(one.dir)
    wait_until(lambda: processes_with(mark), 30)
    channel = Path(f"/proc/{resident.pid}/fd/0").readlink()
    assert Path(f"/proc/{resident.pid}/cwd").readlink() == Path("/")
    for pid in (launcher, *processes_with(mark)):
        assert channel not in _open(pid)
        assert os.getsid(pid) != os.getsid(resident.pid)
    os.kill(launcher, signal.SIGTERM)
    os.waitpid(launcher, 0)
    assert one.receipt().outcome == "cancelled"


def _open(pid):
    """Return the open files of a process, without files that it closes during the loop."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(entry.readlink())
    return found


def test_a_folder_that_is_not_there_is_the_launchers_own_affair(serving, place):
    _, fork, _ = serving
    assert os.waitstatus_to_exitcode(os.waitpid(fork(place / "nowhere"), 0)[1]) == 2


def test_without_a_socket_it_refuses(runner):
    done = subprocess.run([runner, "serve"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (64, "")
    assert "socket" in done.stderr
