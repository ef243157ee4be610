"""JSONPath (RFC 9535): validation, and the evaluation of simple queries without a library."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dayfly.spec.errors import Path, SpecError, quote

MAX_QUERY_CHARACTERS = 1024
MAX_VISITED = 50_000
"""The maximum number of visited values, counting repeats."""
_REGEX = ("match", "search")


def check(query: str, keys: Path = (), *, regex: bool = True) -> None:
    """Check a query.

    Args:
        query: The text.
        keys: The path to it.
        regex: Whether it may have regular expressions, which can take any time. Not allowed where a query runs beside
            the work of others (`find`).

    Raises:
        SpecError: The parser's message and position.
    """
    if not query.startswith("$"):
        raise SpecError(f'{quote(query)} is not a JSONPath query: begin it with "$", like $.id', keys)
    if len(query) > MAX_QUERY_CHARACTERS:
        raise SpecError(f"has {len(query)} characters; a query has at most {MAX_QUERY_CHARACTERS}", keys)
    try:
        _compiled(query)
    except OverflowError:
        raise SpecError(f"{quote(query)} is not a JSONPath query: it holds a number that is too large", keys) from None
    except ValueError:  # an index like 1e3, say
        raise SpecError(f"{quote(query)} is not a JSONPath query: it holds a number that does not fit", keys) from None
    except Exception as fault:
        if not _is_library_fault(fault):
            raise
        raise SpecError(f"{quote(query)} is not a JSONPath query: {str(fault).splitlines()[0]}", keys) from None
    if not regex and _bounded(query) is None:
        raise SpecError(f"{quote(query)}: match and search can take any time; only webhooks may use them", keys)


def steps(query: str) -> list[str | int] | None:
    """Return the keys and indexes of its only value; None for a query that may find several (`..`, `*`, filters)."""
    compiled = _compiled(query)
    if not compiled.singular_query():
        return None
    found: list[str | int] = []
    for segment in compiled.segments:
        (selector,) = segment.selectors
        found.append(selector.name if hasattr(selector, "name") else selector.index)
    return found


def find(query: str, data: Any) -> list[Any]:
    """Return the values that a checked query finds in plain data, in their order.

    Query and data come from users, and the caller blocks. So the result is empty if the data is nested too deep (`..`
    reaches 100 levels), if more than `MAX_VISITED` values would be visited, or if the query has a regular
    expression.
    """
    compiled = _bounded(query)
    if compiled is None:
        return []
    try:
        found = compiled.findall(_wrap(data, _VisitBudget()))
    except (RecursionError, _TooManyError):
        return []
    return [each.plain if isinstance(each, _VisitedValue) else each for each in found]


class _TooManyError(Exception):
    """The limit of visited values was exceeded."""


class _VisitBudget:
    """The number of values that may still be visited."""

    def __init__(self) -> None:
        self._left = MAX_VISITED

    def take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooManyError


class _VisitedValue:
    """A container. Each visit of one of its values counts."""

    def __init__(self, plain: Any, looks: _VisitBudget) -> None:
        self.plain = plain
        self._looks = looks

    def __len__(self) -> int:
        return len(self.plain)

    def _inner(self, value: Any) -> Any:
        self._looks.take()
        return _wrap(value, self._looks)


class _VisitedMapping(_VisitedValue, Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return self._inner(self.plain[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _VisitedMapping) or self.plain.keys() != other.plain.keys():
            return False
        return all(self[key] == other[key] for key in self)

    __hash__ = None  # type: ignore[assignment]


class _VisitedList(_VisitedValue, Sequence[Any]):
    def __getitem__(self, at: Any) -> Any:
        found = self.plain[at]
        return [self._inner(each) for each in found] if isinstance(at, slice) else self._inner(found)

    def __iter__(self) -> Iterator[Any]:
        return map(self._inner, self.plain)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _VisitedList) or len(self) != len(other):
            return False
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


def _wrap(value: Any, looks: _VisitBudget) -> Any:
    if isinstance(value, Mapping):
        return _VisitedMapping(value, looks)
    return _VisitedList(value, looks) if isinstance(value, list | tuple) else value


def _is_library_fault(fault: Exception) -> bool:
    return type(fault).__module__.partition(".")[0] == "jsonpath"


@functools.lru_cache(maxsize=1024)
def _compiled(query: str) -> Any:
    return _environment().compile(query)


@functools.lru_cache(maxsize=1024)
def _bounded(query: str) -> Any:
    """Return the parsed query; None if it has regular expressions."""
    environment = _environment()
    for function in _REGEX:
        del environment.function_extensions[function]
    try:
        return environment.compile(query)
    except Exception as fault:
        if not _is_library_fault(fault):
            raise
        return None


def _environment() -> Any:
    # Imported when needed: it takes a tenth of a second, and few documents have a query.
    return importlib.import_module("jsonpath").JSONPathEnvironment(strict=True)
