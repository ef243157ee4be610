"""A controller: keys, repeated calls, and errors of one key that do not affect others."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest
from tests.kube.fake import run

from dayfly.kube import Controller, NameConflictError, Resync, errors
from dayfly.lib.queue import Backoff, WorkQueue

TROUBLE = errors.ServerError("GET box", "no", status=500)


def played(reconcile, *, seconds: float, keys=("box",), **options) -> WorkQueue:
    """Run a controller for some time."""

    async def main() -> WorkQueue:
        queue = WorkQueue(Backoff(first=1.0, maximum=8.0), seed=1)
        controller = Controller("thing", reconcile, queue, **options)
        task = asyncio.create_task(controller.run())
        for key in keys:
            queue.add(key)
        await asyncio.sleep(seconds)
        assert not task.done(), "an error of one key must not end the controller"
        queue.close()
        await task
        return queue

    return run(main())


@pytest.mark.parametrize(
    ("fault", "level", "traced"),
    [
        (TROUBLE, logging.WARNING, False),
        (NameConflictError("is there already"), logging.WARNING, False),
        (KeyError("a defect"), logging.ERROR, True),
    ],
    ids=["refused", "expected", "defect"],
)
def test_failing_key_backs_off_without_delaying_others(fault, level, traced, caplog):
    """Growing delays, reset by a success; other keys do not wait."""
    moments, good = [], []

    async def reconcile(key: str) -> None:
        moment = asyncio.get_running_loop().time()
        if key == "good":
            good.append(moment)
            return
        moments.append(moment)
        if len(moments) < 5:
            raise fault

    with caplog.at_level(logging.DEBUG):
        queue = played(reconcile, seconds=100, keys=("box", "good"), expected=(NameConflictError,))
    waits = [later - sooner for sooner, later in itertools.pairwise(moments)]
    assert all(low <= wait <= high + 1e-3 for wait, low, high in zip(waits, (0.5, 1, 2, 4), (1, 2, 4, 8), strict=True))
    assert good == [0.0]
    assert queue.failures("box") == 0
    told = [each for each in caplog.records if "thing box" in each.message]
    assert [(each.levelno, bool(each.exc_info)) for each in told] == [(level, traced)] * 4


def test_reconcile_repeats_after_the_returned_delay():
    moments = []

    async def reconcile(_key: str) -> float | None:
        moments.append(round(asyncio.get_running_loop().time()))
        return 30.0 if len(moments) < 3 else None

    played(reconcile, seconds=1000)
    assert moments == [0, 30, 60]


def test_every_key_is_processed_periodically():
    """The controller also processes all keys at the start, as earlier events are unknown."""
    seen = []

    async def reconcile(key: str) -> None:
        seen.append((key, round(asyncio.get_running_loop().time())))

    played(reconcile, seconds=25, keys=(), resync=Resync(10.0, lambda: ["a", "b"]))
    assert seen == [(key, at) for at in (0, 10, 20) for key in "ab"]


def test_one_key_has_one_worker():
    """A key that is added during its work is processed once more."""
    now, most, times = 0, 0, 0

    async def reconcile(_key: str) -> None:
        nonlocal now, most, times
        now, times = now + 1, times + 1
        most = max(most, now)
        await asyncio.sleep(5)
        now -= 1

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        task = asyncio.create_task(Controller("thing", reconcile, queue, workers=8).run())
        for _ in range(40):
            queue.add("box")
            await asyncio.sleep(0.1)
        await asyncio.sleep(20)
        queue.close()
        await task

    run(main())
    assert (most, times) == (1, 2)
