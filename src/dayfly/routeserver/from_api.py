"""The rules of a server of Dayfly, `dayfly up` or `dayfly server`, by its API."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from dayfly.client.errors import DayflyError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dayfly.client import AsyncClient
    from dayfly.routeserver.board import Board

# What changes without a sandbox's report changing, such as who belongs to a route group, is noticed after so long.
LOOK_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0

log = logging.getLogger(__name__)


async def follow(board: Board, client: AsyncClient) -> None:
    """Keep the board up until cancelled. While the server is away, what it told last stands."""
    changed = asyncio.Event()

    async def listen() -> None:
        async for _ in client.sandboxes.follow():
            changed.set()

    async def read() -> None:
        while True:
            changed.clear()
            board.replace(await client.routing_rules())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), LOOK_S)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_again_and_again(listen))
        tasks.create_task(_again_and_again(read))


async def _again_and_again(what: Callable[[], Coroutine[None, None, None]]) -> None:
    """Begin it anew whenever it fails, later and later; each failure that is not like the last is said."""
    loop, pause, said = asyncio.get_running_loop(), _FIRST_PAUSE_S, ""
    while True:
        began = loop.time()
        try:
            await what()
        except DayflyError as fault:
            if loop.time() - began > _LONGEST_PAUSE_S:
                pause, said = _FIRST_PAUSE_S, ""
            if str(fault) != said:
                log.warning("the routing rules may be out of date: %s", fault)
                said = str(fault)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
