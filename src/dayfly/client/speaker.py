"""Asks a server for JSON: addresses, keys, errors, and what is sent again. Knows no sandbox."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import msgspec

from dayfly import __version__
from dayfly.client import retry
from dayfly.client.address import below
from dayfly.client.connection import Connection, Request, Response, Unshown
from dayfly.client.errors import DayflyError, NotFoundError, UnreachableError, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from dayfly.client.address import Address
    from dayfly.client.connection import Io
    from dayfly.client.errors import RefusedError

T = TypeVar("T")

_KEPT = 8
"""How many connections are kept open for the next request."""
_SAFE = ("GET", "PUT", "DELETE")
_MEANS_NOTHING = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_REFUSED = 300
"""A redirection is not followed: the key is for this server alone."""


class Speaker:
    """What all parts of one client speak through. Any number of requests may be on their way at once.

    Args:
        find: Where the server is. Asked again when nobody answers: a home's server that was started again may be
            elsewhere.
        io: Carries the bytes.
        timeout: Seconds after which a server that says nothing counts as gone.
        retries: How patient it is.
    """

    def __init__(self, find: Callable[[], Address], io: Io, *, timeout: float, retries: retry.Retry) -> None:
        self.address = find()
        self.io = io
        self.timeout = timeout
        self.retries = retries
        self._find = find
        self._idle: list[Connection] = []
        self._process = os.getpid()
        self._connect()  # an address that is none is said at once

    def below(self, *path: str) -> str:
        """Return the path of something in the organisation."""
        return below(self.address.org, *path)

    async def get(self, form: type[T], *path: str, **query: object) -> T:
        """Read something below the organisation."""
        return await self.ask(form, "GET", self.below(*path), query)

    async def ask(
        self,
        form: type[T],
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Any = None,
        *,
        idempotent: bool | None = None,
        longer: float = 0,
        patience: float | None = None,
    ) -> T:
        """Ask, again where that is safe, and take in the answer.

        Args:
            form: Of the answer.
            method: HTTP's.
            path: From the server's root.
            query: What is None is left out.
            body: What is sent, as JSON; None for nothing.
            idempotent: Whether it means the same when it comes twice; by its method, if it is not said.
            longer: Seconds that the server may take more than usual, since it was asked to wait.
            patience: In place of the client's own, and from now on: whoever waits has so many seconds left.

        Raises:
            RefusedError: the server answered with an error.
            UnreachableError: nobody answered.
        """
        given = {name: _word(value) for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given, errors='replace')}" if given else path
        data = None if body is None else Unshown(json.dumps(body).encode())
        safe = method in _SAFE if idempotent is None else idempotent
        response = await self._patiently(method, target, data, safe=safe, longer=longer, patience=patience)
        return self.taken_in(form, response.body or b"{}")

    def taken_in(self, form: type[T], data: bytes) -> T:
        """What the server has said, in that form.

        Raises:
            UnreachableError: it has none.
        """
        try:
            return msgspec.json.decode(data, type=form)
        except _MEANS_NOTHING as fault:
            message = f"the server at {self.address.url} answers what this client does not understand ({fault})"
            advice = self.address.advice("it may be of another release", is_other=True)
            strange = UnreachableError(message, advice)
        strange.strange = True
        raise strange

    async def stream(self, path: str, headers: Mapping[str, str], silence: float) -> AsyncGenerator[bytes, None]:
        """A body as it comes, once; `silence` is how many seconds may go by without a piece of it.

        The first piece is empty, and comes with the head of the answer.
        """
        connection = self._connect()
        try:
            asked = Request("GET", path, {**self._headers(), **headers})
            response = await connection.begin(asked, min(self.timeout, silence))
            if response.status >= _REFUSED:
                body = b"".join([piece async for piece in connection.rest(self.timeout)])
                raise self._refusal(Response(response.status, response.headers, body))
            yield b""
            async for piece in connection.rest(silence):
                yield piece
        finally:
            connection.close()

    def close(self) -> None:
        """Let go of all connections."""
        while self._idle:
            self._idle.pop().close()

    async def _patiently(
        self, method: str, target: str, data: bytes | None, *, safe: bool, longer: float, patience: float | None
    ) -> Response:
        began = None if patience is None else self.io.now()
        patience = self.retries.patience if patience is None else patience
        before, unknown = 0, False
        while True:
            try:
                return await self._once(method, target, data, longer)
            except DayflyError as fault:
                if unknown and method == "DELETE" and isinstance(fault, NotFoundError):
                    return Response(200, {}, b"")  # the request whose answer was lost has done it
                unknown = unknown or (isinstance(fault, UnreachableError) and fault.sent)
                now = self.io.now()
                began = now if began is None else began
                pause = self.retries.pause(fault, idempotent=safe, before=before, chance=random.random())  # noqa: S311 # no secret
                if pause is None or now + pause - began > patience:
                    raise
                await self.io.pause(pause)
                before += 1
                if isinstance(fault, UnreachableError):
                    self.look_where_it_is()

    async def _once(self, method: str, target: str, data: bytes | None, longer: float) -> Response:
        self._leave_those_of_a_parent()
        try:
            connection = self._idle.pop()  # of several threads each gets another one
        except IndexError:
            connection = self._connect()
        headers = self._headers()
        if data is not None:
            headers["Content-Type"] = "application/json"
        response = await connection.exchange(Request(method, target, headers, data), self.timeout + longer)
        if len(self._idle) < _KEPT and connection.address == self.address:
            self._idle.append(connection)
        else:
            connection.close()
        if response.status >= _REFUSED:
            raise self._refusal(response)
        return response

    def _leave_those_of_a_parent(self) -> None:
        """After a fork open new connections: over the same ones two processes would read each other's answers.

        Not closed but forgotten, for an event loop shares what it watches with its copy, too.
        """
        if self._process != (process := os.getpid()):
            self._idle, self._process = [], process

    def _connect(self) -> Connection:
        return Connection(self.address, self.io, self.timeout)

    def look_where_it_is(self) -> None:
        """Turn to where the server is now."""
        try:
            found = self._find()
        except DayflyError:
            return  # it is away for a moment
        if found != self.address:
            self.close()
            self.address = found

    def _headers(self) -> dict[str, str]:
        key = {"Authorization": f"Bearer {self.address.key}"} if self.address.key else {}
        return {**key, "Accept": "application/json", "User-Agent": f"dayfly-client/{__version__}"}

    def _refusal(self, response: Response) -> RefusedError:
        try:
            content = json.loads(response.body)
            message, number = content["error"], content.get("requestId", "")
        except (ValueError, KeyError, TypeError, RecursionError):
            message, number = f"the server answered {response.status} without giving a reason", ""
        fault = refusal(response.status, str(message), str(number))
        fault.again_in = retry.after(response.headers.get("retry-after"))
        if response.status == 401:
            fault.advice = f"give the key of {self.address.url}: it is in the file key of its home"
            if self.address.name:
                fault.advice = f"log in again with: dayfly login {self.address.url} --name {self.address.name}"
        elif not number:
            fault.advice = self.address.advice("", is_other=True)
        elif response.status == 403:
            fault.advice = "ask an admin of the organisation for another key"
        return fault


def _word(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
