"""`dayfly server` as a separate process on either database, and the CPU time and memory of both."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.memory import resident

if TYPE_CHECKING:
    from collections.abc import Iterator

ORG = "acme"
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT_S = 60


class Used(NamedTuple):
    """CPU seconds of the server and its database."""

    server: float
    database: float


class Server(NamedTuple):
    """A running server. `database` is the process of its database; 0 if the database is part of the server."""

    url: str
    key: str
    pid: int
    database: int

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request as an admin."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"signadot-api-key": self.key, "content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v2/orgs/{ORG}/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    def used(self) -> Used:
        """Return the CPU time used so far."""
        return Used(_seconds(self.pid), sum(map(_seconds, _family(self.database))) if self.database else 0.0)

    def memory(self) -> tuple[float, float]:
        """Return the memory in megabytes. For PostgreSQL, memory shared by several processes counts once."""
        return resident(self.pid), sum(map(_unshared, _family(self.database))) if self.database else 0.0


@contextlib.contextmanager
def sqlite(place: Path) -> Iterator[Server]:
    """Run a server on SQLite."""
    database = f"sqlite:///{place / 'server.db'}"
    with _serving(place / "said", database, _init(database), 0) as server:
        yield server


@contextlib.contextmanager
def postgresql(place: Path) -> Iterator[Server]:
    """Run a server on a separate PostgreSQL without synchronous commits, as in the tests."""
    with replicas(place, 1) as (server,):
        yield server


@contextlib.contextmanager
def replicas(place: Path, count: int) -> Iterator[list[Server]]:
    """Run several servers on such a PostgreSQL."""
    from tests.server.databases import postgres

    with postgres() as found, contextlib.ExitStack() as stack:
        database = found.fresh()
        key = _init(database)
        running = (_serving(place / f"said-{number}", database, key, found.pid) for number in range(count))
        yield [stack.enter_context(each) for each in running]


def _program(database: str) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-m", "dayfly", "server"], {**os.environ, "DAYFLY_DATABASE": database}


def _init(database: str) -> str:
    """Create the organisation. Return the key of its admin."""
    program, environment = _program(database)
    made = subprocess.run([*program, "init", ORG], env=environment, check=True, capture_output=True, text=True)
    return made.stdout.strip()


@contextlib.contextmanager
def _serving(said: Path, database: str, key: str, pid: int) -> Iterator[Server]:
    program, environment = _program(database)
    # No rate limits, because the response time of all requests is measured.
    command = [*program, "--listen", "127.0.0.1:0", "--rate", "0"]
    with said.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield Server(_url(process, said), key, process.pid, pid)
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _url(process: subprocess.Popen[bytes], said: Path) -> str:
    """Wait for the server to print its address."""
    while process.poll() is None:
        if found := re.search(r"serves at (\S+)\n", said.read_text(encoding="utf-8")):
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"the server ended: {said.read_text(encoding='utf-8')[-2000:]}")


def _family(pid: int) -> list[int]:
    """Return a process and its children."""
    found = [pid]
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int(_stat(int(each.name))[1]) == pid:
                found.append(int(each.name))
    return found


def _seconds(pid: int) -> float:
    """Return the CPU time of a process and its ended children."""
    with contextlib.suppress(OSError):
        return sum(map(int, _stat(pid)[11:15])) / TICKS
    return 0.0


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _unshared(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
