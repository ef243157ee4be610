"""The REST API of the rules, at the path that clients of route servers use."""

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

    from dayfly.routeserver.rule_store import RuleStore

PATH = "/api/v1/workloads/routing-rules"


def application(store: RuleStore, *, loopback: bool) -> Starlette:
    """Return the application with `PATH`, and `/healthz` and `/readyz` for probes.

    With `loopback`, requests with another `Host` than localhost are refused. Otherwise a web page could resolve its own
    host name to this server (DNS rebinding).
    """

    async def rules(request: Request) -> Response:
        if loopback and not is_loopback_name(request.headers.get("host", "")):
            return _json({"error": "the Host header must be 127.0.0.1 or localhost"}, 403)
        if not store.is_complete:
            return _json({"error": "the routing rules are not known yet; retry"}, 503)
        return _json({"routingRules": store.find(Query.from_parameters(request.query_params))})

    async def healthy(_: Request) -> Response:
        return Response(b"ok\n")

    async def ready(_: Request) -> Response:
        return Response(b"ok\n") if store.is_complete else Response(b"the routing rules are not known yet\n", 503)

    return Starlette(routes=[Route(PATH, rules), Route("/healthz", healthy), Route("/readyz", ready)])


def _json(what: object, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-store", **({"Retry-After": "1"} if status == 503 else {})}
    return Response(msgspec.json.encode(what), status, headers, "application/json")
