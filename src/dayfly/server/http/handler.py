"""One HTTP exchange by the public API's conventions: bounded JSON in; 200 with JSON, or one shape of refusal, out."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import secrets
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from dayfly.page import files
from dayfly.server.access import callers
from dayfly.server.access.scopes import Reach
from dayfly.server.db.store import StoreError
from dayfly.server.http import preconditions
from dayfly.server.http.errors import RequestError, explain, not_found, outside
from dayfly.server.http.preconditions import Tagged
from dayfly.server.http.route_table import API, ROUTES, WITH_TAGS, reach
from dayfly.server.http.unsupported_routes import LOGIN
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.scalars import label_selector
from dayfly.spec.scalars.numbers import whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dayfly.server.access.callers import Caller, Cookies, Keys
    from dayfly.server.http.rate_limit import Rate

    Handler = Callable[[Request], Awaitable[Any]]

T = TypeVar("T")

MAX_BODY_BYTES = 1 << 20
JSON = "application/json"
LONGEST_WAIT_S = 30.0
LARGEST_NUMBER = 10**18 - 1
HSTS = b"max-age=31536000"
# How often it is looked at whether the key of a request that takes long is still good.
LOOK_AGAIN_S = 2.0
# Where nothing at all was written meanwhile only each so many-th time: it may have expired.
LOOK_ANYWAY = 5

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_READS = ("GET", "HEAD", "OPTIONS")
_KEYS, _TOKENS = "/orgs/{org}/keys", "/orgs/{org}/clusters/{name}/tokens"
# By the table: an object's own name may be one of these words.
_NOT_BY_PAGE = frozenset({_KEYS, f"{_KEYS}/{{id}}", _TOKENS, f"{_TOKENS}/{{id}}", "/page/links"})
_YES_NO = {"false": False, "0": False, "true": True, "1": True}
_LAST_SECOND_MS = 253_402_300_799_000  # 9999-12-31T23:59:59Z: later than this cannot be written


class AddressHandlers:
    """What the methods of one address do. A handler returns plain data; whatever it raises becomes a refusal.

    Args:
        path: As in the table of addresses, whose roles it keeps to.
        handlers: For each method that the table has of it, and no other.
        whole: Whether all of those methods are there.
    """

    def __init__(self, path: str, handlers: dict[str, Handler], *, whole: bool = True) -> None:
        operations = ROUTES[path]
        fits = handlers.keys() == operations.keys() if whole else handlers.keys() <= operations.keys()
        assert fits, f"{path} has {', '.join(operations)}"
        self._path = path
        self._methods = {method: (operations[method].role, handler) for method, handler in handlers.items()}
        self._allow = ", ".join([*handlers, *(["HEAD"] if "GET" in handlers else []), "OPTIONS"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            found = await self._handle(request)
            response = found if isinstance(found, Response) else _answered(request, found)
            if request.method == "OPTIONS":
                response.headers["Allow"] = self._allow
        except Exception as fault:  # noqa: BLE001  -- the outermost place: `explain` logs what nobody foresaw
            response = refuse(fault)
        await response(scope, receive, send)

    async def _handle(self, request: Request) -> Any:
        caller: Caller | None = request.scope.get("caller")
        if caller is not None and (org := request.path_params.get("org", caller.org)) != caller.org:
            raise RequestError(404, f"no organisation {quote(org)} here; your key is of {quote(caller.org)}")
        if request.method == "OPTIONS":
            return {}
        method = "GET" if request.method == "HEAD" else request.method
        if method not in self._methods:
            raise RequestError(
                405, f"{request.method} is not possible here, only {self._allow}", {"Allow": self._allow}
            )
        if self._path in _NOT_BY_PAGE and method not in _READS and not callers.key_of(request.headers):
            raise RequestError(403, "keys, tokens and links are given out with a key alone: by the command line")
        if method not in _READS and self._path not in WITH_TAGS:
            preconditions.read(request).refuse_match()
        role, handler = self._methods[method]
        if role is not None and callers.caller(request).role < role:
            has = callers.caller(request).role.word
            raise RequestError(
                403, f"{request.method} here needs the role {role.word}, and your key has the role {has}"
            )
        if role is not None:
            self._refuse_out_of_scope(request, method)
        return await handler(request)

    def _refuse_out_of_scope(self, request: Request, method: str) -> None:
        """As far as the address tells; where something lives is found out by whoever reads it (`auth.seen`)."""
        scope, name = callers.caller(request).scope, request.path_params.get("name", "")
        match reach(self._path, method):
            case Reach.LIVING if scope.has_living:
                is_open = not name or scope.takes_name(name)
                if not is_open and (method != "PUT" or not self._path.endswith("{name}")):
                    raise not_found(self._path)
            case Reach.PLUGIN:
                is_open = scope.publishes(name)
            case Reach.COMMON:
                is_open = True
            case _:
                is_open = scope.is_whole
        if not is_open:
            named = scope.has_living and name and reach(self._path, method) is not Reach.WHOLE
            raise outside(scope, quote(name) if named else f"{request.method} here")


def serve(path: str, **handlers: Handler) -> Route:
    """The route of an address in the table, by what its methods do."""
    return Route(API + path, AddressHandlers(path, handlers))


def serve_part(path: str, **handlers: Handler) -> Route:
    """As `serve`, by whoever has only some of the methods."""
    return Route(API + path, AddressHandlers(path, handlers, whole=False))


def serve_as(path: str, at: str, **handlers: Handler) -> Route:
    """The route of an address in the table, at the place where older clients look for it."""
    return Route(at, AddressHandlers(path, handlers))


class AuthMiddleware:
    """Lets in whom it should, under either form of an address: with and without a slash at its end, no redirects.

    Args:
        app: What lies behind. It finds the caller in the request.
        keys: Whose a key is.
        sessions: Whose a cookie of the page is; it may what its key may, but for giving out keys, tokens and links.
        loopback: Whether only this machine's own programs are served: then a request must call us by a loopback name.
        rate: How many requests each key may make.
        mark: Another one after each write of the store, as `Store.mark`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        sessions: Cookies,
        loopback: bool,
        rate: Rate | None = None,
        mark: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._rate = rate
        self._mark = mark
        self._app = app
        self._keys = keys
        self._sessions = sessions
        self._open = frozenset(
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
        except Exception as fault:  # noqa: BLE001  -- as in `AddressHandlers`
            await refuse(fault)(scope, receive, send)
            return
        ours = {**scope, "path": path, "caller": caller}
        if caller is None or scope["method"] != "GET":
            await self._app(ours, receive, send)
        else:
            await self._while_good(ours, receive, send)

    async def _while_good(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reading may take long: a stream, or a wait, ends soon after its key is revoked or has expired."""
        response: Message = {}
        is_complete = False

        async def noted(message: Message) -> None:
            nonlocal response, is_complete
            if message["type"] == "http.response.start":
                response = message
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        answering = asyncio.ensure_future(self._app(scope, receive, noted))
        try:
            why = await self._until_revoked(answering, Request(scope))
            if why is None or any(name == b"content-length" for name, _ in response.get("headers", ())):
                await answering  # an answer of a known length was found while the key was good
        finally:
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering
        if why is not None and not response:
            await refuse(why)(scope, receive, send)
        elif response and not is_complete:
            await send({"type": "http.response.body"})

    async def _until_revoked(self, answering: asyncio.Future[None], request: Request) -> Exception | None:
        """Wait until the answer is complete (None), or why it must not go on."""
        seen, times = None, 0
        try:
            while not (await asyncio.wait({answering}, timeout=LOOK_AGAIN_S))[0]:
                times += 1
                # Before it is looked: what is written meanwhile has another one.
                now = await self._mark() if self._mark is not None else None
                if now is not None and now == seen and times % LOOK_ANYWAY:
                    continue  # nobody can have revoked it
                seen = now
                if await self._caller(request) != request.scope["caller"]:
                    return _no_key()
        except StoreError as fault:
            log.warning("a request is cut off, since nobody knows whether its key is still good: %s", fault)
            return fault
        return None

    async def _check(self, request: Request, path: str) -> Caller | None:
        host = request.headers.get("host", "")
        if self._loopback and not callers.is_loopback_name(host):
            text = f"this server answers to 127.0.0.1, localhost and [::1] only, not to {host!r}"
            raise RequestError(403, text)
        if "\0" in path or b"%00" in request.scope["query_string"] or b"\0" in request.scope["query_string"]:
            # PostgreSQL has no such character, and would say that the store cannot be used.
            raise RequestError(400, "no address has a NUL in it")
        if path in self._open or _is_page(path, request) or path.startswith(f"{LOGIN}/"):
            return None
        caller = await self._caller(request)
        if caller is None:
            raise _no_key()
        is_keyless = not callers.key_of(request.headers)
        if is_keyless and callers.crossed(request.headers):
            raise RequestError(403, "only the page of this very server is let in without a key")
        if is_keyless and request.method not in _READS and (trouble := callers.stranger(request.headers)):
            raise RequestError(403, trouble)
        if self._rate is None or not self._rate.reserve(caller.org, caller.key_id):
            return caller
        if wait := await self._rate.queue(caller.org, caller.key_id):
            text = f"too many requests with the key {caller.key_id}; come again in {wait} s"
            raise RequestError(429, text, {"Retry-After": str(wait)})
        if (still := await self._caller(request)) is None:
            raise _no_key()  # it was revoked while the request waited
        return still

    async def _caller(self, request: Request) -> Caller | None:
        """Whoever has the key that comes with it or, if none does, the page's cookie."""
        if key := callers.key_of(request.headers):
            return await self._keys.caller(key)
        return await self._sessions.caller(request) if "cookie" in request.headers else None


class Secure:
    """Has browsers come by TLS alone from now on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_word(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"strict-transport-security", HSTS)]
            await send(message)

        await self._app(scope, receive, with_word)


def _is_page(path: str, request: Request) -> bool:
    """Whether a browser loads it before anybody is signed in: files that are everybody's, and the way to them."""
    is_link = path.startswith(f"{files.DASHBOARD}/")
    return (
        path == files.AT or path.startswith(f"{files.AT}/") or is_link or (path == "/" and files.accepts_html(request))
    )


def _no_key() -> RequestError:
    text = "no valid key: send it as the header signadot-api-key or as Authorization: Bearer"
    return RequestError(401, text, {"WWW-Authenticate": "Bearer"})


def _answered(request: Request, found: Any) -> Response:
    """Answer with the result of a handler, or with 304 if the client has it already."""
    if not isinstance(found, Tagged):
        return answer(found)
    response = answer(found.data)
    tag = preconditions.tag_of(found.version, bytes(response.body))
    if preconditions.is_unchanged(request, tag):
        response = Response(status_code=304, headers={"Cache-Control": "no-store"})
    response.headers["ETag"] = tag
    return response


def answer(data: Any) -> Response:
    """200 and `data` as JSON. It may hold outputs of steps, so nobody keeps a copy."""
    return _json(200, data, {})


def refuse(fault: Exception) -> Response:
    """What went wrong in the one shape that clients know."""
    request_id = secrets.token_hex(8)
    error = explain(fault, request_id)
    return _json(error.status, {"error": error.text, "requestId": request_id}, error.headers)


def _json(status: int, data: Any, headers: dict[str, str]) -> Response:
    always = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(_encode(data), status, {**always, **headers}, media_type=JSON)


async def read_json(request: Request) -> Any:
    """The request's body, decoded.

    Raises:
        ApiError: as `read_body` does, or it is not JSON.
    """
    _refuse_other_types(request)
    body = await read_body(request)
    if not body.strip():
        raise RequestError(400, "the body is empty; it must be JSON")
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as fault:
        raise RequestError(400, f"the body is not JSON in UTF-8: {fault}") from None


async def read_body(request: Request, most: int = MAX_BODY_BYTES) -> bytes:
    """The request's body.

    Raises:
        ApiError: it is longer than `most` bytes, ends early, or is encoded.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        text = f"the body has the Content-Encoding {encoding[:60]!r}: send it without"
        raise RequestError(415, text, {"Accept-Encoding": "identity"})
    # The rest of a body that is too long is not read, so the connection cannot be used again.
    too_long = RequestError(413, f"the body is longer than {most} bytes", {"Connection": "close"})
    declared = whole(request.headers.get("content-length", "0"), LARGEST_NUMBER) or 0
    if declared > most and "expect" in request.headers:
        raise too_long  # the client has not sent the body yet; any other would be cut off while it sends
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise too_long
    except ClientDisconnect:
        raise RequestError(400, "the connection ended before the body did") from None
    return bytes(body)


def _refuse_other_types(request: Request) -> None:
    """Refuse a body whose Content-Type is not JSON in UTF-8. A body without a type is taken for JSON.

    Raises:
        ApiError: 415, with the type to send.
    """
    given = request.headers.get("content-type", "")
    kind, _, parameters = given.lower().partition(";")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    if (kind.strip() or JSON) != JSON or charset not in ("", "utf-8", "utf8", "us-ascii"):
        text = f"the body has the Content-Type {given[:60]!r}: send JSON in UTF-8, with Content-Type: {JSON}"
        raise RequestError(415, text, {"Accept": JSON})


def chosen(request: Request, name: str) -> str:
    """The value of a query parameter that narrows down what is meant; empty only without the parameter.

    Raises:
        ApiError: it is there without a value, as of a variable that is not set.
    """
    value = request.query_params.get(name)
    if value == "":
        raise RequestError(400, f"query parameter {name} is empty: give it a value or leave it out")
    return value or ""


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """A yes or no in the query, in any case; `default` without it.

    Raises:
        ApiError: another word.
    """
    value = request.query_params.get(name, str(default)).lower()
    if value not in _YES_NO:
        raise RequestError(400, f"query parameter {name}: {value[:60]!r} is neither true nor false")
    return _YES_NO[value]


def whole_number(request: Request, name: str, default: int, *, least: int = 0) -> int:
    """A whole number of `least` or more in the query; `default` without it.

    Raises:
        ApiError: something else.
    """
    value = request.query_params.get(name)
    if value is None:
        return default
    number = whole(value, LARGEST_NUMBER)
    if number is None or number < least:
        problem = f"{value[:60]!r} is not a whole number from {least} to {LARGEST_NUMBER}"
        raise RequestError(400, f"query parameter {name}: {problem}")
    return number


def page(request: Request, found: list[T]) -> list[T]:
    """The first of a list, as many as `limit` in the query says; all without it.

    Raises:
        ApiError: it is not a whole number of 1 or more.
    """
    limit = whole_number(request, "limit", 0, least=1)
    return found[:limit] if limit else found


def labels_asked(request: Request) -> tuple[label_selector.Term, ...]:
    """What `label` in the query demands of labels.

    Raises:
        ApiError: something else than conditions.
    """
    try:
        return label_selector.selector(request.query_params.getlist("label"))
    except SpecError as fault:
        raise RequestError(400, f"query parameter label: {fault}") from None


def wait_seconds(request: Request) -> float:
    """For how long the caller wants to wait for news, `wait=SECONDS` in the query; never longer than half a minute."""
    return min(float(whole_number(request, "wait", 0)), LONGEST_WAIT_S)


def moment(request: Request, name: str) -> int:
    """A time in the query, in unix milliseconds; 0 without it.

    Raises:
        ApiError: something else.
    """
    written = chosen(request, name)
    # In a query a plus sign is a space.
    found = unix_ms(written.replace(" ", "+")) if written else 0
    if written and found <= 0:
        raise RequestError(400, f"query parameter {name}: write a time with its zone, like 2026-01-02T03:04:05Z")
    return found


def unix_ms(written: Any) -> int:
    """The unix milliseconds of a time with its zone; 0 for something else."""
    try:
        found = dt.datetime.fromisoformat(written)
        return int(found.timestamp() * 1000) if found.tzinfo else 0
    except (TypeError, ValueError, OverflowError):
        return 0


def rfc3339(at: int) -> str:
    """Unix milliseconds as `2026-01-02T03:04:05.678Z`; what no such time can be is the first, or the last one."""
    moment = dt.datetime.fromtimestamp(min(max(at, 0), _LAST_SECOND_MS) / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
