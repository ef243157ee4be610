"""What hosts have taken, as one server remembers it.

What other servers are to know of that is written down soon, and together.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from dayfly.control import confirmed, run_records
from dayfly.control.confirmed import NOTHING, Confirmation
from dayfly.control.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dayfly.control.rows import Rows
    from dayfly.control.run_records import Entry, RunRecord
    from dayfly.control.store import Store
    from dayfly.link.server_end import Link

# So many that hosts have taken over are noted while others are still told.
MOST_UNMARKED = 64
# How soon other servers are to know: what one has told, the next need not.
MARK_S = 0.25


class Marks:
    """One for each server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # By uid what its host has confirmed to this process; what is to be noted of that, and that something is.
        self._confirmed: dict[str, Confirmation] = {}
        self._unnoted: dict[str, Confirmation] = {}
        self._unmarked: set[str] = set()
        self._fresh = asyncio.Event()
        # Whom a host has taken over since this process began. A record may be older than its mark in the store.
        self._taken: set[str] = set()

    @property
    def uids(self) -> set[str]:
        """Of whom anything is remembered."""
        return self._taken | self._confirmed.keys()

    def has_taken(self, record: RunRecord[Any]) -> bool:
        """Whether a host is known to have its run."""
        return record.taken_over or record.uid in self._taken

    def is_confirmed(
        self, record: Entry | RunRecord[Any], link: Link | None, told: Confirmation, keys: Mapping[str, Sequence[str]]
    ) -> bool:
        """Whether its host has carried out what the store says; `told` is what the store knows of that itself."""
        if link is None:
            return False
        last = max(told, self._confirmed.get(record.uid, NOTHING))
        return last.session == link.session and last.form == confirmed.form(record.revision, link.place(), keys)

    def take(self, record: RunRecord[Any], link: Link, told: Confirmation) -> None:
        """Its host has taken that."""
        self._confirmed[record.uid] = max(told, self._confirmed.get(record.uid, NOTHING))
        self._taken.add(record.uid)
        if not record.taken_over:
            self._unmarked.add(record.uid)
        if link.shared and told.number:
            self._unnoted[record.uid] = told
            self._fresh.set()

    def doubt(self, uid: str) -> None:
        """Something else is about to be said of it."""
        self._confirmed.pop(uid, None)

    def forget(self, uid: str) -> None:
        """It is over."""
        for known in (self._confirmed, self._unnoted):
            known.pop(uid, None)
        self._unmarked.discard(uid)
        self._taken.discard(uid)

    async def write_if_many(self) -> None:
        """Write down what is not yet, if it is much.

        Raises:
            StoreError: it is tried again later.
        """
        if len(self._unmarked) >= MOST_UNMARKED:
            await self.write()

    async def write(self) -> None:
        """Write down what is not yet.

        Raises:
            StoreError: it is tried again later.
        """
        uids, self._unmarked = self._unmarked, set()
        told, self._unnoted = self._unnoted, {}
        if not uids and not told:
            return

        def work(rows: Rows) -> None:
            if uids:
                run_records.mark_taken_over(rows, sorted(uids))
            confirmed.note(rows, told)

        try:
            await self._store.everywhere().write(work)
        except BaseException:
            self._unmarked |= uids
            self._unnoted = told | self._unnoted
            raise

    async def run(self) -> None:
        """Write down what others are to know, until cancelled."""
        while True:
            await self._fresh.wait()
            await asyncio.sleep(MARK_S)
            self._fresh.clear()
            with contextlib.suppress(StoreError):  # the next round says so
                await self.write()
