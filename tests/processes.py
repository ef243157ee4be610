"""Processes that a test has started, found by a text in their environment. Their descendants inherit it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

END_S = 10.0


def processes(mark: str) -> list[int]:
    """Return the IDs of the processes with this text in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


def end(mark: str) -> None:
    """Kill these processes and their new children.

    Raises:
        TimeoutError: some are still running.
    """
    deadline = time.monotonic() + END_S
    while found := processes(mark):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {found} do not end")
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.01)
