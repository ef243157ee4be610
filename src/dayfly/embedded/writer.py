"""The thread that writes the ledger; jobs that arrive during a write share the next transaction."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dayfly.embedded.ledger import LedgerError, SqliteLedger
from dayfly.lib.group_commit import CommitOutcome, GroupCommit, Idle

T = TypeVar("T")
MAX_GROUP_SIZE = 256
IDLE_BEFORE_TRUNCATE_S = 0.5
"""Idle time before the write-ahead log is truncated, if necessary. Truncating costs a few disk writes."""


class Writer:
    """Runs functions over the ledger, each in a transaction that is durable when its future is done.

    A job must only use the ledger it closes over, and must check before it writes, so that an exception leaves no
    partial change. An exception reaches the caller of its job; a disk error reaches all callers of the group.
    """

    def __init__(self, ledger: SqliteLedger) -> None:
        # Why the last write of the ledger failed; empty after a success.
        self.write_error = ""
        self._ledger = ledger
        idle = Idle(lambda: ledger.needs_truncation, ledger.wipe, IDLE_BEFORE_TRUNCATE_S)
        self._commits: GroupCommit[Callable[[], Any]] = GroupCommit(self._commit, "ledger", MAX_GROUP_SIZE, idle)

    def run(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Run the job in the next transaction, which begins at once. A job that is cancelled before is skipped.

        Its future raises:
            LedgerError: the disk refused; nothing was changed.
        """
        return self._commits.submit(job)

    async def close(self) -> None:
        """Finish all submitted jobs, then end the thread."""
        await asyncio.to_thread(self._commits.close)

    def _commit(self, jobs: Sequence[Callable[[], Any]]) -> list[CommitOutcome]:
        try:
            with self._ledger.transaction("commit"):
                outcomes = [_run(job) for job in jobs]
        except LedgerError as error:
            self.write_error = str(error)
            raise
        except Exception as error:
            self.write_error = f"the ledger could not be written: {error!r}"
            raise
        self.write_error = ""
        return outcomes


def _run(job: Callable[[], Any]) -> CommitOutcome:
    try:
        return CommitOutcome(job())
    except (LedgerError, sqlite3.DatabaseError, MemoryError):
        # The job may have made a partial change: roll back the whole group.
        raise
    except Exception as error:  # noqa: BLE001 - returned to the caller of this job
        return CommitOutcome(error=error)
