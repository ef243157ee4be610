"""Queries about processes in `/proc`."""

import contextlib
import os
from pathlib import Path

from dayfly.execute.process.files import read_file


def has_open(process: str, file: os.stat_result) -> bool:
    """Return whether the process has the file open.

    Raises:
        OSError: The process has ended, belongs to another user, or cannot be read now.
    """
    # Compare identities: in another mount namespace the file has another name.
    return any(_is_same(path, file) for path in Path(f"/proc/{process}/fd").iterdir())


def _is_same(path: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), file)
    except OSError:
        return False


def state_and_start(process: str) -> tuple[str, str]:
    """Return the state and the start time of a process as in `/proc/PID/stat`; empty if it does not exist."""
    with contextlib.suppress(OSError, IndexError):
        fields = read_file(f"/proc/{process}/stat").decode(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    return "", ""
