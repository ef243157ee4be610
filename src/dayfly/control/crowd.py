"""Which sandboxes the route groups of an organisation have, kept up with the store by what has changed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.control import group_records
from dayfly.control.tables import sandboxes
from dayfly.plan.route_groups import Group, Member, Members
from dayfly.spec.run import Phase
from dayfly.spec.sandbox import SandboxSpec, Ttl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.control.group_records import GroupRecord
    from dayfly.control.link import Links
    from dayfly.control.rows import Rows
    from dayfly.control.store import Store

_decode_spec = msgspec.json.Decoder(SandboxSpec).decode


class _Seen(NamedTuple):
    """A sandbox in the form that it had then."""

    updated_at: int
    ttl: Ttl | None
    member: Member

    def has_expired(self, now: int) -> bool:
        """Whether its time is over, whatever its host has said of that."""
        if self.ttl is None:
            return False
        begin = self.updated_at if self.ttl.offset_from == "updatedAt" else self.member.born_at
        return begin + self.ttl.seconds * 1000 <= now


class Crowd:
    """The sandboxes, as groups know them."""

    def __init__(self, store: Store, links: Links, org: str) -> None:
        self._store = store
        self._links = links
        self._org = org
        self._members = Members()
        self._seen: dict[str, _Seen] = {}
        self._wants: dict[str, tuple[int, Group]] = {}
        self._reading = asyncio.Lock()

    def of(self, record: GroupRecord) -> dict[str, Member]:
        """The sandboxes of a group by their uids, the one whose forks go first at the head; as of the last `refresh`.

        What is being deleted is gone for a group. So it is asked here once more: nobody has to tell.
        """
        found = self._members.of(record.uid) if record.stop is None else {}
        return {uid: member for uid, member in found.items() if not self._is_leaving(uid, member)}

    def having(self, sandbox: str, records: Iterable[GroupRecord]) -> list[GroupRecord]:
        """Those of the groups that have the sandbox of that name now."""
        return [each for each in records if any(member.name == sandbox for member in self.of(each).values())]

    async def refresh(self) -> list[GroupRecord]:
        """Take over what the store holds now; all living groups."""
        async with self._reading:
            groups, rows, specs = await self._store.of(self._org).read(self._read)
            living = {row.uid for row in rows if not row.stopped}
            for uid in self._members.sandboxes() - living:
                self._members.drop(uid)
            for row in rows:
                if row.stopped:
                    continue
                if row.uid in specs:
                    self._seen[row.uid] = _seen(row, _decode_spec(specs[row.uid]))
                self._members.put(row.uid, self._seen[row.uid].member)
            self._seen = {uid: seen for uid, seen in self._seen.items() if uid in living}
            for uid in self._members.groups() - {record.uid for record in groups}:
                self._members.drop_group(uid)
                self._wants.pop(uid, None)
            for record in groups:
                at, wants = self._wants.get(record.uid, (-1, None))
                if wants is None or at != record.updated_at:
                    wants = Group(record.spec.cluster, record.spec.matcher)
                    self._wants[record.uid] = record.updated_at, wants
                    self._members.put_group(record.uid, wants)
                    await asyncio.sleep(0)  # of many groups others need not wait for all
            return groups

    def _read(self, rows_: Rows) -> tuple[list[GroupRecord], list[Any], dict[str, str]]:
        groups = group_records.living(rows_)
        if not groups:
            return [], [], {}
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
        last = link.picture.last(uid) if link is not None else None
        is_closed = last is not None and last.report is not None and last.report.phase is not Phase.OPEN
        return is_closed or (link is not None and link.picture.has_ended(uid))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _seen(row: Any, spec: SandboxSpec) -> _Seen:
    forks = [(fork.fork_of.namespace, fork.fork_of.name) for fork in spec.forks]
    # What runs on the developer's machine answers for its baseline as a fork does.
    local = [(of.get("namespace"), of.get("name")) for each in spec.local if isinstance(of := each.get("from"), dict)]
    baselines = tuple(f"{namespace}/{name}" for namespace, name in (*forks, *local))
    return _Seen(row.updated_at, spec.ttl, Member(row.name, row.cluster, spec.labels, baselines, row.created_at))
