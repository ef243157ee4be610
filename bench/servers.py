"""A real server in a separate home: `dayfly up`, as a user starts it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.local import server_process
from dayfly.client.home import Home
from dayfly.execute.process.attempt_storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class Server(NamedTuple):
    """A running server: its process, its home, and the environment with which the command line finds it."""

    pid: int
    home: Home
    environment: dict[str, str]

    def client(self) -> ServerClient:
        """Return a client of it."""
        return ServerClient.open(self.home)


@contextlib.contextmanager
def running(path: Path, *options: str, variables: Mapping[str, str] = MappingProxyType({})) -> Iterator[Server]:
    """Start a server in the home at `path`. At the end stop it, and remove its files outside the home.

    `options` are further options of `dayfly up`, `variables` further environment variables.
    """
    home = Home(path)
    names = ("DAYFLY_URL", "DAYFLY_API_KEY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"DAYFLY_HOME": str(path), **variables}
    command = [sys.executable, "-m", "dayfly", "up", "--port", "0", "--detach", *options]
    subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
    pid = home.server_process()
    assert pid is not None, "`up --detach` returns once it answers"
    try:
        yield Server(pid, home, environment)
    finally:
        server_process.stop(home, pid, 60)
        shutil.rmtree(open_storage(path).work, ignore_errors=True)
