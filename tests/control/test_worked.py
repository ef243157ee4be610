"""What is awaited in a task, and what becomes of it when the task is cancelled."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from dayfly.control.worked import Worked


async def test_what_was_cancelled_before_its_first_step_is_let_go():
    async def nothing() -> None:
        raise AssertionError("it begins")

    what = nothing()
    work = Worked(what)
    task = asyncio.create_task(work.done())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inspect.getcoroutinestate(what) == inspect.CORO_CREATED
    work.close()
    assert inspect.getcoroutinestate(what) == inspect.CORO_CLOSED, "or Python complains of it"


async def test_what_has_begun_ends_in_its_own_way():
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    begun = Worked(work())
    task = asyncio.create_task(begun.done())
    await asyncio.sleep(0)
    begun.close()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended
