"""A launcher that is held at its gate: all is ready, nothing has begun, and it goes only when it is told to."""

import errno
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from runner.asked import Asked, order, stands
from runner.attempts import Attempt, wait_until

UNWANTED = 5


def ended(pid: int, asked: Asked) -> int:
    """Its exit code."""
    asked.waiting.remove(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def go(socket_: socket.socket) -> None:
    with socket_:
        socket_.send(b"go")


def nothing_began(one: Attempt) -> bool:
    said = one.dir / "log"
    return not ((one.dir / "marker").exists() or one.has_receipt or (said.exists() and said.read_text()))


@pytest.mark.parametrize("early", [False, True])
def test_it_begins_when_it_is_told_to_and_not_before(attempt, asked: Asked, early: bool):
    first = asked.ahead() if early else 0
    one = order(attempt, asked, "echo ran")
    pid, told = asked.hold(one)
    assert (pid == first) == early
    asked.waiting[:] = [pid]
    assert stands(pid)
    assert nothing_began(one)
    assert not one.is_free(), "nobody else may run it meanwhile"
    before = int(time.time() * 1000)
    go(told)
    assert ended(pid, asked) == 0
    assert (one.receipt().outcome, one.log) == ("exited", "ran\n")
    assert int(one.receipt().fields["started-ms"]) >= before
    assert one.marker[1:3] == [str(pid)] * 2


def test_one_that_nobody_wants_ends_and_has_begun_nothing(attempt, asked: Asked):
    one = order(attempt, asked, "echo ran")
    pid, told = asked.hold(one)
    told.close()
    assert ended(pid, asked) == UNWANTED
    assert nothing_began(one)
    assert one.is_free()


def test_those_forked_after_it_do_not_keep_it_waiting(attempt, asked: Asked):
    """Whatever they inherit, the end of its caller is seen."""
    orders = [order(attempt, asked, "echo ran") for _ in range(3)]
    held = [asked.hold(one) for one in orders]
    later = asked.ahead()
    held[0][1].close()
    assert ended(held[0][0], asked) == UNWANTED
    go(held[1][1])
    assert ended(held[1][0], asked) == 0
    assert os.waitpid(held[2][0], os.WNOHANG) == (0, 0), "each is told for itself"
    held[2][1].close()
    assert ended(held[2][0], asked) == UNWANTED
    assert os.waitpid(later, os.WNOHANG) == (0, 0)
    assert [one.has_receipt for one in orders] == [False, True, False]


def test_it_needs_no_resident_runner_any_more(attempt, asked: Asked):
    one = order(attempt, asked, "echo ran")
    pid, told = asked.hold(one)
    asked.process.kill()
    asked.process.wait(30)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    go(told)
    assert ended(pid, asked) == 0
    assert one.log == "ran\n"


def test_what_was_voided_while_it_stood_there_does_not_begin(attempt, asked: Asked):
    one = order(attempt, asked, "echo ran")
    pid, told = asked.hold(one)
    (one.dir / "draft").write_text("void\n")
    os.link(one.dir / "draft", one.dir / "marker")
    go(told)
    assert ended(pid, asked) == 0
    assert (one.receipt().outcome, one.log) == ("void", "")


def test_it_may_be_too_late_when_it_is_told(attempt, asked: Asked):
    deadline = int(time.time() * 1000) + 500
    one = order(attempt, asked, "echo ran", start_before_ms=deadline)
    pid, told = asked.hold(one)
    wait_until(lambda: time.time() * 1000 > deadline)
    go(told)
    assert ended(pid, asked) == 0
    assert one.receipt().outcome == "void"
    assert "came too late" in one.receipt().detail
    assert one.marker[0] == "void"


def test_a_request_to_end_is_heard_once_it_is_told(attempt, asked: Asked):
    one = order(attempt, asked, "echo ran")
    pid, told = asked.hold(one)
    os.kill(pid, signal.SIGTERM)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    go(told)
    assert ended(pid, asked) == 0
    assert (one.receipt().outcome, one.marker[0]) == ("void", "void")


def test_what_cannot_be_made_ready_is_said_at_once(attempt, asked: Asked):
    one = attempt().write_order(b"no order")
    pid, told = asked.hold(one)
    assert ended(pid, asked) == 0
    assert one.receipt().outcome == "refused"
    told.close()


def test_nobody_is_held_by_nothing(attempt, asked: Asked):
    """Without the socket it would never be told to go."""
    one = order(attempt, asked, "echo ran")
    asked.ours.send(f"hold {asked.isolation} {one.dir}".encode())
    assert int.from_bytes(asked.ours.recv(4), sys.byteorder, signed=True) == -errno.EINVAL
    assert nothing_began(one)
    assert asked.launch(one) > 0, "and the next is served"


def test_what_comes_along_with_another_packet_is_not_kept(attempt, asked: Asked):
    """A socket with `ahead` or `let go` is closed: the resident runner lives for months."""
    opened = Path(f"/proc/{asked.process.pid}/fd")
    asked.ask(b"let go")
    before = len(list(opened.iterdir()))
    for packet in (b"let go", b"ahead root /nowhere"):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            socket.send_fds(asked.ours, [packet], [theirs.fileno()])
            asked.ours.recv(4)
    for each in [asked.hold(order(attempt, asked, "echo ran")) for _ in range(3)]:
        go(each[1])
        assert ended(each[0], asked) == 0
    assert len(list(opened.iterdir())) == before
