"""The server as the verbs see it: JSON in, JSON out, and every way it can be missing or refuse said in one line."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any
from urllib.parse import urlencode

from dayfly import __version__
from dayfly.cli.exits import CliError, Exit
from dayfly.client import address as addresses
from dayfly.client.address import ORGANISATION, START, Address, below
from dayfly.client.blocking_io import BlockingIo
from dayfly.client.connection import Connection, Request, run
from dayfly.client.errors import RefusedError as ApiError
from dayfly.client.errors import UnreachableError, refusal
from dayfly.client.home import Home

__all__ = ["CLUSTER", "ORGANISATION", "START", "Address", "ApiError", "Client", "find", "is_elsewhere", "named"]

CLUSTER = "local"
UNAUTHORIZED = 401
_REDIRECTED, _FAULTS = 300, 400
SERVER = "dayfly.server"
"""Where the command line's context has the name of `--server`."""
TIMEOUT = 30
"""Seconds after which a server that says nothing counts as gone. Long polls ask for less."""

_KEYS = "the right one is in the file key of its home: set DAYFLY_HOME or DAYFLY_API_KEY"


def find(home: Home | None = None) -> Address | None:
    """Where the server of this home should be; None if no server runs there.

    `--server` comes first, then `DAYFLY_URL`, `DAYFLY_ORG` and `DAYFLY_API_KEY`, then the home's own files.
    """
    return addresses.find(home, named())


def named() -> str:
    """The server that the command line names with `--server`; empty for none."""
    import click

    context = click.get_current_context(silent=True)
    return str(context.meta.get(SERVER) or "") if context else ""


def is_elsewhere() -> bool:
    """Whether the command line or the environment names the server, and not the home."""
    return bool(named() or os.environ.get("DAYFLY_URL"))


class Client:
    """One connection, kept open between requests. Not for use by several threads."""

    def __init__(self, address: Address, *, timeout: float = TIMEOUT, home: Home | None = None) -> None:
        self._timeout = timeout
        self._home = home
        self._connection = _connection(address, timeout)

    @property
    def address(self) -> Address:
        """Of the server."""
        return self._connection.address

    @property
    def flags(self) -> str:
        """What a command needs behind it to mean this server, empty or with a space in front."""
        return f" --server {shlex.quote(self.address.name)}" if self.address.name else ""

    def turn_to(self, address: Address) -> None:
        """Speak with a server at another address from now on."""
        there = _connection(address, self._timeout)
        self._connection.close()
        self._connection = there

    @classmethod
    def open(cls, home: Home | None = None) -> Client:
        """A client of this home's server.

        Raises:
            CliError: no server is known.
        """
        home = home or Home.find()
        address = find(home)
        if address is None:
            raise CliError(Exit.NO_SERVER, f"no server runs in {home.path}", START)
        return cls(address, home=None if is_elsewhere() else home)

    def get(self, *path: str, **query: object) -> Any:
        """GET below the organisation."""
        return self.request("GET", self._below(path), query)

    def put(self, *path: str, body: Any) -> Any:
        """PUT below the organisation."""
        return self.request("PUT", self._below(path), {}, body)

    def post(self, *path: str, body: Any) -> Any:
        """POST below the organisation."""
        return self.request("POST", self._below(path), {}, body)

    def delete(self, *path: str, **query: object) -> Any:
        """DELETE below the organisation."""
        return self.request("DELETE", self._below(path), query)

    def health(self) -> Any:
        """`{version, ok}`; needs no key.

        Raises:
            CliError: as `request`.
        """
        found = self.request("GET", "/api/v2/meta/health", {})
        if not isinstance(found, dict):  # whatever answers every address alike
            raise self._connection.silent("is not Dayfly: it answers 200 with other JSON", is_other=True)
        return found

    def request(self, method: str, path: str, query: dict[str, object], body: Any = None) -> Any:
        """One exchange.

        Raises:
            ApiError: the server answered with an error.
            CliError: nobody answered, or not a Dayfly.
        """
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(given, errors='replace')}" if given else path
        headers = {
            "Authorization": f"Bearer {self.address.key}".strip(),
            "Accept": "application/json",
            "User-Agent": f"dayfly/{__version__}",
        }
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        status, answer = self._exchange(Request(method, target, headers, data))
        return self._understood(status, answer)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _below(self, path: tuple[str, ...]) -> str:
        return below(self.address.org, *path)

    def _exchange(self, request: Request) -> tuple[int, bytes]:
        try:
            response = run(self._connection.exchange(request))
        except UnreachableError as fault:
            if not fault.stale:
                raise
            # The server closed an idle connection, or was started again: every request may be repeated.
            response = run(self._connection.exchange(request))
        return response.status, response.body

    def _understood(self, status: int, answer: bytes) -> Any:
        if _REDIRECTED <= status < _FAULTS:
            # Not followed: the key is for this server alone. And nothing was done, however empty the answer is.
            raise self._connection.silent(f"is not Dayfly: it answers {status}, which leads elsewhere", is_other=True)
        try:
            content = json.loads(answer) if answer else {}
        except (ValueError, RecursionError):  # the latter of lists within lists within lists
            raise self._connection.silent(f"is not Dayfly: it answers {status} without JSON", is_other=True) from None
        if status < _FAULTS:
            return content
        error = content.get("error") if isinstance(content, dict) else None
        fault = refusal(status, str(error or f"the server answered {status} without giving a reason"))
        fault.advice = _KEYS if fault.code == Exit.DENIED else ""
        if not error:
            fault.advice = self.address.advice(fault.advice, is_other=True)
        if fault.code == Exit.DENIED and self.address.name:
            again = f"log in again with: dayfly login {self.address.url} --name {self.address.name}"
            fault.advice = again if status == UNAUTHORIZED else "ask an admin of the organisation for another key"
        if fault.code == Exit.DENIED and self._home is not None:
            from dayfly.cli import lock

            if lock.is_left_behind(self._home):
                left = f"no server runs in {self._home.path}, and where its last one answered, another home's does now"
                fault.advice = f"{left}: {START} --port 0, or set DAYFLY_HOME or DAYFLY_API_KEY"
        raise fault


def _connection(address: Address, timeout: float) -> Connection:
    """A connection that is not open yet.

    Raises:
        CliError: the address or the key is none.
    """
    return Connection(address, BlockingIo(), timeout)
