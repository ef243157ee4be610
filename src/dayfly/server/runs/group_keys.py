"""The routing keys of route groups: which of them route to a sandbox's forks, and the orders to its host.

The routes of a group's key belong to the run of each sandbox. When a sandbox joins or leaves a group, its host gets a
new offer with the same spec and other keys. If there are two offers for one spec, the later offer counts.
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


class _Routed(NamedTuple):
    """A sandbox with routes of groups: its name, and by baseline the keys that route to its forks."""

    name: str
    keys: dict[str, tuple[str, ...]]


class GroupKeys:
    """The routing keys of sandboxes by organisation, as of the last `update`.

    Args:
        store: The store.
        sync: Sends orders, and gets the keys from here.
        membership: Returns the group membership of an organisation.
    """

    def __init__(self, store: Store, sync: HostSync, membership: Callable[[str], GroupMembership]) -> None:
        self._store = store
        self._sync = sync
        self._membership = membership
        # By organisation and UID.
        self._routed: dict[str, dict[str, _Routed]] = {}
        self._loaded: set[str] = set()
        sync.routing_keys, sync.load_routing_keys = self.find, self.load

    def orgs(self) -> set[str]:
        """Return the organisations with a sandbox that has routes of groups."""
        return set(self._routed)

    def find(self, org: str, uid: str) -> dict[str, tuple[str, ...]]:
        """Return by baseline the keys that route to a sandbox's forks."""
        sandbox = self._routed.get(org, {}).get(uid)
        return sandbox.keys if sandbox else {}

    async def load(self, org: str) -> None:
        """Read the keys of an organisation, unless they have been read.

        Raises:
            StoreError: the store cannot be read.
            UnreadableError: a sandbox or route group cannot be read, so keys may be missing.
        """
        if org not in self._loaded:
            membership = self._membership(org)
            groups = await membership.refresh()
            if not membership.is_complete:
                raise UnreadableError("one of the sandboxes or route groups")
            if org not in self._loaded:  # another task may have loaded them during the refresh
                self._compute(org, membership, groups)

    async def update(self, org: str, groups: Sequence[RunRecord[RouteGroupSpec]]) -> None:
        """Compute the keys from the current sandboxes of the groups; send orders for sandboxes whose keys change."""
        before = self._routed.get(org, {})
        now = self._compute(org, self._membership(org), groups)
        for uid, sandbox in {**before, **now}.items():
            if before.get(uid) != now.get(uid):
                await self._send_order(org, uid, sandbox.name)

    def _compute(
        self, org: str, membership: GroupMembership, groups: Sequence[RunRecord[RouteGroupSpec]]
    ) -> dict[str, _Routed]:
        members = [(group.routing_key, membership.members_of(group)) for group in groups]
        names = {uid: member.name for _, found in members for uid, member in found.items()}
        now = {uid: _Routed(names[uid], keys) for uid, keys in routes_by_sandbox(members).items()}
        self._loaded.add(org)
        self._routed.pop(org, None)
        if now:
            self._routed[org] = now
        return now

    async def _send_order(self, org: str, uid: str, name: str) -> None:
        async with self._sync.lock(org, name):
            record = await self._store.for_org(org).read(lambda rows: find(rows, SANDBOXES, name))
            if record is None or record.uid != uid or record.stop is not None:
                return
            link = self._sync.link(record)
            if link is not None and link.compile_target().routes:
                await self._sync.send_order_soon(record)
