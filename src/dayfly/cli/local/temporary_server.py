"""A server that is started for one command and shared with concurrent commands. The last command stops it.

A server without sandboxes may still be in use: another command may have found it and applied nothing yet. If all
commands were killed, the server stops itself once their sandboxes have ended. If the server was killed, it is
restarted, so that the sandboxes are deleted.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from dayfly.cli.backends.target_server import ServerClient, find, is_remote
from dayfly.cli.local import server_process
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.scalars.numbers import parse_whole

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Self

    from dayfly.client.home import Home

_LOCK_POLL_S = 0.02
_POLL_S = 0.1
_STOP_TIMEOUT_S = 60
_IDLE_POLL_S = 0.5
_MAX_TEXT_BYTES, _MAX_PROCESS_ID = 16, (1 << 22) - 1


class UserLock:
    """A shared lock of all users of a server. The kernel releases it when the process ends.

    If the file system has no locks, the command runs without one.
    """

    def __init__(self, home: Home, seconds: float) -> None:
        """`seconds` is the longest wait for a command that is stopping its server."""
        self._home = home
        self._seconds = seconds
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        import fcntl

        try:
            self._home.make()
            self._descriptor = os.open(self._home.users, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            deadline = time.monotonic() + self._seconds
            while not self._try_lock(fcntl.LOCK_SH) and time.monotonic() < deadline:
                time.sleep(_LOCK_POLL_S)
        except (OSError, DayflyError):
            self._release()
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def release_as_last(self) -> bool:
        """Release the lock. Return whether no other command uses the server; then new users wait until the end.

        The lock is released first, so that exactly one of several concurrent commands is the last.
        """
        import fcntl

        if self._descriptor is None:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return self._try_lock(fcntl.LOCK_EX)

    def store_process(self, server: int) -> None:
        """Store the server process that the last user stops; 0 for none."""
        if self._descriptor is not None:
            text = f"{server}\n" if server else ""
            with contextlib.suppress(
                OSError
            ):  # a full disk: then the command that started the server stops it, if it is the last
                os.pwrite(self._descriptor, text.encode(), 0)
                os.truncate(self._descriptor, len(text))

    def stored_process(self) -> int:
        """Return the server process that the last user stops; 0 for none."""
        text = b"" if self._descriptor is None else os.pread(self._descriptor, _MAX_TEXT_BYTES, 0)
        return parse_whole(text.decode(errors="replace").strip(), _MAX_PROCESS_ID) or 0

    def _try_lock(self, how: int) -> bool:
        assert self._descriptor is not None, "there is a file to be locked"
        return _lock_descriptor(self._descriptor, how)


async def stop_when_unused(home: Home, is_idle: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> None:
    """Set `stop` once no process holds the home's lock for users and the server is idle.

    Then the lock is held until this process ends: a new user waits for that and starts another server. Without a
    working lock, it is unknown whether the server is in use, so it is not stopped.
    """
    import asyncio
    import fcntl

    with contextlib.suppress(OSError):
        descriptor = os.open(home.users, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while not (_lock_descriptor(descriptor, fcntl.LOCK_EX) and await is_idle()):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            await asyncio.sleep(_IDLE_POLL_S)
        stop.set()


def _lock_descriptor(descriptor: int, how: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class SharedServer:
    """The server of the home, or the one that the command line names.

    Attributes:
        client: A client for the main thread.
        started: The process of the server if this command started it; 0 otherwise.
    """

    def __init__(self, home: Home, lock: UserLock | None) -> None:
        """`lock` is None if the command line names the server."""
        self.started = 0
        self._home, self._lock = home, lock
        self._reviving = threading.Lock()
        self.client = self._connect()

    @property
    def is_temporary(self) -> bool:
        """Whether it was started for commands like this one, by this command or by another."""
        return self._lock is not None and bool(self._lock.stored_process() or self.started)

    @property
    def was_killed(self) -> bool:
        """Whether it is temporary and ended without being stopped."""
        return self.is_temporary and self._home.is_left_behind()

    def update_address(self, client: ServerClient) -> None:
        """Let `client` use the address at which the home's server listens now. Restart a killed temporary server."""
        if self._lock is None:
            return
        with contextlib.suppress(DayflyError), self._reviving:
            self._revive()
            if address := find(self._home):
                client.json.set_address(address)

    def _connect(self) -> ServerClient:
        """Return a client of the running server, or of one that is started now."""
        try:
            client = ServerClient.open(self._home)
            client.health()
            if self._lock is None or not self._home.is_left_behind():
                return client
        except DayflyError as fault:
            if fault.code != Exit.NO_SERVER or self._lock is None:
                raise
        return self._start()

    def _start(self) -> ServerClient:
        """Start a server, or find the one that another command started first."""
        try:
            client = server_process.start(self._home, ["--port", "0", "--while-used"])
        except DayflyError:
            started = server_process.connect_if_answering(self._home)
            if started is None:
                raise
            return started
        self.started = self._home.server_process() or 0
        if self._lock is not None and self.started:
            self._lock.store_process(self.started)
        return client

    def _revive(self) -> None:
        """Start a killed server again, or wait until another command has done so.

        Raises:
            DayflyError: the server does not start.
        """
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while self.is_temporary and self._home.read(self._home.url) and time.monotonic() < deadline:
            client = (
                server_process.connect_if_answering(self._home) if self._home.server_process() is not None else None
            )
            if client is not None:
                client.close()
                return
            try:
                if self.was_killed:
                    self._start().close()
                    show.print_message("dayfly: the server was killed and has been started again")
                    return
            except DayflyError:
                if self._home.server_process() is None:
                    raise
            time.sleep(_POLL_S)


@contextlib.contextmanager
def running_server(home: Home) -> Iterator[SharedServer]:
    """Return the server of the home, started if necessary. The last user stops a server that was started for it."""
    with contextlib.nullcontext() if is_remote() else UserLock(home, _STOP_TIMEOUT_S) as lock:
        server_ = SharedServer(home, lock)
        try:
            yield server_
        finally:
            if lock is not None and lock.release_as_last() and (started := lock.stored_process() or server_.started):
                # If it has sandboxes, it stops itself after the last one.
                lock.store_process(0)
                _stop_unless_used(home, server_.client, started)


def _stop_unless_used(home: Home, client: ServerClient, ours: int) -> None:
    try:
        used = bool(client.get("sandboxes"))
        if home.server_process() != ours:  # it was stopped, and another command may have started a new one
            return
        if used:
            show.print_message(
                "The server that was started keeps running until its sandboxes have ended; stop it with: dayfly down"
            )
        else:
            server_process.stop(home, ours, _STOP_TIMEOUT_S)
    except DayflyError as fault:
        show.print_message(f"dayfly: {fault}")
