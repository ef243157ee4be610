"""An evaluator of VirtualServices as in Istio's reference: the first matching rule applies."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A request with lower-case header names."""

    path: str = "/"
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}


def choose(rules: Iterable[Mapping[str, Any]], call: Call) -> Mapping[str, Any] | None:
    """Return the rule that applies to a request."""
    return next((rule for rule in rules if any(_fits(match, call) for match in rule.get("match") or ({},))), None)


def _fits(match: Mapping[str, Any], call: Call) -> bool:
    return (
        _equals(match.get("uri"), call.path)
        and all(_equals(wanted, call.headers.get(name.lower())) for name, wanted in match.get("headers", {}).items())
        and all(_equals(wanted, call.query.get(name)) for name, wanted in match.get("queryParams", {}).items())
        and not any(
            name in call.headers and _equals(wanted, call.headers[name])
            for name, wanted in match.get("withoutHeaders", {}).items()
        )
    )


def _equals(wanted: Mapping[str, str] | None, value: str | None) -> bool:
    if wanted is None:
        return True
    if value is None:
        return False
    [(how, what)] = wanted.items() or [("prefix", "")]
    if how == "regex":
        return re.fullmatch(what, value) is not None
    return value.startswith(what) if how == "prefix" else value == what
