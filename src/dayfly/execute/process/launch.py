"""How a runner comes to stand before an attempt's folder: as a process of this machine, or in a fresh container."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dayfly.execute.process import podman_monitors
from dayfly.execute.process.ci_marks import without_ci_marks
from dayfly.execute.process.resident import DEFAULTS, Resident
from dayfly.execute.process.run import Folder
from dayfly.spec.lifecycle import Unit

_RUNNER = "/dayfly/runner"
# How long an engine has for removing a container.
REMOVE_S = 60.0
_SPECIAL = {*',"\r\n'}
_OURS = ("DAYFLY_", "SIGNADOT_")


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
    slow: bool
    """Whether long may pass (an image is fetched) before the runner begins."""

    async def start(self, folder: Folder, unit: Unit, /) -> int:
        """Start the runner on the folder; returns our child's process id. The step outlives us.

        Raises:
            OSError: it cannot be started, and will not be.
            UnansweredError: it may have been started.
        """

    def tell(self, sealed: Callable[[int], None], /) -> None:
        """Have `sealed` called with the process id of a child whose receipt is there, if that is known before its end.

        Not every one is told of.
        """

    def clear(self, folder: Folder) -> None:
        """Remove what an attempt whose end is certain may have left beside its folder.

        Raises:
            OSError: that is not certain.
        """

    def close(self) -> None:
        """Nothing will be started any more. What was started lives on."""


class Processes:
    """Steps as processes of this machine, with its environment but for what steers Dayfly itself."""

    name = "the runner"
    slow = False

    def __init__(self, runner: str, isolation: str, environment: Mapping[str, str]) -> None:
        theirs = {name: value for name, value in environment.items() if not name.startswith(_OURS)}
        self._resident = Resident(runner, theirs, user=isolation == "user")
        self.isolation = self.fork_isolation = isolation
        self.apart = isolation != "none"

    async def start(self, folder: Folder, _unit: Unit) -> int:
        return await self._resident.fork(folder.path, self.isolation)

    def tell(self, sealed: Callable[[int], None]) -> None:
        self._resident.sealed = sealed

    def clear(self, folder: Folder) -> None:
        pass

    def close(self) -> None:
        self._resident.close()


class Containers:
    """Steps in containers of their images, by podman or docker; forks as processes of this machine.

    The container shares the machine's process ids, so that the marker's are true here, and its network. Paths are kept
    apart by the container, so the runner itself makes no namespaces. A step's environment is its image's.
    """

    isolation = "none"
    apart = True
    slow = True

    def __init__(self, engine: str, runner: str, processes: Processes) -> None:
        self._engine = engine
        self.name = Path(engine).name
        self._is_podman = self.name == "podman"
        self._runner = runner
        self._processes = processes
        self.fork_isolation = processes.isolation

    async def start(self, folder: Folder, unit: Unit) -> int:
        if unit.exec is None:
            return await self._processes.start(folder, unit)
        return self._run(folder, unit.exec.image)

    def tell(self, sealed: Callable[[int], None]) -> None:
        self._processes.tell(sealed)

    def _run(self, folder: Folder, image: str) -> int:
        # An engine would make it root's.
        folder.make_logs()
        # In podman without root, the container's root is ourselves outside; in docker it never is.
        user = "0:0" if self._is_podman else f"{os.geteuid()}:{os.getegid()}"
        command = [
            *(self._engine, "run", "--rm", "--name", _name(folder), "--user", user),
            *("--network=host", "--pid=host", "--entrypoint", _RUNNER),
            *("--mount", _bound(self._runner, _RUNNER, "readonly=true")),
            *("--mount", _bound(folder.path)),
            *("--mount", _bound(folder.logs)),
            *("--mount", _bound(folder.begins)),
            *(image, "host", folder.path),
        ]
        said = (os.POSIX_SPAWN_OPEN, 1, folder.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        return os.posix_spawnp(
            command[0],
            command,
            without_ci_marks(os.environ),  # the engine's own processes live as long as the container
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), said, (os.POSIX_SPAWN_DUP2, 1, 2)],
            setsigmask=(),
            setsigdef=DEFAULTS,
            # What the terminal sends to the server's group is not for the step.
            setsid=True,
        )

    def clear(self, folder: Folder) -> None:
        self._remove(folder)
        if self._is_podman:
            podman_monitors.end(_name(folder), folder.path)

    def _remove(self, folder: Folder) -> None:
        command = [self._engine, "rm", "--force", *(("--time", "0") if self._is_podman else ()), _name(folder)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=REMOVE_S, text=True, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self.name} does not remove the container {_name(folder)}") from error
        said = done.stderr.strip()
        # That there is no such container is what is wanted.
        if done.returncode and "no such container" not in said.lower():
            said = said or (f"it ended with {done.returncode}" if done.returncode > 0 else "it was killed")
            raise OSError(f"{self.name} cannot remove the container {_name(folder)}: {said}")

    def close(self) -> None:
        self._processes.close()


def _bound(path: str, at: str = "", *more: str) -> str:
    """A mount of that path. With `--volume` none that has a colon could be named; here a comma needs quotes."""
    fields = ("type=bind", f"src={path}", f"dst={at or path}", *more)
    return ",".join(_quoted(field) if _SPECIAL & {*field} else field for field in fields)


def _quoted(field: str) -> str:
    return '"' + field.replace('"', '""') + '"'


def _name(folder: Folder) -> str:
    """The container's name, derived as the folder's is: found again without an index."""
    name = "".join(char if char.isalnum() or char in "_.-" else "-" for char in Path(folder.path).name)
    return f"dayfly-{name}"
