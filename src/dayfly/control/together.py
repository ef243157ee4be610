"""Writes of one SQLite file in groups: a commit waits for the disk, and carries all who wait at the same time.

Each is whole by itself still (a savepoint), and durable when its caller hears of it. A group that the database does not
take, say because the disk is full, is taken apart: each of its writes is tried alone, and fails for itself.
"""

from __future__ import annotations

import asyncio
import collections
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqlalchemy import exc

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from sqlalchemy import Connection, Engine

T = TypeVar("T")

# Of so many none waits long for the others' work.
MOST = 64


class _Write(NamedTuple):
    work: Callable[[Connection], Any]
    future: Future[Any]


class _Outcome(NamedTuple):
    found: Any = None
    fault: BaseException | None = None


class Together:
    """One for each file.

    Args:
        engine: Writes to it.
        worker: The one thread that does.
        alone: Carries one write out in a transaction of its own; what it raises, the write's caller is told.
    """

    def __init__(self, engine: Engine, worker: Executor, alone: Callable[[Callable[[Connection], Any]], Any]) -> None:
        self._engine = engine
        self._worker = worker
        self._alone = alone
        self._waiting: collections.deque[_Write] = collections.deque()

    async def write(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, once what it wrote is durable."""
        mine: Future[T] = Future()
        self._waiting.append(_Write(work, mine))
        # A turn for each: one that finds nobody has been carried along.
        self._worker.submit(self._turn)
        return await asyncio.wrap_future(mine)

    def _turn(self) -> None:
        group: list[_Write] = []
        while self._waiting and len(group) < MOST:
            each = self._waiting.popleft()
            if each.future.set_running_or_notify_cancel():
                group.append(each)
        outcomes = self._group(group) if len(group) > 1 else [self._each(write) for write in group]
        for each, outcome in zip(group, outcomes, strict=True):
            if outcome.fault is not None:
                each.future.set_exception(outcome.fault)
            else:
                each.future.set_result(outcome.found)

    def _group(self, group: list[_Write]) -> list[_Outcome]:
        try:
            with self._engine.begin() as connection:
                outcomes = [_part(connection, each) for each in group]
        except exc.SQLAlchemyError:
            return [self._each(write) for write in group]
        return outcomes

    def _each(self, write: _Write) -> _Outcome:
        try:
            return _Outcome(self._alone(write.work))
        except BaseException as fault:  # noqa: BLE001 - it is the caller's
            return _Outcome(fault=fault)


def _part(connection: Connection, write: _Write) -> _Outcome:
    """One write of a group; what the database says of it ends the group."""
    try:
        with connection.begin_nested():
            return _Outcome(write.work(connection))
    except exc.SQLAlchemyError:
        raise
    except BaseException as fault:  # noqa: BLE001 - it is the caller's
        return _Outcome(fault=fault)
