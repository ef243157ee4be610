"""Runs the real command line as a separate process with a separate home."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from tests import fork_server
from tests.fork_server import COMMAND

from dayfly.client import Client
from dayfly.client.home import Home

__all__ = ["COMMAND", "Cli", "Done", "refused", "until"]
LONGEST = 60


class Done(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


class Cli(NamedTuple):
    """Runs `dayfly` for one home, in one folder."""

    home: Path
    folder: Path
    started: list[subprocess.Popen[bytes]]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment without the developer's settings, and with this home."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DAYFLY_")}
        kept.pop("NO_COLOR", None)
        runner = {"DAYFLY_RUNNER": os.environ["DAYFLY_RUNNER"]} if "DAYFLY_RUNNER" in os.environ else {}
        return {**kept, **runner, "DAYFLY_HOME": str(self.home), **more}

    def __call__(self, *arguments: str, stdin: str | bytes = "", **more: str) -> Done:
        """Run one command and return its result."""
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        environment = self.environment(**more)
        done = fork_server.run([*arguments], stdin=data, cwd=self.folder, env=environment, timeout=LONGEST)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
        """Start one command, which `close` kills if it is still running."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        given |= {"env": self.environment(), **options}
        process = subprocess.Popen([*COMMAND, *arguments], cwd=self.folder, **given)
        self.started.append(process)
        return process

    def close(self) -> None:
        """Kill all running commands, and a running server of this home."""
        for process in self.started:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        if (left := Home(self.home).server_process()) is not None:
            os.kill(left, signal.SIGKILL)

    def write(self, name: str, text: str) -> str:
        """Write a file in the folder and return its name."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    def sandboxes(self) -> list[str]:
        """Return the names of all sandboxes. It uses no process, because tests poll it."""
        with Client(home=self.home) as client:
            return [sandbox.name for sandbox in client.sandboxes.list()]


def until(true: object, seconds: float = 60) -> None:
    """Wait until a function returns a true value."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.05)


def refused(done: Done, code: int, *words: str) -> None:
    """Assert that a command failed with a code and one line on stderr, without output and traceback."""
    lines = done.err.splitlines()
    assert (done.code, done.out) == (code, ""), done
    assert len(lines) == 1, done.err
    assert lines[0].startswith("dayfly: "), done.err
    for word in words:
        assert word in lines[0], done.err
