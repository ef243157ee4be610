"""Commands that use one server of this home at the same time: the last of them stops it, if one of them has started it.

Whether it has sandboxes does not tell: another command may have found the server, and not wished for anything yet.
If all of them were killed, the server stops itself once their sandboxes have ended.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from dayfly.client.errors import DayflyError
from dayfly.spec.scalars.numbers import whole

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from typing import Self

    from dayfly.client.home import Home

_POLL = 0.02
_IDLE_POLL_S = 0.5
_LONGEST, _MOST = 16, (1 << 22) - 1  # as many processes as Linux knows


class Sharing:
    """Held while a server is used. The kernel lets go of it with our process, however that ends.

    Where no lock can be had there is none: a command is not refused for that.
    """

    def __init__(self, home: Home, seconds: float) -> None:
        """`seconds` is how long at most is waited for one that is just stopping its server."""
        self._home = home
        self._seconds = seconds
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        import fcntl

        try:
            self._home.make()
            self._descriptor = os.open(self._home.users, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            deadline = time.monotonic() + self._seconds
            while not self._locked(fcntl.LOCK_SH) and time.monotonic() < deadline:
                time.sleep(_POLL)
        except (OSError, DayflyError):
            self._let_go()
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def alone(self) -> bool:
        """Whether no other command uses it. If so, who comes now waits until we are done with it.

        We use it no more in either case: of several that ask at once the last one is alone.
        """
        import fcntl

        if self._descriptor is None:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return self._locked(fcntl.LOCK_EX)

    def note(self, server: int) -> None:
        """Have the last who uses it stop the server of that process; 0: none is to be stopped."""
        if self._descriptor is not None:
            text = f"{server}\n" if server else ""
            with contextlib.suppress(OSError):  # as of a disk that is full: then who has started it stops it, if alone
                os.pwrite(self._descriptor, text.encode(), 0)
                os.truncate(self._descriptor, len(text))

    def noted(self) -> int:
        """The process of the server that the last is to stop; 0 if none is."""
        text = b"" if self._descriptor is None else os.pread(self._descriptor, _LONGEST, 0)
        return whole(text.decode(errors="replace").strip(), _MOST) or 0

    def _locked(self, how: int) -> bool:
        assert self._descriptor is not None, "there is a file to be locked"
        return _lock(self._descriptor, how)


async def stop_when_unused(home: Home, is_idle: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> None:
    """Set `stop` once no process holds the home's lock for users and the server is idle.

    The lock is kept then until this process ends: a new user waits for that, and starts another server.
    Without a working lock it is unknown whether the server is used, so it is not stopped.
    """
    import asyncio
    import fcntl

    with contextlib.suppress(OSError):
        descriptor = os.open(home.users, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while not (_lock(descriptor, fcntl.LOCK_EX) and await is_idle()):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            await asyncio.sleep(_IDLE_POLL_S)
        stop.set()


def _lock(descriptor: int, how: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
