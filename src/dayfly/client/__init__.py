"""How does a program ask? The library behind the command line, for synchronous programs and for those with asyncio.

    from dayfly.client import Client

    with Client() as dayfly:
        dayfly.sandboxes.apply("sandbox.yaml")
        sandbox = dayfly.sandboxes.wait_ready("demo")

What a method means is written once, as a coroutine over an `Io` (`connection`): `AsyncClient` is made of these
coroutines, and `Client` carries out the same ones over sockets that block, where a coroutine needs a single step. So
the two cannot differ, there is no thread and no generated code, and a test of one is a test of both. `json_client`
sends requests, again where `retry` allows it; `runs` and `plugins` are the verbs; `waiting` and `follower` take time;
`types` is what comes back, held against the server's own description of itself by a test.

It may import `spec` and `compile` and no other room. The command line is built on it: homes, logged-in servers, files,
errors, requests and connections are the same. Public are the names below; all else is provisional.
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
    from dayfly.client.retry import Retry
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
        Report,
        RouteGroup,
        Sandbox,
        Status,
        Unit,
    )

# The command line has its errors from here, and its start is measured: the rest is imported when it is asked for.
_WHERE = {
    "Applied": "sources",
    "AsyncClient": "asynchronous",
    "Change": "changes",
    "Retry": "retry",
    "Client": "synchronous",
    **dict.fromkeys(
        (
            *("Attempt", "Baseline", "Blocker", "Condition", "Endpoint", "LogPiece", "LogTime", "Move", "Output"),
            *("Outputs", "Plugin", "Report", "RouteGroup", "Sandbox", "Status", "Unit"),
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
    "RefusedError",
    "Report",
    "Retry",
    "RouteGroup",
    "Sandbox",
    "Status",
    "Unit",
    "UnreachableError",
    "WaitTimeoutError",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found: object = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = found
    return found
