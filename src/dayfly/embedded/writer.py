"""One thread writes the ledger; what is asked for while it is busy goes into its next transaction (group commit)."""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from dayfly.embedded.ledger import Ledger, LedgerError

T = TypeVar("T")
Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]
MOST_AT_ONCE = 256
QUIET_S = 0.5
"""After so long without work the written log is wiped, if there is need: it costs some writes of the disk."""


class Writer:
    """Runs functions over the ledger, each in a transaction that is durable when its future is done.

    Functions must only use the ledger they close over, and must not leave half a change when they raise: they check
    before they write. Their exception reaches their own caller; a disk that refuses reaches everyone in the group.
    """

    def __init__(self, ledger: Ledger) -> None:
        # Why the ledger could not be written last time; empty once it could.
        self.trouble = ""
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Do it in the next transaction, which begins at once.

        Its future raises:
            LedgerError: the disk refused; nothing was changed.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        # The transaction goes on even if whoever waits for it is cancelled: then nobody is answered.
        self._jobs.put((job, future))
        return future

    async def close(self) -> None:
        """Finish what was asked for, then end the thread."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        open_ = True
        while open_:
            group: list[Job] = []
            job = self._next()
            while job is not None:
                group.append(job)
                if len(group) == MOST_AT_ONCE or self._jobs.empty():
                    break
                job = self._jobs.get()
            open_ = job is not None
            if group:
                self._commit(group)

    def _next(self) -> Job | None:
        while self._ledger.remains:
            try:
                return self._jobs.get(timeout=QUIET_S)
            except queue.Empty:
                self._ledger.wipe()
        return self._jobs.get()

    def _commit(self, group: list[Job]) -> None:
        answers: list[Any] = []
        try:
            with self._ledger.transaction("commit"):
                for job, _ in group:
                    try:
                        answers.append(job())
                    except (LedgerError, sqlite3.DatabaseError, MemoryError):
                        # It may have left half a change, or nothing of anybody's: the group has not been.
                        raise
                    except Exception as error:  # noqa: BLE001 - it belongs to the caller, who gets it
                        answers.append(error)
            self.trouble = ""
        except LedgerError as error:
            answers = [error] * len(group)
            self.trouble = str(error)
        except Exception as error:  # noqa: BLE001 - of nobody in the group; a thread that ended would answer nobody
            answers = [error] * len(group)
            self.trouble = f"the ledger could not be written: {error!r}"
        self._loop.call_soon_threadsafe(_answer, [future for _, future in group], answers)


def _answer(futures: "list[asyncio.Future[Any]]", answers: list[Any]) -> None:
    for future, answer in zip(futures, answers, strict=True):
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
