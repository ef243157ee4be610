"""Which keys of route groups lead to whose forks, and that each host knows it.

A group's key leads to a fork by the sandbox's own run. So whoever joins or leaves a group has its routes offered anew:
the wish is the same, and of two offers of one wish the later counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.control import records
from dayfly.plan.route_groups import routed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.control.crowd import Crowd
    from dayfly.control.group_records import GroupRecord
    from dayfly.control.host_sync import HostSync
    from dayfly.control.store import Store


class _Led(NamedTuple):
    name: str
    keys: dict[str, tuple[str, ...]]


class GroupKeys:
    """As of the last `follow`, for each organisation."""

    def __init__(self, store: Store, sync: HostSync) -> None:
        self._store = store
        self._sync = sync
        self._led: dict[str, dict[str, _Led]] = {}
        sync.routed = self.of

    def orgs(self) -> set[str]:
        """Those in which some key leads somewhere."""
        return set(self._led)

    def of(self, org: str, uid: str) -> dict[str, tuple[str, ...]]:
        """By baseline the keys that lead to a sandbox's forks."""
        led = self._led.get(org, {}).get(uid)
        return led.keys if led else {}

    async def follow(self, org: str, crowd: Crowd, groups: Sequence[GroupRecord]) -> None:
        """Have the keys of these groups lead to the forks of those sandboxes that they have now."""
        members = [(group.routing_key, crowd.of(group)) for group in groups]
        names = {uid: member.name for _, found in members for uid, member in found.items()}
        now = {uid: _Led(names[uid], keys) for uid, keys in routed(members).items()}
        before = self._led.pop(org, {})
        if now:
            self._led[org] = now
        for uid, led in {**before, **now}.items():
            if before.get(uid) != now.get(uid):
                await self._tell(org, uid, led.name)

    async def _tell(self, org: str, uid: str, name: str) -> None:
        async with self._sync.lock(org, name):
            record = await self._store.of(org).read(lambda rows: records.find(rows, name))
            if record is None or record.uid != uid or record.stop is not None:
                return
            link = self._sync.link(record)
            if link is not None and link.place().routes:
                await self._sync.tell(record)
