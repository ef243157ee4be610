#!/usr/bin/env python3
"""A small name service with the usual features: a token, long-running jobs, and idempotency keys.

    service.py ADDRESS:PORT TOKEN      # port 0 takes a free one; the address is printed first

POST /v1/zones/ZONE/records {"owner", "address"} answers 202 with the Location of a job, GET returns the job's state,
GET ...?owner=ID finds a record, DELETE ...?owner=ID removes it, GET /v1/records lists all.
"""

import http.server
import json
import sys
import threading
from urllib.parse import parse_qs, unquote, urlsplit

POLLS_UNTIL_DONE = 2  # how many requests for its state a job takes


class Book:
    """The records and jobs of the service."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.records: dict[str, dict[str, str]] = {}
        self.jobs: dict[str, dict[str, object]] = {}
        self.keys: dict[str, str] = {}

    def begin(self, key: str, zone: str, request: dict[str, str]) -> str:
        """Start a job that creates a record. The same key returns the same job."""
        if key not in self.keys:
            job = self.keys[key] = str(len(self.jobs) + 1)
            record = {"id": f"rec-{job}", "name": f"{request['owner']}.{zone}", **request}
            self.records[request["owner"]] = record
            self.jobs[job] = {"state": "running", "asked": 0, "record": record}
        return self.keys[key]

    def poll(self, job: str) -> dict[str, object] | None:
        """Return the state of a job."""
        found = self.jobs.get(job)
        if found is not None:
            found["asked"] = int(str(found["asked"])) + 1
            found["state"] = "done" if int(str(found["asked"])) >= POLLS_UNTIL_DONE else "running"
        return found


class Handler(http.server.BaseHTTPRequestHandler):
    """The handler of one request."""

    book = Book()
    token = ""

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        if self.headers.get("Authorization") != f"Bearer {self.token}":
            self._answer(401, {"error": "a token is required"})
            return
        parts = urlsplit(self.path)
        owner = parse_qs(parts.query).get("owner", [""])[0]
        with self.book.lock:
            self._route(tuple(map(unquote, parts.path.strip("/").split("/"))), owner, body)

    do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - names required by http.server

    def _route(self, path: tuple[str, ...], owner: str, body: dict[str, str]) -> None:
        match (self.command, *path):
            case ("POST", "v1", "zones", zone, "records"):
                job = self.book.begin(self.headers.get("Idempotency-Key") or "", zone, body)
                self._answer(202, {"job": job}, location=f"/v1/jobs/{job}")
            case ("GET", "v1", "jobs", job) if found := self.book.poll(job):
                self._answer(200, found)
            case ("GET", "v1", "zones", _, "records") if found := self.book.records.get(owner):
                self._answer(200, {"state": "done", "record": found})
            case ("DELETE", "v1", "zones", _, "records") if self.book.records.pop(owner, None):
                self._answer(204)
            case ("GET", "v1", "records"):
                self._answer(200, sorted(self.book.records.values(), key=str))
            case _:
                self._answer(404, {"error": "not found"})

    def _answer(self, status: int, body: object = None, location: str = "") -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        if body is not None:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def main() -> None:
    address, _, port = sys.argv[1].rpartition(":")
    Handler.token = sys.argv[2]
    server = http.server.ThreadingHTTPServer((address, int(port)), Handler)
    print(f"{address}:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
