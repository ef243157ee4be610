"""The strategy for route groups. Their sandboxes determine whether they are ready and when they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.lib.clock import now_ms
from dayfly.plan import route_groups as groups
from dayfly.server.access import callers
from dayfly.server.access.scopes import WHOLE
from dayfly.server.admin import clusters
from dayfly.server.catalog.run_specs import refuse_changes
from dayfly.server.http.errors import RequestError
from dayfly.server.http.request_data import read_text
from dayfly.server.records.group_membership import GroupMembership
from dayfly.server.records.run_records import GROUPS, read_entries
from dayfly.server.runs import group_forms
from dayfly.server.runs.run_states import RunState, current_report, query_hosts
from dayfly.server.runs.run_strategy import Strategy, Wanted
from dayfly.spec import documents
from dayfly.spec.errors import quote
from dayfly.spec.route_group import MAY_CHANGE, RouteGroup, RouteGroupSpec
from dayfly.spec.unsupported_fields import GroupReach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from dayfly.link.server_end import Links
    from dayfly.plan.route_groups import GroupMember, GroupState
    from dayfly.server.access.scopes import Scope
    from dayfly.server.admin.audit import Actor
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.sync.host_sync import HostSync

MAX_GROUPS = 1_000


class GroupStrategy(Strategy[RouteGroupSpec]):
    """`Strategy` of route groups."""

    kind = GROUPS
    cluster_hint = "leave it out for sandboxes of any"

    def __init__(self, store: Store, links: Links, sync: HostSync) -> None:
        super().__init__(store, links, sync)
        self._memberships: dict[str, GroupMembership] = {}

    def membership(self, org: str) -> GroupMembership:
        """Return the sandboxes of an organisation's groups, as of the last refresh."""
        if org not in self._memberships:
            self._memberships[org] = GroupMembership(self._store, self._links, org)
        return self._memberships[org]

    async def refresh(self, org: str) -> tuple[GroupMembership, list[RunRecord[RouteGroupSpec]]]:
        """Return the current sandboxes of the groups, and all readable groups."""
        return self.membership(org), await self.membership(org).refresh()

    def current_lifetime(self, record: RunRecord[RouteGroupSpec]) -> tuple[int, int]:
        """Return start and end of the time to live, as of the last refresh; the end is 0 if there is none yet."""
        membership = self.membership(record.org)
        has_sandboxes = bool(membership.members_of(record)) or not membership.is_complete
        # The next sweep stores the time when the last sandbox left.
        since = 0 if has_sandboxes else record.unmatched_since or now_ms()
        current = msgspec.structs.replace(record, unmatched_since=since)
        return current.life_begins_at, current.ends_at

    async def read_selection(self, request: Request) -> Callable[[RunRecord[RouteGroupSpec]], bool]:
        """Return a predicate for the groups that have the sandbox of the query, or for all groups."""
        who, name = callers.get_caller(request), read_text(request, "sandbox")
        if not name:
            return lambda _record: True
        if not who.scope.includes_name(name):
            return lambda _record: False
        membership, _ = await self.refresh(who.org)
        return lambda record: any(member.name == name for member in membership.members_of(record).values())

    async def query_states(
        self, records: Sequence[RunRecord[RouteGroupSpec]], scope: Scope = WHOLE
    ) -> dict[str, RunState]:
        """Return the states of runs by UID, with their sandboxes of that scope and unsupported fields."""
        found = await self._states(records, scope)
        return {
            each.uid: found[each.uid][0]._replace(
                report=group_forms.group_report(each, *found[each.uid], self._reach(each))
            )
            for each in records
        }

    async def describe_all(
        self, records: Sequence[RunRecord[RouteGroupSpec]], scope: Scope = WHOLE
    ) -> list[dict[str, Any]]:
        """Return the API objects of route groups, as visible to a key with that scope."""
        found = await self._states(records, scope)
        return [
            group_forms.describe(each, *found[each.uid], self.current_lifetime(each)[1], self._reach(each))
            for each in records
        ]

    async def read_lifetime(self, record: RunRecord[RouteGroupSpec]) -> tuple[int, int]:
        """Return start and end of the time to live; refuse a group that has no end yet because it has sandboxes."""
        await self.refresh(record.org)
        begin, end = self.current_lifetime(record)
        if not end and record.spec.ttl is not None:
            duration = record.spec.ttl.duration
            text = f"route group {quote(record.name)} ends {duration} after its last sandbox, and it has sandboxes"
            raise RequestError(409, f"{text}: there is nothing to extend yet")
        return begin, end

    def parse(self, body: Any, name: str) -> Wanted[RouteGroupSpec]:
        group = documents.from_wire(body, "RouteGroup", name=name)
        assert isinstance(group, RouteGroup), "the kind is given"
        return Wanted(group.spec)

    async def choose_cluster(self, who: Actor, spec: RouteGroupSpec) -> str:
        """Return the cluster of the spec; for a group of all clusters the first connected one, or else the first."""
        if spec.cluster:
            return spec.cluster
        added = await self._store.for_org(who.org).read(clusters.names)
        known = sorted(filter(who.scope.includes_cluster, added | self._links.clusters(who.org)))
        met = [name for name in known if (link := self._links.get(who.org, name)) is not None and link.has_inventory]
        return next(iter(met or known), "")

    def apply_change(self, old: RouteGroupSpec, new: RouteGroupSpec) -> RouteGroupSpec:
        refuse_changes(old, new, MAY_CHANGE, "route group")
        return new

    def check_limit(self, rows: Rows, record: RunRecord[RouteGroupSpec]) -> None:
        """Refuse more than `MAX_GROUPS` in an organisation."""
        count = sum(each.name != record.key for each in read_entries(rows, GROUPS))
        if count >= MAX_GROUPS:
            raise RequestError(409, f"there are {count} route groups, the maximum of an organisation; delete some")

    async def _states(
        self, records: Sequence[RunRecord[RouteGroupSpec]], scope: Scope
    ) -> dict[str, tuple[RunState, GroupState]]:
        """Return by UID the state of each group's run, and the state of the group with its sandboxes of that scope."""
        for org in {record.org for record in records}:
            await self.membership(org).refresh()
        members = {record.uid: self._members(record, scope) for record in records}
        queried = {uid: dict(list(found.items())[: group_forms.MAX_QUERIED]) for uid, found in members.items()}
        others = [(each.org, member.scope, uid) for each in records for uid, member in queried[each.uid].items()]
        states, silence = await query_hosts(self._links, self._sync, records, others)
        found = {}
        for record in records:
            last = states.get(record.uid)
            report = current_report(self._sync, record, last, silence[record.org, record.cluster])
            endpoints = group_forms.describe_endpoints(record, last.endpoints if last else ())
            waiting = [
                member.name
                for uid, member in queried[record.uid].items()
                if (run := states.get(uid)) is None or run.report is None or not run.report.ready
            ]
            state = RunState(report, endpoints, last.seq if last else None)
            found[record.uid] = state, groups.group_state(report, members[record.uid].values(), waiting)
        return found

    def _members(self, record: RunRecord[RouteGroupSpec], scope: Scope) -> dict[str, GroupMember]:
        found = self.membership(record.org).members_of(record)
        return found if scope.is_whole else {uid: each for uid, each in found.items() if scope.includes_name(each.name)}

    def _reach(self, record: RunRecord[RouteGroupSpec]) -> GroupReach | None:
        """Return the clusters that route the group's key; None if none of its clusters has connected yet."""
        own = self._links.get(record.org, record.cluster)
        targets = {}
        members = self.membership(record.org).members_of(record).values()
        for cluster in sorted({member.scope for member in members} or {record.cluster}):
            link = self._links.get(record.org, cluster)
            if link is not None and link.has_inventory:
                targets[cluster] = link.compile_target()
        if not targets:
            return None
        has_addresses = own is not None and own.compile_target().routes
        return GroupReach(
            anywhere=any(target.routes for target in targets.values()),
            nowhere=tuple(cluster for cluster, target in targets.items() if not target.routes),
            addresses=record.cluster if has_addresses else "",
        )
