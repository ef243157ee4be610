"""How the end of what was begun on this machine is noticed, and what is told of it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal

import pytest

from dayfly.embedded import sweeping
from dayfly.execute import receipt
from dayfly.plan.world import Ended, NeverRan, Running, Stalled, Unclear
from dayfly.spec.run import OutputRecord, Result
from embedded.alone import KEY, UNIT, is_nobody, kill, nobody, sleeper, sleeping, told, watched
from embedded.machine import until

__all__ = ["told"]


class TestEnding:
    async def ended(self, told, **record):
        """Its process has ended; it was our own child if there is one."""
        told.attempts.busy.add(KEY)
        child = record.pop("child", 0)
        told.attempts._watch(KEY, watched(told, child=child, **record))
        await until(lambda: told.fact() is not None)

    async def test_its_descriptor_is_closed(self, told):
        told.folder.tell(observe=receipt.lost("it is so"))
        process = await sleeper()
        descriptor = os.pidfd_open(process.pid)
        told.attempts._watch(KEY, watched(told, pidfd=descriptor))
        process.kill()
        await until(lambda: told.fact() is not None)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
        await process.wait()

    async def test_one_that_another_server_began_was_running_whatever_its_folder_says_now(self, told):
        """That it never began could be said only of a child of ours."""
        told.folder.tell(observe=Stalled(since=1), exists=True, fence=True)
        process = await sleeper()
        told.attempts._watch(KEY, watched(told, pidfd=os.pidfd_open(process.pid)))
        process.kill()
        await until(lambda: told.fact() is not None)
        assert told.fact() == receipt.lost("its folder was removed while it may have been running")
        assert "fence" not in told.folder.calls
        await process.wait()

    async def test_what_cannot_be_looked_at_is_looked_at_again(self, told):
        told.folder.tell(observe=[OSError("no"), receipt.lost("it is so")])
        await self.ended(told)
        assert told.fact() == receipt.lost("it is so")
        assert KEY not in told.attempts.busy

    async def test_of_one_that_was_seen_running_and_is_not_there_nothing_is_certain(self, told):
        told.folder.tell(
            observe=Stalled(since=1), removed=Unclear(since=1, reason="FolderLost", message="m", dead_by=9)
        )
        await self.ended(told)
        assert told.fact() == Unclear(since=1, reason="FolderLost", message="m", dead_by=9)

    @pytest.mark.parametrize(
        ("answers", "fact"),
        [
            ({"exists": True, "fence": True, "complaint": ""}, NeverRan),
            ({"exists": True, "fence": False}, Ended),
            ({"exists": False, "fence": True}, Ended),
            ({"exists": True, "fence": OSError("full")}, Stalled),
        ],
        ids=["before it began", "after", "nothing is left", "the disk refuses"],
    )
    async def test_a_child_of_ours_that_left_no_marker(self, told, answers, fact):
        told.folder.tell(observe=Stalled(since=1), **answers)
        child = nobody()
        await self.ended(told, child=child)
        assert isinstance(told.fact(), fact)

    @pytest.mark.parametrize(("complaint", "said"), [("no memory", ": no memory"), ("", " before it started the step")])
    async def test_why_a_child_of_ours_left_no_marker_is_said(self, told, complaint, said):
        told.folder.tell(observe=Stalled(since=1), exists=True, fence=True, complaint=complaint)
        await self.ended(told, child=nobody())
        assert told.fact().message == f"{told.starter.name} ended{said}"

    async def test_its_outputs_are_read_with_its_end(self, told):
        output = OutputRecord(digest="sha256:0", size=1)
        end = Ended(result=Result(outcome="succeeded", outputs={"url": output}))
        told.folder.tell(observe=end, value=b"u")
        await self.ended(told)
        assert told.attempts.values[KEY] == {"url": b"u"}
        told.folder.tell(release=True, leave_beginning=True)
        told.attempts.release(KEY)
        assert told.attempts.values == {}
        assert told.fact() is None

    @pytest.mark.parametrize(
        ("fault", "scarce"),
        [(OSError(errno.EMFILE, "no"), True), (OSError(errno.ENOENT, "no"), False), (ValueError("differ"), False)],
    )
    async def test_outputs_that_cannot_be_read_are_lost_and_not_for_want_of_descriptors(self, told, fault, scarce):
        output = OutputRecord(digest="sha256:0", size=1)
        end = Ended(result=Result(outcome="succeeded", outputs={"url": output}, started_at=3, ended_at=4))
        told.folder.tell(observe=end, value=[fault, b"u"])
        await self.ended(told)
        fact = told.fact()
        if scarce:
            assert fact.result.outcome == "succeeded"
        else:
            assert (fact.result.outcome, fact.result.started_at, fact.result.ended_at) == ("failed", 3, 4)


class TestSealing:
    """The receipt comes before its runner's end, and the runner says so."""

    async def sealed(self, told):
        """A child that has sealed its receipt and lives on."""
        child = told.starter.child = sleeping()
        told.folder.tell(observe=receipt.lost("it is so"), release=True, leave_beginning=True)
        await told.attempts.launch(KEY, UNIT, told.record, b"order")
        assert isinstance(told.fact(), Running)
        told.starter.sealed(child)
        return child

    async def test_nobody_waits_for_its_end(self, told):
        child = await self.sealed(told)
        assert told.fact() == receipt.lost("it is so")
        assert KEY not in told.attempts.busy
        told.starter.sealed(child)
        assert told.folder.calls.count("observe") == 1, "once"
        assert told.attempts._ends._calls == {}, "its end would be heard of again and again"
        os.kill(child, signal.SIGKILL)

    async def test_what_it_left_is_removed_when_it_is_reaped(self, told):
        child = await self.sealed(told)
        told.attempts.release(KEY)
        assert "release" not in told.folder.calls
        os.kill(child, signal.SIGKILL)
        await until(lambda: "leave_beginning" in told.folder.calls)
        assert is_nobody(child)

    async def test_one_that_has_ended_meanwhile_is_reaped_as_its_folder_goes(self, told):
        child = await self.sealed(told)
        kill(child)
        told.attempts.release(KEY)
        assert told.folder.calls[-1] == "leave_beginning"
        assert is_nobody(child)

    async def test_a_server_that_ends_waits_for_the_last_folder(self, told, monkeypatch):
        monkeypatch.setattr(sweeping, "LAST_S", 3600)
        child = await self.sealed(told)
        told.attempts.release(KEY)
        ended = asyncio.ensure_future(told.attempts.cleared())
        await asyncio.sleep(0)
        assert not ended.done()
        os.kill(child, signal.SIGKILL)
        await asyncio.wait_for(ended, 10)
        assert told.folder.calls[-1] == "leave_beginning"

    async def test_a_server_that_ends_lets_go_of_those_that_have_sealed(self, told):
        child = await self.sealed(told)
        [(_, descriptor)] = told.attempts._leaving._left.values()
        kill(child)
        told.attempts.close()
        assert is_nobody(child)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)

    async def test_it_does_not_wait_for_one_that_was_stopped(self, told, monkeypatch):
        monkeypatch.setattr(sweeping, "LAST_S", 0.01)
        child = await self.sealed(told)
        os.kill(child, signal.SIGSTOP)
        told.attempts.release(KEY)
        await asyncio.wait_for(told.attempts.cleared(), 10)
        assert "release" not in told.folder.calls, "the next server removes it"
        os.kill(child, signal.SIGKILL)

    async def test_another_process_says_nothing(self, told):
        told.folder.tell(observe=Running(since=5))
        told.attempts.adopt(KEY, UNIT, told.record)
        told.starter.sealed(0)
        told.starter.sealed(os.getpid())
        assert told.fact() == Running(since=5)
