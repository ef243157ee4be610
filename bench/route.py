"""(i) The time from the PUT of a sandbox to its fork's first response, compared with its program's start."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench.rows import Row, folder, median, show, spread
from bench.servers import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dayfly.cli.backends.target_server import ServerClient

HOST = "127.0.0.1"
ROUNDS = 15
AIM = 1.2
# The interval between requests, and the timeout of each.
POLL_INTERVAL_S = 0.002
REQUEST_TIMEOUT_S = 0.25
# A minimal service of Python's standard library that returns its name; a real service takes longer to start.
APP = (
    "import http.server,os\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "  protocol_version='HTTP/1.1'\n"
    "  def do_GET(s):\n"
    "    said=os.environ.get('DAYFLY_SANDBOX_NAME','baseline').encode()\n"
    "    s.send_response(200); s.send_header('content-length',str(len(said))); s.end_headers(); s.wfile.write(said)\n"
    "  def log_message(*a): pass\n"
    "import time; time.sleep(float(os.environ.get('SLOW','0')))\n"
    "http.server.ThreadingHTTPServer(('127.0.0.1',int(os.environ['PORT'])),H).serve_forever()\n"
)
COMMAND = [sys.executable, "-c", APP]
# A service that listens immediately, and another that loads for a second first.
SLOW = {"that listens at once": 0.0, "that loads for a second first": 1.0}


def measure(rounds: int = ROUNDS) -> Iterator[Row]:
    """Measure sandboxes behind a real Envoy, and bare processes, in turns."""
    with folder() as place, running(place / "home", "--routing") as server, _baselines(server.client()) as ports:
        for what, port in ports.items():
            ours, bare = [], []
            for number in range(rounds):
                bare.append(_bare(SLOW[what]))
                ours.append(_routed(server.client(), f"s{number}", what, port))
            apart = median(ours) / median(bare)
            yield Row(
                f"(i) from the PUT of a sandbox to its fork's first response through Envoy, a service {what} "
                "(yardstick: from the start of its program to its first response)",
                f"{median(ours) * 1e3:.0f} ms ({spread(ours)} s)",
                f"{median(bare) * 1e3:.0f} ms ({spread(bare)} s)",
                f"{apart:.2f} x ({(median(ours) - median(bare)) * 1e3:+.0f} ms)",
                f"{AIM} x",
                apart <= AIM,
            )


def _routed(client: ServerClient, name: str, what: str, port: int) -> float:
    fork = {"forkOf": {"kind": "Deployment", "namespace": "default", "name": _name(what)}}
    began = time.perf_counter()
    made = client.put("sandboxes", name, body={"spec": {"cluster": "local", "forks": [fork]}})
    until(lambda: said(HOST, port, made["routingKey"]) == name)
    took = time.perf_counter() - began
    client.delete("sandboxes", name)
    until(lambda: name not in {each["name"] for each in client.get("sandboxes")})
    return took


def _bare(slow: float) -> float:
    port = _free()
    began = time.perf_counter()
    # In a new session, like a fork, because Linux shares CPU time among sessions.
    process = subprocess.Popen(COMMAND, env={"PORT": str(port), "SLOW": str(slow)}, start_new_session=True)
    try:
        until(lambda: said(HOST, port) == "baseline")
        return time.perf_counter() - began
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _baselines(client: ServerClient) -> Iterator[dict[str, int]]:
    """Create a baseline of each kind, and yield the ports of their entry points."""
    taken, processes = {}, []
    try:
        for what, slow in SLOW.items():
            own, taken[what] = _free(), _free()
            processes.append(subprocess.Popen(COMMAND, env={"PORT": str(own)}))
            found = {"kind": "Deployment", "name": _name(what), "command": COMMAND, "env": {"SLOW": str(slow)}}
            client.put("workloads", "default", _name(what), body={**found, "port": own, "routedPort": taken[what]})
        yield taken
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _name(what: str) -> str:
    return what.replace(" ", "-")


def said(address: str, port: int, key: str = "", host: str = "") -> str:
    """Return the name of the service that answers, or an empty string."""
    # Packets to a Service address that the node does not know yet are dropped silently.
    connection = http.client.HTTPConnection(address, port, timeout=REQUEST_TIMEOUT_S)
    headers = {"baggage": f"sd-routing-key={key}"} if key else {}
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/", headers=headers | ({"Host": host} if host else {}))
        answer = connection.getresponse()
        return answer.read().decode() if answer.status == 200 else ""
    return ""


def until(so: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    """Poll until the condition is true."""
    deadline = time.monotonic() + timeout_s
    while not so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition was not true within {timeout_s:g} s")
        time.sleep(POLL_INTERVAL_S)


def _free() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    show(measure)
