"""Reads the members that holders refer to. Only quorum reads prove that a member has ended."""

from collections.abc import Callable
from functools import partial

from dayfly.execute.acquire.acquisition import Acquisition, find_acquisitions
from dayfly.execute.acquire.facts import Member
from dayfly.execute.acquire.holder_report import HeldMember, retried_attempts
from dayfly.execute.acquire.members import is_held_by
from dayfly.execute.turn import Scene
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    POOL_MEMBERS,
    TARGET_FINALIZER,
    MemberRef,
    RunObject,
)
from dayfly.plan.reasons import Reason
from dayfly.plan.world import UnitRefusal
from dayfly.spec.report import RunReport
from dayfly.spec.run import ALIVE, Phase, Run

# Interval at which the objects of a member are read again while they go, or after its ledger was lost.
ENDING_RECHECK_S = 1.0
LOST_RECHECK_S = 30.0

ReportOf = Callable[[str], RunReport | None]
_META = POOL_MEMBERS.metadata_only()


class MemberReader:
    """Returns what is known about a member. `report_of` returns the report of a living run by its name."""

    def __init__(self, cluster: ClusterWatches, report_of: ReportOf) -> None:
        self._cluster = cluster
        self._report_of = report_of

    def known(self, run: RunObject) -> Member:
        """Return the member with this run."""
        ref = MemberRef.from_target(run.ledger.target)
        return Member(
            uid=str(ref),
            run=run.ledger,
            # An abandoned member keeps its run until its holder has seen it.
            has_ended=run.ledger.phase is Phase.ABANDONED,
            report=partial(self._report_of, run.metadata.name),
        )

    async def read(self, ref: MemberRef, holder: RunObject, acquisition: Acquisition) -> Member:
        """Return the member or parent that the ledger of a holder refers to.

        While the holder waits for a step of it, only a quorum read proves that the entry of the holder is gone: the
        cache may have the holder's claim and not yet the entry before it. The member has ended if its run and its
        object are gone, by quorum reads of the run, the object, and the run again. An object with our finalizer and
        without a run has lost its ledger.

        Raises:
            errors.ApiError: the API server failed.
        """
        run = self.cached_run(ref)
        if run is None or _lacks_entry(run.ledger, holder.ledger, acquisition):
            run = await self._read_run(ref)
        if run is not None:
            return self.known(run)
        seen = await self._cluster.client.find(_META, ref.name, ref.namespace)
        run = await self._read_run(ref)
        if run is not None:
            return self.known(run)
        if seen is None or seen.metadata.uid != ref.uid:
            return Member(uid=str(ref), has_ended=True)
        is_lost = has_finalizer(seen.metadata, TARGET_FINALIZER)
        self._cluster.queue.add(holder.metadata.name, after=LOST_RECHECK_S if is_lost else ENDING_RECHECK_S)
        return Member(uid=str(ref), problem=_lost_ledger(ref) if is_lost else None)

    def cached_run(self, ref: MemberRef) -> RunObject | None:
        """Return the newest known run of a member, which may be out of date."""
        found = self._cluster.ledger.get(ref.run)
        return found if found is not None and found.ledger.uid == ref.uid else None

    async def _read_run(self, ref: MemberRef) -> RunObject | None:
        found = await self._cluster.ledger.read_current(ref.run)
        return found if found is not None and found.ledger.uid == ref.uid else None


def _lacks_entry(member: Run, holder: Run, acquisition: Acquisition) -> bool:
    """Return whether a holder waits for a step of a member whose ledger does not have the holder's entry."""
    waits = any(holder.unit(name).state in ALIVE for name in acquisition.steps)
    return waits and not is_held_by(member, holder.uid, acquisition.resource)


def held_member(
    cluster: ClusterWatches, text: str, home: str = "", report_of: ReportOf = lambda _run: None
) -> HeldMember:
    """Return the member that the ledger of a holder refers to, as the caches have it.

    Its name and that of its pool are those for users of the namespace `home`.
    """
    ref = MemberRef.parse(text)
    run, seen = cluster.ledger.get(ref.run), cluster.holds.members.get(ref.name, ref.namespace)
    known = run is not None and run.ledger.uid == ref.uid
    pool = seen.spec.pool if seen is not None and seen.metadata.uid == ref.uid else ""
    return HeldMember(
        ref.name_in(home),
        ref._replace(name=pool).name_in(home) if pool else "",
        run.ledger if run is not None and known else None,
        partial(report_of, ref.run),
    )


def retry_members(cluster: ClusterWatches, scene: Scene) -> None:
    """End the back-offs of members for whose steps the units of a run stand that a person retries."""
    attempts = scene.world.intent.retry
    for acquisition in find_acquisitions(scene.plan.documents).values() if attempts else ():
        ref = acquisition.member(scene.world.run)
        member = held_member(cluster, ref).run if ref else None
        wanted = retried_attempts(acquisition, attempts, member) if member is not None else {}
        if wanted and cluster.holds.retries.get(name := MemberRef.parse(ref).run) != wanted:
            cluster.holds.retries[name] = wanted
            cluster.queue.add(name)


def _lost_ledger(ref: MemberRef) -> UnitRefusal:
    message = (
        f"the ledger of PoolMember {ref.namespace}/{ref.name}, Run {ref.run}, is gone, so nothing shows whether it is "
        "cleaned up. Restore it from a backup, or clean up by hand and annotate the PoolMember "
        f"{ABANDON_ANNOTATION}='force: <reason>'"
    )
    return UnitRefusal(reason=Reason.LEDGER_LOST, message=message)
