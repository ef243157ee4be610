"""The rules by REST, in the place where clients of route servers look for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from dayfly.server.access.callers import is_loopback_name
from dayfly.spec.routing.rules import Query

if TYPE_CHECKING:
    from starlette.requests import Request

    from dayfly.routeserver.board import Board

PATH = "/api/v1/workloads/routing-rules"


def application(board: Board, *, loopback: bool) -> Starlette:
    """`PATH`, and `/healthz` and `/readyz` for whoever keeps the process running.

    With `loopback` requests that call us by another name are refused: a page of somebody's, in a browser of this
    machine, could have its own name lead here.
    """

    async def rules(request: Request) -> Response:
        if loopback and not is_loopback_name(request.headers.get("host", "")):
            return _json({"error": "this route server is called 127.0.0.1 or localhost"}, 403)
        if not board.known:
            return _json({"error": "the routing rules are not known yet; ask again"}, 503)
        return _json({"routingRules": board.rules(Query.of(request.query_params))})

    async def healthy(_: Request) -> Response:
        return Response(b"ok\n")

    async def ready(_: Request) -> Response:
        return Response(b"ok\n") if board.known else Response(b"the routing rules are not known yet\n", 503)

    return Starlette(routes=[Route(PATH, rules), Route("/healthz", healthy), Route("/readyz", ready)])


def _json(what: object, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-store", **({"Retry-After": "1"} if status == 503 else {})}
    return Response(msgspec.json.encode(what), status, headers, "application/json")
