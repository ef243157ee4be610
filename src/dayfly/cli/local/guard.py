"""Ends the processes that a command of `dayfly with` has started, so that they do not outlive its resources.

`with` calls `terminate` if a signal has ended its command. If `with` itself is killed, this file does so as a separate
program, which imports no other module of Dayfly. It reads a pipe whose other end only `with` holds: the process ID of
the command, and `DONE` once the command has ended. Without `DONE`, the end of the pipe means that `with` or its command
was killed. `terminate` sends SIGTERM, and SIGKILL after a grace period, to the command, to its descendants in its
session, and to every process with the mark of this `with` in its environment, in any session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

MARK = "DAYFLY_WITH"
"""The variable in a command's environment that names its sandbox."""
DONE = b"done\n"
READY = b"."

DETACHED = "detached"
"""The argument after the mark for running without a parent: CI runners also kill children of a job's processes."""
GRACE_S = 10.0
SEARCH_S = 2.0
"""How long the guard searches for processes of a killed command or a killed `with`."""
POLL_INTERVAL_S = 0.05


def main() -> None:
    """Wait for the end of `with`. The argument is the value of the mark."""
    mark = sys.argv[1]
    if DETACHED in sys.argv[2:]:
        if os.fork():
            os._exit(0)
        os.write(1, READY)
    pipe = sys.stdin.buffer
    first = pipe.readline()
    root = int(first) if first.endswith(b"\n") else 0
    started = start_time(root)
    if first and pipe.readline() == DONE:
        return
    # During an exec, a process has no environment for a moment.
    until = time.monotonic() + SEARCH_S
    while time.monotonic() < until:
        # Another process may have the process ID by now.
        terminate(mark, {root} if started and started == start_time(root) else (), GRACE_S)
        _wait()


def start_time(process: int) -> str:
    """Return the start time of a process in ticks since the boot; empty if it does not exist.

    The start time tells a process apart from a later one with the same process ID.
    """
    return "".join(_stat(process)[2:3])


def _wait() -> bool:
    time.sleep(POLL_INTERVAL_S)
    return False


def terminate(mark: str, known: Collection[int], grace: float, wait: Callable[[], bool] = _wait) -> None:
    """Send SIGTERM to all processes of a command, and SIGKILL to the rest after `grace` seconds.

    Args:
        mark: The value of the mark in the environment of these processes.
        known: Further processes to end, with their children in the same session.
        grace: Seconds between SIGTERM and SIGKILL, and the longest wait after SIGKILL.
        wait: Waits for a poll interval; returns True to continue with SIGKILL at once.
    """
    ours = {*known}
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace
        signalled: set[int] = set()
        while ours := find_processes(mark, ours):
            for process in ours - signalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            signalled |= ours
            if wait() or time.monotonic() > deadline:
                break


def find_processes(mark: str, known: Collection[int] = ()) -> set[int]:
    """Return the running processes: `known`, their children in the same session, and those with the mark."""
    line = f"{MARK}={mark}".encode()
    every = {process: found for process in _processes() if (found := _stat(process)) and found[3] not in ("Z", "X")}
    ours = {process for process in every if process in known or line in _environment(process)}
    while more := {
        process
        for process, (parent, session, *_) in every.items()
        if process not in ours and parent in ours and session == every[parent][1]
    }:
        ours |= more
    return ours - {os.getpid()}


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 # pathlib is slow to import


def _environment(process: int) -> list[bytes]:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:  # noqa: PTH123 # as above
            return file.read().split(b"\0")
    except OSError:
        return []


def _stat(process: int) -> tuple[int, int, str, str] | tuple[()]:
    """Return parent, session, start time and state of a process; empty if it does not exist."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123 # as above
            words = file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return ()
    return int(words[1]), int(words[3]), words[19], words[0]


if __name__ == "__main__":
    main()
