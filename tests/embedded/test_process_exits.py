"""Ends of runners, children to be reaped, and folders to be removed."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.embedded.attempts_bench import ended, exiting, sleeper
from tests.embedded.machine import until

from dayfly.embedded import process_exits


def test_child_reaped_elsewhere_counts_as_ended():
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    assert not process_exits.reap(child)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert process_exits.reap(child)


def test_ended_child_is_reaped():
    child = exiting()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert process_exits.reap(child)
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)


async def test_end_is_reported_until_it_is_forgotten():
    ends, heard = process_exits.ProcessExits(), []
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


async def test_end_handler_may_forget_another_process():
    """Both have ended at the first notification, and the callback of the first handles the second."""
    ends, heard = process_exits.ProcessExits(), []
    both = [ended() for _ in range(2)]
    pidfds = [os.pidfd_open(child) for child in both]
    for pidfd in pidfds:
        ends.watch(pidfd, lambda: (heard.append(1), [ends.forget(each) for each in pidfds]))
    await until(lambda: heard)
    await asyncio.sleep(0)
    assert heard == [1]
    ends.close()
    for child, pidfd in zip(both, pidfds, strict=True):
        assert process_exits.reap(child)
        os.close(pidfd)
