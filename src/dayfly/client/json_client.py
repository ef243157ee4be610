"""JSON over HTTP: addresses, keys, errors and retries. Both the typed client and the command line send requests here.

It knows no sandbox. `msgspec` is imported only for typed answers: the command line's start-up time is measured.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from dayfly import __version__
from dayfly.client import retry
from dayfly.client.address import org_path
from dayfly.client.connection import ApiRequest, Connection, HiddenBytes, Response
from dayfly.client.errors import DayflyError, NotFoundError, UnreachableError, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from dayfly.client.address import Address
    from dayfly.client.connection import Io

T = TypeVar("T")

_MAX_IDLE_CONNECTIONS = 8
_IDEMPOTENT = ("GET", "PUT", "DELETE")
_REDIRECTED, _REFUSED, _UNAUTHORIZED, _FORBIDDEN, _TOO_MANY, _FAULTS = 300, 400, 401, 403, 429, 500
_KEY_ADVICE = "the right one is in the file key of its home: set DAYFLY_HOME or DAYFLY_API_KEY"


class JsonClient:
    """Sends requests to one server. Any number of them may be in progress at once.

    Args:
        find: Returns the address of the server. Called again if the server cannot be reached: after a restart, a home's
            server may listen elsewhere.
        io: Carries the bytes.
        timeout: Seconds without a byte after which a request fails.
        retries: When requests are sent again.
    """

    def __init__(self, find: Callable[[], Address], io: Io, *, timeout: float, retries: retry.RetryPolicy) -> None:
        self.address = find()
        self.io = io
        self.timeout = timeout
        self.retries = retries
        self._find = find
        self._idle: list[Connection] = []
        self._process = os.getpid()
        self._connect()  # reports an invalid address at once

    @property
    def flags(self) -> str:
        """Options that make a command use this server; empty or with a leading space."""
        if not self.address.name:
            return ""
        import shlex

        return f" --server {shlex.quote(self.address.name)}"

    def org_path(self, *path: str) -> str:
        """Return the path of something in the organisation."""
        return org_path(self.address.org, *path)

    async def get(self, form: type[T], *path: str, **query: object) -> T:
        """Read something below the organisation."""
        return await self.request_as(form, "GET", self.org_path(*path), query)

    async def request_as(
        self,
        form: type[T],
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Any = None,
        **options: Any,
    ) -> T:
        """Send a request and decode the answer as `form`. All else is as in `send`."""
        return self.decode(form, await self.send(method, path, query, body, **options))

    async def request(
        self, method: str, path: str, query: Mapping[str, object] | None = None, body: Any = None, **options: Any
    ) -> Any:
        """Send a request and return the JSON of the answer. All else is as in `send`."""
        return self._parse(200, await self.send(method, path, query, body, **options))

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        longer: float = 0,
        patience: float | None = None,
    ) -> bytes:
        """Send a request, again if that is safe, and return the body of the answer.

        Args:
            method: The HTTP method.
            path: From the server's root.
            query: Parameters that are None are left out.
            body: Sent as JSON; None for no body.
            headers: Additional headers.
            idempotent: Whether the request may be executed twice; by default decided by the method.
            longer: Additional seconds for the response, for a request that lets the server wait.
            patience: Seconds from now in which the request may be retried; by default `RetryPolicy.patience`.

        Raises:
            RefusedError: the server answered with an error.
            UnreachableError: no server answered, or another program did.
        """
        given = {name: _encode_parameter(value) for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given, errors='replace')}" if given else path
        sent = {
            "Accept": "application/json",
            **self._headers(),
            **({} if body is None else {"Content-Type": "application/json"}),
            **(headers or {}),
        }
        request = ApiRequest(method, target, sent, None if body is None else HiddenBytes(json.dumps(body).encode()))
        safe = method in _IDEMPOTENT if idempotent is None else idempotent
        response = await self._send_with_retries(request, safe=safe, longer=longer, patience=patience)
        return response.body or b"{}"

    def decode(self, form: type[T], data: bytes) -> T:
        """Return the JSON in that form.

        Raises:
            UnreachableError: it does not have that form.
        """
        import msgspec

        try:
            return msgspec.json.decode(data, type=form)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            message = f"the server at {self.address.url} answers what this client does not understand ({fault})"
            advice = self.address.advice("it may be of another release", is_other=True)
            error = UnreachableError(message, advice)
        error.is_not_dayfly = True
        raise error

    async def stream(self, path: str, headers: Mapping[str, str], silence: float) -> AsyncGenerator[bytes, None]:
        """Yield a body piece by piece; `silence` is the longest time in seconds between two pieces.

        The first piece is empty and comes with the head of the answer.
        """
        connection = self._connect()
        try:
            request = ApiRequest("GET", path, {**self._headers(), **headers})
            response = await connection.start_request(request, min(self.timeout, silence))
            if response.status >= _REDIRECTED:
                body = b"".join([piece async for piece in connection.read_body(self.timeout)])
                raise self._refusal(Response(response.status, response.headers, body))
            yield b""
            async for piece in connection.read_body(silence):
                yield piece
        finally:
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()

    def set_address(self, address: Address) -> None:
        """Send requests to another address from now on."""
        if address != self.address:
            self.close()
            self.address = address

    def refresh_address(self) -> None:
        """Use the server's present address."""
        try:
            self.set_address(self._find())
        except DayflyError:
            return  # no server now; a retry may find one

    async def _send_with_retries(
        self, request: ApiRequest, *, safe: bool, longer: float, patience: float | None
    ) -> Response:
        began = None if patience is None else self.io.now()
        patience = self.retries.patience if patience is None else patience
        before, unknown = 0, False
        while True:
            try:
                return await self._send_once(request, longer)
            except DayflyError as fault:
                if unknown and request.method == "DELETE" and isinstance(fault, NotFoundError):
                    return Response(200, {}, b"")  # an earlier try, whose response was lost, has deleted it
                lost = fault if isinstance(fault, UnreachableError) else None
                unknown = unknown or (lost is not None and lost.sent)
                now = self.io.now()
                began = now if began is None else began
                # An idle connection that the server has closed does not mean that the server is unreachable.
                if not (lost and lost.stale and safe and not before):
                    pause = self.retries.pause(fault, idempotent=safe, before=before, chance=_random_fraction())
                    if pause is None or now + pause - began > patience:
                        raise
                    await self.io.pause(pause)
                before += 1
                if lost:
                    self.refresh_address()

    async def _send_once(self, request: ApiRequest, longer: float) -> Response:
        self._forget_connections_of_parent()
        try:
            connection = self._idle.pop()  # atomic: each thread gets another one
        except IndexError:
            connection = self._connect()
        response = await connection.exchange(request, self.timeout + longer)
        if len(self._idle) < _MAX_IDLE_CONNECTIONS and connection.address == self.address:
            self._idle.append(connection)
        else:
            connection.close()
        if response.status >= _REDIRECTED:
            raise self._refusal(response)
        return response

    def _forget_connections_of_parent(self) -> None:
        """After a fork open new connections: over the same ones two processes would read each other's answers.

        They are forgotten and not closed, because an event loop shares what it watches with its copy, too.
        """
        if self._process != (process := os.getpid()):
            self._idle, self._process = [], process

    def _connect(self) -> Connection:
        return Connection(self.address, self.io, self.timeout)

    def _headers(self) -> dict[str, str]:
        key = {"Authorization": f"Bearer {self.address.key}"} if self.address.key else {}
        return {**key, "User-Agent": f"dayfly/{__version__}"}

    def _parse(self, status: int, data: bytes) -> Any:
        try:
            return json.loads(data)
        except (ValueError, RecursionError):  # the latter for deeply nested lists
            pass
        fault = self.other_program(f"answers {status} without JSON")
        # A proxy answers like this while the server behind it is away.
        fault.is_not_dayfly = status < _FAULTS and status != _TOO_MANY
        raise fault

    def other_program(self, problem: str) -> UnreachableError:
        """Return the error for an answer that no Dayfly server gives."""
        fault = self._connect().unreachable_error(f"is not Dayfly: it {problem}", is_other=True)
        fault.is_not_dayfly = True
        return fault

    def _refusal(self, response: Response) -> DayflyError:
        """Return the error for a status of 300 or more. A redirect is not followed: the key is for this server only."""
        status = response.status
        if status < _REFUSED:
            return self.other_program(f"answers {status}, which leads elsewhere")
        try:
            content = self._parse(status, response.body or b"{}")
        except UnreachableError as other:
            return other
        content = content if isinstance(content, dict) else {}
        message = str(content.get("error") or f"the server answered {status} without giving a reason")
        fault = refusal(status, message, str(content.get("requestId") or ""))
        fault.retry_after_s = retry.parse_retry_after(response.headers.get("retry-after"))
        if status == _UNAUTHORIZED:
            again = f"log in again with: dayfly login {self.address.url} --name {self.address.name}"
            fault.advice = again if self.address.name else _KEY_ADVICE
        elif status == _FORBIDDEN:
            fault.advice = "ask an admin of the organisation for another key"
        if not content.get("error"):
            fault.advice = self.address.advice(fault.advice, is_other=True)
        return fault


def _random_fraction() -> float:
    import random

    return random.random()  # noqa: S311 # no secret


def _encode_parameter(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
