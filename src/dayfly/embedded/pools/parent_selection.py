"""The selection of a shared parent for a holder: one with room, or else a new one, or else a reason to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.execute.acquire.members import AcquireProgress, has_room
from dayfly.plan import messages
from dayfly.plan.actions import Join, Leave
from dayfly.plan.reasons import Reason
from dayfly.plan.world import UnitRefusal
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.identity import member_id
from dayfly.spec.lifecycle import API_VERSION, PARENT_KIND, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dayfly.embedded.ledger import RunChange, SqliteLedger
    from dayfly.embedded.pools.member_index import MemberIndex
    from dayfly.execute.acquire.acquisition import Acquisition, Template
    from dayfly.spec.report import RunReport
    from dayfly.spec.run import Run


class ParentSlot(NamedTuple):
    """The parent that a holder may join: its UID, and its key and number if it does not exist yet."""

    uid: str
    key: str
    number: int

    def target(self, namespace: str, template: Template) -> Target:
        """Return the target of a new parent at this place."""
        name = f"{template.resource}-{template.digest.partition(':')[2][:6]}-{self.number}"
        return Target(api_version=API_VERSION, kind=PARENT_KIND, namespace=namespace, name=name, uid=self.uid)


class ParentSelection:
    """Selects parents. The ledger file has the places of all parents; one run at most has each place.

    `report` returns the report of a living run.
    """

    def __init__(self, reader: SqliteLedger, index: MemberIndex) -> None:
        self._reader = reader
        self._index = index
        self.report: Callable[[str], RunReport | None] = lambda _uid: None
        # The runs that wait for a place, by key.
        self._queued: dict[str, set[str]] = {}

    def select(self, run: Run, acquisition: Acquisition, others: Collection[ParentSlot]) -> ParentSlot | UnitRefusal:
        """Return the place that a run may take for a resource, or why it must wait. It is woken when that changes.

        `others` are the places that other resources of the run take at the same time.
        """
        template = acquisition.template
        sharing, key = template.sharing, _key(run.target.namespace, template.digest)
        assert sharing is not None, "the template is that of a parent"
        stored = self._reader.pools.parents(key)
        taken = stored | {each.number: each.uid for each in others if each.key == key}
        states = []
        for number, uid in taken.items():
            joining = sum(each.uid == uid for each in others)
            if number in stored:
                state = self._obstacle(uid, sharing.capacity, joining)
            else:
                state = "" if joining < sharing.capacity else f"the new one has {joining} of {sharing.capacity} holders"
            if not state:
                return ParentSlot(uid, key, number)
            states.append(state)
        free = next((number for number in range(1, sharing.max_parents + 1) if number not in taken), 0)
        if free:
            return ParentSlot(member_id(run.uid, acquisition.resource), key, free)
        self._queued.setdefault(key, set()).add(run.uid)
        message = messages.waits_for_parent(template.resource, tuple(states))
        return UnitRefusal(reason=Reason.WAITING_FOR_PARENT, message=message)

    def follow(self, change: RunChange) -> set[str]:
        """Return the runs whose turns depend on a change of a parent: its holders, and runs that may join it.

        The other holders of a parent are not woken when a run joins or leaves it.
        """
        run = change.after
        left = {move.holder[0] for move in change.moves if isinstance(move, Leave)}
        if all(isinstance(move, Join) for move in change.moves):
            return set()
        if all(isinstance(move, Join | Leave) for move in change.moves):
            return left | self.follow_end(run)
        return left | {each.run for each in run.holders} | self.follow_end(run)

    def follow_end(self, run: Run) -> set[str]:
        """Return the runs that wait for a place among the parents that are equal to this one."""
        return self._queued.pop(_key(run.target.namespace, run.plan), set())

    def _obstacle(self, uid: str, capacity: int, joining: int) -> str:
        """Return why a parent cannot be joined; empty if it can. `joining` holders are about to join it."""
        try:
            found = self._index.find(uid) or self._index.read(self._reader, uid)
        except RunDamagedError as error:
            return str(error)
        if found is None:
            return f"the record of parent {uid} is lost; restore it from a backup"
        name = found.run.target.name
        if found.is_stopping or found.progress in (AcquireProgress.FAILED, AcquireProgress.ENDING):
            report = self.report(uid)
            return f"{name} is being deleted" + (f" ({report.message})" if report is not None else "")
        if not has_room(found.run, capacity - joining):
            return f"{name} has {len(found.run.holders) + joining} of {capacity} holders"
        return ""


def _key(namespace: str, digest: str) -> str:
    return f"{namespace}/{digest}"
