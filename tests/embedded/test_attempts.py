"""What is begun on this machine, and what is only looked at: without a host around it, and without a runner."""

from __future__ import annotations

import asyncio
import errno
import os
import signal

import msgspec
import pytest

from dayfly.embedded import attempts, leaving
from dayfly.embedded.attempts import Attempts, Key, Watched
from dayfly.execute import receipt
from dayfly.execute.process.place import Place
from dayfly.plan.world import Ended, NeverRan, Running, Stalled, Unclear
from dayfly.spec.lifecycle import Exec, Unit
from dayfly.spec.run import OutputRecord, Result, State, UnitRecord
from embedded.machine import until

UNIT = Unit(name="a", kind="exec", exec=Exec(script="#!/bin/sh\n"))
KEY = Key("run", "db/a", 1)


class Starter:
    """Starts nothing, and notes what it was to start."""

    slow, apart, name = False, False, "the runner"

    def __init__(self) -> None:
        self.started: list[str] = []
        self.cleared: list[str] = []
        self.fault: OSError | None = None
        self.child = 0

    def tell(self, sealed):
        self.sealed = sealed

    def clear(self, folder):
        self.cleared.append(folder.path)

    async def start(self, folder, _unit):
        self.started.append(folder.path)
        if self.fault:
            raise self.fault
        return self.child

    def close(self):
        """Nothing is open."""


class Bench:
    """Attempts over an empty place, and whose news was told."""

    def __init__(self, tmp_path) -> None:
        self.place = Place(str(tmp_path / "work"), str(tmp_path), "boot", "boot here", str(tmp_path))
        (tmp_path / "work").mkdir(mode=0o700)
        self.starter = Starter()
        self.attempts = Attempts(self.place, self.starter)
        self.news: list[str] = []
        self.attempts.news = self.news.append
        self.record = UnitRecord(state=State.CLAIMED, attempt=1, ref=self.place.ref, claimed_at=1)

    def fact(self):
        return self.attempts.facts(KEY.run).get((KEY.unit, KEY.attempt))


@pytest.fixture
async def bench(tmp_path):
    found = Bench(tmp_path)
    yield found
    found.attempts.close()


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


class Folder:
    """What `run.Folder` would tell of an attempt, as a test has it."""

    path = "/nowhere"
    begins = "/nowhere/begins"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.tells: dict[str, list[object]] = {}

    def tell(self, **answers: object) -> None:
        """What is answered from now on; of a list one after the other, the last for ever. Errors are raised."""
        self.tells |= {name: answer if isinstance(answer, list) else [answer] for name, answer in answers.items()}

    def _answer(self, name: str):
        self.calls.append(name)
        answers = self.tells.get(name, [None])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __getattr__(self, name: str):
        return lambda *_args, **_more: self._answer(name)


class Told(Attempts):
    """Attempts over such a folder."""

    folder: Folder

    def at(self, _key):
        return self.folder


class Beginnings:
    """What becomes of the folder in which a step began."""

    def __init__(self) -> None:
        self.again: list[bool] = []

    def leave(self, folder, *, again):
        self.again.append(again)
        return folder.leave_beginning()

    def close(self):
        """Nothing is open."""


KEPT = {"generation": "g"}


@pytest.fixture
async def told(tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "LOOK_AGAIN_S", 0.001)
    monkeypatch.setattr(attempts, "REFUSED_AGAIN_S", 0.001)
    monkeypatch.setattr(attempts, "clear", lambda folder: folder.clear_beginning())
    found = Bench(tmp_path)
    found.attempts = Told(found.place, found.starter)
    found.attempts.folder = found.folder = Folder()
    found.attempts._beginnings = Beginnings()
    found.attempts.news = found.news.append
    yield found
    found.attempts.close()


def watched(bench, child=0, pidfd=None, **record):
    return Watched(UNIT, msgspec.structs.replace(bench.record, **record), child, pidfd)


def nobody() -> int:
    """A child of ours that has nothing to do."""
    return os.posix_spawn("/bin/true", ["true"], {})


def sleeping() -> int:
    """A child of ours that lives."""
    return os.posix_spawn("/bin/sleep", ["sleep", "60"], {})


def kill(child: int) -> None:
    """End it, for us to reap."""
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def is_nobody(child: int) -> bool:
    """Whether it has ended and was waited for."""
    try:
        os.waitpid(child, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


async def sleeper():
    """A process of ours, to be ended."""
    return await asyncio.create_subprocess_exec("sleep", "60")


async def test_what_is_closed_watches_nothing_any_more(told):
    process = await sleeper()
    told.folder.tell(observe=Running(since=5), watch=os.pidfd_open(process.pid))
    told.attempts.adopt(KEY, UNIT, msgspec.structs.replace(told.record, **KEPT))
    for _ in range(2):
        told.attempts.close()
        assert told.attempts.running_forks() == []
    assert process.returncode is None, "it goes on"
    process.kill()
    await process.wait()


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
        told.attempts._unseen.add(KEY)
        told.attempts.tell(KEY, NeverRan(reason="Void"))
        told.attempts.release(KEY)
        assert (told.fact(), told.attempts._cancelled, told.attempts._unseen) == (None, set(), set())
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
        assert told.attempts._beginnings.again == [again]

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
        monkeypatch.setattr(leaving, "LAST_S", 3600)
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
        monkeypatch.setattr(leaving, "LAST_S", 0.01)
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


def test_a_child_that_somebody_else_has_waited_for_is_over():
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    assert not leaving.reaped(child)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert leaving.reaped(child)


def test_a_child_that_has_ended_is_waited_for():
    child = nobody()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert leaving.reaped(child)
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)


async def test_who_waits_for_folders_to_go_goes_on_with_the_last(monkeypatch):
    monkeypatch.setattr(leaving, "LAST_S", 3600)
    sweeping = leaving.Sweeping()
    for key in "abc":
        sweeping.add(key)
    waiting = asyncio.create_task(sweeping.done(besides={"c"}))
    for key in "ab":
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        sweeping.discard(key)
    await asyncio.wait_for(waiting, 10)


async def test_an_end_is_heard_of_until_it_is_forgotten():
    ends, heard = leaving.Ends(), []
    lives, ended = await sleeper(), await sleeper()
    pidfds = {"lives": os.pidfd_open(lives.pid), "ended": os.pidfd_open(ended.pid)}
    for name, pidfd in pidfds.items():
        ends.watch(pidfd, lambda name=name: heard.append(name))
    ended.kill()
    await until(lambda: len(heard) > 1)
    ends.watch(pidfds["ended"], lambda: heard.append("again"))
    await until(lambda: "again" in heard)
    ends.forget(pidfds["ended"])
    heard.clear()
    lives.kill()
    await until(lambda: heard)
    assert set(heard) == {"lives"}
    ends.close()
    for process, pidfd in ((lives, pidfds["lives"]), (ended, pidfds["ended"])):
        await process.wait()
        os.close(pidfd)


def ended() -> int:
    """A child of ours that has ended and is not reaped."""
    child = nobody()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child


async def test_who_hears_of_an_end_may_forget_another_one():
    """Both have ended when the first is heard of, and the second is somebody else's business by then."""
    ends, heard = leaving.Ends(), []
    both = [ended() for _ in range(2)]
    pidfds = [os.pidfd_open(child) for child in both]
    for pidfd in pidfds:
        ends.watch(pidfd, lambda: (heard.append(1), [ends.forget(each) for each in pidfds]))
    await until(lambda: heard)
    await asyncio.sleep(0)
    assert heard == [1]
    ends.close()
    for child, pidfd in zip(both, pidfds, strict=True):
        assert leaving.reaped(child)
        os.close(pidfd)
