"""The end of an attempt is detected, and becomes a fact."""

from __future__ import annotations

import asyncio
import errno
import os
import signal

import pytest
from tests.embedded.attempts_bench import KEY, UNIT, adopt, exiting, is_reaped, kill, sleeper, sleeping, told
from tests.embedded.machine import until

from dayfly.embedded import attempt_sweeper, attempts
from dayfly.execute import receipt
from dayfly.plan.world import Ended, NeverRan, Running, Stalled, Unclear
from dayfly.spec.run import OutputRecord, Result

__all__ = ["told"]


class TestEnding:
    async def ended(self, told, *seen, child=0):
        """End the attempt's process, our child if `child` is its ID; `seen` are the next observations."""
        if child:
            told.starter.child = child
            told.folder.tell(observe=[*seen])
            await told.attempts.launch(KEY, UNIT, told.record, b"order")
        else:
            adopt(told, then=seen)
        await until(lambda: not isinstance(told.fact(), Running))

    async def test_pidfd_of_an_ended_attempt_is_closed(self, told):
        process = await sleeper()
        descriptor = os.pidfd_open(process.pid)
        adopt(told, descriptor, [receipt.lost_receipt("it is so")])
        process.kill()
        await until(lambda: told.fact() == receipt.lost_receipt("it is so"))
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
        await process.wait()

    async def test_adopted_attempt_without_marker_is_lost_not_fenced(self, told):
        """`NeverRan` is only certain for our children."""
        told.folder.tell(exists=True, fence=True)
        process = await sleeper()
        adopt(told, os.pidfd_open(process.pid), [Stalled(since=1)])
        process.kill()
        await until(lambda: not isinstance(told.fact(), Running))
        assert told.fact() == receipt.lost_receipt("its folder was removed while it may have been running")
        assert "fence" not in told.folder.calls
        await process.wait()

    async def test_failed_look_at_an_ended_attempt_is_repeated(self, told):
        await self.ended(told, OSError("no"), receipt.lost_receipt("it is so"))
        assert told.fact() == receipt.lost_receipt("it is so")
        assert KEY not in told.attempts.slot_holders

    async def test_running_attempt_without_folder_is_unclear(self, told):
        told.folder.tell(removed_fact=Unclear(since=1, reason="FolderLost", message="m", dead_by=9))
        await self.ended(told, Stalled(since=1))
        assert told.fact() == Unclear(since=1, reason="FolderLost", message="m", dead_by=9)

    @pytest.mark.parametrize(
        ("answers", "fact"),
        [
            ({"exists": True, "fence": True, "starter_error": ""}, NeverRan),
            ({"exists": True, "fence": False}, Ended),
            ({"exists": False, "fence": True}, Ended),
            ({"exists": True, "fence": OSError("full")}, Stalled),
        ],
        ids=["before it began", "after", "nothing is left", "the disk refuses"],
    )
    async def test_child_without_a_marker_never_ran_or_is_lost(self, told, answers, fact):
        told.folder.tell(**answers)
        await self.ended(told, Stalled(since=1), child=exiting())
        assert isinstance(told.fact(), fact)

    @pytest.mark.parametrize(("complaint", "said"), [("no memory", ": no memory"), ("", " before it started the step")])
    async def test_why_a_child_of_ours_left_no_marker_is_said(self, told, complaint, said):
        told.folder.tell(exists=True, fence=True, starter_error=complaint)
        await self.ended(told, Stalled(since=1), child=exiting())
        assert told.fact().message == f"{told.starter.name} ended{said}"

    async def test_outputs_are_read_at_the_end_of_an_attempt(self, told):
        output = OutputRecord(digest="sha256:0", size=1)
        end = Ended(result=Result(outcome="succeeded", outputs={"url": output}))
        told.folder.tell(read_output=b"u")
        await self.ended(told, end)
        assert told.attempts.outputs[KEY] == {"url": b"u"}
        told.folder.tell(release=True, leave_beginning=True)
        told.attempts.release(KEY)
        assert told.attempts.outputs == {}
        assert told.fact() is None

    @pytest.mark.parametrize(
        ("fault", "scarce"),
        [(OSError(errno.EMFILE, "no"), True), (OSError(errno.ENOENT, "no"), False), (ValueError("differ"), False)],
    )
    async def test_unreadable_outputs_are_lost_except_for_lack_of_files(self, told, fault, scarce):
        output = OutputRecord(digest="sha256:0", size=1)
        end = Ended(result=Result(outcome="succeeded", outputs={"url": output}, started_at=3, ended_at=4))
        told.folder.tell(read_output=[fault, b"u"])
        await self.ended(told, end)
        fact = told.fact()
        if scarce:
            assert fact.result.outcome == "succeeded"
        else:
            assert (fact.result.outcome, fact.result.started_at, fact.result.ended_at) == ("failed", 3, 4)


class TestSealing:
    """The receipt comes before the end of the runner, which announces it."""

    async def sealed(self, told):
        """Start a child that has sealed its receipt but keeps running."""
        child = told.starter.child = sleeping()
        told.folder.tell(observe=receipt.lost_receipt("it is so"), release=True, leave_beginning=True)
        await told.attempts.launch(KEY, UNIT, told.record, b"order")
        assert isinstance(told.fact(), Running)
        told.starter.sealed(child)
        return child

    async def test_sealed_receipt_is_read_before_the_runner_ends(self, told):
        child = await self.sealed(told)
        assert told.fact() == receipt.lost_receipt("it is so")
        assert KEY not in told.attempts.slot_holders
        told.starter.sealed(child)
        assert told.folder.calls.count("observe") == 1, "once"
        os.kill(child, signal.SIGKILL)

    async def test_folder_is_removed_once_the_sealed_runner_is_reaped(self, told):
        child = await self.sealed(told)
        told.attempts.release(KEY)
        assert "release" not in told.folder.calls
        os.kill(child, signal.SIGKILL)
        await until(lambda: "leave_beginning" in told.folder.calls)
        assert is_reaped(child)

    async def test_release_reaps_a_sealed_runner_that_has_ended(self, told):
        child = await self.sealed(told)
        kill(child)
        told.attempts.release(KEY)
        assert told.folder.calls[-1] == "leave_beginning"
        assert is_reaped(child)

    async def test_closing_server_waits_for_the_last_folder(self, told, monkeypatch):
        monkeypatch.setattr(attempt_sweeper, "CLOSE_TIMEOUT_S", 3600)
        child = await self.sealed(told)
        told.attempts.release(KEY)
        ended = asyncio.ensure_future(told.attempts.finish_removals())
        await asyncio.sleep(0)
        assert not ended.done()
        os.kill(child, signal.SIGKILL)
        async with asyncio.timeout(10):
            await ended
        assert told.folder.calls[-1] == "leave_beginning"

    async def test_closing_reaps_sealed_runners_and_their_descriptors(self, told, monkeypatch):
        opened = []
        monkeypatch.setattr(attempts, "open_pidfd", lambda child: opened.append(os.pidfd_open(child)) or opened[-1])
        child = await self.sealed(told)
        [descriptor] = opened
        kill(child)
        told.attempts.close()
        assert is_reaped(child)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)

    async def test_closing_server_does_not_wait_for_a_stopped_runner(self, told, monkeypatch):
        monkeypatch.setattr(attempt_sweeper, "CLOSE_TIMEOUT_S", 0.01)
        child = await self.sealed(told)
        os.kill(child, signal.SIGSTOP)
        told.attempts.release(KEY)
        async with asyncio.timeout(10):
            await told.attempts.finish_removals()
        assert "release" not in told.folder.calls, "the next server removes it"
        os.kill(child, signal.SIGKILL)

    async def test_receipt_of_an_unknown_child_is_ignored(self, told):
        told.folder.tell(observe=Running(since=5))
        told.attempts.adopt(KEY, UNIT, told.record)
        told.starter.sealed(0)
        told.starter.sealed(os.getpid())
        assert told.fact() == Running(since=5)
