"""Cleanup after a podman that was killed while it started a container: its monitor waits for podman forever.

The monitor (conmon) and the container's first process continue, although podman no longer knows them.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

# Time for a monitor to end by itself after its container.
MONITOR_TIMEOUT_S = 2.0
# Time for the kernel to end killed processes.
TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.05
_POLLS_WITHOUT_MONITOR = 3
_PROC = Path("/proc")


def end_monitors(container: str, path: str, proc: Path = _PROC) -> None:
    """End the monitors of a removed container, with all processes that they have started.

    The container is identified by its name and by the mounted `path`, because a container of another podman
    installation may have the same name.

    Raises:
        TimeoutError: The processes do not end.
    """
    started, unseen = time.monotonic(), 0
    # One poll is not enough: a monitor forks and continues as another process, which may not be listed yet.
    while unseen < _POLLS_WITHOUT_MONITOR:
        monitors = [
            pid
            for pid in _processes(proc)
            if _is_monitor(proc / str(pid), container, path) or _becomes_monitor(proc / str(pid), container, path)
        ]
        unseen = 0 if monitors else unseen + 1
        waited = time.monotonic() - started
        if monitors and waited > TIMEOUT_S:
            raise TimeoutError(f"the monitor of container {container} does not end: process {monitors[0]}")
        if waited > MONITOR_TIMEOUT_S:
            for pid in monitors:
                _kill(pid, proc)
        time.sleep(_POLL_INTERVAL_S)


def _processes(proc: Path) -> list[int]:
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]


def _is_monitor(process: Path, container: str, path: str) -> bool:
    """Return whether the process is a monitor of this container, or of a removed one with the same name."""
    words = _command(process)
    if Path(words[0]).name != "conmon" or _option(words, "-n") != container:
        return False
    try:
        return path in Path(_option(words, "-b"), "config.json").read_text()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # of another user


def _becomes_monitor(process: Path, container: str, path: str) -> bool:
    """Return whether the process is a child of `podman run` that has not yet started the monitor's program.

    It still has podman's command line. A podman has several threads, its child has one.
    """
    words = _command(process)
    if Path(words[0]).name != "podman" or _option(words, "--name") != container or path not in words:
        return False
    try:
        return len(list((process / "task").iterdir())) == 1
    except OSError:
        return False  # it has ended


def _command(process: Path) -> list[str]:
    """Return the words of the process's command line; one empty word if the process has ended."""
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return [""]


def _option(words: list[str], option: str) -> str:
    return words[words.index(option) + 1] if option in words[:-1] else ""


def _kill(pid: int, proc: Path) -> None:
    """Kill the process and its descendants. The container's first process would outlive it."""
    for each in [*_descendants(pid, proc), pid]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def _descendants(pid: int, proc: Path) -> list[int]:
    children: dict[int, list[int]] = {}
    for each in _processes(proc):
        with contextlib.suppress(OSError):
            # The name of the process is in parentheses before the fields and may contain any character.
            parent = int((proc / str(each) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(each)
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[1:]
