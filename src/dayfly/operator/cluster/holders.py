"""Entries of holders in the ledger of a member or parent: confirmed or obsolete, according to quorum reads."""

from collections.abc import Callable

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import POOL_MEMBERS, SANDBOXES, MemberRef, RunObject, object_kind
from dayfly.plan.actions import Join, Leave
from dayfly.plan.holder_entries import Entry, acquired_ref, entry_state
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, seal
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import EndRequest, Holder, Phase, Run

# Interval at which an entry that is not confirmed is checked again, if no event reports a change of its holder.
PENDING_RECHECK_S = 60.0
# Tries to join or leave a run whose ledger changes at the same time. Each conflict is progress of that run.
MAX_ROUNDS = 8
_KINDS = {kind.kind: kind.metadata_only() for kind in (SANDBOXES, POOL_MEMBERS)}


class HolderEntries:
    """Reads the runs of holders, and drops entries that no holder can confirm any longer."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster

    async def read(self, member: MemberRef, entry: Holder) -> Entry:
        """Return the state of an entry by quorum reads: of the holder's run, its target, and the run again.

        Raises:
            errors.ApiError: the API server failed.
        """
        run = await self._read_run(entry)
        exists = False
        if run is None:
            exists = await self._target_exists(entry.target)
            run = None if exists else await self._read_run(entry)
        return entry_state(str(member), entry, run, target_exists=exists)

    async def drop_obsolete(self, run: RunObject) -> bool:
        """Remove the obsolete entries of a member's or parent's ledger. Return false if the ledger has changed.

        A ledger that has ended keeps its entries.

        An entry that the cached run of the holder confirms needs no read: it stays confirmed until the holder leaves,
        or until its run changes again.

        Raises:
            errors.ApiError: the API server failed.
        """
        member = MemberRef.from_target(run.ledger.target)
        moves: list[Leave] = []
        for entry in run.ledger.holders if run.ledger.phase in (Phase.OPEN, Phase.CLOSED) else ():
            if self._is_confirmed(member, entry):
                continue
            state = await self.read(member, entry)
            if state is Entry.OBSOLETE:
                moves.append(Leave(holder=entry.key, request=self._request(entry)))
            elif state is Entry.PENDING:
                self._cluster.queue.add(run.metadata.name, after=PENDING_RECHECK_S)
        if not moves:
            return True
        await self._cluster.ledger.commit(run, seal(()), tuple(moves))
        return False

    def _is_confirmed(self, member: MemberRef, entry: Holder) -> bool:
        found = self._cluster.ledger.get(_run_name(entry))
        known = found is not None and found.ledger.uid == entry.run
        return known and found is not None and acquired_ref(found.ledger, entry.resource) == str(member)

    def _request(self, entry: Holder) -> EndRequest:
        subject = f"{entry.target.kind} {entry.target.name}"
        message = f"{subject} never used it"
        return EndRequest(at=self._cluster.now(), reason=Reason.RELEASED, message=message, by=subject)

    async def _read_run(self, entry: Holder) -> Run | None:
        found = await self._cluster.ledger.read_current(_run_name(entry))
        return found.ledger if found is not None and found.ledger.uid == entry.run else None

    async def _target_exists(self, target: Target) -> bool:
        """Return whether the target with that UID exists. In doubt it does."""
        kind = _KINDS.get(object_kind(target))
        if kind is None:
            return True
        try:
            found = await self._cluster.client.find(kind, target.name, target.namespace)
        except errors.NotServed:
            return True
        return found is not None and found.metadata.uid == target.uid


async def join_run(
    cluster: ClusterWatches, found: RunObject, plan: Plan, joining: Join, accepts: Callable[[Run], bool]
) -> RunObject | None:
    """Write an entry in a ledger while it accepts one. Return the newest known state of its run; None if that is gone.

    The ledger may change at the same time, and another process may have written the entry: the caller must look for it.

    Raises:
        errors.ApiError: the API server failed.
    """
    newest: RunObject | None = found
    for _ in range(MAX_ROUNDS):
        if newest is None or not accepts(newest.ledger):
            break
        is_written = await cluster.ledger.commit(newest, plan, (joining,))
        newest = cluster.ledger.get(found.metadata.name)
        if is_written:
            break
    return newest


def _run_name(entry: Holder) -> str:
    return names.run_name(entry.target.name, entry.run)
