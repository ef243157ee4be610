"""One thread writes the ledger; changes that are requested while it is busy share the next transaction."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dayfly.embedded.ledger import LedgerError, SqliteLedger
from dayfly.lib.group_commit import GroupCommit, Idle, Outcome

T = TypeVar("T")
MAX_GROUP_SIZE = 256
QUIET_S = 0.5
"""After so long without work the written log is wiped, if there is need: it costs some writes of the disk."""


class Writer:
    """Runs functions over the ledger, each in a transaction that is durable when its future is done.

    Functions must only use the ledger they close over, and must not leave half a change when they raise: they check
    before they write. Their exception reaches their own caller; a disk that refuses reaches everyone in the group.
    """

    def __init__(self, ledger: SqliteLedger) -> None:
        # Why the ledger could not be written last time; empty once it could.
        self.trouble = ""
        self._ledger = ledger
        idle = Idle(lambda: ledger.remains, ledger.wipe, QUIET_S)
        self._commits: GroupCommit[Callable[[], Any]] = GroupCommit(self._commit, "ledger", MAX_GROUP_SIZE, idle)

    def run(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Do it in the next transaction, which begins at once. A job that is cancelled before that is skipped.

        Its future raises:
            LedgerError: the disk refused; nothing was changed.
        """
        return self._commits.submit(job)

    async def close(self) -> None:
        """Finish what was requested, then end the thread."""
        await asyncio.to_thread(self._commits.close)

    def _commit(self, jobs: Sequence[Callable[[], Any]]) -> list[Outcome]:
        try:
            with self._ledger.transaction("commit"):
                outcomes = [_run(job) for job in jobs]
        except LedgerError as error:
            self.trouble = str(error)
            raise
        except Exception as error:
            self.trouble = f"the ledger could not be written: {error!r}"
            raise
        self.trouble = ""
        return outcomes


def _run(job: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(job())
    except (LedgerError, sqlite3.DatabaseError, MemoryError):
        # It may have left half a change: the whole group is rolled back.
        raise
    except Exception as error:  # noqa: BLE001 - returned to the caller of this job
        return Outcome(error=error)
