"""Handlers of endpoints: JSON in, and JSON or an error in one format out."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dayfly.server.access import callers
from dayfly.server.access.scopes import Reach
from dayfly.server.http import preconditions
from dayfly.server.http.errors import RequestError, not_found, out_of_scope, to_request_error
from dayfly.server.http.preconditions import Tagged
from dayfly.server.http.request_data import JSON
from dayfly.server.http.route_table import API, FOR_AGENTS, ROUTES, WITH_TAGS, is_for_agents, reach
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from dayfly.server.access.callers import Caller

    Handler = Callable[[Request], Awaitable[Any]]

READING_METHODS = ("GET", "HEAD", "OPTIONS")

_encode = msgspec.json.Encoder().encode
_KEYS, _TOKENS = "/orgs/{org}/keys", "/orgs/{org}/clusters/{name}/tokens"
# Compared with the pattern of a path, because a sandbox may have the name `keys`.
_KEY_REQUIRED = frozenset({_KEYS, f"{_KEYS}/{{id}}", _TOKENS, f"{_TOKENS}/{{id}}", "/page/links"})


class AddressHandlers:
    """The handlers of one path. They return plain data; exceptions become error answers.

    Args:
        path: A path of the route table, which has the required roles.
        handlers: Handlers by HTTP method.
        is_complete: Whether `handlers` must have all methods of the route table.
    """

    def __init__(self, path: str, handlers: dict[str, Handler], *, is_complete: bool = True) -> None:
        operations = ROUTES[path]
        is_valid = handlers.keys() == operations.keys() if is_complete else handlers.keys() <= operations.keys()
        assert is_valid, f"{path} has {', '.join(operations)}"
        self._path = path
        self._methods = {method: (operations[method].role, handler) for method, handler in handlers.items()}
        self._allow = ", ".join([*handlers, *(["HEAD"] if "GET" in handlers else []), "OPTIONS"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            found = await self._handle(request)
            response = found if isinstance(found, Response) else _answer_or_not_modified(request, found)
            if request.method == "OPTIONS":
                response.headers["Allow"] = self._allow
        except Exception as fault:  # noqa: BLE001  -- `explain` logs unexpected exceptions
            response = refuse(fault)
        await response(scope, receive, send)

    async def _handle(self, request: Request) -> Any:
        caller: Caller | None = request.scope.get("caller")
        if caller is not None and (org := request.path_params.get("org", caller.org)) != caller.org:
            raise RequestError(404, f"no organisation {quote(org)} here; your key belongs to {quote(caller.org)}")
        if request.method == "OPTIONS":
            return {}
        method = "GET" if request.method == "HEAD" else request.method
        if method not in self._methods:
            raise RequestError(405, f"{request.method} is not allowed here, only {self._allow}", {"Allow": self._allow})
        if self._path in _KEY_REQUIRED and method not in READING_METHODS and not callers.extract_key(request.headers):
            text = "keys, tokens and links can only be created with a key, for example by the command line"
            raise RequestError(403, text)
        if method not in READING_METHODS and self._path not in WITH_TAGS:
            preconditions.read(request).refuse_match()
        role, handler = self._methods[method]
        if role is not None and callers.get_caller(request).role < role:
            actual = callers.get_caller(request).role_name
            raise RequestError(
                403, f"{request.method} here needs the role {role.api_name}, and your key has the role {actual}"
            )
        if role is not None:
            self._refuse_out_of_scope(request, method)
        return await handler(request)

    def _refuse_out_of_scope(self, request: Request, method: str) -> None:
        """Check the scope of the path. Handlers check the cluster of the object (`callers.keep_visible`)."""
        scope, name = callers.get_caller(request).scope, request.path_params.get("name", "")
        if scope.agent is not None and (self._path, method) in FOR_AGENTS:
            return
        if scope.agent is not None and not is_for_agents(self._path, method):
            raise RequestError(403, f"{method} here is not for keys for agents; see docs/guides/agents.md")
        match reach(self._path, method):
            case Reach.RUNS if scope.has_runs:
                is_in_scope = not name or scope.includes_name(name)
                # Outside of the scope, an object does not exist for the key: 404. PUT would create it, so it gets 403.
                if not is_in_scope and (method != "PUT" or not self._path.endswith("{name}")):
                    raise not_found(self._path)
            case Reach.PLUGIN:
                is_in_scope = scope.allows_publishing(name)
            case Reach.COMMON:
                is_in_scope = True
            case _:
                is_in_scope = scope.is_whole
        if not is_in_scope:
            named = scope.has_runs and name and reach(self._path, method) is not Reach.WHOLE
            raise out_of_scope(scope, quote(name) if named else f"{request.method} here")


def serve(path: str, **handlers: Handler) -> Route:
    """Return the route of a path with handlers for all of its methods."""
    return Route(API + path, AddressHandlers(path, handlers))


def serve_part(path: str, **handlers: Handler) -> Route:
    """Return the route of a path with handlers for some of its methods."""
    return Route(API + path, AddressHandlers(path, handlers, is_complete=False))


def serve_as(path: str, at: str, **handlers: Handler) -> Route:
    """Return a route that serves the operations of `path` also at the path `at`, which older clients use."""
    return Route(at, AddressHandlers(path, handlers))


def _answer_or_not_modified(request: Request, found: Any) -> Response:
    """Return the answer with a handler's result, or 304 if the client has it already."""
    if not isinstance(found, Tagged):
        return answer(found)
    response = answer(found.data)
    tag = preconditions.compute_tag(found.version, bytes(response.body))
    if preconditions.is_unchanged(request, tag):
        response = Response(status_code=304, headers={"Cache-Control": "no-store"})
    response.headers["ETag"] = tag
    return response


def answer(data: Any) -> Response:
    """Return the answer 200 with `data` as JSON. It is not cached, because it may contain outputs of steps."""
    return _json(200, data, {})


def refuse(fault: Exception) -> Response:
    """Return the error answer for an exception."""
    request_id = secrets.token_hex(8)
    error = to_request_error(fault, request_id)
    return _json(error.status, {"error": error.text, "requestId": request_id}, error.headers)


def _json(status: int, data: Any, headers: dict[str, str]) -> Response:
    always = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(_encode(data), status, {**always, **headers}, media_type=JSON)
