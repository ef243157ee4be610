"""Workers of `plugin test`: each runs one scenario at a time, in a thread, and all end early after a signal."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from dayfly.cli.local.child import Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

W = TypeVar("W")
T = TypeVar("T")
R = TypeVar("R")

_POLL_INTERVAL_S = 0.1


class Stopped(Exception):  # noqa: N818 # a request, not an error
    """A worker has to end, because the test ends."""


class StopRequest:
    """The request to end a test early. Its workers and its cleanup poll `check`."""

    def __init__(self) -> None:
        self.signals = Signals()
        self._stopped = threading.Event()

    def check(self) -> None:
        """End the caller if it has to.

        Raises:
            Interrupted: in the main thread, for a recorded signal.
            Stopped: in a worker, after `stop_workers`.
        """
        if threading.current_thread() is threading.main_thread():
            with self.signals.raise_interrupts():
                pass
        elif self._stopped.is_set():
            raise Stopped

    def stop_workers(self) -> None:
        """Let each worker end at its next `check`."""
        self._stopped.set()


def run_all(
    tasks: Sequence[T], workers: Sequence[W], run: Callable[[W, T], R], stop: StopRequest
) -> Generator[tuple[T, R]]:
    """Run tasks in threads, one at a time for each worker. Yield each with its result, in the order in which they end.

    If the caller closes the iterator, or a task raises an exception, the remaining tasks are stopped.

    Raises:
        Interrupted: this process has received a signal.
        Exception: the exception of a task.
    """
    free = deque(workers)  # as many as threads

    def run_one(task: T) -> R:
        worker = free.popleft()
        try:
            return run(worker, task)
        finally:
            free.append(worker)

    with ThreadPoolExecutor(len(workers)) as pool:
        pending: dict[Future[R], T] = {pool.submit(run_one, task): task for task in tasks}
        try:
            while pending:
                stop.check()
                for ended in wait(pending, _POLL_INTERVAL_S, FIRST_COMPLETED).done:
                    yield pending.pop(ended), ended.result()
        finally:
            if pending:
                stop.stop_workers()
            pool.shutdown(wait=True, cancel_futures=True)
