"""Several `dayfly server` processes with one PostgreSQL behind a balancer, killed one after the other."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.server.balancer import HOST, Address, Balancer
from tests.server.moved_clock import Clock

TESTS = Path(__file__).resolve().parents[1]
PATIENCE_S = 120


def environment(**more: str) -> dict[str, str]:
    """Return the environment for processes of this checkout."""
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS.parent / "src")])
    named = {name: value for name, value in os.environ.items() if not name.startswith(("DAYFLY_", "KUBE"))}
    return {**named, "PYTHONPATH": paths, **more}


class Replicas:
    """Servers that restart as soon as they are killed. Their output is in `folder`.

    The interval between kills is fixed. If a restart takes longer on a slow machine, the next kill waits for it.
    """

    def __init__(self, database: str, folder: Path, *, count: int = 2, seconds: float = 5.0) -> None:
        self.clock = Clock(folder / "clock")
        self.kills = 0
        self._folder = folder
        self._seconds = seconds
        self._environment = environment(DAYFLY_DATABASE=database, DAYFLY_HOME=str(folder))
        self._ports = [free_port() for _ in range(count)]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._turn = threading.Lock()
        self._over = threading.Event()
        self._killer = threading.Thread(target=self._kill_in_turn, daemon=True)
        self.balancer = Balancer(self._ports)

    def init(self, org: str) -> str:
        """Create an organisation; return the key of its first admin."""
        command = [sys.executable, "-m", "dayfly", "server", "init", org]
        return subprocess.check_output(command, env=self._environment, stderr=subprocess.DEVNULL, text=True).strip()

    def start(self) -> None:
        """Run the servers, and the task that kills them."""
        self._processes = [self._begin(port) for port in self._ports]
        self._killer.start()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all servers."""
        with self._turn:
            self._end()
            yield
            self._processes = [self._begin(port) for port in self._ports]

    def close(self) -> None:
        self._over.set()
        if self._killer.is_alive():
            self._killer.join()
        self._end()
        self.balancer.close()

    def words(self) -> str:
        """Return their output."""
        return "".join(each.read_text(errors="replace") for each in sorted(self._folder.glob("server-*.log")))

    def _begin(self, port: int) -> subprocess.Popen[bytes]:
        command = self.clock.command("server", "--listen", f"{HOST}:{port}", "--rate", "0")
        with (self._folder / f"server-{port}.log").open("ab") as log:
            return subprocess.Popen(command, env=self._environment, cwd=TESTS, stdout=log, stderr=log)

    def _kill_in_turn(self) -> None:
        for number in itertools.cycle(range(len(self._ports))):
            if self._over.wait(self._seconds):
                return
            while not self._over.is_set():
                with self._turn:
                    if all(map(_answers, self._ports)):
                        self._kill(number)
                        break
                self._over.wait(0.1)

    def _kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()
        self.kills += 1
        self._processes[number] = self._begin(self._ports[number])

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/api/v2/meta/health")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


class RetryingClient:
    """A client that repeats a request without an answer."""

    def __init__(self, way: Address, org: str, key: str) -> None:
        self._way = way
        self._base = f"/api/v2/orgs/{org}/"
        self._key = key
        self.unanswered = 0

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and answer. A request without an answer is repeated, as all requests here may be."""
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connection = http.client.HTTPConnection(HOST, self._way.port, timeout=60)
            try:
                connection.request(method, self._base + path, data, {"signadot-api-key": self._key})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                self.unanswered += 1
                assert time.monotonic() < deadline, f"no server answers {method} {path}"
                time.sleep(0.1)
            finally:
                connection.close()

    def must(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer; fail the test if the status is not 200."""
        status, answer = self.ask(method, path, body)
        assert status == 200, (method, path, status, answer)
        return answer
