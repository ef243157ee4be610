"""How route groups stand: whom each has now, what its run is doing, and the words that clients are told of both."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dayfly.control import group_forms
from dayfly.control.crowd import Crowd
from dayfly.control.group_leads import leads
from dayfly.control.lives import Told, with_trouble
from dayfly.control.scopes import WHOLE
from dayfly.plan import route_groups as groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dayfly.control.group_records import GroupRecord
    from dayfly.control.host_sync import HostSync
    from dayfly.control.scopes import Scope
    from dayfly.control.store import Store
    from dayfly.link.server_end import Links
    from dayfly.link.wire import Standing as Run
    from dayfly.plan.route_groups import GroupState, Member
    from dayfly.spec.unsupported_fields import GroupReach


class GroupStandings:
    """Of all organisations."""

    def __init__(self, store: Store, links: Links, sync: HostSync) -> None:
        self._store = store
        self._links = links
        self._sync = sync
        self._crowds: dict[str, Crowd] = {}

    def crowd(self, org: str) -> Crowd:
        """Whom the route groups of an organisation have, as of the last look."""
        if org not in self._crowds:
            self._crowds[org] = Crowd(self._store, self._links, org)
        return self._crowds[org]

    async def look(self, org: str) -> tuple[Crowd, list[GroupRecord]]:
        """Whom they have now, and all of them that live."""
        return self.crowd(org), await self.crowd(org).refresh()

    def life(self, record: GroupRecord) -> tuple[int, int]:
        """When the time that it still has began and ends, as of the last look; 0 for an end that is not due."""
        crowd = self.crowd(record.org)
        return record.life(_now(), matched=bool(crowd.of(record)) or not crowd.is_whole)

    async def told(self, records: Sequence[GroupRecord], scope: Scope = WHOLE) -> dict[str, Told]:
        """What the groups' runs are doing, by uid, whom they match, and what is not carried out for them."""
        found = await self._of(records, scope)
        said = {each.uid: group_forms.spoken(each, *found[each.uid], self._leads(each)) for each in records}
        return {uid: found[uid][0]._replace(report=report) for uid, report in said.items()}

    async def shown(self, records: Sequence[GroupRecord], scope: Scope = WHOLE) -> list[dict[str, Any]]:
        """Route groups as clients know them: with those of their sandboxes that are in the scope."""
        found = await self._of(records, scope)
        return [group_forms.wire(each, *found[each.uid], self.life(each)[1], self._leads(each)) for each in records]

    async def _of(self, records: Sequence[GroupRecord], scope: Scope) -> dict[str, tuple[Told, GroupState]]:
        """Of each group what its run is doing, and how it stands with whom it matches of those in the scope."""
        for org in {record.org for record in records}:
            await self.crowd(org).refresh()
        members = {record.uid: self._members(record, scope) for record in records}
        asked = {uid: dict(list(found.items())[: group_forms.ASKED]) for uid, found in members.items()}
        runs, silence = await self._look(records, asked)
        said = {}
        for record in records:
            told = self._told(record, runs.get(record.uid), silence.get((record.org, record.cluster), ""))
            waiting = [
                member.name
                for uid, member in asked[record.uid].items()
                if (run := runs.get(uid)) is None or run.report is None or not run.report.ready
            ]
            said[record.uid] = told, groups.standing(told.report, members[record.uid].values(), waiting)
        return said

    async def _look(
        self, records: Iterable[GroupRecord], asked: dict[str, dict[str, Member]]
    ) -> tuple[dict[str, Run], dict[tuple[str, str], str]]:
        """The runs of groups and of those who are asked for each, by uid; and why which clusters are silent."""
        by_cluster: dict[tuple[str, str], set[str]] = {}
        for record in records:
            theirs = by_cluster.setdefault((record.org, record.cluster), set())
            if not self._sync.awaits_first_answer(record):
                theirs.add(record.uid)
            for uid, member in asked[record.uid].items():
                by_cluster.setdefault((record.org, member.scope), set()).add(uid)
        looked = await self._links.look(by_cluster)
        runs = {uid: run for found, _ in looked.values() for uid, run in found.items()}
        return runs, {where: silent for where, (_, silent) in looked.items()}

    def _told(self, record: GroupRecord, last: Run | None, silent: str) -> Told:
        """What the run of a group is doing; `silent` is why its cluster does not answer, empty if it does."""
        trouble = self._sync.trouble(record.uid)
        link = self._sync.link(record)
        if silent and not trouble and not (link and last and link.state.is_fresh(last)):
            trouble = f"the cluster cannot be asked at the moment: {silent}"
        refused = self._sync.refuses(record.uid)
        report = with_trouble(record, last.report if last else None, trouble, refused=refused, what="route group")
        answers = group_forms.endpoints(record, last.endpoints if last else ())
        return Told(report, answers, last.seq if last else None)

    def _members(self, of: GroupRecord, scope: Scope) -> dict[str, Member]:
        found = self.crowd(of.org).of(of)
        return found if scope.is_whole else {uid: each for uid, each in found.items() if scope.takes_name(each.name)}

    def _leads(self, of: GroupRecord) -> GroupReach | None:
        return leads(self._links, of, self.crowd(of.org).of(of).values())


def _now() -> int:
    return time.time_ns() // 1_000_000
