"""JSONPath (RFC 9535): whether a query is one, and the plain ways to one value that need no library to follow."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from dayfly.spec.errors import Path, SpecError, quote

MAX_QUERY_CHARACTERS = 1024


def check(query: str, keys: Path = ()) -> None:
    """Refuse what is no query.

    Raises:
        SpecError: with the parser's words and the character.
    """
    if not query.startswith("$"):
        raise SpecError(f'{quote(query)} is not a JSONPath query: begin it with "$", like $.id', keys)
    if len(query) > MAX_QUERY_CHARACTERS:
        raise SpecError(f"has {len(query)} characters; a query has at most {MAX_QUERY_CHARACTERS}", keys)
    try:
        _compiled(query)
    except OverflowError:
        raise SpecError(f"{quote(query)} is not a JSONPath query: it holds a number that is too large", keys) from None
    except Exception as fault:
        if type(fault).__module__.partition(".")[0] != "jsonpath":
            raise
        raise SpecError(f"{quote(query)} is not a JSONPath query: {str(fault).splitlines()[0]}", keys) from None


def steps(query: str) -> list[str | int] | None:
    """The keys and indexes that lead to its one value; None for a query that may find several (`..`, `*`, filters)."""
    compiled = _compiled(query)
    if not compiled.singular_query():
        return None
    found: list[str | int] = []
    for segment in compiled.segments:
        (selector,) = segment.selectors
        found.append(selector.name if hasattr(selector, "name") else selector.index)
    return found


def find(query: str, data: Any) -> list[Any]:
    """What a checked query finds in plain data, in its order; nothing in data that is nested too deep for it."""
    try:
        found: list[Any] = _compiled(query).findall(data)
    except RecursionError:  # a `..` goes a hundred deep: whoever may write the data must not end who looks at it
        return []
    return found


@functools.lru_cache(maxsize=1024)
def _compiled(query: str) -> Any:
    # When it is needed: it takes a tenth of a second to import, and few documents have a query.
    return importlib.import_module("jsonpath").JSONPathEnvironment(strict=True).compile(query)
