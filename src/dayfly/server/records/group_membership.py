"""Which sandboxes the route groups of an organisation have, kept up with the store by what has changed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.plan.route_groups import Group, Member, Members
from dayfly.server.db.tables import sandboxes
from dayfly.server.records import unreadable_rows
from dayfly.server.records.run_records import GROUPS, SANDBOXES, read_readable
from dayfly.server.records.unreadable_rows import UnreadableError
from dayfly.spec.run import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dayfly.link.server_end import Links
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunRecord
    from dayfly.spec.route_group import RouteGroupSpec
    from dayfly.spec.sandbox import Ttl


class _Seen(NamedTuple):
    """A sandbox in the form that it had then; without a member, that form cannot be read."""

    updated_at: int
    ttl: Ttl | None
    member: Member | None

    def has_expired(self, now: int) -> bool:
        """Whether its time is over, whatever its host has said of that."""
        if self.ttl is None or self.member is None:
            return False
        begin = self.updated_at if self.ttl.offset_from == "updatedAt" else self.member.born_at
        return begin + self.ttl.seconds * 1000 <= now


class GroupMembership:
    """The sandboxes, as groups know them."""

    def __init__(self, store: Store, links: Links, org: str) -> None:
        self._store = store
        self._links = links
        self._org = org
        self._members = Members()
        self._seen: dict[str, _Seen] = {}
        self._wants: dict[str, tuple[int, Group | None]] = {}
        self._reading = asyncio.Lock()
        self.is_whole = True
        """Whether all could be read at the last `refresh`: else a sandbox that a group lacks may be one of its own."""

    def of(self, record: RunRecord[RouteGroupSpec]) -> dict[str, Member]:
        """The sandboxes of a group by their uids, the one whose forks go first at the head; as of the last `refresh`.

        What is being deleted is gone for a group. So it is asked here once more: nobody has to tell.
        """
        found = self._members.sandboxes_of(record.uid) if record.stop is None else {}
        return {uid: member for uid, member in found.items() if not self._is_leaving(uid, member)}

    def having(self, sandbox: str, records: Iterable[RunRecord[RouteGroupSpec]]) -> list[RunRecord[RouteGroupSpec]]:
        """Those of the groups that have the sandbox of that name now."""
        return [each for each in records if any(member.name == sandbox for member in self.of(each).values())]

    async def refresh(self) -> list[RunRecord[RouteGroupSpec]]:
        """Take over what the store holds now; all living groups that can be read."""
        async with self._reading:
            (groups, whole), rows, specs = await self._store.of(self._org).read(self._read)
            whole = self._take_sandboxes(rows, specs) and whole
            self.is_whole = self.is_whole and whole  # others look while the groups are taken over
            self.is_whole = await self._take_groups(groups) and whole
            return groups

    def _take_sandboxes(self, rows: Iterable[Any], specs: Mapping[str, str]) -> bool:
        """Take over those that live; whether all could be read."""
        living = {row.uid: row for row in rows if not row.stopped}
        for uid in self._members.sandboxes() - living.keys():
            self._members.drop(uid)
        for uid, row in living.items():
            if uid in specs:
                self._seen[uid] = _seen(row, specs[uid])
            if (member := self._seen[uid].member) is not None:
                self._members.put(uid, member)
            else:
                self._members.drop(uid)
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in living}
        return all(seen.member is not None for seen in self._seen.values())

    async def _take_groups(self, groups: Sequence[RunRecord[RouteGroupSpec]]) -> bool:
        """Take them over; whether it is known of all of them whom they want."""
        for uid in self._wants.keys() - {record.uid for record in groups}:
            self._members.drop_group(uid)
            self._wants.pop(uid, None)
        for record in groups:
            at, wants = self._wants.get(record.uid, (-1, None))
            if at != record.updated_at:
                wants = _wanted(record)
                self._wants[record.uid] = record.updated_at, wants
                if wants is not None:
                    self._members.put_group(record.uid, wants)
                else:
                    self._members.drop_group(record.uid)
                await asyncio.sleep(0)  # of many groups others need not wait for all
        return all(self._wants[record.uid][1] is not None for record in groups)

    def _read(self, rows_: Rows) -> tuple[tuple[list[RunRecord[RouteGroupSpec]], bool], list[Any], dict[str, str]]:
        groups = read_readable(rows_, GROUPS)
        if not groups[0]:
            return groups, [], {}
        table = sandboxes.c
        what = (table.uid, table.name, table.cluster, table.created_at, table.updated_at)
        rows = list(rows_.execute(rows_.select(*what, table.stop.is_not(None).label("stopped"))))
        new = [
            row.uid
            for row in rows
            if not row.stopped and (row.uid not in self._seen or self._seen[row.uid].updated_at != row.updated_at)
        ]
        specs: dict[str, str] = {}
        for start in range(0, len(new), 500):
            part = rows_.select(table.uid, table.spec).where(table.uid.in_(new[start : start + 500]))
            specs |= {row.uid: row.spec for row in rows_.execute(part)}
        return groups, rows, specs

    def _is_leaving(self, uid: str, member: Member) -> bool:
        link, seen = self._links.of(self._org, member.scope), self._seen.get(uid)
        if seen is None or seen.has_expired(_now()):
            return True
        # A host that is met anew says which have ended, and of these no more.
        last = link.state.last_report(uid) if link is not None else None
        is_closed = last is not None and last.report is not None and last.report.phase is not Phase.OPEN
        return is_closed or (link is not None and link.state.has_ended(uid))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _wanted(record: RunRecord[RouteGroupSpec]) -> Group | None:
    """Whom it wants; None if that cannot be read."""
    try:
        return Group(record.spec.cluster, record.spec.matcher)
    except unreadable_rows.FAULTS as fault:
        UnreadableError(f"route group {record.name}", fault).say()
        return None


def _seen(row: Any, text: str) -> _Seen:
    try:
        spec = SANDBOXES.parse(text)
    except unreadable_rows.FAULTS as fault:
        UnreadableError(f"sandbox {row.name}", fault).say()
        return _Seen(row.updated_at, None, None)
    forks = [(fork.fork_of.namespace, fork.fork_of.name) for fork in spec.forks]
    # What runs on the developer's machine answers for its baseline as a fork does.
    local = [(of.get("namespace"), of.get("name")) for each in spec.local if isinstance(of := each.get("from"), dict)]
    baselines = tuple(f"{namespace}/{name}" for namespace, name in (*forks, *local))
    return _Seen(row.updated_at, spec.ttl, Member(row.name, row.cluster, spec.labels, baselines, row.created_at))
