"""The sandboxes of each route group of an organisation, updated from changed rows of the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.lib.clock import now_ms
from dayfly.plan.route_groups import GroupMember, GroupSelector, MembershipIndex
from dayfly.server.db.tables import sandboxes
from dayfly.server.records import unreadable_rows
from dayfly.server.records.run_records import BATCH_SIZE, GROUPS, SANDBOXES, read_readable
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


class _CachedSandbox(NamedTuple):
    """A sandbox as of its last update; `member` is None if this version cannot read its spec."""

    updated_at: int
    ttl: Ttl | None
    member: GroupMember | None

    def has_expired(self, now: int) -> bool:
        """Return whether its time to live is over, even if its host has not reported that yet."""
        if self.ttl is None or self.member is None:
            return False
        begin = self.updated_at if self.ttl.offset_from == "updatedAt" else self.member.born_at
        return begin + self.ttl.seconds * 1000 <= now


class GroupMembership:
    """The route groups of one organisation and the sandboxes that they match."""

    def __init__(self, store: Store, links: Links, org: str) -> None:
        self._store = store
        self._links = links
        self._org = org
        self._members = MembershipIndex()
        self._sandboxes: dict[str, _CachedSandbox] = {}
        # By UID: `updated_at` of the group, and its cluster and matcher; None if this version cannot read them.
        self._groups: dict[str, tuple[int, GroupSelector | None]] = {}
        self._refreshing = asyncio.Lock()
        self.is_complete = True
        """Whether the last `refresh` could read all rows. If not, groups may have sandboxes that are missing here."""

    def members_of(self, record: RunRecord[RouteGroupSpec]) -> dict[str, GroupMember]:
        """Return the sandboxes of a group by UID, as of the last `refresh`; the first has the highest precedence.

        Sandboxes that are being deleted are left out. Each call checks this again, as no event reports it.
        """
        found = self._members.sandboxes_of(record.uid) if record.stop is None else {}
        return {uid: member for uid, member in found.items() if not self._is_ending(uid, member)}

    async def refresh(self) -> list[RunRecord[RouteGroupSpec]]:
        """Read the changes of the store; return all readable groups."""
        async with self._refreshing:
            (groups, is_complete), rows, specs = await self._store.for_org(self._org).read(self._read)
            is_complete = self._update_sandboxes(rows, specs) and is_complete
            self.is_complete = self.is_complete and is_complete  # other tasks run during the update of the groups
            self.is_complete = await self._update_groups(groups) and is_complete
            return groups

    def _update_sandboxes(self, rows: Iterable[Any], specs: Mapping[str, str]) -> bool:
        """Update the sandboxes that are not being deleted; return whether all can be read."""
        active = {row.uid: row for row in rows if not row.stopped}
        for uid in self._members.sandboxes() - active.keys():
            self._members.drop(uid)
        for uid, row in active.items():
            if uid in specs:
                self._sandboxes[uid] = _read_sandbox(row, specs[uid])
            if (member := self._sandboxes[uid].member) is not None:
                self._members.put(uid, member)
            else:
                self._members.drop(uid)
        self._sandboxes = {uid: sandbox for uid, sandbox in self._sandboxes.items() if uid in active}
        return all(sandbox.member is not None for sandbox in self._sandboxes.values())

    async def _update_groups(self, groups: Sequence[RunRecord[RouteGroupSpec]]) -> bool:
        """Update the groups; return whether the matchers of all can be read."""
        for uid in self._groups.keys() - {record.uid for record in groups}:
            self._members.drop_group(uid)
            self._groups.pop(uid, None)
        for record in groups:
            updated_at, group = self._groups.get(record.uid, (-1, None))
            if updated_at != record.updated_at:
                group = _read_group(record)
                self._groups[record.uid] = record.updated_at, group
                if group is not None:
                    self._members.put_group(record.uid, group)
                else:
                    self._members.drop_group(record.uid)
                await asyncio.sleep(0)  # other tasks run between two groups
        return all(self._groups[record.uid][1] is not None for record in groups)

    def _read(self, rows_: Rows) -> tuple[tuple[list[RunRecord[RouteGroupSpec]], bool], list[Any], dict[str, str]]:
        """Return the groups and whether all could be read, the sandboxes, and the specs of changed sandboxes."""
        groups = read_readable(rows_, GROUPS)
        if not groups[0]:
            return groups, [], {}
        table = sandboxes.c
        columns = (table.uid, table.name, table.cluster, table.created_at, table.updated_at)
        rows = list(rows_.execute(rows_.select(*columns, table.stop.is_not(None).label("stopped"))))
        changed = [row.uid for row in rows if not row.stopped and self._has_changed(row)]
        specs: dict[str, str] = {}
        for start in range(0, len(changed), BATCH_SIZE):
            query = rows_.select(table.uid, table.spec).where(table.uid.in_(changed[start : start + BATCH_SIZE]))
            specs |= {row.uid: row.spec for row in rows_.execute(query)}
        return groups, rows, specs

    def _has_changed(self, row: Any) -> bool:
        return row.uid not in self._sandboxes or self._sandboxes[row.uid].updated_at != row.updated_at

    def _is_ending(self, uid: str, member: GroupMember) -> bool:
        link, sandbox = self._links.get(self._org, member.scope), self._sandboxes.get(uid)
        if sandbox is None or sandbox.has_expired(now_ms()):
            return True
        # After a reconnection the host lists ended runs but sends no reports of them.
        last = link.state.last_report(uid) if link is not None else None
        is_closed = last is not None and last.report is not None and last.report.phase is not Phase.OPEN
        return is_closed or (link is not None and link.state.has_ended(uid))


def _read_group(record: RunRecord[RouteGroupSpec]) -> GroupSelector | None:
    """Return its cluster and matcher; None if this version cannot read them."""
    try:
        return GroupSelector(record.spec.cluster, record.spec.matcher)
    except unreadable_rows.FAULTS as fault:
        UnreadableError(f"route group {record.name}", fault).log_once()
        return None


def _read_sandbox(row: Any, text: str) -> _CachedSandbox:
    try:
        spec = SANDBOXES.parse(text)
    except unreadable_rows.FAULTS as fault:
        UnreadableError(f"sandbox {row.name}", fault).log_once()
        return _CachedSandbox(row.updated_at, None, None)
    forks = [(fork.fork_of.namespace, fork.fork_of.name) for fork in spec.forks]
    # A process on the developer's machine replaces its baseline as a fork does.
    origins = [origin for each in spec.local if isinstance(origin := each.get("from"), dict)]
    local = [(origin.get("namespace"), origin.get("name")) for origin in origins]
    baselines = tuple(f"{namespace}/{name}" for namespace, name in (*forks, *local))
    return _CachedSandbox(
        row.updated_at, spec.ttl, GroupMember(row.name, row.cluster, spec.labels, baselines, row.created_at)
    )
