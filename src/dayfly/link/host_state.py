"""The state of a host as its messages have reported it, in whatever order they arrived.

A run that is missing here has not ended: the host may not have reported it yet.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dayfly.plan.phases import has_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dayfly.link.wire import Inventory, RunStatus

# The version of a run without a report, so that a client that waits from version 0 gets one answer at once.
NO_REPORT_VERSION = 1


class HostState:
    """The state of one host. `session` is 0 before its first message."""

    def __init__(self) -> None:
        self.session = 0
        self.changes = 0
        """Rises whenever a version may have changed."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after that."""
        # By UID: the newest status, the newest that came with a report, and ends that are not acknowledged yet.
        self._runs: dict[str, RunStatus] = {}
        self._reports: dict[str, RunStatus] = {}
        self._ended: dict[str, RunStatus] = {}
        # The runs with a report in which a create step had failed.
        self._failed: set[str] = set()
        # Everything up to the first count was received in order; the host has sent as many as the second.
        self._received = 0
        self._sent = 0
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        # By UID the number of its last change, in the order of changes.
        self._changed: dict[str, int] = {}

    def apply_inventory(self, inventory: Inventory) -> bool:
        """Apply the host's complete list. Return whether it begins a session."""
        begins = inventory.session != self.session
        if begins:
            self.session = inventory.session
            before = {*self._runs, *self._ended}
            self._runs, self._reports, self._ended = {}, {}, {}
            self._received, self._sent = 0, 0
            self._changed = {uid: number for uid, number in self._changed.items() if uid in before}
            for uid in before:
                self._notify(uid)
        for run in inventory.runs:
            self.record_status(run)
        for run in inventory.ended:
            self.record_end(run)
        self._received = max(self._received, inventory.count)
        self.record_total(inventory.count)
        return begins

    def record_status(self, run: RunStatus) -> None:
        """Record a run's status, unless a newer one is known."""
        if run.uid in self._ended:
            return
        self.record_failure(run)
        known, reported = self._runs.get(run.uid), self._reports.get(run.uid)
        if known is None or run.seq > known.seq:
            self._runs[run.uid] = run
            self._notify(run.uid)
        if run.report is not None and (reported is None or run.seq > reported.seq):
            self._reports[run.uid] = run

    def record_failure(self, run: RunStatus) -> None:
        """Remember whether a create step had failed, which the last report no longer states."""
        if run.report is not None and has_failed(run.report):
            self._failed.add(run.uid)

    def record_end(self, run: RunStatus) -> None:
        """Record that a run has ended, which is final."""
        self._ended[run.uid] = run
        self._runs.pop(run.uid, None)
        self._reports.pop(run.uid, None)
        self._notify(run.uid)

    def forget_ends(self, uids: Iterable[str]) -> None:
        """Forget the ends of these runs, which have left the store."""
        for uid in uids:
            self._ended.pop(uid, None)
            self._failed.discard(uid)
            self._changed.pop(uid, None)

    @property
    def known_uids(self) -> set[str]:
        """The runs that have a record here."""
        return set(self._changed)

    @property
    def reported_uids(self) -> set[str]:
        """The living runs of the present session, and the runs whose end is not acknowledged."""
        return {*self._runs, *self._ended}

    def forget_runs(self, uids: Iterable[str]) -> None:
        """Forget these runs, except ends that are not acknowledged yet."""
        for uid in uids:
            if uid not in self._ended:
                self._runs.pop(uid, None)
                self._reports.pop(uid, None)
                self._failed.discard(uid)
                self._changed.pop(uid, None)

    def record_count(self, count: int) -> None:
        """Record that the message with this count was received. A message that overtakes another counts as a gap."""
        if count == self._received + 1:
            self._received = count
        self.record_total(count)

    def record_total(self, count: int) -> None:
        """Record how many messages the host has sent."""
        self._sent = max(self._sent, count)

    @property
    def has_gap(self) -> bool:
        """Whether the host has sent messages that were not received, or not yet."""
        return self._received < self._sent

    @property
    def ended_uids(self) -> set[str]:
        """Runs whose end the host keeps until it is acknowledged."""
        return set(self._ended)

    def has_ended(self, uid: str) -> bool:
        """Whether the host has reported the run's end."""
        return uid in self._ended

    def had_failed(self, uid: str) -> bool:
        """Return whether a create step had failed, according to the reports of this session."""
        return uid in self._failed

    def last_report(self, uid: str) -> RunStatus | None:
        """Return the newest status that came with a report."""
        return self._ended.get(uid) or self._reports.get(uid)

    def is_fresh(self, status: RunStatus) -> bool:
        """Whether no newer status of the run is known."""
        known = self._runs.get(status.uid)
        return status.report is not None and (known is None or status.seq >= known.seq)

    def version(self, uid: str) -> int:
        """Return the number of the run's newest report."""
        known = self._ended.get(uid) or self._runs.get(uid)
        return known.seq if known else NO_REPORT_VERSION

    def changed_since(self, changes: int) -> list[str]:
        """Return the runs whose versions may have changed after that number of `changes`, without forgotten ones."""
        found = []
        for uid, number in reversed(self._changed.items()):
            if number <= changes:
                break
            found.append(uid)
        return found

    async def wait_for_change(self, uid: str, version: int, seconds: float) -> int:
        """Wait until the run's report is newer than `version`, or for `seconds`; return its version."""
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

    def _notify(self, uid: str) -> None:
        self.changes += 1
        self._changed.pop(uid, None)
        self._changed[uid] = self.changes
        for future in self._waiting.get(uid, ()):
            if not future.done():
                future.set_result(None)
        self.on_change()
