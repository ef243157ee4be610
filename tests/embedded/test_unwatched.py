"""Attempts without a pidfd, and attempts that may have leftovers."""

from __future__ import annotations

import os
import signal

import msgspec
import pytest
from tests.embedded.attempts_bench import KEPT, KEY, UNIT, is_reaped, sleeping, told
from tests.embedded.machine import until

from dayfly.embedded import attempts
from dayfly.execute import receipt
from dayfly.plan.world import Running, Stalled, Unclear

__all__ = ["told"]

LOST = receipt.lost_receipt("it is so")
UNCLEAR = Unclear(since=1, reason="FolderLost", message="m", dead_by=9)


@pytest.fixture
async def child(told, monkeypatch):
    """Start an attempt without a pidfd."""
    monkeypatch.setattr(attempts, "open_pidfd", lambda _child: None)
    found = told.starter.child = sleeping()
    told.folder.tell(observe=LOST)
    await told.attempts.launch(KEY, UNIT, told.record, b"order")
    yield found
    if not is_reaped(found):
        os.kill(found, signal.SIGKILL)
        await until(lambda: is_reaped(found))


async def test_child_without_a_descriptor_is_polled_until_it_ends(told, child, monkeypatch):
    looks, look = [], attempts.reap
    monkeypatch.setattr(attempts, "reap", lambda child: looks.append(child) or look(child))
    await until(lambda: len(looks) > 2)
    assert isinstance(told.fact(), Running)
    told.starter.sealed(child)
    assert isinstance(told.fact(), Running), "its receipt is read when it has ended"
    os.kill(child, signal.SIGKILL)
    await until(lambda: told.fact() == LOST)
    assert is_reaped(child)


@pytest.mark.parametrize("adopted", [True, False])
async def test_running_attempt_without_folder_has_an_unclear_end(told, adopted):
    """Another server started it, or its starter was killed."""
    told.folder.tell(observe=[Running(since=5), Stalled(since=1)], removed_fact=UNCLEAR, exists=True, fence=True)
    if adopted:
        told.attempts.adopt(KEY, UNIT, told.record)
    else:
        begun = told.starter.child = sleeping()
        await told.attempts.launch(KEY, UNIT, told.record, b"order")
        os.kill(begun, signal.SIGKILL)
    await until(lambda: told.fact() == UNCLEAR)
    assert "fence" not in told.folder.calls


@pytest.mark.parametrize("observed", [[Running(since=5), LOST], [UNCLEAR]])
async def test_container_with_an_unseen_end_is_cleared(told, observed):
    told.starter.is_slow = True
    told.folder.tell(observe=observed, exists=False, release=True, leave_beginning=True)
    begun = told.starter.child = sleeping()
    await told.attempts.launch(KEY, UNIT, msgspec.structs.replace(told.record, **KEPT), b"order")
    told.attempts.cancel(KEY)
    os.kill(begun, signal.SIGKILL)
    await until(lambda: told.attempts.live_forks() == [])
    assert told.changes, "listeners are notified"
    told.attempts.release(KEY)
    await until(lambda: len(told.starter.cleared) == 1)


async def test_container_is_not_cleared_while_its_folder_is_locked(told):
    told.starter.is_slow = True
    told.folder.tell(is_locked=[True, True, False], release=True, leave_beginning=True)
    told.attempts.remove_recorded(KEY)
    await until(lambda: "leave_beginning" in told.folder.calls)
    assert told.folder.calls.count("is_locked") == 3
    assert len(told.starter.cleared) == 1


async def test_step_that_outlives_its_runner_can_be_cancelled_again(told):
    told.folder.tell(observe=Running(since=5))
    told.starter.child = sleeping()
    await told.attempts.launch(KEY, UNIT, told.record, b"order")
    told.attempts.cancel(KEY)
    await until(lambda: told.changes)
    told.attempts.cancel(KEY)
    told.attempts.cancel(KEY)
    assert told.folder.calls.count("kill_holders") == 1
    told.folder.tell(observe=LOST)
    await until(lambda: told.fact() == LOST)
