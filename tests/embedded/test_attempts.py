"""What is begun on this machine, and what is only looked at: without a host around it, and without a runner."""

from __future__ import annotations

import asyncio
import errno
import os
import signal

import msgspec
import pytest

from dayfly.embedded import sweeping
from dayfly.embedded.attempts import Key
from dayfly.embedded.leaving import reaped
from dayfly.execute import receipt
from dayfly.execute.process.resident import UnansweredError
from dayfly.plan.world import NeverRan, Running, Stalled
from embedded.alone import KEPT, KEY, UNIT, bench, kill, sleeper, sleeping, told, watched
from embedded.machine import until

__all__ = ["bench", "told"]


async def test_an_attempt_with_an_order_is_looked_at_and_not_started(bench):
    """The ledger claims each attempt once: this is an older ledger on newer folders, and it may be at work."""
    bench.attempts.at(KEY).write_order(b"of before")
    bench.attempts.busy.add(KEY)
    await bench.attempts.launch(KEY, UNIT, bench.record, b"order")
    assert bench.starter.started == []
    assert isinstance(bench.fact(), Stalled)
    assert bench.news == [KEY.run]
    assert KEY in bench.attempts.busy, "it may begin until it is fenced"


async def test_what_cannot_be_started_never_ran(bench):
    bench.starter.fault = OSError("no such thing")
    bench.attempts.busy.add(KEY)
    await bench.attempts.launch(KEY, UNIT, bench.record, b"order")
    fact = bench.fact()
    assert isinstance(fact, NeverRan)
    assert "no such thing" in fact.message
    assert KEY not in bench.attempts.busy


async def test_what_was_started_is_no_news_to_the_turn_that_did(bench):
    await bench.attempts.launch(KEY, UNIT, bench.record, b"order")
    assert len(bench.starter.started) == 1
    assert isinstance(bench.fact(), Running)
    assert bench.news == []
    assert KEY in bench.attempts.busy


@pytest.mark.parametrize("slow", [False, True])
async def test_a_fork_waits_for_no_container(bench, slow):
    """It is a process of this machine, whatever steps are."""
    bench.starter.slow = slow
    await bench.attempts.launch(KEY, UNIT, msgspec.structs.replace(bench.record, **KEPT), b"order")
    fact = bench.fact()
    assert isinstance(fact, Running)
    assert not fact.ready, "nobody has asked it"


async def test_what_is_closed_watches_nothing_any_more(told):
    process = await sleeper()
    descriptor = os.pidfd_open(process.pid)
    told.folder.tell(observe=Running(since=5), watch=descriptor)
    told.attempts.adopt(KEY, UNIT, msgspec.structs.replace(told.record, **KEPT))
    told.attempts.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    told.attempts.close()
    assert told.attempts.running_forks() == []
    assert process.returncode is None, "it goes on"
    process.kill()
    await process.wait()


async def test_what_is_closed_leaves_nothing_open_and_nothing_in_waiting(bench, tmp_path):
    process, spare = await sleeper(), tmp_path / "spare"
    descriptor = os.pidfd_open(process.pid)
    bench.attempts._leaving.add(KEY, process.pid, descriptor)
    spare.mkdir()
    bench.attempts._sweeper.beginnings._spare.append(str(spare))
    bench.attempts.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert (spare.exists(), bench.attempts._ends._poll.closed) == (False, True)
    process.kill()
    await process.wait()


async def test_a_receipt_that_is_told_of_when_all_is_closed_is_nobodys(bench):
    bench.starter.child = sleeping()
    await bench.attempts.launch(KEY, UNIT, bench.record, b"order")
    bench.attempts.close()
    bench.starter.sealed(bench.starter.child)
    assert bench.news == []
    kill(bench.starter.child)
    assert reaped(bench.starter.child)


class TestAdopting:
    @pytest.mark.parametrize(("record", "ready", "busy"), [({}, True, True), (KEPT, False, False)])
    async def test_one_that_runs_is_watched(self, told, record, ready, busy):
        """A fork takes no place, and answers no earlier than somebody has asked it."""
        told.folder.tell(observe=Running(since=5))
        told.attempts.adopt(KEY, UNIT, msgspec.structs.replace(told.record, **record))
        assert told.fact() == Running(since=5, ready=ready)
        assert (KEY in told.attempts.busy) is busy
        assert told.attempts.running_forks() == ([] if busy else [KEY])
        assert told.news == [KEY.run]

    @pytest.mark.parametrize(("seen", "busy"), [(Stalled(since=1), True), (NeverRan(reason="Void"), False)])
    async def test_only_what_may_begin_keeps_its_place(self, told, seen, busy):
        told.folder.tell(observe=seen)
        told.attempts.busy.add(KEY)
        told.attempts.adopt(KEY, UNIT, told.record)
        assert told.fact() == seen
        assert (KEY in told.attempts.busy) is busy

    async def test_nobody_waits_for_forks_that_are_not(self, told):
        told.folder.tell(observe=[Running(since=5), receipt.lost("gone")])
        told.attempts.adopt(KEY, UNIT, told.record)
        await told.attempts.no_forks()
        other = Key("run", "fork:a/b", 1)
        told.folder.tell(observe=[Running(since=5), receipt.lost("gone")])
        told.attempts.adopt(other, UNIT, msgspec.structs.replace(told.record, **KEPT))
        assert told.attempts.running_forks() == [other]
        await asyncio.wait_for(told.attempts.no_forks(), 10)
        assert told.attempts.running_forks() == []


class TestFencing:
    async def test_what_the_disk_refuses_is_asked_again(self, told):
        told.folder.tell(fence=OSError("full"))
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert told.fact() is None
        await until(lambda: told.news == [KEY.run])

    async def test_one_that_has_begun_is_adopted_unless_it_is_watched(self, told):
        told.folder.tell(fence=False, observe=Running(since=5))
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert told.fact() == Running(since=5)
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert told.folder.calls.count("observe") == 1

    async def test_one_that_cannot_begin_any_more_gives_its_place_back(self, told):
        told.folder.tell(fence=True)
        told.attempts.busy.add(KEY)
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert told.fact() == NeverRan(reason="r", message="m")
        assert KEY not in told.attempts.busy

    async def test_whoever_was_to_begin_it_is_ended(self, told):
        told.folder.tell(fence=True)
        process = await sleeper()
        told.attempts._watched[KEY] = watched(told, pidfd=os.pidfd_open(process.pid))
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert await process.wait() == -signal.SIGKILL

    async def test_of_one_without_a_descriptor_nobody_is_ended(self, told):
        told.folder.tell(fence=True)
        told.attempts._watched[KEY] = watched(told)
        told.attempts.fence(KEY, UNIT, told.record, "r", "m")
        assert isinstance(told.fact(), NeverRan)


class TestCancelling:
    async def test_it_is_asked_to_end_once(self, told):
        process = await sleeper()
        told.attempts._watched[KEY] = watched(told, pidfd=os.pidfd_open(process.pid))
        told.attempts.cancel(KEY)
        assert await process.wait() == -signal.SIGTERM
        told.attempts.cancel(KEY)
        assert told.folder.calls == []

    async def test_of_one_without_a_descriptor_the_holders_of_its_lock_are_ended(self, told):
        told.attempts._watched[KEY] = watched(told)
        told.attempts.cancel(KEY)
        told.attempts.cancel(KEY)
        assert told.folder.calls == ["kill_holders"]
        told.attempts.cancel(Key("run", "b", 1))
        assert told.folder.calls == ["kill_holders"], "that one is not known"

    async def test_whose_holders_could_not_be_looked_for_they_are_looked_for_again(self, told):
        """The server has too many files open for a moment, as when it could have no descriptor of the runner."""
        told.attempts._watched[KEY] = watched(told)
        told.folder.tell(kill_holders=[OSError(errno.EMFILE, "too many"), None])
        with pytest.raises(OSError, match="too many"):
            told.attempts.cancel(KEY)
        told.attempts.cancel(KEY)
        told.attempts.cancel(KEY)
        assert told.folder.calls == ["kill_holders"] * 2

    @pytest.mark.parametrize("record", [{}, KEPT])
    async def test_in_a_container_it_is_the_runner_that_is_asked_and_a_fork_has_none(self, told, record):
        """The child that we have is the engine's."""
        told.starter.slow = True
        engine, runner = await sleeper(), await sleeper()
        of_runner, of_engine = os.pidfd_open(runner.pid), os.pidfd_open(engine.pid)
        told.folder.tell(watch=of_runner)
        told.attempts._watched[KEY] = watched(told, pidfd=of_engine, **record)
        told.attempts.cancel(KEY)
        os.fstat(of_engine)  # it is watched still
        if not record:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(of_runner)
        asked, other = (engine, runner) if record else (runner, engine)
        assert await asked.wait() == -signal.SIGTERM
        assert other.returncode is None
        other.kill()
        await other.wait()


class TestReleasing:
    async def test_nothing_of_it_is_kept(self, told):
        told.folder.tell(release=True, leave_beginning=True)
        told.attempts._watched[KEY] = watched(told)
        told.attempts.cancel(KEY)
        told.attempts._sweeper.unseen.add(KEY)
        told.attempts.tell(KEY, NeverRan(reason="Void"))
        told.attempts.release(KEY)
        assert (told.fact(), told.attempts._cancelled, told.attempts._sweeper.unseen) == (None, set(), set())
        told.attempts.drop(KEY.run)
        assert told.attempts._facts == {}

    async def test_what_cannot_be_removed_is_removed_later(self, told):
        told.folder.tell(release=[OSError("busy"), False, True], leave_beginning=True)
        told.attempts.release(KEY)
        await until(lambda: "leave_beginning" in told.folder.calls)
        assert told.folder.calls == ["release"] * 3 + ["leave_beginning"]

    async def test_what_a_step_left_where_it_began_is_cleared(self, told):
        told.folder.tell(release=True, leave_beginning=False)
        told.attempts.release(KEY)
        await until(lambda: "clear_beginning" in told.folder.calls)

    @pytest.mark.parametrize(
        ("apart", "slow", "again"), [(True, False, True), (False, False, False), (True, True, False)]
    )
    async def test_where_it_began_is_another_ones_only_if_nothing_of_it_can_live(self, told, apart, slow, again):
        """A PID namespace of the runner's own makes sure of that, and a container's engine is none of ours."""
        told.folder.tell(release=True, leave_beginning=True)
        told.starter.apart, told.starter.slow = apart, slow
        told.attempts.release(KEY)
        assert told.attempts._sweeper.beginnings.again == [again]

    @pytest.mark.parametrize(("slow", "unseen", "cleared"), [(True, True, 1), (True, False, 0), (False, True, 0)])
    async def test_a_container_is_cleared_that_was_not_seen_to_its_end(self, told, slow, unseen, cleared):
        told.folder.tell(release=True, leave_beginning=True)
        told.starter.slow = slow
        (told.attempts.tidy if unseen else told.attempts.release)(KEY)
        await until(lambda: len(told.starter.cleared) == cleared)
        told.attempts.release(KEY)
        await asyncio.sleep(0)
        assert len(told.starter.cleared) == cleared, "once"

    async def test_so_is_one_that_was_found_at_its_end(self, told):
        """What began under another server, and was seen by this one only when it was over."""
        told.folder.tell(observe=receipt.lost("gone"), release=True, leave_beginning=True)
        told.starter.slow = True
        told.attempts.adopt(KEY, UNIT, told.record)
        told.attempts.release(KEY)
        await until(lambda: len(told.starter.cleared) == 1)


async def test_an_attempt_whose_folder_is_being_swept_is_started_once_that_has_gone(bench):
    """A server that was killed held a runner for it, which is about to end."""
    bench.attempts._sweeper._sweeping.add(KEY)
    going = asyncio.create_task(bench.attempts.let_go(KEY, UNIT, bench.record))
    await asyncio.sleep(0.05)
    assert not going.done()
    bench.attempts._sweeper._sweeping.discard(KEY)
    assert await going is False, "it is launched then"
    assert bench.fact() is None


async def test_one_whose_folder_does_not_go_is_looked_at_and_not_started(bench, monkeypatch):
    monkeypatch.setattr(sweeping, "LAST_S", 0.01)
    bench.attempts._sweeper._sweeping.add(KEY)
    assert await bench.attempts.let_go(KEY, UNIT, bench.record)
    assert bench.starter.started == []
    assert isinstance(bench.fact(), Stalled)


async def test_one_whose_runner_was_held_and_does_not_answer_is_looked_at_and_not_started(bench, monkeypatch):
    """Nobody told it to go, and its order lies there: who started another beside it would find that."""

    async def unanswered(_key):
        raise UnansweredError

    monkeypatch.setattr(bench.attempts._holding, "has", lambda _key: True)
    monkeypatch.setattr(bench.attempts._holding, "let_go", unanswered)
    assert await bench.attempts.let_go(KEY, UNIT, bench.record)
    assert (bench.starter.started, bench.news) == ([], [KEY.run])
    assert isinstance(bench.fact(), Stalled)
