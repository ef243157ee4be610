"""The rules of a Dayfly server (`dayfly up` or `dayfly server`), from its API."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from dayfly.client.errors import DayflyError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dayfly.client import AsyncClient
    from dayfly.routeserver.rule_store import RuleStore

# Some changes do not change the report of a sandbox, such as the members of a route group. Polling finds them.
POLL_INTERVAL_S = 2.0
_MIN_RETRY_S, _MAX_RETRY_S = 0.5, 15.0

log = logging.getLogger(__name__)


async def follow(store: RuleStore, client: AsyncClient) -> None:
    """Update the store until cancelled. While the server is unavailable, its last rules stay."""
    changed = asyncio.Event()

    async def watch() -> None:
        async for _ in client.sandboxes.follow():
            changed.set()

    async def read() -> None:
        while True:
            changed.clear()
            store.replace(await client.routing_rules())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await changed.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_retry_forever(watch))
        tasks.create_task(_retry_forever(read))


async def _retry_forever(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Call `work` again after each failure, with back-off; log each failure that differs from the last one."""
    loop, pause, logged = asyncio.get_running_loop(), _MIN_RETRY_S, ""
    while True:
        started = loop.time()
        try:
            await work()
        except DayflyError as fault:
            if loop.time() - started > _MAX_RETRY_S:
                pause, logged = _MIN_RETRY_S, ""
            if str(fault) != logged:
                log.warning("the routing rules may be out of date: %s", fault)
                logged = str(fault)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MAX_RETRY_S)
