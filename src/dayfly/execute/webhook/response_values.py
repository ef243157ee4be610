"""What outputs and comparisons take from the body of an answer. Pure; runs in the sender.

The body is the server's: whatever it holds, what cannot be taken is said, for a sender that dies of it leaves open what
has become of its request.
"""

import importlib
import json
from collections.abc import Iterable
from typing import Any

from dayfly.execute.webhook.exit_codes import ExitCode


class UntakenError(Exception):
    """It cannot be taken."""

    def __init__(self, end: ExitCode, sentence: str) -> None:
        super().__init__(sentence)
        self.end = end


def one(body: bytes, query: str, steps: Iterable[str | int] | None) -> Any:
    """What a query finds; None if it is nothing. `steps` are those of a query that leads to one place.

    Raises:
        UntakenError: the body is not JSON, or it finds several.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise UntakenError(ExitCode.NOT_JSON, f"the answer is not JSON, and {query} is sought in it") from None
    if steps is not None:
        return _at(data, steps)
    try:
        # It takes longer to import than all the rest takes, and few queries need it.
        found = importlib.import_module("jsonpath").JSONPathEnvironment(strict=True).findall(query, data)
    except RecursionError:
        raise UntakenError(ExitCode.UNFIT, f"the answer is nested too deep for {query}") from None
    if len(found) > 1:
        raise UntakenError(ExitCode.UNFIT, f"{query} finds {len(found)} values; one is wanted")
    return found[0] if found else None


def as_bytes(found: Any, query: str) -> bytes:
    """A string as it is, all else as JSON.

    Raises:
        UntakenError: no bytes stand for it.
    """
    try:
        return (found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))).encode()
    except UnicodeEncodeError:
        raise UntakenError(ExitCode.UNFIT, f"what {query} finds holds half of a surrogate pair") from None
    except RecursionError:
        raise UntakenError(ExitCode.UNFIT, f"what {query} finds is nested too deep") from None


def _at(data: Any, steps: Iterable[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, dict) else None
        else:
            inside = isinstance(data, list) and -len(data) <= step < len(data)
            data = data[step] if inside else None
    return data
