"""The resident runner's life: nothing is left of it, and nobody waits for its answer for ever."""

import asyncio
import errno
import os
import signal
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest

from dayfly.execute.process.resident import Resident, UnansweredError
from embedded.machine import until


@pytest.fixture
def mute(tmp_path):
    """A runner that never answers."""
    path = tmp_path / "runner"
    path.write_text("#!/bin/sh\nexec cat\n")
    path.chmod(0o700)
    return Resident(str(path), {"PATH": "/usr/bin:/bin"})


@pytest.fixture
def child():
    """A process of ours that waits."""
    return os.posix_spawn("/bin/sleep", ["sleep", "60"], {})


def reap(process, how=0):
    """What is said of its end."""
    return os.waitpid(process, how)


def lives(process):
    """Whether it is there, dead or alive."""
    return Path(f"/proc/{process}").exists()


def leads_to(process, number):
    """Where what it writes there goes."""
    return str(Path(f"/proc/{process}/fd/{number}").readlink())


async def asked(resident, count=1):
    """Questions that have been sent."""
    questions = [asyncio.ensure_future(resident.fork(f"/folder/{number}", "none")) for number in range(count)]
    await asyncio.sleep(0)
    return questions


async def test_once_it_is_closed_it_is_gone_and_all_who_wait_are_told(mute):
    questions = await asked(mute, 2)
    process = mute._child
    assert lives(process)
    questions[0].cancel()
    await asyncio.sleep(0)
    mute.close()
    assert not lives(process), "no dead process is left to be waited for"
    with pytest.raises(UnansweredError):
        await questions[1]
    mute.close()


async def test_what_it_prints_is_nobodys(mute):
    """Not our terminal's either: it and whoever it forks may outlive us."""
    [question] = await asked(mute)
    printed = [leads_to(mute._child, number) for number in (1, 2)]
    mute.close()
    with pytest.raises(UnansweredError):
        await question
    assert printed == [os.devnull, os.devnull]


async def test_no_more_are_asked_for_at_once_than_surely_fit(mute):
    questions = await asked(mute, 66)
    assert len(mute._answers) == 64
    for question in questions:
        question.cancel()
    await asyncio.gather(*questions, return_exceptions=True)
    mute.close()


async def test_it_begins_anew_when_it_is_needed_again(mute):
    for _ in range(2):
        [question] = await asked(mute)
        assert lives(mute._child)
        mute.close()
        with pytest.raises(UnansweredError):
            await question


async def test_one_that_cannot_begin_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        await Resident(str(tmp_path / "none"), {}).fork("/folder", "none")


async def test_of_one_that_ends_as_soon_as_it_has_begun_nobody_wonders_whether_it_has_forked(tmp_path, monkeypatch):
    """It has read nothing, so nothing was begun: whoever asked may be told so, and try it otherwise."""
    resident = Resident("/bin/false", {})
    begin = resident._begin

    def begun(*channels):
        child = begin(*channels)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        return child

    monkeypatch.setattr(resident, "_begin", begun)
    with pytest.raises(OSError, match="/bin/false") as told:
        resident.hold("/folder", "user")
    assert told.value.errno == errno.EPIPE
    with pytest.raises(OSError, match="/bin/false"):
        await resident.fork("/folder", "none")
    assert resident.is_idle()


async def test_one_that_is_stopped_ends_as_well(tmp_path):
    """It has nothing that it could lose, and nobody waits for it to go on."""
    path = tmp_path / "runner"
    path.write_text("#!/bin/sh\nkill -STOP $$\n")
    path.chmod(0o700)
    resident = Resident(str(path), {"PATH": "/usr/bin:/bin"})
    [question] = await asked(resident)
    process = resident._child
    await asyncio.to_thread(os.waitid, os.P_PID, process, os.WSTOPPED | os.WNOWAIT)
    resident.close()
    assert not lives(process)
    with pytest.raises(UnansweredError):
        await question


@pytest.fixture
def scarce(mute, monkeypatch):
    """The kernel has no memory for what is sent last: that one more is to be forked ahead."""
    send = mute._send

    def refuse(packet, *along):
        if packet.startswith(b"ahead"):
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        send(packet, *along)

    monkeypatch.setattr(mute, "_send", refuse)
    return mute


async def test_one_that_was_asked_for_may_come_though_none_can_be_forked_ahead(scarce):
    """Whoever heard that it could not be forked would have its step run once more."""
    question = asyncio.ensure_future(scarce.fork("/folder", "user"))
    await asyncio.sleep(0)
    assert not question.done()
    scarce.close()
    with pytest.raises(UnansweredError):
        await question


async def test_one_that_was_told_to_go_goes_though_none_can_be_forked_ahead(scarce):
    held = scarce.hold("/folder", "user")
    held.go()
    scarce.close()
    with pytest.raises(UnansweredError):
        await held.child


@pytest.mark.parametrize(("age", "due", "after"), [(0.25, 0, 0.75), (0.95, 0, 0.1), (0.25, 1, 0.75), (5.0, 1, 0.1)])
async def test_who_waits_ahead_is_looked_at_again_when_it_is_old(mute, monkeypatch, age, due, after):
    """Not at once: somebody may be asked for another one meanwhile, or an answer be due for long."""
    looks, loop = [], asyncio.get_running_loop()
    mute._asked_at, mute._answers = 100.0 - age, deque([None] * due)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: 100.0)
        patched.setattr(loop, "call_later", lambda seconds, _call: looks.append(seconds))
        mute._grow_old()
    assert looks == [pytest.approx(after)]
    mute._answers.clear()


async def test_its_time_begins_when_it_is_asked_for(mute, monkeypatch):
    looks, loop = [], asyncio.get_running_loop()
    mute._socket, mute._folders = SimpleNamespace(send=len), lambda: ("/tmp",)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_later", lambda seconds, _call: looks.append(seconds))
        for now in (100.0, 100.25):
            patched.setattr(loop, "time", lambda now=now: now)
            mute._answers.clear()
            mute._fork_ahead("root")
        mute._grow_old()
    assert looks[-1] == 1.0, "the newer one's"
    mute._answers.clear()
    mute._socket = None


async def test_whoever_was_let_go_is_looked_after_by_one_clock(mute, child, monkeypatch):
    looks, loop = [], asyncio.get_running_loop()
    mute._dismissed.add(child)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_later", lambda seconds, _call: looks.append(seconds) or len(looks))
        mute._reap()
        mute._reap()
    assert len(looks) == 1
    mute._dismissed.clear()
    mute._reaper = None
    os.kill(child, signal.SIGKILL)
    reap(child)


async def test_who_has_waited_too_long_is_ended_once_it_cannot_become_a_launcher(mute, child):
    """A launcher that is killed has carried out nothing, and its step would have to be begun anew."""
    mute._ahead, mute._asked_at, sent = child, float("-inf"), []
    mute._socket = SimpleNamespace(send=sent.append, recv=lambda _most: bytes(4))
    mute._grow_old()
    mute._reap()
    assert sent == [b"let go"]
    assert reap(child, os.WNOHANG) == (0, 0), "it may become one still"
    assert mute._hear()
    assert (mute._ahead, mute._pause) == (0, 0)
    await until(lambda: not mute._dismissed)
    assert not lives(child)


async def test_who_waits_ahead_is_let_go_a_little_later_if_the_kernel_refuses_to_say_so(mute, child, monkeypatch):
    """It holds a copy of this machine's mounts, and the next step may come in a week."""
    looks, loop = [], asyncio.get_running_loop()
    mute._ahead, mute._asked_at, sent = child, float("-inf"), []
    mute._socket = SimpleNamespace(send=sent.append)

    def refuse(_packet):
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    with monkeypatch.context() as patched:
        patched.setattr(mute, "_send", refuse)
        patched.setattr(loop, "call_later", lambda seconds, _call: looks.append(seconds) or len(looks))
        mute._grow_old()
    assert (looks, list(mute._answers)) == ([pytest.approx(0.1)], [])
    mute._grow_old()
    assert (sent, list(mute._answers)) == ([b"let go"], [None])
    mute._answers.clear()
    mute._socket = mute._timer = None
    mute._ahead = 0
    os.kill(child, signal.SIGKILL)
    reap(child)


async def test_one_that_the_kernel_has_reaped_is_waited_for_no_more(mute, child):
    """As where whoever began us has children's ends ignored."""
    os.kill(child, signal.SIGKILL)
    reap(child)
    mute._dismissed.add(child)
    mute._reap()
    assert mute._dismissed == set()


async def test_that_a_launcher_has_sealed_is_told_and_that_word_may_be_lost(mute):
    [question] = await asked(mute)
    told, ears = [], mute._ears
    mute.sealed = told.append
    mute._ears = SimpleNamespace(recv=lambda _most: (4711).to_bytes(4, sys.byteorder))
    mute._told()

    def lost(_most):
        raise ConnectionResetError

    mute._ears = SimpleNamespace(recv=lost)
    mute._told()
    assert told == [4711]
    mute._ears = ears
    mute.close()
    with pytest.raises(UnansweredError):
        await question


async def test_why_none_could_be_forked_is_told_to_whoever_asked(mute):
    [question] = await asked(mute)
    socket = mute._socket
    mute._socket = SimpleNamespace(recv=lambda _most: (-errno.ENOMEM).to_bytes(4, sys.byteorder, signed=True))
    assert mute._hear()
    mute._socket = socket
    with pytest.raises(OSError, match="Cannot allocate memory") as told:
        await question
    assert (told.value.errno, told.value.filename) == (errno.ENOMEM, mute._runner)
    mute.close()
