"""Ends a command whose `dayfly with` was killed, so that it does not go on beside a resource that is removed.

A program of its own, which imports nothing of ours: it waits at a pipe whose other end `with` alone holds. The number
of the command comes there, and a last word once that has ended. A pipe that ends without the last word means that
`with` is no more. Told by SIGTERM, and killed after a while, are then the command, what it has started in its session,
and whatever else carries the mark of this `with` in its environment, wherever it has gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

MARK = "DAYFLY_WITH"
"""The variable in a command's environment that names its sandbox."""
DONE = b"done\n"

_GRACE_S = 10.0
_AGAIN_S = 0.05


def main() -> None:
    """Wait for the end of `with`; the argument is the value of the mark."""
    mark = sys.argv[1]
    pipe = sys.stdin.buffer
    first = pipe.readline()
    root = int(first) if first.endswith(b"\n") else 0
    began = born(root)
    if first and pipe.readline() == DONE:
        return
    # The number may be another process's by now.
    end(mark, root if began and began == born(root) else 0, _GRACE_S)


def born(process: int) -> str:
    """When a process began, in ticks since the machine did; empty if it is not there. Whatever it does, that stays."""
    return "".join(_stat(process)[2:3])


def end(mark: str, root: int, grace: float) -> None:
    """Ask all that belongs to the command to end, and kill what has not after `grace` seconds."""
    ours = {root} - {0}
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
        deadline = time.monotonic() + patience
        told: set[int] = set()
        while ours := _belonging(mark, ours):
            for process in ours - told:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            told |= ours
            if time.monotonic() > deadline:
                break
            time.sleep(_AGAIN_S)


def _belonging(mark: str, known: set[int]) -> set[int]:
    """The processes that run of those known, of their children in the same session, and of those with the mark."""
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
    """Parent, session, when it began, and state; nothing for a process that is not there."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123 # as above
            words = file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return ()
    return int(words[1]), int(words[3]), words[19], words[0]


if __name__ == "__main__":
    main()
