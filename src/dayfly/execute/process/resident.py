"""The resident runner (`dayfly-runner serve`), which forks a launcher for each folder that it receives.

The small resident process forks much faster than a large Python process, and the fork needs no thread. The launchers
are children of the Python process, which reaps them. They outlive both processes.
"""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping

from dayfly.execute.process.render import usual_folders

# Signals with the default action in a runner. If they were ignored or blocked, it could miss the end of its step.
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
# This many requests and answers fit into the socket, so that neither side ever blocks.
_MAX_CONCURRENT_REQUESTS = 64
# How long a prepared launcher waits for its folder. It has a copy of the mounts, so a file system that is unmounted
# during that time stays in use.
PREPARED_TIMEOUT_S = 1.0
_REAP_INTERVAL_S = 0.02
# Number of requests without preparation after a prepared launcher was discarded because mounts or folders had changed.
# Otherwise a machine with frequent changes would fork each launcher twice.
_PAUSE = 16


class UnansweredError(Exception):
    """The resident runner ended before it answered, so the launcher may or may not have been forked."""


class Resident:
    """The client of the resident runner, which it starts on first use and after each end.

    Steps inherit `environment`. `folders` returns the private folders of most steps. With `user`, all launchers have
    that isolation and share one user namespace. A prepared launcher waits `prepared_timeout_s` seconds for its folder.
    `sealed` is called with the process ID of a launcher that has sealed its receipt, usually just before it ends; this
    notification can be lost.
    """

    def __init__(
        self,
        runner: str,
        environment: Mapping[str, str],
        folders: Callable[[], tuple[str, ...]] = usual_folders,
        *,
        user: bool = False,
        prepared_timeout_s: float = PREPARED_TIMEOUT_S,
    ) -> None:
        self._runner = runner
        self._arguments = [runner, "serve", "user"] if user else [runner, "serve"]
        self._environment = environment
        self._folders = folders
        self._prepared_timeout_s = prepared_timeout_s
        self.sealed: Callable[[int], None] = _ignore
        self._socket: socket.socket | None = None
        # A separate socket, because launchers that outlive the resident runner hold it open.
        self._seal_socket: socket.socket | None = None
        self._child = 0
        # The expected answers. None: the answer to a request that prepares or discards a launcher.
        self._answers: deque[asyncio.Future[int] | None] = deque()
        self._prepared = 0
        self._prepared_at = 0.0
        self._pause = 0
        self._timer: asyncio.TimerHandle | None = None
        self._killed: set[int] = set()
        self._reaper: asyncio.TimerHandle | None = None

    async def fork(self, folder: str, isolation: str) -> int:
        """Fork a launcher for the folder, with the namespaces of `isolation`, and return its process ID.

        Raises:
            OSError: The launcher was not forked.
            UnansweredError: The launcher may have been forked.
        """
        while len(self._answers) >= _MAX_CONCURRENT_REQUESTS:
            await asyncio.wait([next(each for each in reversed(self._answers) if each is not None)])
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._request(os.fsencode(folder if isolation == "none" else f"{isolation} {folder}"))
        self._answers.append(answer)
        if isolation != "none":
            self._prepare_next(isolation)
        return await answer

    def _prepare_next(self, isolation: str) -> None:
        """Prepare a launcher with its namespaces and private folders before it is needed.

        The next step of a chain then starts faster, because creating namespaces takes the kernel longest. Errors are
        ignored: they must not fail the current request.
        """
        if self._socket is None or len(self._answers) > 1:
            return  # other steps are starting, so there is no free CPU time
        if self._pause:
            self._pause -= 1
            return
        folders = "\0".join(self._folders())
        with contextlib.suppress(UnansweredError, OSError):
            self._send(os.fsencode(f"prepare {isolation} {folders}"))
            self._answers.append(None)
        loop = asyncio.get_running_loop()
        self._prepared_at = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._prepared_timeout_s, self._expire_prepared)

    def _expire_prepared(self) -> None:
        """Discard a prepared launcher that has waited too long.

        It is killed after the answer, because until then the resident runner may use it for a folder.
        """
        loop = asyncio.get_running_loop()
        due = self._prepared_at + self._prepared_timeout_s
        self._timer = None
        if self._answers or loop.time() < due:
            self._timer = loop.call_later(max(due - loop.time(), self._prepared_timeout_s / 10), self._expire_prepared)
        elif self._prepared:
            try:
                self._send(b"release")
            except UnansweredError:
                pass  # prepared launchers end with the resident runner
            except OSError:
                # For example no kernel memory now. Without a retry, the launcher would stay until the next step.
                self._timer = loop.call_later(self._prepared_timeout_s / 10, self._expire_prepared)
            else:
                self._answers.append(None)

    def _kill_prepared(self) -> None:
        """Kill the prepared launcher. It is reaped later, because the kernel needs time to remove its mounts."""
        if self._prepared:
            os.kill(self._prepared, signal.SIGKILL)
            self._killed.add(self._prepared)
            self._prepared = 0
            self._reap()

    def _reap(self) -> None:
        for process in list(self._killed):
            with contextlib.suppress(ChildProcessError):  # the kernel reaps it if SIGCHLD is ignored
                if not os.waitpid(process, os.WNOHANG)[0]:
                    continue
            self._killed.discard(process)
        if self._killed and self._reaper is None:
            self._reaper = asyncio.get_running_loop().call_later(_REAP_INTERVAL_S, self._reap_again)

    def _reap_again(self) -> None:
        self._reaper = None
        self._reap()

    def close(self) -> None:
        """End the resident runner. Its launchers continue."""
        if self._socket is None or self._seal_socket is None:
            return
        # SIGKILL also ends a stopped process. It has no state to lose.
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # the kernel reaps it if SIGCHLD is ignored
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
        while self._receive_answer():
            pass  # its last answers
        for each in (self._socket, self._seal_socket):
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        self._socket = self._seal_socket = None
        if not self._answers:
            self._kill_prepared()
        self._prepared = 0  # with open answers it may be in use by a step; otherwise it ends by itself
        for timer in filter(None, (self._timer, self._reaper)):
            timer.cancel()
        self._timer = self._reaper = None
        while self._killed:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._killed.pop(), 0)
        while self._answers:
            answer = self._answers.popleft()
            if answer is not None and not answer.done():
                answer.set_exception(UnansweredError("the resident runner ended before it answered"))

    def _request(self, packet: bytes) -> None:
        try:
            self._send(packet)
        except UnansweredError:
            # The resident runner has ended since the last request. It did not receive this one: retry.
            try:
                self._send(packet)
            except UnansweredError as fault:
                # It did not receive this one either, so nothing was forked.
                raise OSError(errno.EPIPE, "ends immediately after its start", self._runner) from fault

    def _send(self, packet: bytes) -> None:
        try:
            self._connect().send(packet)
        except (BrokenPipeError, ConnectionResetError) as fault:
            self.close()
            raise UnansweredError("the resident runner ended before it received the request") from fault

    def _connect(self) -> socket.socket:
        if self._socket is None:
            with contextlib.ExitStack() as failed:
                own, other = _pair(failed)
                own_seals, other_seals = _pair(failed)
                with other, other_seals:
                    self._child = self._spawn(other.fileno(), other_seals.fileno())
                failed.pop_all()
            asyncio.get_running_loop().add_reader(own, self._on_answer)
            asyncio.get_running_loop().add_reader(own_seals, self._on_sealed)
            self._socket, self._seal_socket = own, own_seals
        return self._socket

    def _spawn(self, channel: int, seals: int) -> int:
        return os.posix_spawn(
            self._runner,
            self._arguments,
            self._environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, channel, 0),
                (os.POSIX_SPAWN_DUP2, seals, 3),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsigmask=(),
            setsigdef=DEFAULT_SIGNALS,
            # Signals of the terminal to the process group must not reach it.
            setsid=True,
        )

    def _on_sealed(self) -> None:
        assert self._seal_socket is not None, "the reader is removed before the socket"
        with contextlib.suppress(OSError):
            if word := self._seal_socket.recv(4):
                self.sealed(int.from_bytes(word, sys.byteorder))

    def _on_answer(self) -> None:
        if not self._receive_answer():
            self.close()

    def _receive_answer(self) -> bool:
        """Receive one answer, in the order of the requests. Return false if the resident runner has ended."""
        assert self._socket is not None, "the reader is removed before the socket"
        try:
            word = self._socket.recv(4)
        except (ConnectionResetError, BlockingIOError):
            word = b""
        if not word or not self._answers:
            return False
        number = int.from_bytes(word, sys.byteorder, signed=True)
        answer = self._answers.popleft()
        if answer is None:
            self._kill_prepared()  # the resident runner has replaced it
            self._prepared = max(number, 0)
            if number < 0:
                self._pause = _PAUSE
            return True
        if number == self._prepared:
            self._prepared = 0
        elif self._prepared:
            self._kill_prepared()
            self._pause = _PAUSE
        if answer.done():
            return True
        if number > 0:
            answer.set_result(number)
        else:
            answer.set_exception(OSError(-number, os.strerror(-number), self._runner))
        return True


def _pair(failed: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """Return our non-blocking end, which `failed` closes, and the other end."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    failed.callback(own.close)
    own.setblocking(False)
    return own, other


def _ignore(_launcher: int) -> None:
    pass
