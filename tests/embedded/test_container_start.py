"""What is known of a step while its container is being made: nobody tells us when it has begun, so we look."""

from __future__ import annotations

import os
import signal

import pytest

from dayfly.execute import receipt
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Running, Stalled, Waiting
from embedded.alone import KEY, UNIT, is_nobody, sleeping, told
from embedded.machine import until

__all__ = ["told"]


@pytest.fixture
async def begun(told):
    """The engine is at work on it; returns its process."""
    child = told.starter.child = sleeping()
    told.starter.slow = True
    told.folder.tell(observe=Stalled(since=1))
    await told.attempts.launch(KEY, UNIT, told.record, b"order")
    yield child
    if not is_nobody(child):
        os.kill(child, signal.SIGKILL)
        await until(lambda: is_nobody(child))


async def looked(told, more: int) -> None:
    before = told.folder.calls.count("observe")
    await until(lambda: told.folder.calls.count("observe") >= before + more)


async def test_it_waits_until_it_is_seen_to_run_whatever_the_disk_says_meanwhile(told, begun):
    assert (told.fact().reason, told.news) == (Reason.STARTING, [])
    await looked(told, 2)
    told.folder.tell(observe=[OSError("no"), Stalled(since=1), Running(since=5)])
    await until(lambda: told.fact() == Running(since=5))
    assert told.news == [KEY.run], "once"
    seen = len(told.folder.calls)
    told.attempts._await_start(KEY)
    assert len(told.folder.calls) == seen, "and is not looked at any more"


async def test_one_that_has_ended_meanwhile_is_not_looked_at_any_more(told, begun):
    told.folder.tell(observe=receipt.lost("it is so"))
    os.kill(begun, signal.SIGKILL)
    await until(lambda: not isinstance(told.fact(), Waiting))
    seen = len(told.folder.calls)
    told.attempts._await_start(KEY)
    assert told.fact() == receipt.lost("it is so")
    assert len(told.folder.calls) == seen


async def test_a_server_that_ends_does_not_look_any_more(told, begun):
    told.attempts.close()
    seen = len(told.folder.calls)
    told.attempts._await_start(KEY)
    assert isinstance(told.fact(), Waiting)
    assert len(told.folder.calls) == seen
