"""The server that a command line selects, and a blocking client that sends and returns JSON."""

from __future__ import annotations

import os
from typing import Any

from dayfly.client import address as addresses
from dayfly.client.address import START, Address
from dayfly.client.blocking_io import BlockingIo
from dayfly.client.connection import run
from dayfly.client.errors import DayflyError, Exit, RefusedError
from dayfly.client.home import Home
from dayfly.client.json_client import JsonClient
from dayfly.client.retry import RetryPolicy

CLUSTER = "local"
SERVER = "dayfly.server"
"""The key for the name of `--server` in click's `Context.meta`."""
TIMEOUT_S = 30
"""Seconds without a byte after which a request fails. Long polls are shorter."""


def find(home: Home | None = None) -> Address | None:
    """Return the address of the selected server; None if that is the home's server and it does not run.

    `--server` comes first, then `DAYFLY_URL`, `DAYFLY_ORG` and `DAYFLY_API_KEY`, then the home's own files.
    """
    return addresses.find(home, server_name())


def server_name() -> str:
    """Return the server that the command line names with `--server`; empty for none."""
    import click

    context = click.get_current_context(silent=True)
    return str(context.meta.get(SERVER) or "") if context else ""


def is_remote() -> bool:
    """Whether the command line or the environment names the server, and not the home."""
    return bool(server_name() or os.environ.get("DAYFLY_URL"))


class ServerClient:
    """A client of one server. It sends a request again only if an idle connection has ended.

    Raises:
        DayflyError: the address or the key is invalid.
    """

    def __init__(self, address: Address, *, timeout: float = TIMEOUT_S, home: Home | None = None) -> None:
        self._home = home
        self.json = JsonClient(lambda: address, BlockingIo(), timeout=timeout, retries=RetryPolicy(patience=0))

    @property
    def address(self) -> Address:
        """The address of the server."""
        return self.json.address

    @property
    def flags(self) -> str:
        """Options that make a command use this server; empty or with a leading space."""
        return self.json.flags

    @classmethod
    def open(cls, home: Home | None = None) -> ServerClient:
        """Return a client of the selected server.

        Raises:
            DayflyError: no server is known.
        """
        home = home or Home.find()
        address = find(home)
        if address is None:
            raise DayflyError(Exit.NO_SERVER, f"no server runs in {home.path}", START)
        return cls(address, home=None if is_remote() else home)

    def get(self, *path: str, **query: object) -> Any:
        """GET below the organisation."""
        return self.request("GET", self.json.org_path(*path), query)

    def put(self, *path: str, body: Any) -> Any:
        """PUT below the organisation."""
        return self.request("PUT", self.json.org_path(*path), body=body)

    def post(self, *path: str, body: Any) -> Any:
        """POST below the organisation."""
        return self.request("POST", self.json.org_path(*path), body=body)

    def delete(self, *path: str, **query: object) -> Any:
        """DELETE below the organisation."""
        return self.request("DELETE", self.json.org_path(*path), query)

    def health(self) -> Any:
        """Return `{version, ok}`; needs no key."""
        found = self.request("GET", "/api/v2/meta/health")
        if not isinstance(found, dict):
            raise self.json.other_program("answers 200 with other JSON")
        return found

    def request(self, method: str, path: str, query: dict[str, object] | None = None, body: Any = None) -> Any:
        """Send a request and return the JSON of the answer.

        Raises:
            RefusedError: the server answered with an error.
            DayflyError: no server answered, or another program did.
        """
        try:
            return run(self.json.request(method, path, query, body))
        except RefusedError as fault:
            if fault.code == Exit.DENIED and self._home is not None and self._home.is_left_behind():
                left = (
                    f"no server runs in {self._home.path}, and the server of another home answers at its last address"
                )
                fault.advice = f"{left}: {START} --port 0, or set DAYFLY_HOME or DAYFLY_API_KEY"
            raise

    def close(self) -> None:
        """Close all connections."""
        self.json.close()
