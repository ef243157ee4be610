"""Data for `-o`: names, the values of a JSONPath query, and times in RFC 3339. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAMES = ("name", "id", "number")
"""The field that identifies an object, the first that it has."""
_TIMES = frozenset({"at", "bornAt", "since", "until", "startedAt", "endedAt"})
"""Fields of the REST API with Unix milliseconds; 0 means that there is no time."""


def names(data: Any) -> Iterator[str]:
    """Yield the name of each object.

    Raises:
        DayflyError: an object has no name.
    """
    for each in data if isinstance(data, list) else [data]:
        key = next((key for key in _NAMES if isinstance(each, dict) and key in each), None)
        if key is None:
            raise DayflyError(Exit.USAGE, "these objects have no names", "use -o json")
        yield str(each[key])


def values(data: Any, query: str) -> Iterator[str]:
    """Yield the values that a checked query finds: text as it is, other values as JSON."""
    from dayfly.spec.scalars import jsonpath

    for each in jsonpath.find(query, data):
        yield each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)


def with_times(data: Any, format_time: Callable[[int], str]) -> Any:
    """Return the data with formatted times, except in specs, which users write; a missing time is left out."""
    if isinstance(data, list | tuple):
        return [with_times(each, format_time) for each in data]
    if not isinstance(data, dict):
        return data
    found = {}
    for key, value in data.items():
        is_time = key in _TIMES and isinstance(value, int)
        if not is_time:
            found[key] = value if key == "spec" else with_times(value, format_time)
        elif value:
            found[key] = format_time(value)
    return found
