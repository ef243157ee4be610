"""Polls for changed route groups of an organisation."""

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

# The pause after a poll is a multiple of its CPU time, so that polls use at most a tenth of a core.
PAUSE_PER_WORK, MAX_PAUSE_S = 9, 5.0
BATCH_SIZE = 50


class GroupChanges:
    """The states of one organisation's route groups at the last poll."""

    def __init__(self, strategy: GroupStrategy, links: Links, org: str) -> None:
        self._strategy, self._links, self._org = strategy, links, org
        self._versions: dict[str, tuple[Any, ...]] = {}
        self.marker: object = None
        """The change marker of the last poll."""
        self._next_poll = 0.0

    async def poll(self, marker: object) -> AsyncIterator[tuple[str, bytes, str]]:
        """Yield name, encoded API object (empty if deleted) and cluster of the groups that have changed.

        Args:
            marker: Differs from the last marker if anything may have changed.
        """
        now = asyncio.get_running_loop().time()
        if marker == self.marker or now < self._next_poll:
            return
        began = time.thread_time()
        membership, records = await self._strategy.refresh(self._org)
        targets = frozenset((id(link), link.compile_target()) for link in self._links.each(self._org))
        versions = {record.name: (record.uid, self._version(membership, record), targets) for record in records}
        changed = [record for record in records if self._versions.get(record.name) != versions[record.name]]
        for start in range(0, len(changed), BATCH_SIZE):
            for each in await self._strategy.describe_all(changed[start : start + BATCH_SIZE]):
                yield each["name"], msgspec.json.encode(group_forms.shorten(each)), each["spec"].get("cluster") or ""
        if membership.is_complete:
            for name in self._versions.keys() - versions.keys():
                yield name, b"", ""
        else:
            versions = self._versions | versions  # a group that cannot be read is not deleted
        self._versions, self.marker = versions, marker
        self._next_poll = now + min(MAX_PAUSE_S, PAUSE_PER_WORK * (time.thread_time() - began))

    async def describe(self, scope: Scope, names: Collection[str]) -> dict[str, bytes]:
        """Return the encoded API objects of groups by name, as visible to a key with that scope."""
        _, records = await self._strategy.refresh(self._org)
        visible = [record for record in records if record.name in names and scope.includes(record)]
        described = await self._strategy.describe_all(visible, scope)
        return {each["name"]: msgspec.json.encode(group_forms.shorten(each)) for each in described}

    def _version(self, membership: GroupMembership, record: RunRecord[RouteGroupSpec]) -> tuple[Any, ...]:
        """Return a value that differs if the group's API object may have changed."""
        members = membership.members_of(record)
        queried = [
            (self._report_version(member.scope, uid), uid)
            for uid, member in list(members.items())[: group_forms.MAX_QUERIED]
        ]
        own = self._report_version(record.cluster, record.uid)
        return record.revision, own, queried, hash(frozenset(members))

    def _report_version(self, cluster: str, uid: str) -> int:
        link = self._links.get(self._org, cluster)
        return link.state.version(uid) if link is not None else 0
