"""Starting, adopting, fencing and cancelling attempts, without a host and a runner."""

from __future__ import annotations

import asyncio
import errno
import os
import signal

import msgspec
import pytest
from tests.embedded.attempts_bench import KEPT, KEY, UNIT, adopt, bench, is_reaped, kill, sleeper, sleeping, told
from tests.embedded.machine import until

from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.process_exits import reap
from dayfly.execute import receipt
from dayfly.plan.world import NeverRan, Running, Stalled

__all__ = ["bench", "told"]


async def test_attempt_with_an_order_is_adopted_and_not_started(bench):
    """The ledger claims each attempt once: here an older ledger was restored, and the attempt may be running."""
    bench.attempts.folder(KEY).write_order(b"of before")
    bench.attempts.slot_holders.add(KEY)
    await bench.attempts.launch(KEY, UNIT, bench.record, b"order")
    assert bench.starter.started == []
    assert isinstance(bench.fact(), Stalled)
    assert bench.changes == [KEY.run]
    assert KEY in bench.attempts.slot_holders, "it may start until it is fenced"


async def test_failed_start_is_reported_as_never_ran(bench):
    bench.starter.fault = OSError("no such thing")
    bench.attempts.slot_holders.add(KEY)
    await bench.attempts.launch(KEY, UNIT, bench.record, b"order")
    fact = bench.fact()
    assert isinstance(fact, NeverRan)
    assert "no such thing" in fact.message
    assert KEY not in bench.attempts.slot_holders


async def test_successful_start_wakes_no_further_turn(bench):
    await bench.attempts.launch(KEY, UNIT, bench.record, b"order")
    assert len(bench.starter.started) == 1
    assert isinstance(bench.fact(), Running)
    assert bench.changes == []
    assert KEY in bench.attempts.slot_holders


@pytest.mark.parametrize("slow", [False, True])
async def test_a_fork_waits_for_no_container(bench, slow):
    bench.starter.is_slow = slow
    await bench.attempts.launch(KEY, UNIT, msgspec.structs.replace(bench.record, **KEPT), b"order")
    fact = bench.fact()
    assert isinstance(fact, Running)
    assert not fact.ready, "no probe has succeeded"


async def test_close_releases_descriptors_of_running_attempts(told):
    process = await sleeper()
    descriptor = os.pidfd_open(process.pid)
    told.folder.tell(observe=Running(since=5), open_runner_pidfd=descriptor)
    told.attempts.adopt(KEY, UNIT, msgspec.structs.replace(told.record, **KEPT))
    told.attempts.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    told.attempts.close()
    assert told.attempts.live_forks() == []
    assert process.returncode is None, "the process continues"
    process.kill()
    await process.wait()


async def test_sealed_receipt_after_close_is_ignored(bench):
    bench.starter.child = sleeping()
    await bench.attempts.launch(KEY, UNIT, bench.record, b"order")
    bench.attempts.close()
    bench.starter.sealed(bench.starter.child)
    assert bench.changes == []
    kill(bench.starter.child)
    assert reap(bench.starter.child)


class TestAdopting:
    @pytest.mark.parametrize(("record", "ready", "busy"), [({}, True, True), (KEPT, False, False)])
    async def test_adopted_running_attempt_keeps_its_slot(self, told, record, ready, busy):
        """A fork takes no slot, and is not ready before its probe."""
        told.folder.tell(observe=Running(since=5))
        told.attempts.adopt(KEY, UNIT, msgspec.structs.replace(told.record, **record))
        assert told.fact() == Running(since=5, ready=ready)
        assert (KEY in told.attempts.slot_holders) is busy
        assert told.attempts.live_forks() == ([] if busy else [KEY])
        assert told.changes == [KEY.run]

    @pytest.mark.parametrize(("seen", "busy"), [(Stalled(since=1), True), (NeverRan(reason="NeverRan"), False)])
    async def test_adopted_attempt_keeps_its_slot_only_if_it_may_start(self, told, seen, busy):
        told.folder.tell(observe=seen)
        told.attempts.slot_holders.add(KEY)
        told.attempts.adopt(KEY, UNIT, told.record)
        assert told.fact() == seen
        assert (KEY in told.attempts.slot_holders) is busy

    async def test_no_forks_returns_once_the_last_fork_has_ended(self, told):
        told.folder.tell(observe=[Running(since=5), receipt.lost_receipt("gone")])
        told.attempts.adopt(KEY, UNIT, told.record)
        await told.attempts.wait_forks_ended()
        other = UnitAttempt("run", "fork:a/b", 1)
        told.folder.tell(observe=[Running(since=5), receipt.lost_receipt("gone")])
        told.attempts.adopt(other, UNIT, msgspec.structs.replace(told.record, **KEPT))
        assert told.attempts.live_forks() == [other]
        async with asyncio.timeout(10):
            await told.attempts.wait_forks_ended()
        assert told.attempts.live_forks() == []


class TestFencing:
    async def test_fence_is_retried_when_the_disk_refuses(self, told):
        told.folder.tell(fence=OSError("full"))
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert told.fact() is None
        await until(lambda: told.changes == [KEY.run])

    async def test_fence_of_a_started_attempt_adopts_it_once(self, told):
        told.folder.tell(fence=False, observe=Running(since=5))
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert told.fact() == Running(since=5)
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert told.folder.calls.count("observe") == 1

    async def test_fence_of_an_unstarted_attempt_frees_its_slot(self, told):
        told.folder.tell(fence=True)
        told.attempts.slot_holders.add(KEY)
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert told.fact() == NeverRan(reason="r", message="m")
        assert KEY not in told.attempts.slot_holders

    async def test_fencing_kills_the_runner_that_was_to_begin(self, told):
        never = NeverRan(reason="r", message="m")
        child = told.starter.child = sleeping()
        told.folder.tell(fence=True, observe=never)
        await told.attempts.launch(KEY, UNIT, told.record, b"order")
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        await until(lambda: is_reaped(child))
        assert told.fact() == never

    async def test_fence_without_a_descriptor_sends_no_signal(self, told):
        adopt(told)
        told.folder.tell(fence=True)
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert isinstance(told.fact(), NeverRan)


class TestCancelling:
    async def test_cancelling_twice_asks_once(self, told):
        process = await sleeper()
        adopt(told, os.pidfd_open(process.pid), [receipt.lost_receipt("gone")])
        told.attempts.cancel(KEY)
        assert await process.wait() == -signal.SIGTERM
        told.attempts.cancel(KEY)
        assert "kill_holders" not in told.folder.calls

    async def test_cancel_without_a_descriptor_kills_the_lock_holders(self, told):
        adopt(told)
        told.attempts.cancel(KEY)
        told.attempts.cancel(KEY)
        told.attempts.cancel(UnitAttempt("run", "b", 1))
        assert told.folder.calls.count("kill_holders") == 1

    async def test_cancel_is_repeated_if_lock_holders_were_not_found(self, told):
        """The server has too many open files for a moment, as when it got no pidfd of the runner."""
        adopt(told)
        told.folder.tell(kill_holders=[OSError(errno.EMFILE, "too many"), None])
        with pytest.raises(OSError, match="too many"):
            told.attempts.cancel(KEY)
        told.attempts.cancel(KEY)
        told.attempts.cancel(KEY)
        assert told.folder.calls.count("kill_holders") == 2

    @pytest.mark.parametrize("record", [{}, KEPT])
    async def test_cancel_in_a_container_signals_the_runner(self, told, record):
        """Our child is the client of the engine. A fork has no container."""
        told.starter.is_slow = True
        engine, runner = sleeping(), await sleeper()
        of_runner = os.pidfd_open(runner.pid)
        told.starter.child = engine
        told.folder.tell(open_runner_pidfd=of_runner, observe=receipt.lost_receipt("gone"))
        await told.attempts.launch(KEY, UNIT, msgspec.structs.replace(told.record, **record), b"order")
        told.attempts.cancel(KEY)
        if record:
            await until(lambda: is_reaped(engine))
            assert runner.returncode is None
            runner.kill()
        else:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(of_runner)
            assert not is_reaped(engine)
            os.kill(engine, signal.SIGKILL)
            await until(lambda: is_reaped(engine))
        assert await runner.wait() == (-signal.SIGKILL if record else -signal.SIGTERM)


class TestReleasing:
    async def test_released_attempt_has_no_fact(self, told):
        told.folder.tell(release=True, leave_beginning=True)
        told.attempts.set_fact(KEY, NeverRan(reason="NeverRan"))
        told.attempts.release(KEY)
        assert told.fact() is None
        told.attempts.set_fact(KEY, NeverRan(reason="NeverRan"))
        told.attempts.drop(KEY.run)
        assert told.attempts.facts(KEY.run) == {}

    async def test_refused_removal_of_a_folder_is_retried(self, told):
        told.folder.tell(release=[OSError("busy"), False, True], leave_beginning=True)
        told.attempts.release(KEY)
        await until(lambda: "leave_beginning" in told.folder.calls)
        assert told.folder.calls == ["release"] * 3 + ["leave_beginning"]

    async def test_release_clears_files_that_the_step_left(self, told):
        told.folder.tell(release=True, leave_beginning=False)
        told.attempts.release(KEY)
        await until(lambda: "clear_beginning" in told.folder.calls)

    @pytest.mark.parametrize(
        ("apart", "slow", "again"), [(True, False, True), (False, False, False), (True, True, False)]
    )
    async def test_start_folder_is_reused_only_after_isolated_steps(self, told, apart, slow, again):
        """Only a PID namespace guarantees it, and that of a container belongs to the engine."""
        told.folder.tell(release=True, leave_beginning=True)
        told.starter.isolates_paths, told.starter.is_slow = apart, slow
        told.attempts.release(KEY)
        assert told.beginnings.can_reuse == [again]

    @pytest.mark.parametrize(("slow", "unseen", "cleared"), [(True, True, 1), (True, False, 0), (False, True, 0)])
    async def test_unobserved_container_is_cleared(self, told, slow, unseen, cleared):
        told.folder.tell(release=True, leave_beginning=True)
        told.starter.is_slow = slow
        (told.attempts.remove_recorded if unseen else told.attempts.release)(KEY)
        await until(lambda: len(told.starter.cleared) == cleared)
        told.attempts.release(KEY)
        await asyncio.sleep(0)
        assert len(told.starter.cleared) == cleared, "once"

    async def test_container_that_ended_before_adoption_is_cleared(self, told):
        """The attempt began under another server, and had ended when this one first observed it."""
        told.folder.tell(observe=receipt.lost_receipt("gone"), release=True, leave_beginning=True)
        told.starter.is_slow = True
        told.attempts.adopt(KEY, UNIT, told.record)
        told.attempts.release(KEY)
        await until(lambda: len(told.starter.cleared) == 1)
