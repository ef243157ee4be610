#!/usr/bin/env python3
"""A small shared service: it opens accounts for tenants, and bills them when they leave.

    service.py ADDRESS:PORT TOKEN      # port 0 takes a free one; the address is printed first

With the token, POST /v1/tenants {"owner", "tenant", "key", "secret"} opens an account, GET and DELETE ...?owner=ID find
and close it, GET /v1/tenants lists open accounts, GET /v1/log lists all actions. With a tenant's key,
GET /v1/tenants/ID returns its account. GET /v1/bills/OWNER needs neither, because an owner's id cannot be guessed.
"""

import http.server
import json
import sys
import threading
from urllib.parse import parse_qs, urlsplit


class Book:
    """The accounts, bills and log of the service."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tenants: dict[str, dict[str, str]] = {}
        self.bills: dict[str, dict[str, object]] = {}
        self.keys: dict[str, dict[str, str]] = {}
        self.log: list[str] = []

    def open(self, key: str, request: dict[str, str]) -> dict[str, str]:
        """Open an account. The same key returns the same account, so a request may be repeated."""
        if key not in self.keys:
            self.keys[key] = self.tenants[request["owner"]] = {"id": f"t-{len(self.keys) + 1}", **request}
            self.log.append(f"opened {request['tenant']}")
        return self.keys[key]

    def close(self, owner: str) -> bool:
        """Close an account. Return whether it was open."""
        found = self.tenants.pop(owner, None)
        if found is not None:
            self.bills[owner] = {"tenant": found["tenant"], "due": 0}
            self.log.append(f"closed {found['tenant']}")
        return found is not None

    def account(self, number: str, key: str) -> dict[str, str] | None:
        """Return the account with this number if the key is the tenant's, else None."""
        found = next((each for each in self.tenants.values() if (each["id"], each["key"]) == (number, key)), None)
        if found is None:
            return None
        self.log.append(f"told {found['tenant']}")
        return {name: found[name] for name in ("id", "tenant", "secret")}

    def bill(self, owner: str) -> tuple[int, object]:
        """Return status and body for a request of an owner's bill."""
        if owner in self.tenants:
            return 409, {"error": "the account is open"}
        if owner not in self.bills:
            return 404, {"error": "there was no account"}
        self.log.append(f"billed {self.bills[owner]['tenant']}")
        return 200, self.bills[owner]


class Handler(http.server.BaseHTTPRequestHandler):
    """The handler of one request."""

    book = Book()
    token = ""

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        parts = urlsplit(self.path)
        owner = parse_qs(parts.query).get("owner", [""])[0]
        with self.book.lock:
            self._answer(*self._route(tuple(parts.path.strip("/").split("/")), owner, body))

    do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - names required by http.server

    def _route(self, path: tuple[str, ...], owner: str, body: dict[str, str]) -> tuple[int, object]:
        key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        match (self.command, *path):
            case ("GET", "v1", "bills", bill_owner):
                return self.book.bill(bill_owner)
            case ("GET", "v1", "tenants", number):
                found = self.book.account(number, key)
                return (200, found) if found else (401, {"error": "the key is not valid"})
            case _ if key != self.token:
                return 401, {"error": "a token is required"}
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
        return 404, {"error": "not found"}

    def _answer(self, status: int, body: object) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
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
