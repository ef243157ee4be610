"""A step while its container is created: its start is not announced, so it is polled."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.embedded.attempts_bench import KEY, UNIT, is_reaped, sleeping, told
from tests.embedded.machine import until

from dayfly.execute import receipt
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Running, Stalled, Waiting

__all__ = ["told"]
# Several polls fit into this time.
LOOKS_S = 0.02


@pytest.fixture
async def begun(told):
    """Start the engine for the step; return its process."""
    child = told.starter.child = sleeping()
    told.starter.is_slow = True
    told.folder.tell(observe=Stalled(since=1))
    await told.attempts.launch(KEY, UNIT, told.record, b"order")
    yield child
    if not is_reaped(child):
        os.kill(child, signal.SIGKILL)
        await until(lambda: is_reaped(child))


async def looked(told, more: int) -> None:
    before = told.folder.calls.count("observe")
    await until(lambda: told.folder.calls.count("observe") >= before + more)


async def test_step_is_starting_until_its_marker_is_seen(told, begun):
    assert (told.fact().reason, told.changes) == (Reason.STARTING, [])
    await looked(told, 2)
    told.folder.tell(observe=[OSError("no"), Stalled(since=1), Running(since=5)])
    await until(lambda: told.fact() == Running(since=5))
    assert told.changes == [KEY.run], "once"
    seen = len(told.folder.calls)
    await asyncio.sleep(LOOKS_S)
    assert len(told.folder.calls) == seen, "and is no longer polled"


async def test_container_that_ended_is_not_polled_again(told, begun):
    told.folder.tell(observe=receipt.lost_receipt("it is so"))
    os.kill(begun, signal.SIGKILL)
    await until(lambda: not isinstance(told.fact(), Waiting))
    seen = len(told.folder.calls)
    await asyncio.sleep(LOOKS_S)
    assert told.fact() == receipt.lost_receipt("it is so")
    assert len(told.folder.calls) == seen


async def test_closed_server_does_not_poll_containers(told, begun):
    told.attempts.close()
    seen = len(told.folder.calls)
    await asyncio.sleep(LOOKS_S)
    assert isinstance(told.fact(), Waiting)
    assert len(told.folder.calls) == seen
