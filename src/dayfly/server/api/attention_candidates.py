"""The sandboxes that may need attention.

An open page requests what needs attention every few seconds. A sandbox that was checked and needed none is not read and
checked again until a host or the store reports any change, or its time to live is nearly over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.server.records.run_records import SANDBOXES, read_by_uid, read_page
from dayfly.spec.scalars import ttl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from dayfly.link.server_end import Links
    from dayfly.server.db.store import OrgStore
    from dayfly.server.records.run_records import RunRecord
    from dayfly.spec.sandbox import SandboxSpec


# All sandboxes are checked again after this time: a host reports no change if its ledger is damaged, for example.
MAX_AGE_MS = 600_000


class AttentionCandidates:
    """The sandboxes of one organisation that may need attention."""

    def __init__(self, org_store: OrgStore, links: Links, problem: Callable[[str], str]) -> None:
        """Create it.

        Args:
            org_store: The store of the organisation.
            links: The links to the hosts.
            problem: Returns why a host has not received the newest spec of the run with that UID; empty if it has.
        """
        self._org_store, self._links, self._problem = org_store, links, problem
        self._marker: tuple[object, ...] | None = None
        # When all sandboxes were read, in Unix milliseconds.
        self._read_at = 0
        self._records: dict[str, RunRecord[SandboxSpec]] = {}
        # When each sandbox that needs no attention gets the warning about its end, by its UID; 0 means never.
        self._healthy: dict[str, int] = {}

    async def read(self, now: int) -> tuple[tuple[object, ...], list[RunRecord[SandboxSpec]]]:
        """Return a marker of the state that was read, and the sandboxes by name. `now` is in Unix milliseconds."""
        marker = await self._read_marker()
        if marker != self._marker or not 0 <= now - self._read_at < MAX_AGE_MS:
            records = await self._org_store.read(lambda rows: read_page(rows, SANDBOXES))
            self._marker, self._read_at = marker, now
            self._records, self._healthy = {each.uid: each for each in records}, {}
        due = {uid for uid, warned_at in self._healthy.items() if 0 < warned_at <= now or self._problem(uid)}
        if due:
            again = await self._org_store.read(lambda rows: read_by_uid(rows, SANDBOXES, due))
            self._records |= {each.uid: each for each in again}
            self._healthy = {uid: warned_at for uid, warned_at in self._healthy.items() if uid not in due}
        return marker, sorted(self._records.values(), key=lambda record: record.name)

    def dismiss(
        self, marker: tuple[object, ...], checked: Iterable[RunRecord[SandboxSpec]], concerned: Collection[str]
    ) -> None:
        """Skip the checked sandboxes that need no attention, until something changes.

        Args:
            marker: The marker that `read` returned with these sandboxes.
            checked: The sandboxes that were checked.
            concerned: The names of those that need attention.
        """
        if marker != self._marker:
            return
        for record in checked:
            if record.name not in concerned:
                self._records.pop(record.uid, None)
                self._healthy[record.uid] = ttl.warning_time(record.life_begins_at, record.expires_at)

    async def _read_marker(self) -> tuple[object, ...]:
        """Return a value that differs after each change of the store, of a host's reports or of its abilities."""
        marker = await self._org_store.read_change_marker()
        links = sorted(self._links.each(self._org_store.org), key=id)
        return (*marker, *((id(each), each.state.changes, each.has_inventory, each.compile_target()) for each in links))
