#!/usr/bin/env python3
"""A small service that keeps processes for others, as a company's own might.

    service.py ADDRESS:PORT TOKEN      # port 0 takes a free one; the address is printed first

PUT /machines/ID {"program": NAME} has one run and says how it stands; asked again, the same one. DELETE /machines/ID
ends it, and from then on that ID is used up. Callers choose among programs by name and never say what they are.
"""

import http.server
import json
import signal
import subprocess
import sys
import threading

PROGRAMS = {"idle": ["sleep", "infinity"], "brief": ["sleep", "3"], "broken": ["sh", "-c", "exit 3"]}
MOST = 100


class Processes:
    """What runs, and what ran. A restart of the service ends all: they are its children."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.removed: set[str] = set()

    def keep(self, name: str, program: str) -> tuple[int, dict[str, object]]:
        if name in self.removed:
            return 410, {"error": f"{name} was removed, and its name is used up"}
        if program not in PROGRAMS:
            return 422, {"error": f"no program {program!r}; there is {', '.join(PROGRAMS)}"}
        if name not in self.running and len(self.running) >= MOST:
            return 429, {"error": f"{MOST} processes are enough"}
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
    """One request."""

    processes = Processes()
    token = ""

    def _do(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        parts = self.path.strip("/").split("/")
        if self.headers.get("Authorization") != f"Bearer {self.token}":
            self._answer(401, {"error": "a token is needed"})
        elif len(parts) != 2 or parts[0] != "machines":
            self._answer(404, {"error": "there is /machines/ID"})
        else:
            with self.processes.lock:
                keeps = self.command == "PUT"
                done = (
                    self.processes.keep(parts[1], body.get("program", "")) if keeps else self.processes.remove(parts[1])
                )
            self._answer(*done)

    do_PUT = do_DELETE = _do  # noqa: N815 - the names are the library's

    def _answer(self, status: int, body: dict[str, object]) -> None:
        said = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


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
