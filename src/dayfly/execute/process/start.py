"""How a runner comes to stand before an attempt's folder: as a process of this machine, or in a fresh container."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dayfly.execute.process.run import Folder
from dayfly.spec.lifecycle import Unit

_DEFAULTS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
# Flags of posix_spawnattr_setflags, the same in every C library of Linux.
_SETSIGDEF, _SETSIGMASK = 0x04, 0x08
_RUNNER = "/dayfly/runner"


class Starter(Protocol):
    """Starts runners. The folder's marker, lock and receipt are the same whichever way it is done."""

    name: str
    """Who starts, as people call it."""
    isolation: str
    """What the order of a step asks of the runner."""
    fork_isolation: str
    """The same for a fork, which is always a process of this machine."""
    apart: bool
    """Whether steps that use one path do not meet there."""
    inherit: bool
    """Whether a step also has the environment in which its runner starts: its image's."""
    slow: bool
    """Whether long may pass (an image is fetched) before the runner begins."""

    def environment(self, machine: Mapping[str, str], /) -> Mapping[str, str]:
        """What a step has of the machine's environment."""

    def start(self, folder: Folder, unit: Unit, /) -> int:
        """Start the runner on the folder; returns our child's process id. The step outlives us.

        Raises:
            OSError: it cannot be started, and will not be.
        """

    def clear(self, folder: Folder) -> None:
        """Remove what an attempt whose end is certain may have left beside its folder."""


class Processes:
    """Steps as processes of this machine."""

    name = "the runner"
    inherit = False
    slow = False

    def __init__(self, runner: str, isolation: str) -> None:
        self._runner = runner
        self._spawner = _Spawner()
        self.isolation = self.fork_isolation = isolation
        self.apart = isolation != "none"

    def environment(self, machine: Mapping[str, str]) -> Mapping[str, str]:
        return machine

    def start(self, folder: Folder, _unit: Unit) -> int:
        return self._spawner.spawn([self._runner, "host", folder.path])

    def clear(self, folder: Folder) -> None:
        pass


class Containers:
    """Steps in containers of their images, by podman or docker; forks as processes of this machine.

    The container shares the machine's process ids, so that the marker's are true here, and its network. Paths are kept
    apart by the container, so the runner itself makes no namespaces.
    """

    isolation = "none"
    apart = True
    inherit = True
    slow = True

    def __init__(self, engine: str, runner: str, processes: Processes) -> None:
        self._engine = engine
        self.name = Path(engine).name
        self._is_podman = self.name == "podman"
        self._runner = runner
        self._processes = processes
        self.fork_isolation = processes.isolation

    def environment(self, _machine: Mapping[str, str]) -> Mapping[str, str]:
        return {}

    def start(self, folder: Folder, unit: Unit) -> int:
        if unit.exec is None:
            return self._processes.start(folder, unit)
        # In podman without root, the container's root is ourselves outside; in docker it never is.
        user = "0:0" if self._is_podman else f"{os.geteuid()}:{os.getegid()}"
        command = [
            *(self._engine, "run", "--rm", "--name", _name(folder), "--user", user, "--workdir", "/"),
            *("--network=host", "--pid=host", "--entrypoint", _RUNNER),
            *("--volume", f"{self._runner}:{_RUNNER}:ro"),
            *("--volume", f"{folder.path}:{folder.path}"),
            *("--volume", f"{folder.logs}:{folder.logs}"),
            *(unit.exec.image, "host", folder.path),
        ]
        said = (os.POSIX_SPAWN_OPEN, 1, folder.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        return os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), said, (os.POSIX_SPAWN_DUP2, 1, 2)],
            setsigmask=(),
            setsigdef=_DEFAULTS,
            # What the terminal sends to the server's group is not for the step.
            setsid=True,
        )

    def clear(self, folder: Folder) -> None:
        command = [self._engine, "rm", "--force", *(("--time", "0") if self._is_podman else ()), _name(folder)]
        # That there is no such container is what is wanted.
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)


class _Spawner:
    """`os.posix_spawn` with an empty environment, that lets other threads go on meanwhile.

    The call returns once the new process has begun its program, which on a busy machine takes longer than all the rest
    of a launch; Python's own holds the interpreter's lock as long.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        # Larger than any C library's `posix_spawnattr_t` (336 bytes) and `sigset_t` (128 bytes).
        self._attributes = ctypes.create_string_buffer(1024)
        none, defaults = ctypes.create_string_buffer(256), ctypes.create_string_buffer(256)
        self._library.sigemptyset(none)
        self._library.sigemptyset(defaults)
        for number in _DEFAULTS:
            self._library.sigaddset(defaults, int(number))
        self._library.posix_spawnattr_init(self._attributes)
        self._library.posix_spawnattr_setflags(self._attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK))
        self._library.posix_spawnattr_setsigmask(self._attributes, none)
        self._library.posix_spawnattr_setsigdefault(self._attributes, defaults)

    def spawn(self, command: list[str]) -> int:
        """The process id of our new child.

        Raises:
            OSError: it cannot be started, and will not be.
        """
        words = [os.fsencode(word) for word in command]
        arguments = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        environment = (ctypes.c_char_p * 1)(None)
        child = ctypes.c_int()
        error = self._library.posix_spawn(ctypes.byref(child), words[0], None, self._attributes, arguments, environment)
        if error:
            raise OSError(error, os.strerror(error), command[0])
        return child.value


def _name(folder: Folder) -> str:
    """The container's name, derived as the folder's is: found again without an index."""
    name = "".join(char if char.isalnum() or char in "_.-" else "-" for char in Path(folder.path).name)
    return f"dayfly-{name}"
