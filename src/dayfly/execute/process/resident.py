"""The resident runner (`dayfly-runner serve`), which forks a launcher for each folder that it is told of.

To fork that small program costs a fraction of starting one from a process of Python's size, and nobody waits in a
thread for it. The launchers are children of this process, so it alone reaps them; they outlive both.
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

# A runner that a careless parent made deaf to these would never hear of an end.
DEFAULTS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
# As many requests and as many answers surely fit into the socket, so that neither side ever waits for the other.
_MOST_AT_ONCE = 64


class UnansweredError(Exception):
    """The resident runner ended before it answered: the launcher may have been forked, or not."""


class Resident:
    """Starts the resident runner when it is first needed, and again if it has ended.

    Steps inherit the environment that it is given. `sealed` is called with the process id of a launcher whose receipt
    is there, usually a moment before its end; that can be lost.
    """

    def __init__(self, runner: str, environment: Mapping[str, str]) -> None:
        self._runner = runner
        self._environment = environment
        self.sealed: Callable[[int], None] = _nobody
        self._socket: socket.socket | None = None
        # Not the same one: launchers that live on hold it, and its end would never be seen.
        self._ears: socket.socket | None = None
        self._child = 0
        self._answers: deque[asyncio.Future[int]] = deque()

    async def fork(self, folder: str, isolation: str) -> int:
        """Fork a launcher for the folder, at once into the namespaces of the order's isolation; returns our new child's
        process id.

        Raises:
            OSError: it cannot be forked, and will not be.
            UnansweredError: it may have been forked.
        """
        while len(self._answers) >= _MOST_AT_ONCE:
            await asyncio.wait([self._answers[-1]])
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tell(os.fsencode(folder if isolation == "none" else f"{isolation} {folder}"))
        self._answers.append(answer)
        return await answer

    def close(self) -> None:
        """Let the resident runner end. What it has forked lives on."""
        if self._socket is None or self._ears is None:
            return
        # It may be stopped, and has nothing that it could lose.
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # the kernel reaps it if SIGCHLD is ignored
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
        while self._hear():
            pass  # what it has said is still to be heard
        for each in (self._socket, self._ears):
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        self._socket = self._ears = None
        while self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_exception(UnansweredError("the resident runner ended before it answered"))

    def _tell(self, packet: bytes) -> None:
        try:
            self._send(packet)
        except UnansweredError:
            # It has ended since the last time. What cannot be sent was not read.
            try:
                self._send(packet)
            except UnansweredError as fault:
                # Nor was this, so nobody need wonder whether it was forked.
                raise OSError(errno.EPIPE, "ends as soon as it has begun", self._runner) from fault

    def _send(self, packet: bytes) -> None:
        try:
            self._opened().send(packet)
        except (BrokenPipeError, ConnectionResetError) as fault:
            self.close()
            raise UnansweredError("the resident runner ended before it could be asked") from fault

    def _opened(self) -> socket.socket:
        if self._socket is None:
            with contextlib.ExitStack() as failed:
                ours, theirs = _pair(failed)
                ears, tellers = _pair(failed)
                with theirs, tellers:
                    self._child = self._begin(theirs.fileno(), tellers.fileno())
                failed.pop_all()
            asyncio.get_running_loop().add_reader(ours, self._answered)
            asyncio.get_running_loop().add_reader(ears, self._told)
            self._socket, self._ears = ours, ears
        return self._socket

    def _begin(self, channel: int, tellers: int) -> int:
        return os.posix_spawn(
            self._runner,
            [self._runner, "serve"],
            self._environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, channel, 0),
                (os.POSIX_SPAWN_DUP2, tellers, 3),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsigmask=(),
            setsigdef=DEFAULTS,
            # What the terminal sends to our group is not for it.
            setsid=True,
        )

    def _told(self) -> None:
        """A launcher has sealed its receipt."""
        assert self._ears is not None, "nobody else is listened to"
        with contextlib.suppress(OSError):
            if word := self._ears.recv(4):
                self.sealed(int.from_bytes(word, sys.byteorder))

    def _answered(self) -> None:
        if not self._hear():
            self.close()

    def _hear(self) -> bool:
        """One answer; they come in the order of the requests. False if there is none, and never will be."""
        assert self._socket is not None, "nobody else is listened to"
        try:
            word = self._socket.recv(4)
        except (ConnectionResetError, BlockingIOError):
            word = b""
        if not word or not self._answers:
            return False
        number = int.from_bytes(word, sys.byteorder, signed=True)
        answer = self._answers.popleft()
        if answer.done():
            return True
        if number > 0:
            answer.set_result(number)
        else:
            answer.set_exception(OSError(-number, os.strerror(-number), self._runner))
        return True


def _pair(failed: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """Ours, which does not block and which `failed` closes, and theirs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    failed.callback(ours.close)
    ours.setblocking(False)
    return ours, theirs


def _nobody(_launcher: int) -> None:
    """Nobody has asked to be told."""
