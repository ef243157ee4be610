"""Authentication of requests, the rate limit, and the end of long answers when their key is revoked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from starlette.requests import Request

from dayfly.page import files
from dayfly.server.access import callers
from dayfly.server.db.store import StoreError
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import READING_METHODS, refuse
from dayfly.server.http.route_table import API, LOGIN, ROUTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dayfly.server.access.callers import Caller, Cookies, Keys
    from dayfly.server.http.rate_limit import RateLimit

HSTS = b"max-age=31536000"
# Interval at which the key of a request in progress is checked.
KEY_CHECK_INTERVAL_S = 2.0
# While the store is unchanged, a key can expire but cannot be revoked: every n-th check still reads it.
CHECKS_PER_READ = 5

log = logging.getLogger(__name__)


class AuthMiddleware:
    """Authenticates requests, and accepts each path with and without a slash at its end, without redirects.

    Args:
        app: The application. It gets the caller in `scope["caller"]`.
        keys: Finds the caller of a key.
        sessions: Finds the caller of a page session's cookie. The caller has the rights of the key that opened the
            session, but cannot create keys, tokens or links.
        loopback: Whether only programs of this machine are served. Then the Host header must be a loopback name.
        rate: The rate limit of keys.
        read_change_marker: See `Store.read_change_marker`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        sessions: Cookies,
        loopback: bool,
        rate: RateLimit | None = None,
        read_change_marker: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._rate = rate
        self._read_change_marker = read_change_marker
        self._app = app
        self._keys = keys
        self._sessions = sessions
        self._public_paths = frozenset(
            API + path for path, methods in ROUTES.items() if all(each.role is None for each in methods.values())
        )
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        path = path[:-1] if len(path) > 1 and path.endswith("/") else path
        try:
            caller = await self._check(Request(scope), path)
        except Exception as fault:  # noqa: BLE001  -- `explain` logs unexpected exceptions
            await refuse(fault)(scope, receive, send)
            return
        inner_scope = {**scope, "path": path, "caller": caller}
        if caller is None or scope["method"] != "GET":
            await self._app(inner_scope, receive, send)
        else:
            await self._answer_while_valid(inner_scope, receive, send)

    async def _answer_while_valid(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a GET. A stream or long poll ends soon after its key is revoked or has expired."""
        response: Message = {}
        is_complete = False

        async def record(message: Message) -> None:
            nonlocal response, is_complete
            if message["type"] == "http.response.start":
                response = message
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        answering = asyncio.ensure_future(self._app(scope, receive, record))
        try:
            why = await self._wait_until_revoked(answering, Request(scope))
            if why is None or any(name == b"content-length" for name, _ in response.get("headers", ())):
                await answering  # a response with a length was computed while the key was valid; a stream is cut
        finally:
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering
        if why is not None and not response:
            await refuse(why)(scope, receive, send)
        elif response and not is_complete:
            await send({"type": "http.response.body"})

    async def _wait_until_revoked(self, answering: asyncio.Future[None], request: Request) -> Exception | None:
        """Wait for the end of the answer and return None, or return why the answer must end."""
        last, checks = None, 0
        try:
            while not (await asyncio.wait({answering}, timeout=KEY_CHECK_INTERVAL_S))[0]:
                checks += 1
                # The marker is read before the key: a write between both reads changes the next marker.
                marker = await self._read_change_marker() if self._read_change_marker is not None else None
                if marker is not None and marker == last and checks % CHECKS_PER_READ:
                    continue  # the store has not changed, so the key has not been revoked
                last = marker
                if await self._find_caller(request) != request.scope["caller"]:
                    return _no_key()
        except StoreError as fault:
            log.warning("ending a request because its key cannot be checked: %s", fault)
            return fault
        return None

    async def _check(self, request: Request, path: str) -> Caller | None:
        host = request.headers.get("host", "")
        if self._loopback and not callers.is_loopback_name(host):
            text = f"this server only accepts the host names 127.0.0.1, localhost and [::1], not {host!r}"
            raise RequestError(403, text)
        if "\0" in path or b"%00" in request.scope["query_string"] or b"\0" in request.scope["query_string"]:
            # PostgreSQL cannot store this character, and the error would look like a failure of the store.
            raise RequestError(400, "the path or query contains a NUL character")
        if path in self._public_paths or _is_page(path, request) or path.startswith(f"{LOGIN}/"):
            return None
        caller = await self._find_caller(request)
        if caller is None:
            raise _no_key()
        is_keyless = not callers.extract_key(request.headers)
        if is_keyless and callers.is_cross_site(request.headers):
            raise RequestError(403, "without a key, only the page of this server may send requests")
        if (
            is_keyless
            and request.method not in READING_METHODS
            and (problem := callers.describe_foreign_origin(request.headers))
        ):
            raise RequestError(403, problem)
        if self._rate is None or not self._rate.reserve(caller.org, caller.key_id):
            return caller
        if wait := await self._rate.queue(caller.org, caller.key_id):
            text = f"too many requests with the key {caller.key_id}; retry in {wait} s"
            raise RequestError(429, text, {"Retry-After": str(wait)})
        if (current := await self._find_caller(request)) is None:
            raise _no_key()  # it was revoked while the request waited
        return current

    async def _find_caller(self, request: Request) -> Caller | None:
        """Return the caller of the request's key or, without a key, of the page's cookie."""
        if key := callers.extract_key(request.headers):
            return await self._keys.caller(key)
        return await self._sessions.caller(request) if "cookie" in request.headers else None


class Secure:
    """Adds the header Strict-Transport-Security, so that browsers only use TLS."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"strict-transport-security", HSTS)]
            await send(message)

        await self._app(scope, receive, send_with_header)


def _is_page(path: str, request: Request) -> bool:
    """Return whether the path is a public file of the page, or a redirect to it."""
    is_dashboard_link = path.startswith(f"{files.DASHBOARD}/")
    return (
        path == files.AT
        or path.startswith(f"{files.AT}/")
        or is_dashboard_link
        or (path == "/" and files.accepts_html(request))
    )


def _no_key() -> RequestError:
    text = "no valid key: send it as the header signadot-api-key or as Authorization: Bearer"
    return RequestError(401, text, {"WWW-Authenticate": "Bearer"})
