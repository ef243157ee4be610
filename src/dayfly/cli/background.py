"""A server in the background has no parent: CI runners also kill the children of a job's processes."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SIGNALLED = 128


def fork() -> Callable[[], None]:
    """Continue in a child process; return a function that reports that the child is ready.

    The parent ends with code 0 once the child is ready, or with the child's code if the child ends before that.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # it may have been started by a thread that blocks some
    ours, childs = socket.socketpair()
    if child := os.fork():
        childs.close()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent to both; the parent ends after the child
        os._exit(0 if ours.recv(1) else _code(child))
    ours.close()

    def report_ready() -> None:
        childs.send(b".")
        childs.close()

    return report_ready


def _code(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else _SIGNALLED - code
