"""What the kernel tells of a process, by its number (`/proc`)."""

import contextlib
import os
from pathlib import Path

from dayfly.execute.process.files import slurp


def opens(process: str, file: os.stat_result) -> bool:
    """Whether it has a file open.

    Raises:
        OSError: it is gone, another user's, or cannot be looked at now.
    """
    # By identity: in a container or a namespace of its own the same file has another name.
    return any(_is_same(path, file) for path in Path(f"/proc/{process}/fd").iterdir())


def _is_same(path: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), file)
    except OSError:
        return False


def standing(process: str) -> tuple[str, str]:
    """Its state and its beginning, in the kernel's words; empty if there is none."""
    with contextlib.suppress(OSError, IndexError):
        fields = slurp(f"/proc/{process}/stat").decode(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    return "", ""
