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

from dayfly.execute.process.paths import usual_folders

# A runner that a careless parent made deaf to these would never hear of an end.
DEFAULTS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
# As many requests and as many answers surely fit into the socket, so that neither side ever waits for the other.
_MOST_AT_ONCE = 64
# How long one that was forked ahead may wait for its folder. It holds a copy of this machine's mounts: what is
# unmounted meanwhile is still in use there.
AHEAD_S = 1.0
_REAP_S = 0.02
# So many are not forked ahead after one that was of no use, since mounts or the usual folders had changed meanwhile:
# where that goes on, each would be made twice.
_PAUSE = 16


class UnansweredError(Exception):
    """The resident runner ended before it answered: the launcher may have been forked, or not."""


class Resident:
    """Begins the resident runner when it is first needed, and again should it have ended.

    Steps inherit the environment that it is given. `folders` are the private ones that most of them have. With `user`
    all of its launchers have the isolation of that name, and one user namespace. A launcher that is forked ahead waits
    for its folder for `ahead_s` seconds. `sealed` is called with the process id
    of a launcher whose receipt is there, usually a moment before its end; that can be lost.
    """

    def __init__(
        self,
        runner: str,
        environment: Mapping[str, str],
        folders: Callable[[], tuple[str, ...]] = usual_folders,
        *,
        user: bool = False,
        ahead_s: float = AHEAD_S,
    ) -> None:
        self._runner = runner
        self._arguments = [runner, "serve", "user"] if user else [runner, "serve"]
        self._environment = environment
        self._folders = folders
        self._ahead_s = ahead_s
        self.sealed: Callable[[int], None] = _nobody
        self._socket: socket.socket | None = None
        # Not the same one: launchers that live on hold it, and its end would never be seen.
        self._ears: socket.socket | None = None
        self._child = 0
        # None: of who is forked ahead, or let go.
        self._answers: deque[asyncio.Future[int] | None] = deque()
        self._ahead = 0
        self._asked_at = 0.0
        self._pause = 0
        self._timer: asyncio.TimerHandle | None = None
        self._dismissed: set[int] = set()
        self._reaper: asyncio.TimerHandle | None = None

    async def fork(self, folder: str, isolation: str) -> int:
        """Fork a launcher for the folder, at once into the namespaces of the order's isolation; returns our new child's
        process id.

        Raises:
            OSError: it cannot be forked, and will not be.
            UnansweredError: it may have been forked.
        """
        while len(self._answers) >= _MOST_AT_ONCE:
            await asyncio.wait([next(each for each in reversed(self._answers) if each is not None)])
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tell(os.fsencode(folder if isolation == "none" else f"{isolation} {folder}"))
        self._answers.append(answer)
        if isolation != "none":
            self._fork_ahead(isolation)
        return await answer

    def _fork_ahead(self, isolation: str) -> None:
        """Have a launcher forked that stands in its namespaces, with its private folders, before it is needed.

        The steps of a chain follow each other: the next one is spared what takes the kernel longest. Where that cannot
        be done it is not: whoever has just asked for a launcher may have one, and must not hear that there is none.
        """
        if self._socket is None or len(self._answers) > 1:
            return  # where others begin at the same moment no processor is free to prepare anything
        if self._pause:
            self._pause -= 1
            return
        folders = "\0".join(self._folders())
        with contextlib.suppress(UnansweredError, OSError):
            self._send(os.fsencode(f"ahead {isolation} {folders}"))
            self._answers.append(None)
        loop = asyncio.get_running_loop()
        self._asked_at = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._ahead_s, self._grow_old)

    def _grow_old(self) -> None:
        """Have let go who has waited too long. Until that is answered it may become a launcher, and is not ended."""
        loop = asyncio.get_running_loop()
        due = self._asked_at + self._ahead_s
        self._timer = None
        if self._answers or loop.time() < due:
            self._timer = loop.call_later(max(due - loop.time(), self._ahead_s / 10), self._grow_old)
        elif self._ahead:
            try:
                self._send(b"let go")
            except UnansweredError:
                pass  # with the resident runner everybody was let go
            except OSError:
                # As where the kernel has no memory for it now. Nobody else would look before the next step.
                self._timer = loop.call_later(self._ahead_s / 10, self._grow_old)
            else:
                self._answers.append(None)

    def _dismiss(self) -> None:
        """End who was forked ahead and will never have a folder. The kernel takes its time to take the mounts apart."""
        if self._ahead:
            os.kill(self._ahead, signal.SIGKILL)
            self._dismissed.add(self._ahead)
            self._ahead = 0
            self._reap()

    def _reap(self) -> None:
        for process in list(self._dismissed):
            with contextlib.suppress(ChildProcessError):  # where nobody is to wait for children the kernel does
                if not os.waitpid(process, os.WNOHANG)[0]:
                    continue
            self._dismissed.discard(process)
        if self._dismissed and self._reaper is None:
            self._reaper = asyncio.get_running_loop().call_later(_REAP_S, self._reap_again)

    def _reap_again(self) -> None:
        self._reaper = None
        self._reap()

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
        if not self._answers:
            self._dismiss()
        self._ahead = 0  # else it may be a launcher by now; if not it ends by itself
        for timer in filter(None, (self._timer, self._reaper)):
            timer.cancel()
        self._timer = self._reaper = None
        while self._dismissed:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._dismissed.pop(), 0)
        while self._answers:
            answer = self._answers.popleft()
            if answer is not None and not answer.done():
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
            self._arguments,
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
        if answer is None:
            self._dismiss()  # whom the resident runner has let go for this one
            self._ahead = max(number, 0)
            if number < 0:
                self._pause = _PAUSE
            return True
        if number == self._ahead:
            self._ahead = 0
        elif self._ahead:
            self._dismiss()
            self._pause = _PAUSE
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
