"""At the end of a step all its processes are gone, and the receipt has the cause."""

import contextlib
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.runner.attempts import patience, processes_with, wait_until
from tests.runner.scripts import BOMB, DAEMON, RESTLESS, STUBBORN
from tests.selection import in_time


def test_script_ignoring_sigterm_is_killed_after_its_grace(attempt, isolation, mark):
    for run_ms in patience(400):
        one = attempt()
        begin = time.monotonic()
        receipt = one.run(STUBBORN, isolation=isolation, env=f"MARK={mark}", run_ms=run_ms, grace_ms=300)
        took = time.monotonic() - begin - run_ms / 1000
        if "ready" in one.log:
            break
    assert (receipt.outcome, receipt.code) == ("deadline", 9)
    assert f"{run_ms} ms" in receipt.detail
    assert took >= 0.3
    assert in_time(took, 5)
    assert processes_with(mark) == []


def test_without_grace_the_end_is_at_once(attempt, isolation, mark):
    receipt = attempt().run(STUBBORN, isolation=isolation, env=f"MARK={mark}", run_ms=300, grace_ms=0)
    assert receipt.outcome == "deadline"
    assert processes_with(mark) == []


def test_a_polite_script_may_say_good_bye(attempt, isolation):
    script = "#!/bin/sh\ntrap 'echo bye; exit 5' TERM\necho ready\nsleep 60 & wait\n"
    for run_ms in patience(200):
        one = attempt()
        receipt = one.run(script, isolation=isolation, run_ms=run_ms, grace_ms=5000)
        if "ready" in one.log:
            break
    assert (receipt.outcome, receipt.code, one.log) == ("deadline", 5, "ready\nbye\n")


def test_endless_writer_on_the_log_does_not_delay_the_end(attempt, isolation, mark):
    one = attempt()
    slow = [f"y{number}" * 20 for number in range(99)]  # so it reads what is printed slower than that comes
    script = "#!/bin/sh\necho ready\nexec sleep 60\n"
    launcher = one.write(script, isolation=isolation, env=f"MARK={mark}", mask=slow).start()
    one.wait_for_log("ready")
    [step] = processes_with(mark)
    log = os.open(f"/proc/{step}/fd/1", os.O_WRONLY)
    try:
        writers = [subprocess.Popen(["yes"], stdout=log) for _ in range(4)]
    finally:
        os.close(log)
    os.kill(step, signal.SIGKILL)
    assert launcher.wait(30) == 0
    assert (one.receipt().outcome, one.receipt().code) == ("signaled", 9)
    assert [-each.wait(30) for each in writers] == [signal.SIGPIPE] * 4, "there is no reader left"


def test_a_signal_to_the_launcher_cancels_the_step(attempt, isolation, mark):
    one = attempt().write(STUBBORN, isolation=isolation, env=f"MARK={mark}", grace_ms=100)
    launcher = one.start()
    one.wait_for_log("ready")
    launcher.terminate()
    assert launcher.wait(10) == 0
    assert (one.receipt().outcome, one.receipt().code) == ("cancelled", 9)
    assert processes_with(mark) == []


def test_a_daemon_ends_with_the_script_that_left_it(attempt, isolation, mark):
    begin = time.monotonic()
    receipt = attempt().run(DAEMON, isolation=isolation, env=f"MARK={mark}")
    assert (receipt.outcome, receipt.code) == ("exited", 0)
    assert in_time(time.monotonic() - begin, 5)
    assert processes_with(mark) == []


def test_log_names_processes_that_a_program_left_running(attempt, isolation):
    one = attempt()
    script = "#!/bin/sh\nsleep 300 &\nsetsid sleep 301 &\nprintf 'no end of line'\n"
    assert one.run(script, isolation=isolation).outcome == "exited"
    first, last, *rest = one.log.splitlines()
    assert (first, rest) == ("no end of line", [])
    left = re.fullmatch(r"\[dayfly: the step's program has ended, and processes that it left were ended: (.*)\]", last)
    assert left is not None
    assert re.fullmatch(r"\w+ \(\d+\), \w+ \(\d+\)", left[1])


@pytest.mark.parametrize("script", ["sleep 0.01 & wait", "true", "trap '' TERM; sleep 300"])
def test_log_has_no_such_line_without_processes_left(attempt, isolation, script):
    one = attempt()
    one.run(f"#!/bin/sh\n{script}\n", isolation=isolation, run_ms=500, grace_ms=50)
    assert "dayfly:" not in one.log


def test_restless_processes_are_caught(attempt, isolation, mark):
    receipt = attempt().run(RESTLESS, isolation=isolation, env=f"MARK={mark}", run_ms=500, grace_ms=50)
    assert receipt.outcome == "deadline"
    assert processes_with(mark) == []


@pytest.mark.root
@pytest.mark.parametrize("wanted", ["none", "user"])
def test_a_fork_bomb_under_a_process_limit_is_gone_at_the_end(attempt, wanted, mark):
    one = attempt(user="nobody")
    one.prefix = ["prlimit", "--nproc=150", "--"]
    receipt = one.run(BOMB, isolation=wanted, env=f"MARK={mark}", run_ms=700, grace_ms=100, log_limit=1000)
    assert receipt.outcome == "deadline"
    assert processes_with(mark) == []


def test_killing_its_own_init_does_not_free_a_step(attempt, mark):
    """Without a PID namespace the script can reach the process that acts as its init."""
    one = attempt()
    script = DAEMON.replace("os.wait()", "os.wait(); os.kill(os.getppid(), 9); time.sleep(300)")
    receipt = one.run(script, isolation="none", env=f"MARK={mark}")
    assert receipt.outcome == "lost"
    assert processes_with(mark) == []


def test_killed_launcher_ends_its_step_before_unlocking(attempt, isolation, mark):
    one = attempt().write(STUBBORN, isolation=isolation, env=f"MARK={mark}")
    launcher = one.start()
    one.wait_for_log("ready")
    launcher.kill()
    launcher.wait(10)
    wait_until(one.is_free)
    assert one.run().outcome == "lost"
    assert processes_with(mark) == []


@pytest.mark.root
def test_a_killed_step_is_not_over_before_it_is_dead(attempt, place, mark):
    """The daemon has closed the lock's descriptor, and its only processor is busy, so it cannot die at once."""
    processor = str(min(os.sched_getaffinity(0)))
    one = attempt().write(STUBBORN, isolation="root", env=f"MARK={mark}")
    launcher = one.start()
    one.wait_for_log("ready")
    wait_until(lambda: len(_without_descriptors(mark)) == 3)
    for pid in _without_descriptors(mark):
        subprocess.run(["taskset", "--pid", "--cpu-list", processor, str(pid)], check=True, capture_output=True)
        subprocess.run(["chrt", "--idle", "--pid", "0", str(pid)], check=True)
    busy = place / "busy"
    hog = f"import time; open({str(busy)!r}, 'x'); end = time.monotonic() + 0.7\nwhile time.monotonic() < end: pass"
    first = ["taskset", "--cpu-list", processor, "chrt", "--fifo", "1"]
    with subprocess.Popen([*first, sys.executable, "-c", hog]):
        wait_until(busy.exists)
        launcher.kill()
        launcher.wait(10)
        wait_until(one.is_free)
        assert one.run().outcome == "lost"
        assert processes_with(mark) == []


def _without_descriptors(mark):
    found = []
    for pid in processes_with(mark):
        with contextlib.suppress(FileNotFoundError):
            if not any(Path(f"/proc/{pid}/fd").iterdir()):
                found.append(pid)
    return found


def test_launcher_killed_at_any_instant_runs_nothing_twice(attempt, isolation, mark, place):
    chance = random.Random(7)
    seen = set()
    pause = 0.006  # as long as it takes to the start, on this machine and now: earlier after a start, later after none
    for number in itertools.count():
        if number >= 40 and seen == {True, False}:
            break
        one = attempt()
        inputs = f"{place}/inputs-{number}/file\0x"
        where = {"private": str(place)} if isolation != "none" else {}
        script = f"#!/bin/sh\nmkdir {one.dir}/effect || mkdir {one.dir}/second; sleep 0.01; exec sleep 100\n"
        one.write(script, isolation=isolation, env=f"MARK={mark}", file=inputs, grace_ms=0, **where)
        launcher = one.start()
        time.sleep(chance.random() * 2 * pause)
        launcher.kill()
        launcher.wait(10)
        wait_until(one.is_free)
        effect = one.dir / "effect"
        started = (one.dir / "marker").exists()
        assert started or not effect.exists()
        # A second launcher retries the attempt: it may begin only if the first never did.
        second = one.start()
        if started:
            assert second.wait(10) == 0
            assert one.receipt().outcome == "lost"
            assert processes_with(mark) == []
        else:
            wait_until(effect.exists)
            second.terminate()
            assert second.wait(10) == 0
            assert one.receipt().outcome == "cancelled"
        assert not (one.dir / "second").exists()
        assert not (place / f"inputs-{number}").exists()
        seen.add(started)
        pause *= 0.8 if started else 1.25


CANCEL_AND_EXEC = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_cancelled_before_its_start_is_void(attempt, isolation):
    """A signal that is pending since before the exec is received at the gate."""
    one = attempt().write("#!/bin/sh\necho ran\n", isolation=isolation)
    one.prefix = [sys.executable, "-c", CANCEL_AND_EXEC]
    assert one.start().wait(10) == 0
    assert (one.receipt().outcome, one.marker) == ("void", ["void", ""])
    assert not (one.dir / "log").exists(), "it said nothing"
    assert "cancelled" in one.receipt().detail


def test_launcher_outlives_the_process_that_started_it(attempt, isolation):
    """The launcher has a separate session, so it survives the end of the server."""
    one = attempt().write("#!/bin/sh\nsleep 0.3; echo done\n", isolation=isolation)
    server = os.fork()
    if server == 0:
        os.setpgid(0, 0)
        one.start()
        os._exit(0)
    os.waitpid(server, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server, signal.SIGKILL)
    wait_until(lambda: one.has_receipt)
    assert (one.receipt().outcome, one.log) == ("exited", "done\n")
