"""The ends of runners: who hears of them, and who has sealed the receipt and is still to be reaped."""

import asyncio
import logging
import os
import select
from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)

# Where the end of a process cannot be awaited (its runner was killed, the disk refused a fence) we look again.
LOOK_AGAIN_S = 0.05


class ProcessExits:
    """Hears of the ends of processes by their descriptors (pidfd).

    The loop listens to one descriptor for all of them: most come and go without a word, and to tell the loop of each
    would cost more than all that is done with it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {}
        self._loop.add_reader(self._poll.fileno(), self._hear)

    def watch(self, pidfd: int, call: Callable[[], None]) -> None:
        """Call when it has ended, again and again until it is forgotten."""
        if pidfd not in self._calls:
            self._poll.register(pidfd, select.EPOLLIN)
        self._calls[pidfd] = call

    def forget(self, pidfd: int) -> None:
        """Listen to it no more."""
        if self._calls.pop(pidfd, None) is not None:
            self._poll.unregister(pidfd)

    def close(self) -> None:
        """Listen to none of them any more."""
        if self._poll.closed:
            return
        self._loop.remove_reader(self._poll.fileno())
        self._poll.close()
        self._calls.clear()

    def _hear(self) -> None:
        for pidfd, _ in self._poll.poll(0):
            # One call may have forgotten another one.
            if (call := self._calls.get(pidfd)) is not None:
                call()


class Leaving:
    """Children of ours, each by what it ran for, from the receipt to the end. Most have ended when we ask."""

    def __init__(self, ends: ProcessExits) -> None:
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self._left: dict[Hashable, tuple[int, int | None]] = {}

    def add(self, key: Hashable, child: int, pidfd: int | None) -> None:
        """It has sealed, or will not start. Its descriptor is ours from now on."""
        self._left[key] = child, pidfd

    def has_left(self, key: Hashable, again: Callable[[], None]) -> bool:
        """Whether it is reaped, which may be done now. If not, `again` is called once it can be."""
        if key not in self._left:
            return True
        child, pidfd = self._left[key]
        if not reaped(child):
            if pidfd is None:
                self._loop.call_later(LOOK_AGAIN_S, again)
            else:
                self._ends.watch(pidfd, again)
            return False
        del self._left[key]
        self._close(pidfd)
        return True

    def close(self) -> None:
        """Wait for none of them."""
        for child, pidfd in self._left.values():
            reaped(child)
            self._close(pidfd)
        self._left.clear()

    def _close(self, pidfd: int | None) -> None:
        if pidfd is not None:
            self._ends.forget(pidfd)
            os.close(pidfd)


def opened(child: int) -> int | None:
    """A descriptor that tells its end; None if there is none to be had."""
    try:
        return os.pidfd_open(child)
    except OSError as error:
        log.warning("cannot watch process %d, so we look: %s", child, error)
        return None


def reaped(child: int) -> bool:
    """Whether our child has ended; nobody waits for it."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True
