#!/usr/bin/env python3
"""A small service of names, as many a company has one: a token, long jobs, and keys against doing things twice.

    service.py ADDRESS:PORT TOKEN      # port 0 takes a free one; the address is printed first

POST /v1/zones/ZONE/records {"owner", "address"} answers 202 with the Location of a job, GET says how it stands,
GET ...?owner=ID finds a record, DELETE ...?owner=ID removes it, GET /v1/records lists all.
"""

import http.server
import json
import sys
import threading
from urllib.parse import parse_qs, unquote, urlsplit

QUESTIONS = 2  # a job is done when it has been asked for so often


class Book:
    """What the service knows."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.records: dict[str, dict[str, str]] = {}
        self.jobs: dict[str, dict[str, object]] = {}
        self.keys: dict[str, str] = {}

    def begin(self, key: str, zone: str, wish: dict[str, str]) -> str:
        """The job that makes a record; the same for the same key."""
        if key not in self.keys:
            job = self.keys[key] = str(len(self.jobs) + 1)
            record = {"id": f"rec-{job}", "name": f"{wish['owner']}.{zone}", **wish}
            self.records[wish["owner"]] = record
            self.jobs[job] = {"state": "running", "asked": 0, "record": record}
        return self.keys[key]

    def ask(self, job: str) -> dict[str, object] | None:
        """How a job stands."""
        found = self.jobs.get(job)
        if found is not None:
            found["asked"] = int(str(found["asked"])) + 1
            found["state"] = "done" if int(str(found["asked"])) >= QUESTIONS else "running"
        return found


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    book = Book()
    token = ""

    def _do(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        if self.headers.get("Authorization") != f"Bearer {self.token}":
            self._answer(401, {"error": "a token is needed"})
            return
        parts = urlsplit(self.path)
        owner = parse_qs(parts.query).get("owner", [""])[0]
        with self.book.lock:
            self._route(tuple(map(unquote, parts.path.strip("/").split("/"))), owner, body)

    do_GET = do_POST = do_DELETE = _do  # noqa: N815 - the names are the library's

    def _route(self, path: tuple[str, ...], owner: str, body: dict[str, str]) -> None:
        match (self.command, *path):
            case ("POST", "v1", "zones", zone, "records"):
                job = self.book.begin(self.headers.get("Idempotency-Key") or "", zone, body)
                self._answer(202, {"job": job}, location=f"/v1/jobs/{job}")
            case ("GET", "v1", "jobs", job) if found := self.book.ask(job):
                self._answer(200, found)
            case ("GET", "v1", "zones", _, "records") if found := self.book.records.get(owner):
                self._answer(200, {"state": "done", "record": found})
            case ("DELETE", "v1", "zones", _, "records") if self.book.records.pop(owner, None):
                self._answer(204)
            case ("GET", "v1", "records"):
                self._answer(200, sorted(self.book.records.values(), key=str))
            case _:
                self._answer(404, {"error": "there is none"})

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
        """It says nothing."""


def main() -> None:
    address, _, port = sys.argv[1].rpartition(":")
    Handler.token = sys.argv[2]
    server = http.server.ThreadingHTTPServer((address, int(port)), Handler)
    print(f"{address}:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
