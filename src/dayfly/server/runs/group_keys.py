"""Which keys of route groups lead to whose forks, and that each host knows it.

A group's key leads to a fork by the sandbox's own run. So whoever joins or leaves a group has its routes offered anew:
the wish is the same, and of two offers of one wish the later counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.plan.route_groups import routes_by_sandbox
from dayfly.server.records.run_records import SANDBOXES, find
from dayfly.server.records.unreadable_rows import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dayfly.server.db.store import Store
    from dayfly.server.records.group_membership import GroupMembership
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.route_group import RouteGroupSpec


class _Led(NamedTuple):
    name: str
    keys: dict[str, tuple[str, ...]]


class GroupKeys:
    """As of the last `follow`, for each organisation."""

    def __init__(self, store: Store, sync: HostSync, membership: Callable[[str], GroupMembership]) -> None:
        """`membership` finds that of an organisation."""
        self._store = store
        self._sync = sync
        self._membership = membership
        self._led: dict[str, dict[str, _Led]] = {}
        self._known: set[str] = set()
        sync.routed, sync.grouped = self.of, self.known

    def orgs(self) -> set[str]:
        """Those in which some key leads somewhere."""
        return set(self._led)

    def of(self, org: str, uid: str) -> dict[str, tuple[str, ...]]:
        """By baseline the keys that lead to a sandbox's forks."""
        led = self._led.get(org, {}).get(uid)
        return led.keys if led else {}

    async def known(self, org: str) -> None:
        """Return once it is known whom the keys of that organisation lead to.

        Raises:
            StoreError: the store cannot be read.
            UnreadableError: some of what it holds cannot be, so that nobody here knows all whom keys lead to.
        """
        if org not in self._known:
            membership = self._membership(org)
            groups = await membership.refresh()
            if not membership.is_whole:
                raise UnreadableError("one of the sandboxes or route groups")
            if org not in self._known:  # nobody was faster
                self._take_over(org, membership, groups)

    async def follow(self, org: str, groups: Sequence[RunRecord[RouteGroupSpec]]) -> None:
        """Have the keys of these groups lead to the forks of those sandboxes that they have now."""
        before = self._led.get(org, {})
        now = self._take_over(org, self._membership(org), groups)
        for uid, led in {**before, **now}.items():
            if before.get(uid) != now.get(uid):
                await self._tell(org, uid, led.name)

    def _take_over(
        self, org: str, membership: GroupMembership, groups: Sequence[RunRecord[RouteGroupSpec]]
    ) -> dict[str, _Led]:
        members = [(group.routing_key, membership.of(group)) for group in groups]
        names = {uid: member.name for _, found in members for uid, member in found.items()}
        now = {uid: _Led(names[uid], keys) for uid, keys in routes_by_sandbox(members).items()}
        self._known.add(org)
        self._led.pop(org, None)
        if now:
            self._led[org] = now
        return now

    async def _tell(self, org: str, uid: str, name: str) -> None:
        async with self._sync.lock(org, name):
            record = await self._store.of(org).read(lambda rows: find(rows, SANDBOXES, name))
            if record is None or record.uid != uid or record.stop is not None:
                return
            link = self._sync.link(record)
            if link is not None and link.place().routes:
                await self._sync.tell_soon(record)
