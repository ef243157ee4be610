"""Async tests with a bench, in virtual time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def bench_decorator(run_story: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator for async tests: `run_story` creates the bench that they receive as the argument `bench`.

    Arguments of the decorator are passed to `run_story`: `@with_bench(bound=False)`.
    """

    def with_bench(test: Any = None, /, **how: Any) -> Any:
        if test is None:
            return functools.partial(with_bench, **how)

        @functools.wraps(test)
        def run(*args: Any, **more: Any) -> Any:
            return run_story(lambda bench: test(*args, bench=bench, **more), **how)

        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name != "bench"]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        del run.__wrapped__  # otherwise pytest would look for a fixture of that name
        return run

    return with_bench
