"""A command that runs in our place at the terminal: signals reach it once, and ours wait until it has ended."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dayfly.cli.local import guard
from dayfly.cli.output import show

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType, TracebackType
    from typing import Self

    Pause = Callable[[], AbstractContextManager[None]]

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_KILLED = 128 + signal.SIGKILL
"""The exit code after SIGKILL, also of a shell that waited for the killed process."""
_REMIND_S = 1.0
_MOST_NAMES = 5


class Interrupted(Exception):  # noqa: N818 # not an error: somebody wants us to end
    """A signal asked us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class Signals:
    """Holds the signals that end a program for the time of a `with`: noted, raised, or passed on to a child."""

    def __init__(self) -> None:
        self._noted: list[int] = []
        self._raising = False
        self._before: dict[int, object] = {}
        self._stoppable = False
        self._pause: Pause = contextlib.nullcontext

    def __enter__(self) -> Self:
        self._stoppable = signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        if self._stoppable:
            signal.signal(signal.SIGTSTP, self._stop)
        for number in FORWARDED:
            # What our parent has us ignore (nohup, a shell's background job) stays ignored, for the child too.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # what `signal` returned, `signal` takes
        if self._stoppable:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        """Stop as anybody does. The terminal has told the command as well; whoever tells us alone stops us alone."""
        signal.signal(number, signal.SIG_IGN)  # what follows is not to be begun twice
        with self._pause():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)  # we stand still here, until a SIGCONT
            signal.signal(number, signal.SIG_IGN)
        signal.signal(number, self._stop)

    @contextlib.contextmanager
    def pausing(self, pause: Pause) -> Iterator[None]:
        """Within this, what `pause` gives is entered before Ctrl-Z stops this process, and left when it goes on."""
        self._pause = pause
        try:
            yield
        finally:
            self._pause = contextlib.nullcontext

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if self._raising:
            self._raising = False  # once: what clears up after it must not be interrupted by its twin
            raise Interrupted(number)
        self._noted.append(number)

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Within this, a signal raises `Interrupted`, also one that was noted before."""
        self._raising = True
        try:
            if self._noted:
                self._raising = False
                raise Interrupted(self._noted.pop(0))
            yield
        finally:
            self._raising = False

    def forget(self) -> None:
        """Drop what was noted; it has been answered."""
        self._noted.clear()

    def run(self, command: Sequence[str], environment: Mapping[str, str], mark: str) -> int:
        """Run a command to its end; its exit code, or 128 + n if signal n ended it.

        If a signal to us came before its end, all processes with the mark are ended too.

        Args:
            command: The command and its arguments.
            environment: All of its environment but the mark.
            mark: Tells what belongs to it: should we be killed, that is ended.

        Raises:
            OSError: it cannot be started.
        """
        is_killed = False
        with _guarded(mark) as tell:
            try:
                child = subprocess.Popen(list(command), env={**environment, guard.MARK: mark})
                tell(f"{child.pid}\n".encode())
                code = self._wait(child, mark)
                # A CI runner that kills a job may kill this process next, so the guard ends what is left.
                is_killed = code == _KILLED
                return code
            finally:
                if not is_killed:
                    tell(guard.DONE)

    def _wait(self, child: subprocess.Popen[bytes], mark: str) -> int:
        waited = {*(signal.Signals(number) for number in self._before), signal.SIGCHLD}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
        family = _Family(mark, child.pid)
        try:
            while self._noted:
                family.look()
                child.send_signal(self._noted.pop(0))
            while child.poll() is None:
                news = signal.sigtimedwait(waited, 0.5)
                if news is not None and news.si_signo != signal.SIGCHLD:
                    family.look()
                    if not _had_it_too(child.pid, news):
                        child.send_signal(news.si_signo)
            code = child.returncode if child.returncode >= 0 else 128 - child.returncode
            family.settle(waited, is_killed=code == _KILLED)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return code

    @staticmethod
    def start_blocked(thread: threading.Thread) -> None:
        """Start a thread that takes none of these signals away from the main one."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Family:
    """The processes that a command has started: ended after a signal, and otherwise reported."""

    def __init__(self, mark: str, command: int) -> None:
        self._mark = mark
        self._command = command
        self._seen: dict[int, str] = {}
        self._signalled = False

    def look(self) -> None:
        """Note, before the command gets a signal, its children: those without the mark are not found after its end."""
        self._signalled = True
        found = guard.belonging(self._mark, {self._command})
        self._seen |= {process: guard.born(process) for process in found}

    def settle(self, waited: Collection[int], *, is_killed: bool) -> None:
        """End or report the processes that are left after the command.

        Args:
            waited: Blocked signals; one of them other than SIGCHLD ends the grace period.
            is_killed: Whether SIGKILL has ended the command or what its shell waited for. The guard ends the rest.
        """
        if not self._signalled:
            if not is_killed and (left := guard.belonging(self._mark)):
                show.print_message(
                    f"The command has ended; processes that it started are still running: {_names(left)}"
                )
            return
        known = {process for process, began in self._seen.items() if began and began == guard.born(process)}
        remind_at = time.monotonic() + _REMIND_S

        def wait() -> bool:
            nonlocal remind_at
            if time.monotonic() > remind_at:
                remind_at = math.inf
                left = _names(guard.belonging(self._mark, known))
                show.print_message(
                    f"dayfly: waiting for processes of the command: {left}; send another signal to kill them"
                )
            news = signal.sigtimedwait(waited, guard.AGAIN_S)
            return news is not None and news.si_signo != signal.SIGCHLD

        guard.end(self._mark, known, guard.GRACE_S, wait)


def _names(processes: Collection[int]) -> str:
    """Their names and numbers, of a few."""
    found = []
    for process in sorted(processes)[:_MOST_NAMES]:
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{process}/comm").read_text(errors="replace").strip()
            found.append(f"{show.plain(name)} ({process})")
    more = len(processes) - _MOST_NAMES
    return ", ".join(found) + (f" and {more} more" if more > 0 else "")


@contextlib.contextmanager
def _guarded(mark: str) -> Iterator[Callable[[bytes], None]]:
    """A process beside us that ends the command should we be killed; yields what tells it the command's number."""
    # Apart from the terminal's signals, our folder and our output: it must not outlive us for anybody who waits.
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, mark, guard.DETACHED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )
    pipe, its_end = watcher.stdin, watcher.stdout
    assert pipe is not None, "asked for above"
    assert its_end is not None, "asked for above"

    def tell(word: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # somebody has killed it: the command does without
            pipe.write(word)
            pipe.flush()

    try:
        its_end.read(len(guard.READY))  # from now on, killing all our descendants spares it
        yield tell
    finally:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
        its_end.read()  # until it ends
        its_end.close()
        watcher.wait()


def _had_it_too(child: int, news: signal.struct_siginfo) -> bool:
    """Whether the terminal, which sent us a signal, sent it to our child as well. What a process sends, it sends to us.

    Ctrl-C goes to the process group in the foreground, so not to a child that has made itself one of its own, as
    `timeout` does. That the terminal is gone is told to the leader of the session alone, which we are under `ssh -t`.
    """
    if news.si_code <= 0:  # the kernel's own are above
        return False
    if news.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid():
        return False
    try:
        return os.getpgid(child) == os.getpgrp()
    except ProcessLookupError:
        return True


def run_group(program: Path, environment: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a program in its folder, as a separate process group that is killed after the time limit.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took more than `seconds`.
    """
    with subprocess.Popen(
        [program], cwd=program.parent, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            # Its own end first frees the number of its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess([program], process.returncode, out, err)
