"""An evaluator of routes as in the Gateway API's reference.

Its order is that of `HTTPRouteRule.matches`. Other tests check that real data planes follow it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Request(NamedTuple):
    """A request. Header names are lower case, and several values of a header are joined by commas."""

    path: str = "/"
    method: str = "GET"
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}


class Route(NamedTuple):
    """A route of one host. An older route has a smaller `age`."""

    name: str
    age: int
    rules: tuple[dict[str, Any], ...]


class Choice(NamedTuple):
    """The selected rule and its route."""

    route: str
    index: int
    rule: dict[str, Any]
    rank: tuple[Any, ...]


def choose(routes: Iterable[Route], request: Request) -> Choice | None:
    """Return the rule that a Gateway selects for a request."""
    found = list(fitting(routes, request))
    return min(found, key=lambda each: each.rank) if found else None


def fitting(routes: Iterable[Route], request: Request) -> Iterator[Choice]:
    """Yield each match of a rule with its rank. The smallest rank wins."""
    for route in routes:
        for index, rule in enumerate(route.rules):
            for match in rule.get("matches") or ({"path": {"type": "PathPrefix", "value": "/"}},):
                if _fits(match, request):
                    rank = (*_rank(match), route.age, route.name, index)
                    yield Choice(route.name, index, rule, rank)


def _rank(match: Mapping[str, Any]) -> tuple[Any, ...]:
    path = match.get("path") or {"type": "PathPrefix", "value": "/"}
    # `/shop` and `/shop/` are the same prefix, but different exact paths.
    length = len(path["value"] if path["type"] == "Exact" else path["value"].rstrip("/"))
    counts = -len(match.get("headers") or ()), -len(match.get("queryParams") or ())
    return (path["type"] != "Exact", -length, not match.get("method"), *counts)


def _fits(match: Mapping[str, Any], request: Request) -> bool:
    path = match.get("path") or {"type": "PathPrefix", "value": "/"}
    if path["type"] == "Exact":
        fits = request.path == path["value"]
    else:
        prefix = path["value"].rstrip("/")
        fits = request.path == prefix or request.path.startswith(f"{prefix}/")
    return (
        fits
        and match.get("method", request.method) == request.method
        and all(_equals(each, request.headers.get(each["name"].lower())) for each in match.get("headers") or ())
        and all(_equals(each, request.query.get(each["name"])) for each in match.get("queryParams") or ())
    )


def _equals(wanted: Mapping[str, str], value: str | None) -> bool:
    if value is None:
        return False
    if wanted.get("type", "Exact") == "Exact":
        return value == wanted["value"]
    return re.fullmatch(wanted["value"], value) is not None
