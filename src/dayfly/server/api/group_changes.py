"""Which route groups of an organisation have changed since somebody last looked, and how they stand now."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.server.runs import group_forms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from dayfly.link.server_end import Links
    from dayfly.server.access.scopes import Scope
    from dayfly.server.records.group_membership import GroupMembership
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.runs.group_strategy import GroupStrategy
    from dayfly.spec.route_group import RouteGroupSpec

# A thousand groups of thousands of sandboxes take a moment: so much of the time is not spent on looking.
PAUSE_PER_WORK, LONGEST_PAUSE_S = 9, 5.0
# So many are told of at once; then others have their turn.
AT_ONCE = 50


class GroupChanges:
    """Of one organisation."""

    def __init__(self, strategy: GroupStrategy, links: Links, org: str) -> None:
        self._strategy, self._links, self._org = strategy, links, org
        self._seen: dict[str, tuple[Any, ...]] = {}
        self.stamped: object = None
        """As of the last look at all groups."""
        self._again_at = 0.0

    async def look(self, stamp: object) -> AsyncIterator[tuple[str, bytes, str]]:
        """By name those that stand otherwise than at the last look, as clients know them; empty for one that is gone.

        With the cluster whose each is.

        Args:
            stamp: Another one where anything may have changed since.
        """
        now = asyncio.get_running_loop().time()
        if stamp == self.stamped or now < self._again_at:
            return
        began = time.thread_time()
        membership, living = await self._strategy.refresh(self._org)
        places = frozenset((id(link), link.place()) for link in self._links.each(self._org))
        versions = {record.name: (record.uid, self._version(membership, record), places) for record in living}
        changed = [record for record in living if self._seen.get(record.name) != versions[record.name]]
        for start in range(0, len(changed), AT_ONCE):
            for each in await self._strategy.describe_all(changed[start : start + AT_ONCE]):
                yield each["name"], msgspec.json.encode(group_forms.shorten(each)), each["spec"].get("cluster") or ""
        if membership.is_complete:
            for name in self._seen.keys() - versions.keys():
                yield name, b"", ""
        else:
            versions = self._seen | versions  # what cannot be read now is not gone
        self._seen, self.stamped = versions, stamp
        self._again_at = now + min(LONGEST_PAUSE_S, PAUSE_PER_WORK * (time.thread_time() - began))

    async def seen(self, scope: Scope, names: Collection[str]) -> dict[str, bytes]:
        """Those of these that live now, as a key of that scope knows them."""
        _, living = await self._strategy.refresh(self._org)
        ours = [record for record in living if record.name in names and scope.takes(record)]
        shown = await self._strategy.describe_all(ours, scope)
        return {each["name"]: msgspec.json.encode(group_forms.shorten(each)) for each in shown}

    def _version(self, membership: GroupMembership, record: RunRecord[RouteGroupSpec]) -> tuple[Any, ...]:
        """What is said of a group stays as it is as long as this does."""
        members = membership.members_of(record)
        asked = [
            (self._run(member.scope, uid), uid) for uid, member in list(members.items())[: group_forms.MAX_QUERIED]
        ]
        return record.revision, self._run(record.cluster, record.uid), asked, hash(frozenset(members))

    def _run(self, cluster: str, uid: str) -> int:
        link = self._links.of(self._org, cluster)
        return link.state.version(uid) if link is not None else 0
