#!/usr/bin/env python3
"""A small service that keeps processes, similar to an internal service of a company.

    service.py ADDRESS:PORT TOKEN      # port 0 takes a free one; the address is printed first

PUT /machines/ID {"program": NAME} starts a process and returns its state. It is idempotent. DELETE /machines/ID ends
it, and that ID can never be used again. Callers choose a program by name and cannot define one.
"""

import http.server
import json
import signal
import subprocess
import sys
import threading

PROGRAMS = {"idle": ["sleep", "infinity"], "brief": ["sleep", "3"], "broken": ["sh", "-c", "exit 3"]}
MAX_PROCESSES = 100


class Processes:
    """Running and removed processes. A restart of the service ends all, because they are its children."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.removed: set[str] = set()

    def keep(self, name: str, program: str) -> tuple[int, dict[str, object]]:
        if name in self.removed:
            return 410, {"error": f"{name} was removed, and its ID cannot be used again"}
        if program not in PROGRAMS:
            return 422, {"error": f"no program {program!r}; there is {', '.join(PROGRAMS)}"}
        if name not in self.running and len(self.running) >= MAX_PROCESSES:
            return 429, {"error": f"{MAX_PROCESSES} processes are the maximum"}
        if name not in self.running:
            self.running[name] = subprocess.Popen(PROGRAMS[program])
            return 200, {"state": "starting"}
        process = self.running[name]
        if (code := process.poll()) is not None:
            return 200, {"state": "ended", "code": code}
        return 200, {"state": "running", "address": f"process {process.pid}"}

    def remove(self, name: str) -> tuple[int, dict[str, object]]:
        self.removed.add(name)
        process = self.running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()
        return 200, {}


class Handler(http.server.BaseHTTPRequestHandler):
    """The handler of one request."""

    processes = Processes()
    token = ""

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        parts = self.path.strip("/").split("/")
        if self.headers.get("Authorization") != f"Bearer {self.token}":
            self._answer(401, {"error": "a token is required"})
        elif len(parts) != 2 or parts[0] != "machines":
            self._answer(404, {"error": "the only path is /machines/ID"})
        else:
            with self.processes.lock:
                keeps = self.command == "PUT"
                done = (
                    self.processes.keep(parts[1], body.get("program", "")) if keeps else self.processes.remove(parts[1])
                )
            self._answer(*done)

    do_PUT = do_DELETE = _handle  # noqa: N815 - names required by http.server

    def _answer(self, status: int, body: dict[str, object]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def main(place: str, token: str) -> None:
    host, _, port = place.rpartition(":")
    Handler.token = token
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    print(f"http://{host}:{server.server_address[1]}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        server.serve_forever()
    finally:
        for process in Handler.processes.running.values():
            process.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
