"""A Dayfly of a test's own: its home, its server, its command line."""

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests import fork_server

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


def until(true: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
    """Look again until there is something to see; returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:g} s: {what}")


class Home:
    """`environment` is added to the machine's, whose own DAYFLY_* variables do not count."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self.path = path
        machine = {name: value for name, value in os.environ.items() if not name.startswith("DAYFLY_")}
        self.environment = {**machine, **environment, "DAYFLY_HOME": str(path), "NO_COLOR": "1"}

    def dayfly(self, *arguments: str, code: int | tuple[int, ...] = 0) -> str:
        """Run the command line to its end, which has this exit code (or one of these); returns its standard output."""
        ended = fork_server.run([*arguments], stdin=b"", cwd=ROOT, env=self.environment, timeout=PATIENCE_S + 30)
        out = ended.stdout.decode()
        said = f"dayfly {' '.join(arguments)}\n{out}\n{ended.stderr.decode()}"
        allowed = code if isinstance(code, tuple) else (code,)
        assert ended.returncode in allowed, f"ended with {ended.returncode}, not {code}: {said}"
        return out

    def json(self, *arguments: str) -> Any:
        """The answer of a command that takes `-o json`."""
        return json.loads(self.dayfly(*arguments, "-o", "json"))

    def outputs(self, sandbox: str) -> dict[str, str]:
        """A sandbox's outputs as `<resource>/<step>.<output>`."""
        return {
            f"{each['resource']}/{each['step']}.{each['output']}": each["value"] for each in self.json("env", sandbox)
        }

    def up(self) -> None:
        self.dayfly("up", "--detach", "--port", "0")

    def down(self) -> None:
        self.dayfly("down")

    def kill(self) -> None:
        """End the server as a power cut would, and see it end."""
        pid = int((self.path / "lock").read_text())
        handle = os.pidfd_open(pid)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
        # The server is not our child. Its first thread may be dead while another one still has its files.
        until(lambda: _is_free(self.path / "lock"), f"the end of process {pid}")


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
