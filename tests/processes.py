"""Processes that a test has started, known by their environment: whomever they start inherits it, in any session."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

END_S = 10.0


def processes(mark: str) -> list[int]:
    """Living processes with this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended, or is none of ours
    return found


def end(mark: str) -> None:
    """Kill them all, and whom they have started meanwhile.

    Raises:
        TimeoutError: some live on.
    """
    until = time.monotonic() + END_S
    while found := processes(mark):
        if time.monotonic() > until:
            raise TimeoutError(f"processes {found} do not end")
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.01)
