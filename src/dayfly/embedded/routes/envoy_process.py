"""The process of an Envoy, and probes of its admin socket and of the ports of this machine."""

import asyncio
import contextlib
import fcntl
import http.client
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from dayfly.execute.process.processes import has_open
from dayfly.execute.route.envoy import HOST

ANSWER_TIMEOUT_S = 2.0
KILL_AFTER_S = 5.0
SOCKET = "admin.sock"


class Process:
    """A watched process. `ended` is called once if the process dies, but not after `end`."""

    def __init__(self, pid: int, *, child: bool, ended: Callable[[], None]) -> None:
        self.pid = pid
        self._child = child
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(pid)
        self._on_end = ended
        asyncio.get_running_loop().add_reader(self._pidfd, self._has_ended)

    def _has_ended(self) -> None:
        self.detach()
        if self._child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self._ended.set()
        self._on_end()

    def detach(self) -> None:
        """Stop watching the process."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)

    async def end(self) -> None:
        """Terminate the process and wait for its end."""
        self._on_end = ignore_end
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._ended.is_set():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KILL_AFTER_S):
                        await self._ended.wait()


class Admin(http.client.HTTPConnection):
    """A connection to Envoy's admin socket; the path of the folder may be longer than a socket address allows."""

    def __init__(self, folder: Path) -> None:
        super().__init__("localhost")
        self._in = folder

    def connect(self) -> None:
        folder = os.open(self._in, os.O_RDONLY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(ANSWER_TIMEOUT_S)
            self.sock.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        finally:
            os.close(folder)


def holder(lock: str) -> int:
    """Return the process that holds the lock of a home's Envoy; 0 if there is none."""
    try:
        seen = Path(lock).stat()
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        return 0
    finally:
        os.close(descriptor)
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if has_open(process.name, seen):
                    return int(process.name)
    return 0


def build_stamp(program: str) -> list[int]:
    """Return size and modification time of a program, which identify its build."""
    with contextlib.suppress(OSError):
        seen = Path(program).stat()
        return [seen.st_size, seen.st_mtime_ns]
    return []


def is_closed(port: int) -> bool:
    """Return whether no process listens on the port."""
    try:
        socket.create_connection((HOST, port), timeout=ANSWER_TIMEOUT_S).close()
    except OSError:
        return True
    return False


def unbindable(port: int) -> str:
    """Return why no process can listen on the port; empty if one can."""
    with socket.socket() as probe:
        # Closing connections of a former process do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return ""


def ignore_end() -> None:
    """Ignore the end of a process."""
