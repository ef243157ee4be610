"""Extraction of values from the body of a response, for outputs and comparisons. Pure; runs in the sender.

The server controls the body. Every problem raises `ExtractionError`, because the outcome of a request is unknown if its
sender crashes.
"""

import importlib
import json
from collections.abc import Iterable
from typing import Any

from dayfly.execute.webhook.exit_codes import ExitCode


class ExtractionError(Exception):
    """A value cannot be extracted from the response."""

    def __init__(self, end: ExitCode, sentence: str) -> None:
        super().__init__(sentence)
        self.end = end


def query_value(body: bytes, query: str, steps: Iterable[str | int] | None) -> Any:
    """Return the value that a JSONPath query finds; None if there is none. `steps` are those of a singular query.

    Raises:
        ExtractionError: The body is not JSON, or the query finds several values.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise ExtractionError(ExitCode.NOT_JSON, f"the response is not JSON, so {query} cannot be read") from None
    if steps is not None:
        return _follow_steps(data, steps)
    try:
        # A slow import, which few queries need.
        found = importlib.import_module("jsonpath").JSONPathEnvironment(strict=True).findall(query, data)
    except RecursionError:
        raise ExtractionError(ExitCode.UNFIT, f"the response is nested too deep for {query}") from None
    if len(found) > 1:
        raise ExtractionError(ExitCode.UNFIT, f"{query} finds {len(found)} values; it must find one")
    return found[0] if found else None


def to_bytes(found: Any, query: str) -> bytes:
    """Return a string as UTF-8, and other values as JSON.

    Raises:
        ExtractionError: The value cannot be encoded.
    """
    try:
        return (found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))).encode()
    except UnicodeEncodeError:
        raise ExtractionError(ExitCode.UNFIT, f"the value of {query} contains a lone surrogate") from None
    except RecursionError:
        raise ExtractionError(ExitCode.UNFIT, f"the value of {query} is nested too deep") from None


def _follow_steps(data: Any, steps: Iterable[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, dict) else None
        else:
            inside = isinstance(data, list) and -len(data) <= step < len(data)
            data = data[step] if inside else None
    return data
