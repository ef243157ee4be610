"""The server as the verbs see it: JSON in, JSON out, and every way it can be missing or refuse said in one line."""

from __future__ import annotations

import http.client
import json
import os
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from dayfly.cli.exits import CliError, Exit
from dayfly.cli.home import Home

ORGANISATION = "local"
CLUSTER = "local"
UNAUTHORIZED = 401
SERVER = "dayfly.server"
"""Where the command line's context has the name of `--server`."""
TIMEOUT = 30
"""Seconds after which a server that says nothing counts as gone. Long polls ask for less."""

_START = "start one with: dayfly up"


class ApiError(CliError):
    """The server answered with an error. `status` is HTTP's; the message is the server's own sentence."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        codes = {400: Exit.USAGE, 401: Exit.DENIED, 403: Exit.DENIED, 404: Exit.NOT_FOUND}
        code = codes.get(status, Exit.FAILED)
        advice = "the right one is in the file key of its home: set DAYFLY_HOME or DAYFLY_API_KEY"
        super().__init__(code, message, advice if code == Exit.DENIED else "")


class Address(NamedTuple):
    """Where a server listens, the key it takes, whose it is, and its name for `--server`; empty for the home's own."""

    url: str
    key: str
    org: str = ORGANISATION
    name: str = ""


def find(home: Home | None = None) -> Address | None:
    """Where the server of this home should be; None if no server runs there.

    `--server` comes first, then `DAYFLY_URL`, `DAYFLY_ORG` and `DAYFLY_API_KEY`, then the home's own files.
    """
    home = home or Home.find()
    if name := named():
        from dayfly.cli import servers

        known = servers.get(home, name)
        return Address(known.url, known.key, known.org, name)
    url = os.environ.get("DAYFLY_URL") or home.read(home.url)
    if not url:
        return None
    key = os.environ.get("DAYFLY_API_KEY") or home.read(home.key)
    return Address(url.rstrip("/"), key, os.environ.get("DAYFLY_ORG") or ORGANISATION)


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
        self.address = address
        self._connection = _connection(address, timeout)

    def turn_to(self, address: Address) -> None:
        """Speak with a server at another address from now on."""
        there = _connection(address, self._timeout)
        self._connection.close()
        self.address, self._connection = address, there

    @classmethod
    def open(cls, home: Home | None = None) -> Client:
        """A client of this home's server.

        Raises:
            CliError: no server is known.
        """
        home = home or Home.find()
        address = find(home)
        if address is None:
            raise CliError(Exit.NO_SERVER, f"no server runs in {home.path}", _START)
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
        """`{version, ok}`; needs no key."""
        return self.request("GET", "/api/v2/meta/health", {})

    def request(self, method: str, path: str, query: dict[str, object], body: Any = None) -> Any:
        """One exchange.

        Raises:
            ApiError: the server answered with an error.
            CliError: nobody answered, or not a Dayfly.
        """
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        headers = {"Authorization": f"Bearer {self.address.key}", "Accept": "application/json"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        status, answer = self._exchange(method, target, data, headers)
        return self._understood(status, answer)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    @property
    def _start(self) -> str:
        return "ask whoever runs it" if self.address.name else _START

    def _below(self, path: tuple[str, ...]) -> str:
        parts = [self.address.org, *path]
        return "/".join(["/api/v2/orgs", *(quote(part, safe="@") for part in parts)])

    def _exchange(self, method: str, target: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        reused = self._connection.sock is not None
        try:
            try:
                self._connection.request(method, target, data, headers)
            except (ConnectionResetError, BrokenPipeError):
                if data is None:
                    raise
                # It closed before it had the whole body: it may have said why, that it is too long.
            response = self._connection.getresponse()
            return response.status, response.read()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self._connection.close()
            if reused:  # the server closed an idle connection, or was started again: every request may be repeated
                return self._exchange(method, target, data, headers)
            raise self._silent("closed the connection without an answer") from None
        except TimeoutError:
            self._connection.close()
            raise self._silent(f"has not answered within {self._connection.timeout:g} s") from None
        except http.client.IncompleteRead:
            self._connection.close()
            raise self._silent("broke off in the middle of its answer") from None
        except http.client.HTTPException:
            self._connection.close()
            raise self._silent("does not speak HTTP") from None
        except OSError as fault:
            self._connection.close()
            reason = (fault.strerror or str(fault)).lower()
            raise CliError(Exit.NO_SERVER, f"no server answers at {self.address.url} ({reason})", self._start) from None
        except BaseException:  # a signal, in the middle of it: the rest of the answer is not that of the next request
            self._connection.close()
            raise

    def _understood(self, status: int, answer: bytes) -> Any:
        try:
            content = json.loads(answer) if answer else {}
        except ValueError:
            raise self._silent(f"is not Dayfly: it answers {status} without JSON") from None
        if status < 400:
            return content
        error = content.get("error") if isinstance(content, dict) else None
        fault = ApiError(status, str(error or f"the server answered {status} without giving a reason"))
        if fault.code == Exit.DENIED and self.address.name:
            again = f"log in again with: dayfly login {self.address.url} --name {self.address.name}"
            fault.advice = again if status == UNAUTHORIZED else "ask an admin of the organisation for another key"
        if fault.code == Exit.DENIED and self._home is not None:
            from dayfly.cli import lock

            if lock.is_left_behind(self._home):
                left = f"no server runs in {self._home.path}, and where its last one answered, another home's does now"
                fault.advice = f"{left}: {_START} --port 0, or set DAYFLY_HOME or DAYFLY_API_KEY"
        raise fault

    def _silent(self, problem: str) -> CliError:
        advice = "see server.log in its home, or restart it with: dayfly down; dayfly up"
        if self.address.name:
            advice = "ask whoever runs it"
        return CliError(Exit.NO_SERVER, f"the server at {self.address.url} {problem}", advice)


def _connection(address: Address, timeout: float) -> http.client.HTTPConnection:
    """A connection that is not open yet.

    Raises:
        CliError: the address or the key is none.
    """
    try:
        parts = urlsplit(address.url)
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError:  # brackets without an end, a name that no DNS takes
        host = ""
    if not host or parts.scheme not in ("http", "https") or not host.isprintable() or " " in host:
        raise CliError(Exit.USAGE, f"{address.url!r} is not the address of a server", "write http://host:port")
    if not address.key.isascii() or not address.key.isprintable():
        advice = "look at DAYFLY_API_KEY or the file key of the home"
        raise CliError(Exit.DENIED, "the key contains characters that no key has", advice)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        return kind(host, parts.port, timeout=timeout)
    except ValueError:
        raise CliError(Exit.USAGE, f"{address.url!r} has no usable port", "write http://host:port") from None
