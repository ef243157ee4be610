"""Group commit: writes that wait for the disk at the same time share one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

W = TypeVar("W")


class CommitOutcome(NamedTuple):
    """The result of one write, or the error that its caller gets."""

    result: Any = None
    error: BaseException | None = None


class Idle(NamedTuple):
    """Work for times without writes: `run` is called after `after_s` seconds without one, while `is_needed`."""

    is_needed: Callable[[], bool]
    run: Callable[[], object]
    after_s: float


class _Submitted(NamedTuple, Generic[W]):
    write: W
    future: asyncio.Future[Any]


class GroupCommit(Generic[W]):
    """One thread that commits writes in the order of their submission."""

    def __init__(
        self,
        commit: Callable[[Sequence[W]], Sequence[CommitOutcome]],
        name: str,
        max_size: int,
        idle: Idle | None = None,
    ) -> None:
        """Start the thread.

        Args:
            commit: Commits some writes in that thread, and returns an outcome for each. If it raises, all their
                callers get that error.
            name: The thread's name.
            max_size: The largest number of writes in one transaction.
            idle: Work for times without writes.
        """
        self._commit = commit
        self._max_size = max_size
        self._idle = idle
        self._closed = False
        self._waiting: queue.Queue[_Submitted[W] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, write: W) -> asyncio.Future[Any]:
        """Commit a write in the next transaction; the future is done once it is durable.

        A write whose future is cancelled before that transaction begins is skipped. A write that is cancelled
        later may have been executed.
        """
        if self._closed:
            raise RuntimeError("no writes are accepted after close")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.put(_Submitted(write, future))
        return future

    def close(self) -> None:
        """Commit what was submitted, then end the thread. Calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            group: list[_Submitted[W]] = []
            each = self._next()
            while each is not None:
                if not each.future.cancelled():
                    group.append(each)
                if len(group) == self._max_size or self._waiting.empty():
                    break
                each = self._waiting.get()
            is_open = each is not None
            if group:
                self._commit_group(group)

    def _next(self) -> _Submitted[W] | None:
        while self._idle is not None and self._idle.is_needed():
            try:
                return self._waiting.get(timeout=self._idle.after_s)
            except queue.Empty:
                self._idle.run()
        return self._waiting.get()

    def _commit_group(self, group: Sequence[_Submitted[W]]) -> None:
        try:
            outcomes = self._commit([each.write for each in group])
        except BaseException as error:  # noqa: BLE001 - a thread that ended would leave all later callers waiting
            outcomes = [CommitOutcome(error=error)] * len(group)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], CommitOutcome]]] = {}
        for each, outcome in zip(group, outcomes, strict=True):
            by_loop.setdefault(each.future.get_loop(), []).append((each.future, outcome))
        for loop, settled in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the callers are gone
                loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Sequence[tuple[asyncio.Future[Any], CommitOutcome]]) -> None:
    for future, outcome in settled:
        if future.done():
            continue
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.result)
