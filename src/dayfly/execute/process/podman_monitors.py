"""What podman leaves when it is killed as it starts a container: a monitor that waits for its word for ever.

The monitor (conmon) and the container's first process live on, though podman knows nothing of them any more.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

# An ordinary one ends by itself soon after its container.
PATIENCE_S = 2.0
# So long the kernel may take to end what was killed.
LONGEST_S = 30.0
_LOOK_AGAIN_S = 0.05
_LOOKS = 3
_PROC = Path("/proc")


def end(container: str, path: str, proc: Path = _PROC) -> None:
    """End the monitors of a container that was removed, with all that they have started.

    It is known by its name and by a path of ours that is mounted into it: another podman's may have the same name.

    Raises:
        TimeoutError: they do not end.
    """
    begun, unseen = time.monotonic(), 0
    # One look is not enough: a monitor begins as one process and goes on as another, which may be in no list yet.
    while unseen < _LOOKS:
        monitors = [pid for pid in _processes(proc) if _watches(proc / str(pid), container, path)]
        unseen = 0 if monitors else unseen + 1
        waited = time.monotonic() - begun
        if monitors and waited > LONGEST_S:
            raise TimeoutError(f"what watched the container {container} does not end: process {monitors[0]}")
        if waited > PATIENCE_S:
            for pid in monitors:
                _kill(pid, proc)
        time.sleep(_LOOK_AGAIN_S)


def _processes(proc: Path) -> list[int]:
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]


def _watches(process: Path, container: str, path: str) -> bool:
    """Whether it is the monitor of that container; one whose container has nothing left is, whoever's it was."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False  # it has ended
    if Path(words[0]).name != "conmon" or _after(words, "-n") != container:
        return False
    try:
        return path in Path(_after(words, "-b"), "config.json").read_text()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # another user's


def _after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1] if option in words[:-1] else ""


def _kill(pid: int, proc: Path) -> None:
    """And what it has started: the container's first process outlives it."""
    for each in [*_below(pid, proc), pid]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def _below(pid: int, proc: Path) -> list[int]:
    children: dict[int, list[int]] = {}
    for each in _processes(proc):
        with contextlib.suppress(OSError):
            # The name before it, in brackets, may contain anything.
            parent = int((proc / str(each) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(each)
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[1:]
