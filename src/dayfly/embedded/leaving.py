"""Runners that have sealed their receipt: of their step nothing lives, and they themselves are still to be reaped."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet

log = logging.getLogger(__name__)

# How long a server that ends waits for the last of them. They take milliseconds; one that was stopped takes for ever.
LAST_S = 5.0


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


class Sweeping:
    """Whose folder is to go, and waits for its runner's end or for the disk."""

    def __init__(self) -> None:
        self._keys: set[Hashable] = set()
        self._fewer = asyncio.Event()

    def add(self, key: Hashable) -> None:
        """Its folder is to go."""
        self._keys.add(key)

    def discard(self, key: Hashable) -> None:
        """Its folder has gone."""
        self._keys.discard(key)
        self._fewer.set()

    async def done(self, *, besides: AbstractSet[Hashable]) -> None:
        """Wait, but not for long, until all folders have gone but those of `besides`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                while self._keys - besides:
                    self._fewer.clear()
                    await self._fewer.wait()


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
