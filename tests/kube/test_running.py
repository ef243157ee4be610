"""Tasks of a process: they end together, and work that is under way may be finished."""

from __future__ import annotations

import asyncio

import pytest

from dayfly.kube.running import first, run_until


async def test_first_that_ends_cancels_the_others():
    ended = []

    async def long():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("long")

    async def soon():
        ended.append("soon")

    await asyncio.wait_for(first(long(), soon()), 10)
    assert ended == ["soon", "long"], "they have ended when it returns"


async def test_first_that_fails_raises_its_error():
    async def wrong():
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await first(asyncio.Event().wait(), wrong())


@pytest.mark.parametrize(("grace_s", "finished"), [(60.0, ["a turn"]), (0.01, [])])
async def test_stop_lets_work_under_way_finish_for_the_grace_period(grace_s, finished):
    stopping, done = asyncio.Event(), []

    async def work():
        stopping.set()
        await asyncio.sleep(0.05 if finished else 3600)
        done.append("a turn")

    async def ready():
        """The caches are whole."""

    running = run_until(stopping, work, background=[], ready=ready(), close=lambda: None, grace_s=grace_s)
    await asyncio.wait_for(running, 30)
    assert done == finished
