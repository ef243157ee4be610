"""Runs a command in the foreground: each signal reaches it once, and this process waits until it has ended."""

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

# By name, because the command line also imports this module on Windows, which lacks two of them.
FORWARDED = tuple(each for each in signal.Signals if each.name in {"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"})

_KILLED = 128 + 9
"""The exit code after SIGKILL, also of a shell that waited for the killed process."""
_REMIND_AFTER_S = 1.0
_MAX_NAMES = 5


class Interrupted(Exception):  # noqa: N818 # a request, not an error
    """A signal requested the end of this process."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class Signals:
    """Catches signals that would end this process. They are recorded, raised, or forwarded to a child."""

    def __init__(self) -> None:
        self._pending: list[int] = []
        self._raising = False
        self._before: dict[int, object] = {}
        self._is_stoppable = False
        self._pause: Pause = contextlib.nullcontext

    def __enter__(self) -> Self:
        self._is_stoppable = signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        if self._is_stoppable:
            signal.signal(signal.SIGTSTP, self._suspend)
        for number in FORWARDED:
            # Signals that the parent ignores (nohup, a background job of a shell) stay ignored, for the child too.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # what `signal` returned, `signal` takes
        if self._is_stoppable:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _suspend(self, number: int, _frame: FrameType | None) -> None:
        """Stop this process. A terminal also stops the command; other senders stop only this process."""
        signal.signal(number, signal.SIG_IGN)  # no second stop during this one
        with self._pause():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)  # stopped here until SIGCONT
            signal.signal(number, signal.SIG_IGN)
        signal.signal(number, self._suspend)

    @contextlib.contextmanager
    def use_pause(self, pause: Pause) -> Iterator[None]:
        """Enter the context of `pause` before Ctrl-Z stops this process, and leave it afterwards."""
        self._pause = pause
        try:
            yield
        finally:
            self._pause = contextlib.nullcontext

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._raising:
            self._raising = False  # only once: a second signal must not interrupt the cleanup
            raise Interrupted(number)
        self._pending.append(number)

    @contextlib.contextmanager
    def raise_interrupts(self) -> Iterator[None]:
        """Raise `Interrupted` for signals within this context, and for a recorded signal."""
        self._raising = True
        try:
            if self._pending:
                self._raising = False
                raise Interrupted(self._pending.pop(0))
            yield
        finally:
            self._raising = False

    def clear_pending(self) -> None:
        """Drop recorded signals, which were handled."""
        self._pending.clear()

    def run(self, command: Sequence[str], environment: Mapping[str, str], mark: str) -> int:
        """Run a command. Return its exit code, or 128 + n if signal n ended it.

        If this process receives a signal before the end of the command, all processes with the mark are ended too.

        Args:
            command: The command and its arguments.
            environment: Its environment without the mark.
            mark: Identifies its processes, which the guard ends if this process is killed.

        Raises:
            OSError: the command cannot be started.
        """
        is_killed = False
        with _guarded(mark) as send:
            try:
                child = subprocess.Popen(list(command), env={**environment, guard.MARK: mark})
                send(f"{child.pid}\n".encode())
                code = self._wait(child, mark)
                # A CI runner that kills a job may kill this process next, so the guard ends what is left.
                is_killed = code == _KILLED
                return code
            finally:
                if not is_killed:
                    send(guard.DONE)

    def _wait(self, child: subprocess.Popen[bytes], mark: str) -> int:
        waited = {*(signal.Signals(number) for number in self._before), signal.SIGCHLD}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
        processes = _CommandProcesses(mark, child.pid)
        try:
            while self._pending:
                processes.record()
                child.send_signal(self._pending.pop(0))
            while child.poll() is None:
                received = signal.sigtimedwait(waited, 0.5)
                if received is not None and received.si_signo != signal.SIGCHLD:
                    processes.record()
                    if not _child_received(child.pid, received):
                        child.send_signal(received.si_signo)
            code = child.returncode if child.returncode >= 0 else 128 - child.returncode
            processes.end_or_report(waited, is_killed=code == _KILLED)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return code

    @staticmethod
    def start_blocked(thread: threading.Thread) -> None:
        """Start a thread that receives none of these signals, so that the main thread does."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _CommandProcesses:
    """The processes that a command has started. They are ended after a signal, and otherwise reported."""

    def __init__(self, mark: str, command: int) -> None:
        self._mark = mark
        self._command = command
        self._recorded: dict[int, str] = {}
        self._signalled = False

    def record(self) -> None:
        """Record the children of the command before it gets a signal.

        After its end, children without the mark cannot be found.
        """
        self._signalled = True
        found = guard.find_processes(self._mark, {self._command})
        self._recorded |= {process: guard.start_time(process) for process in found}

    def end_or_report(self, waited: Collection[int], *, is_killed: bool) -> None:
        """End or report the processes that are left after the command.

        Args:
            waited: Blocked signals; one of them other than SIGCHLD ends the grace period.
            is_killed: Whether SIGKILL has ended the command or what its shell waited for. The guard ends the rest.
        """
        if not self._signalled:
            if not is_killed and (left := guard.find_processes(self._mark)):
                show.print_message(
                    f"The command has ended; processes that it started are still running: {_describe(left)}"
                )
            return
        known = {process for process, began in self._recorded.items() if began and began == guard.start_time(process)}
        remind_at = time.monotonic() + _REMIND_AFTER_S

        def wait() -> bool:
            nonlocal remind_at
            if time.monotonic() > remind_at:
                remind_at = math.inf
                left = _describe(guard.find_processes(self._mark, known))
                show.print_message(
                    f"dayfly: waiting for processes of the command: {left}; send another signal to kill them"
                )
            received = signal.sigtimedwait(waited, guard.POLL_INTERVAL_S)
            return received is not None and received.si_signo != signal.SIGCHLD

        guard.terminate(self._mark, known, guard.GRACE_S, wait)


def _describe(processes: Collection[int]) -> str:
    """Return names and process IDs of the first processes."""
    found = []
    for process in sorted(processes)[:_MAX_NAMES]:
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{process}/comm").read_text(errors="replace").strip()
            found.append(f"{show.escape_line(name)} ({process})")
    more = len(processes) - _MAX_NAMES
    return ", ".join(found) + (f" and {more} more" if more > 0 else "")


@contextlib.contextmanager
def _guarded(mark: str) -> Iterator[Callable[[bytes], None]]:
    """Run the guard, which ends the command if this process is killed. Yield a function that writes to its pipe."""
    # The guard has its own session, folder and output, so that no program waits for it by a terminal, folder or pipe.
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, mark, guard.DETACHED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )
    pipe, output = watcher.stdin, watcher.stdout
    assert pipe is not None, "a pipe was requested"
    assert output is not None, "a pipe was requested"

    def send(message: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # the guard was killed: continue without it
            pipe.write(message)
            pipe.flush()

    try:
        output.read(len(guard.READY))  # from now on, the guard is no descendant of this process
        yield send
    finally:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
        output.read()  # until the guard ends
        output.close()
        watcher.wait()


def _child_received(child: int, received: signal.struct_siginfo) -> bool:
    """Whether the child received the same signal from the terminal. A signal from a process reaches only this process.

    Ctrl-C goes to the foreground process group, and not to a child in its own group, as with `timeout`. SIGHUP of a
    closed terminal goes only to the session leader, which this process is under `ssh -t`.
    """
    if received.si_code <= 0:  # sent by a process, not by the kernel
        return False
    if received.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid():
        return False
    try:
        return os.getpgid(child) == os.getpgrp()
    except ProcessLookupError:
        return True


def run_group(program: Path, environment: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a program in its folder, as a separate process group that is killed after the time limit.

    Raises:
        OSError: the program cannot be started.
        subprocess.TimeoutExpired: the program took more than `seconds`.
    """
    with subprocess.Popen(
        [program], cwd=program.parent, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            # The group ID is valid, because the process is not reaped yet.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess([program], process.returncode, out, err)
