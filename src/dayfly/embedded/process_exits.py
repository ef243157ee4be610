"""The ends of runners: notifications by pidfd, and children that have sealed their receipt but are not reaped yet."""

import asyncio
import logging
import os
import select
from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)

# Poll interval if the end of a process cannot be awaited: its runner was killed, or the disk refused a fence.
POLL_INTERVAL_S = 0.05


class ProcessExits:
    """Notifies of the ends of processes by their pidfds.

    One epoll descriptor for all keeps the event loop cheap: most processes end without any callback, and adding each
    pidfd to the loop would cost more than everything else that is done for the process.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {}
        self._loop.add_reader(self._poll.fileno(), self._dispatch)

    def watch(self, pidfd: int, call: Callable[[], None]) -> None:
        """Call `call` repeatedly from the end of the process until `forget`."""
        if pidfd not in self._calls:
            self._poll.register(pidfd, select.EPOLLIN)
        self._calls[pidfd] = call

    def forget(self, pidfd: int) -> None:
        """Stop watching the process."""
        if self._calls.pop(pidfd, None) is not None:
            self._poll.unregister(pidfd)

    def close(self) -> None:
        """Stop watching all processes."""
        if self._poll.closed:
            return
        self._loop.remove_reader(self._poll.fileno())
        self._poll.close()
        self._calls.clear()

    def _dispatch(self) -> None:
        for pidfd, _ in self._poll.poll(0):
            # An earlier callback of this batch may have called `forget`.
            if (call := self._calls.get(pidfd)) is not None:
                call()


class ExitingRunners:
    """Children of this server by attempt, from their receipt until they are reaped. Most end at once."""

    def __init__(self, ends: ProcessExits) -> None:
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self._left: dict[Hashable, tuple[int, int | None]] = {}

    def add(self, key: Hashable, child: int, pidfd: int | None) -> None:
        """Add a child that has sealed its receipt or will not start. This object closes `pidfd`."""
        self._left[key] = child, pidfd

    def is_reaped(self, key: Hashable, again: Callable[[], None]) -> bool:
        """Reap the child if it has ended; return whether it is gone. If not, `again` is called once it has ended."""
        if key not in self._left:
            return True
        child, pidfd = self._left[key]
        if not reap(child):
            if pidfd is None:
                self._loop.call_later(POLL_INTERVAL_S, again)
            else:
                self._ends.watch(pidfd, again)
            return False
        del self._left[key]
        self._close(pidfd)
        return True

    def close(self) -> None:
        """Reap what has ended and close all pidfds."""
        for child, pidfd in self._left.values():
            reap(child)
            self._close(pidfd)
        self._left.clear()

    def _close(self, pidfd: int | None) -> None:
        if pidfd is not None:
            self._ends.forget(pidfd)
            os.close(pidfd)


def open_pidfd(child: int) -> int | None:
    """Return a pidfd of the process; None if the kernel grants none."""
    try:
        return os.pidfd_open(child)
    except OSError as error:
        log.warning("cannot watch process %d, so it is polled: %s", child, error)
        return None


def reap(child: int) -> bool:
    """Reap our child without waiting; return whether it has ended."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True
