"""Helpers for tasks."""

from __future__ import annotations

import asyncio

import pytest

from dayfly.lib.tasks import attempt_all, background, run_until_first


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

    async with asyncio.timeout(10):
        await run_until_first(long(), soon())
    assert ended == ["soon", "long"], "all have ended on return"


async def test_first_that_fails_raises_its_error():
    async def wrong():
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await run_until_first(asyncio.Event().wait(), wrong())


async def test_background_work_has_ended_after_the_block():
    ended = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    async with background(work()):
        await asyncio.sleep(0)
    assert ended == ["work"]


async def fail(done: list[str], error: Exception) -> None:
    done.append("failed")
    raise error


async def succeed(done: list[str]) -> None:
    done.append("succeeded")


async def test_attempt_all_goes_on_after_an_expected_error():
    done: list[str] = []
    with pytest.raises(ValueError, match="one"):
        await attempt_all((each for each in (fail(done, ValueError("one")), succeed(done))), (ValueError,))
    assert done == ["failed", "succeeded"]


async def test_attempt_all_stops_at_any_other_error():
    done: list[str] = []
    rest = succeed(done)
    with pytest.raises(KeyError):
        await attempt_all((each for each in (fail(done, KeyError("one")), rest)), (ValueError,))
    rest.close()
    assert done == ["failed"]
