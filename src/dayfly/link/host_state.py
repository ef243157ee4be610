"""What the control plane knows of a host: what it has said, each thing in its newest form, and what it must have said.

It follows from messages alone, whatever order they come in. What nobody has said is not in it: a run that is missing
here has not ended, and may not even be missing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dayfly.link.wire import Inventory, Standing

# The version of a run of which nothing has been said, so that whoever waits from 0 on is told so once.
NOTHING_YET = 1


class HostState:
    """Of one host. `session` is 0 before it has said anything."""

    def __init__(self) -> None:
        self.session = 0
        self.changes = 0
        """Rises whenever a version may have changed."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after that."""
        # By uid: how each run stands, the newest of them that came with a report, and whose end is to be noted.
        self._runs: dict[str, Standing] = {}
        self._reports: dict[str, Standing] = {}
        self._ended: dict[str, Standing] = {}
        # Everything up to this count was received in order, and the host has reported this many.
        self._heard = 0
        self._said = 0
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        # By uid which of all `changes` was its last one, the latest at the end.
        self._changed: dict[str, int] = {}

    def take_over(self, inventory: Inventory) -> bool:
        """Everything that the host knows. Returns whether a session begins with it."""
        begins = inventory.session != self.session
        if begins:
            self.session = inventory.session
            before = {*self._runs, *self._ended}
            self._runs, self._reports, self._ended = {}, {}, {}
            self._heard, self._said = 0, 0
            self._changed = {uid: number for uid, number in self._changed.items() if uid in before}
            for uid in before:
                self._wake(uid)
        for run in inventory.runs:
            self.stands(run)
        for run in inventory.ended:
            self.ends(run)
        self._heard = max(self._heard, inventory.count)
        self.is_told(inventory.count)
        return begins

    def stands(self, run: Standing) -> None:
        """A run stands so, unless it is known to stand otherwise since."""
        if run.uid in self._ended:
            return
        known, told = self._runs.get(run.uid), self._reports.get(run.uid)
        if known is None or run.seq > known.seq:
            self._runs[run.uid] = run
            self._wake(run.uid)
        if run.report is not None and (told is None or run.seq > told.seq):
            self._reports[run.uid] = run

    def ends(self, run: Standing) -> None:
        """A run is over. That is final."""
        self._ended[run.uid] = run
        self._runs.pop(run.uid, None)
        self._reports.pop(run.uid, None)
        self._wake(run.uid)

    def forget(self, uids: Iterable[str]) -> None:
        """Their ends are noted elsewhere."""
        for uid in uids:
            self._ended.pop(uid, None)
            self._changed.pop(uid, None)

    @property
    def known(self) -> set[str]:
        """Runs of which something is kept here."""
        return set(self._changed)

    def drop(self, uids: Iterable[str]) -> None:
        """Nobody asks for these: whatever was said of them, but for an end that is to be acknowledged."""
        for uid in uids:
            if uid not in self._ended:
                self._runs.pop(uid, None)
                self._reports.pop(uid, None)
                self._changed.pop(uid, None)

    def hears(self, count: int) -> None:
        """Receive the host's report with that count. One that overtakes another counts as a gap."""
        if count == self._heard + 1:
            self._heard = count
        self.is_told(count)

    def is_told(self, count: int) -> None:
        """The host has said so many things."""
        self._said = max(self._said, count)

    @property
    def lacks_something(self) -> bool:
        """Whether the host has said things that were not heard, or not yet."""
        return self._heard < self._said

    @property
    def ended(self) -> set[str]:
        """Runs whose end the host keeps until it is acknowledged."""
        return set(self._ended)

    def has_ended(self, uid: str) -> bool:
        """Whether the host has said that the run is over."""
        return uid in self._ended

    def last(self, uid: str) -> Standing | None:
        """The newest report that the host has sent by itself."""
        return self._ended.get(uid) or self._reports.get(uid)

    def is_fresh(self, standing: Standing) -> bool:
        """Whether nothing newer was said of the run than this report of it."""
        known = self._runs.get(standing.uid)
        return standing.report is not None and (known is None or standing.seq >= known.seq)

    def version(self, uid: str) -> int:
        """The number of the run's newest report."""
        known = self._ended.get(uid) or self._runs.get(uid)
        return known.seq if known else NOTHING_YET

    def changed_since(self, changes: int) -> list[str]:
        """The runs whose versions may have changed since there were so many `changes`; none that are forgotten."""
        found = []
        for uid, number in reversed(self._changed.items()):
            if number <= changes:
                break
            found.append(uid)
        return found

    async def changed(self, uid: str, version: int, seconds: float) -> int:
        """Wait until the run's report is newer than `version`, at most so long; returns its version."""
        if self.version(uid) <= version and seconds > 0:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(uid, set())
            waiting.add(future)
            try:
                await asyncio.wait({future}, timeout=seconds)
            finally:
                waiting.discard(future)
                if not waiting and self._waiting.get(uid) is waiting:
                    del self._waiting[uid]
        return self.version(uid)

    def _wake(self, uid: str) -> None:
        self.changes += 1
        self._changed.pop(uid, None)
        self._changed[uid] = self.changes
        for future in self._waiting.get(uid, ()):
            if not future.done():
                future.set_result(None)
        self.on_change()
