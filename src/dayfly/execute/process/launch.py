"""Start of runners: as processes of this machine, or in new containers."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dayfly.execute.process import podman_monitors
from dayfly.execute.process.ci_marks import without_ci_marks
from dayfly.execute.process.resident import DEFAULT_SIGNALS, Resident
from dayfly.execute.process.run import AttemptFolder
from dayfly.spec.lifecycle import Unit

_RUNNER = "/dayfly/runner"
# Timeout for the removal of a container.
REMOVE_S = 60.0
_QUOTED_CHARS = {*',"\r\n'}
_OWN_PREFIXES = ("DAYFLY_", "SIGNADOT_")


class Starter(Protocol):
    """Starts runners. Marker, lock and receipt in the folder are the same for all starters."""

    name: str
    """Name of the program that starts runners, for display."""
    isolation: str
    """The isolation in the work order of a step."""
    fork_isolation: str
    """The isolation in the work order of a fork, which is always a process of this machine."""
    isolates_paths: bool
    """Whether concurrent steps can use the same path."""
    is_slow: bool
    """Whether the start of the runner may take long, for example because an image is pulled."""

    async def start(self, folder: AttemptFolder, unit: Unit, /) -> int:
        """Start the runner for the folder and return the process ID of the new child. The step outlives this process.

        Raises:
            OSError: The runner was not started.
            UnansweredError: The runner may have been started.
        """

    def set_sealed_callback(self, sealed: Callable[[int], None], /) -> None:
        """Set the callback for the process ID of a child whose receipt is sealed, if that is known before its end.

        Notifications can be lost.
        """

    def clear(self, folder: AttemptFolder) -> None:
        """Remove everything outside of the folder that an ended attempt may have left.

        Raises:
            OSError: The removal may be incomplete.
        """

    def close(self) -> None:
        """Stop starting runners. Running steps continue."""


class ProcessStarter:
    """Starts steps as processes of this machine. They inherit its environment except for Dayfly's own variables."""

    name = "the runner"
    is_slow = False

    def __init__(self, runner: str, isolation: str, environment: Mapping[str, str]) -> None:
        theirs = {name: value for name, value in environment.items() if not name.startswith(_OWN_PREFIXES)}
        self._resident = Resident(runner, theirs, user=isolation == "user")
        self.isolation = self.fork_isolation = isolation
        self.isolates_paths = isolation != "none"

    async def start(self, folder: AttemptFolder, _unit: Unit) -> int:
        return await self._resident.fork(folder.path, self.isolation)

    def set_sealed_callback(self, sealed: Callable[[int], None]) -> None:
        self._resident.sealed = sealed

    def clear(self, folder: AttemptFolder) -> None:
        pass

    def close(self) -> None:
        self._resident.close()


class ContainerStarter:
    """Starts steps in containers of their images with podman or docker, and forks as processes of this machine.

    A container uses the PID namespace of the machine, so that the process IDs in the marker are valid outside, and its
    network. The container isolates paths, so the runner creates no namespaces. A step has the environment of its image.
    """

    isolation = "none"
    isolates_paths = True
    is_slow = True

    def __init__(self, engine: str, runner: str, processes: ProcessStarter) -> None:
        self._engine = engine
        self.name = Path(engine).name
        self._is_podman = _is_podman(engine)
        self._runner = runner
        self._processes = processes
        self.fork_isolation = processes.isolation

    async def start(self, folder: AttemptFolder, unit: Unit) -> int:
        if unit.exec is None:
            return await self._processes.start(folder, unit)
        return self._run(folder, unit.exec.image)

    def set_sealed_callback(self, sealed: Callable[[int], None]) -> None:
        self._processes.set_sealed_callback(sealed)

    def _run(self, folder: AttemptFolder, image: str) -> int:
        # Otherwise the engine would create the folder as root.
        folder.make_logs()
        # In rootless podman, root in the container is the current user outside; in docker it is not.
        user = "0:0" if self._is_podman else f"{os.geteuid()}:{os.getegid()}"
        command = [
            *(self._engine, "run", "--rm", "--name", _name(folder), "--user", user),
            *("--network=host", "--pid=host", "--entrypoint", _RUNNER),
            *("--mount", _bind_mount(self._runner, _RUNNER, "readonly=true")),
            *("--mount", _bind_mount(folder.path)),
            *("--mount", _bind_mount(folder.logs)),
            *("--mount", _bind_mount(folder.step_folder)),
            *(image, "host", folder.path),
        ]
        output = (os.POSIX_SPAWN_OPEN, 1, folder.starter_output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        return os.posix_spawnp(
            command[0],
            command,
            without_ci_marks(os.environ),  # processes of the engine live as long as the container
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), output, (os.POSIX_SPAWN_DUP2, 1, 2)],
            setsigmask=(),
            setsigdef=DEFAULT_SIGNALS,
            # Signals of the terminal to the server's process group must not reach the step.
            setsid=True,
        )

    def clear(self, folder: AttemptFolder) -> None:
        self._remove(folder)
        if self._is_podman:
            podman_monitors.end_monitors(_name(folder), folder.path)

    def _remove(self, folder: AttemptFolder) -> None:
        command = [self._engine, "rm", "--force", *(("--time", "0") if self._is_podman else ()), _name(folder)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=REMOVE_S, text=True, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self.name} did not remove the container {_name(folder)} in time") from error
        message = done.stderr.strip()
        # A missing container is not an error.
        if done.returncode and "no such container" not in message.lower():
            message = message or (f"exit code {done.returncode}" if done.returncode > 0 else "it was killed")
            raise OSError(f"{self.name} cannot remove the container {_name(folder)}: {message}")

    def close(self) -> None:
        self._processes.close()


def _is_podman(engine: str) -> bool:
    """Return whether the program is podman, also if it is called docker, as in Debian's package podman-docker."""
    if Path(engine).name == "podman":
        return True
    try:
        asked = subprocess.run(
            [engine, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=REMOVE_S,
            text=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False  # the first step reports the fault
    return "podman" in asked.stdout.lower()


def _bind_mount(path: str, target: str = "", *more: str) -> str:
    """Return the value of `--mount`. `--volume` does not support paths with a colon; here a comma needs quotes."""
    fields = ("type=bind", f"src={path}", f"dst={target or path}", *more)
    return ",".join(_quote(field) if _QUOTED_CHARS & {*field} else field for field in fields)


def _quote(field: str) -> str:
    return '"' + field.replace('"', '""') + '"'


def _name(folder: AttemptFolder) -> str:
    """Return the container's name, which is derived from the folder's name."""
    name = "".join(char if char.isalnum() or char in "_.-" else "-" for char in Path(folder.path).name)
    return f"dayfly-{name}"
