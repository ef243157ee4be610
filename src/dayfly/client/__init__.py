"""The Python client of the REST API, for synchronous programs and for asyncio.

    from dayfly.client import Client

    with Client() as dayfly:
        dayfly.sandboxes.apply("sandbox.yaml")
        sandbox = dayfly.sandboxes.wait_ready("demo")

Each method is written once, as a coroutine over an `Io` (`connection`); `Client` runs the same coroutines over
blocking sockets. The command line uses its requests, files, homes and errors. The package imports only `spec` and
`compile`. The names below are public; all others are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.client.errors import (
    ConflictError,
    DayflyError,
    DeniedError,
    Exit,
    FailedError,
    InvalidError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    WaitTimeoutError,
)

if TYPE_CHECKING:
    from dayfly.client.asynchronous import AsyncClient
    from dayfly.client.changes import Change
    from dayfly.client.retry import RetryPolicy
    from dayfly.client.sources import Applied
    from dayfly.client.synchronous import Client
    from dayfly.client.types import (
        Attempt,
        Baseline,
        Blocker,
        Condition,
        Endpoint,
        LogPiece,
        LogTime,
        Move,
        Output,
        Outputs,
        Plugin,
        Pool,
        PoolExplanation,
        PoolMember,
        Report,
        RouteGroup,
        Sandbox,
        Status,
        Unit,
    )

# The command line imports the errors from here and must start fast, so all other names are imported on first use.
_MODULES = {
    "Applied": "sources",
    "AsyncClient": "asynchronous",
    "Change": "changes",
    "RetryPolicy": "retry",
    "Client": "synchronous",
    **dict.fromkeys(
        (
            *("Attempt", "Baseline", "Blocker", "Condition", "Endpoint", "LogPiece", "LogTime", "Move", "Output"),
            *(
                "Outputs",
                "Plugin",
                "Pool",
                "PoolExplanation",
                "PoolMember",
                "Report",
                "RouteGroup",
                "Sandbox",
                "Status",
                "Unit",
            ),
        ),
        "types",
    ),
}

__all__ = [
    "Applied",
    "AsyncClient",
    "Attempt",
    "Baseline",
    "Blocker",
    "Change",
    "Client",
    "Condition",
    "ConflictError",
    "DayflyError",
    "DeniedError",
    "Endpoint",
    "Exit",
    "FailedError",
    "InvalidError",
    "LogPiece",
    "LogTime",
    "Move",
    "NotFoundError",
    "Output",
    "Outputs",
    "Plugin",
    "Pool",
    "PoolExplanation",
    "PoolMember",
    "RefusedError",
    "Report",
    "RetryPolicy",
    "RouteGroup",
    "Sandbox",
    "Status",
    "Unit",
    "UnreachableError",
    "WaitTimeoutError",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found: object = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
