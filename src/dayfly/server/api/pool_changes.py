"""Polls for changed resource pools of an organisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.server.records import run_records
from dayfly.server.records.run_records import POOLS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from dayfly.link.server_end import Links
    from dayfly.server.access.scopes import Scope
    from dayfly.server.db.store import OrgStore
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.runs.run_service import RunService
    from dayfly.spec.resource_pool import ResourcePoolSpec


class PoolChanges:
    """The states of one organisation's pools at the last poll."""

    def __init__(self, org_store: OrgStore, links: Links, pools: RunService[ResourcePoolSpec]) -> None:
        self._org_store, self._links, self._pools = org_store, links, pools
        self._versions: dict[str, tuple[object, ...]] = {}
        self.marker: object = None
        """The change marker of the last poll."""

    async def poll(self, marker: object) -> AsyncIterator[tuple[str, bytes, str]]:
        """Yield name, encoded API object (empty if deleted) and cluster of the pools that have changed.

        Args:
            marker: Differs from the last marker if anything may have changed.
        """
        if marker == self.marker:
            return
        records, is_complete = await self._org_store.read(lambda rows: run_records.read_readable(rows, POOLS))
        versions = {record.name: self._version(record) for record in records}
        changed = [record for record in records if self._versions.get(record.name) != versions[record.name]]
        for each in await self._pools.describe_all(changed):
            yield each["name"], msgspec.json.encode(each), each["spec"]["cluster"]
        if is_complete:
            for name in self._versions.keys() - versions.keys():
                yield name, b"", ""
        else:
            versions = self._versions | versions  # a pool that cannot be read is not deleted
        self._versions, self.marker = versions, marker

    async def describe(self, scope: Scope, names: Collection[str]) -> dict[str, bytes]:
        """Return the encoded API objects of pools by name, as visible to a key with that scope."""
        records, _ = await self._org_store.read(lambda rows: run_records.read_readable(rows, POOLS))
        visible = [record for record in records if record.name in names and scope.includes(record)]
        return {each["name"]: msgspec.json.encode(each) for each in await self._pools.describe_all(visible, scope)}

    def _version(self, record: RunRecord[ResourcePoolSpec]) -> tuple[object, ...]:
        """Return a value that differs if the pool's API object may have changed."""
        link = self._links.get(record.org, record.cluster)
        return record.uid, record.revision, id(link), link.state.version(record.uid) if link is not None else 0
