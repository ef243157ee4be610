"""Runners that have sealed their receipt: of their step nothing lives, and they themselves are still to be reaped."""

import asyncio
import logging
import os
from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)


class Leaving:
    """Children of ours, each by what it ran for, from the receipt to the end. Most have ended when we ask."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left: dict[Hashable, tuple[int, int]] = {}

    def add(self, key: Hashable, child: int, pidfd: int) -> None:
        """It has sealed. Its descriptor is ours from now on."""
        self._left[key] = child, pidfd

    def has_left(self, key: Hashable, again: Callable[[], None]) -> bool:
        """Whether it is reaped, which may be done now. If not, `again` is called once it can be."""
        if key not in self._left:
            return True
        child, pidfd = self._left[key]
        if not reaped(child):
            self._loop.add_reader(pidfd, again)
            return False
        del self._left[key]
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        return True

    def close(self) -> None:
        """Wait for none of them."""
        for child, pidfd in self._left.values():
            reaped(child)
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        self._left.clear()


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
