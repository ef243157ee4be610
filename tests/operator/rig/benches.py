"""Async tests over a bench, in virtual time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def giving_bench(played: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator of async tests: `played` makes the bench that they get as their argument `bench`.

    What the decorator is called with goes to `played`: `@with_bench(bound=False)`.
    """

    def with_bench(test: Any = None, /, **how: Any) -> Any:
        if test is None:
            return functools.partial(with_bench, **how)

        @functools.wraps(test)
        def run(*args: Any, **more: Any) -> Any:
            return played(lambda bench: test(*args, bench=bench, **more), **how)

        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name != "bench"]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        del run.__wrapped__  # pytest would ask for a fixture of that name
        return run

    return with_bench
