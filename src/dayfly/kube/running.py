"""How a process of controllers runs: caches first, then work while it leads, and an end that breaks nothing off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from dayfly.kube.lease import Elector, standing

log = logging.getLogger(__name__)


async def run_until(
    stopping: asyncio.Event,
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    background: Sequence[Coroutine[Any, Any, None]],
    ready: Coroutine[Any, Any, None],
    close: Callable[[], None],
    grace_s: float,
) -> None:
    """Work until `stopping` is set, or this is cancelled.

    Args:
        stopping: When it is set no more work is begun; what is under way may take `grace_s` seconds more.
        work: Begun once `ready` is through; it ends by itself after `close`.
        background: Runs from the beginning to the end: watches, Events.
        ready: What work waits for.
        close: Has the queues take no more.
        grace_s: Seconds.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            behind = [tasks.create_task(each) for each in background]
            await first(ready, stopping.wait())
            if not stopping.is_set():
                working = tasks.create_task(work())
                behind.append(working)
                await stopping.wait()
                close()
                await asyncio.wait([working], timeout=grace_s)
            for task in behind:
                task.cancel()
    finally:
        close()


async def while_leading(
    elector: Elector | None,
    stopping: asyncio.Event,
    work: Callable[[], Coroutine[Any, Any, None]],
    begin: Callable[[], None] = lambda: None,
    end: Callable[[], None] = lambda: None,
) -> None:
    """Work as long as this process leads; without an elector, at once. The caches stay current in between.

    `begin` is called each time this process starts to lead, because another process may have worked before. `end` is
    called each time it stops leading, after the work was cancelled.
    """
    if elector is None:
        await work()
        return
    async with standing(elector):
        while not stopping.is_set():
            await first(elector.led(), stopping.wait())
            if not stopping.is_set():
                log.info("%s leads", elector.identity)
                begin()
                await first(work(), elector.led(False))
                end()


async def first(*coroutines: Awaitable[Any]) -> None:
    """Until one of them ends; the others are cancelled, and what went wrong is raised."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
