#!/usr/bin/env python3
"""A small service that many share: it opens accounts for tenants, and bills them when they go.

    service.py ADDRESS:PORT TOKEN      # port 0 takes a free one; the address is printed first

With the token POST /v1/tenants {"owner", "tenant", "key", "secret"} opens an account, GET and DELETE ...?owner=ID find
and close it, GET /v1/tenants lists those that are open, GET /v1/log what was done. With a tenant's key
GET /v1/tenants/ID tells its account. GET /v1/bills/OWNER needs neither: an owner's id cannot be guessed.
"""

import http.server
import json
import sys
import threading
from urllib.parse import parse_qs, urlsplit


class Book:
    """What the service knows."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tenants: dict[str, dict[str, str]] = {}
        self.bills: dict[str, dict[str, object]] = {}
        self.keys: dict[str, dict[str, str]] = {}
        self.log: list[str] = []

    def open(self, key: str, wish: dict[str, str]) -> dict[str, str]:
        """A tenant's account; the same for the same key against doing things twice."""
        if key not in self.keys:
            self.keys[key] = self.tenants[wish["owner"]] = {"id": f"t-{len(self.keys) + 1}", **wish}
            self.log.append(f"opened {wish['tenant']}")
        return self.keys[key]

    def close(self, owner: str) -> bool:
        """Whether there was an account to close."""
        found = self.tenants.pop(owner, None)
        if found is not None:
            self.bills[owner] = {"tenant": found["tenant"], "due": 0}
            self.log.append(f"closed {found['tenant']}")
        return found is not None

    def account(self, number: str, key: str) -> dict[str, str] | None:
        """The account of that number, for whoever has its key."""
        found = next((each for each in self.tenants.values() if (each["id"], each["key"]) == (number, key)), None)
        if found is None:
            return None
        self.log.append(f"told {found['tenant']}")
        return {name: found[name] for name in ("id", "tenant", "secret")}

    def bill(self, owner: str) -> tuple[int, object]:
        """Status and body for whoever asks for an owner's bill."""
        if owner in self.tenants:
            return 409, {"error": "the account is open"}
        if owner not in self.bills:
            return 404, {"error": "there was no account"}
        self.log.append(f"billed {self.bills[owner]['tenant']}")
        return 200, self.bills[owner]


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    book = Book()
    token = ""

    def _do(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        parts = urlsplit(self.path)
        owner = parse_qs(parts.query).get("owner", [""])[0]
        with self.book.lock:
            self._answer(*self._route(tuple(parts.path.strip("/").split("/")), owner, body))

    do_GET = do_POST = do_DELETE = _do  # noqa: N815 - the names are the library's

    def _route(self, path: tuple[str, ...], owner: str, body: dict[str, str]) -> tuple[int, object]:
        key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        match (self.command, *path):
            case ("GET", "v1", "bills", whose):
                return self.book.bill(whose)
            case ("GET", "v1", "tenants", number):
                found = self.book.account(number, key)
                return (200, found) if found else (401, {"error": "another key is needed"})
            case _ if key != self.token:
                return 401, {"error": "a token is needed"}
            case ("POST", "v1", "tenants"):
                return 201, self.book.open(self.headers.get("Idempotency-Key") or "", body)
            case ("GET", "v1", "tenants") if owner in self.book.tenants:
                return 200, self.book.tenants[owner]
            case ("DELETE", "v1", "tenants") if self.book.close(owner):
                return 204, None
            case ("GET", "v1", "tenants") if not owner:
                return 200, sorted(each["tenant"] for each in self.book.tenants.values())
            case ("GET", "v1", "log"):
                return 200, self.book.log
        return 404, {"error": "there is none"}

    def _answer(self, status: int, body: object) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
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
