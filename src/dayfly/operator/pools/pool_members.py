"""The members of a pool in a cluster: observed from caches, created, and closed."""

from collections.abc import Iterator

import msgspec

from dayfly.execute.acquire.members import progress
from dayfly.execute.acquire.pool_members import lost_report, member_report, member_state, pool_member, used_up
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta, Pod
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches, has_finalizer, owned_by_run
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    POOL_LABEL,
    POOL_MEMBERS,
    TARGET_FINALIZER,
    PoolMemberObject,
    RunObject,
)
from dayfly.plan.actions import Close
from dayfly.plan.pools.refill import CLOSABLE, CloseMember, MemberState, RefillMember
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, seal
from dayfly.spec.kinds import PoolMemberSpec, RunSpec
from dayfly.spec.lifecycle import API_VERSION, MEMBER_KIND, Lifecycle, Target, digest
from dayfly.spec.report import UnitReport
from dayfly.spec.run import Phase, Run

_NO_PLAN = seal(())


class PoolMembers:
    """Access to the members of all pools. The caches may be behind, which makes the refill only too careful."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._plans: dict[str, Plan] = {}  # by digest of the template

    def objects(self, pool: str) -> list[PoolMemberObject]:
        """Return the members of the pool with this UID."""
        return self._cluster.holds.members.labelled(POOL_LABEL, pool)

    def run_of(self, seen: PoolMemberObject) -> RunObject | None:
        """Return the newest known run of a member."""
        return self._cluster.ledger.get(names.run_name(seen.metadata.name, seen.metadata.uid))

    def observe(self, pool: str, versions: str) -> Iterator[RefillMember]:
        """Yield the members of a pool that have a run, or whose run is lost.

        `versions` is the digest of what new members read; empty if it is unknown.
        """
        for seen in self.objects(pool):
            run = self.run_of(seen)
            if run is not None:
                found = pool_member(run.ledger, seen.spec.number, self.state(run))
                is_stale = bool(versions) and seen.spec.source_versions not in ("", versions)
                yield msgspec.structs.replace(found, stale=is_stale)
            elif has_finalizer(seen.metadata, TARGET_FINALIZER):
                yield used_up(seen.spec.number, seen.metadata.uid)

    def state(self, run: RunObject) -> MemberState:
        """Return the state of a member with this run."""
        state = member_state(run.ledger, progress(self._plan(run), run.ledger))
        if state is MemberState.CREATING and any(
            map(_is_unschedulable, owned_by_run(self._cluster.pods, run.metadata.name))
        ):
            return MemberState.UNSCHEDULABLE
        return state

    def _plan(self, run: RunObject) -> Plan:
        """Return the plan of a member. Members of one template share it. Without one, a member is never ready."""
        known = self._plans.get(run.ledger.plan)
        if known is None:
            documents = self._documents(run)
            if digest(documents) != run.ledger.plan:
                return _NO_PLAN
            living = {each.ledger.plan for each in map(self.run_of, self._cluster.holds.members) if each is not None}
            self._plans = {key: plan for key, plan in self._plans.items() if key in living}
            self._plans[run.ledger.plan] = known = seal(documents)
        return known

    def _documents(self, run: RunObject) -> tuple[Lifecycle, ...]:
        stored = (self._cluster.documents.get(pin.name) for pin in run.spec.documents)
        return (*(run.inline_documents() or ()), *(each.spec for each in stored if each is not None))

    def reports(self, pool: str, failed: int) -> tuple[UnitReport, ...]:
        """Return a report for each member; `failed` is the number of the member that failed last."""
        found = []
        for seen in self.objects(pool):
            name, run = seen.metadata.name, self.run_of(seen)
            if run is None and has_finalizer(seen.metadata, TARGET_FINALIZER):
                message = (
                    f"its ledger, Run {names.run_name(name, seen.metadata.uid)}, is gone; restore it from a backup, or "
                    f"clean up by hand and annotate the PoolMember {ABANDON_ANNOTATION}='force: <reason>'"
                )
                found.append(lost_report(name, message))
            elif run is not None:
                is_failed = seen.spec.number == failed and not run.ledger.joins
                state = MemberState.FAILED if is_failed else self.state(run)
                found.append(member_report(self._with_server_names(run.ledger), state, None))
        return tuple(found)

    def _with_server_names(self, member: Run) -> Run:
        """Return the ledger of a member with the names that its holders have on their server."""
        holders = []
        for each in member.holders:
            run = self._cluster.ledger.get(names.run_name(each.target.name, each.run))
            offered = run.spec.offered if run is not None else None
            target = msgspec.structs.replace(each.target, name=offered.name) if offered is not None else each.target
            holders.append(msgspec.structs.replace(each, target=target))
        return msgspec.structs.replace(member, holders=tuple(holders))

    async def create(self, owner: RunObject, number: int, documents: tuple[Lifecycle, ...], versions: str) -> None:
        """Create a member of a pool with this run, or complete its birth. Repeated calls create it once.

        `versions` is the digest of the Secrets and ConfigMaps that the member reads.

        Raises:
            errors.ApiError: it is not complete.
        """
        pool, offered = owner.ledger.target, owner.spec.offered
        visible = offered.name if offered is not None else pool.name
        name = names.derive_name("", f"{visible}-{number}", "member", pool.uid, str(number))
        spec = PoolMemberSpec(
            pool=pool.name,
            pool_uid=pool.uid,
            number=number,
            template=digest(documents),
            source_versions=versions,
        )
        meta = AnnotatedMeta(name=name, namespace=pool.namespace, labels={POOL_LABEL: pool.uid})
        made, _ = await births.create_member(self._cluster, meta, spec)
        # With our finalizer it has had a run. With another template, its birth began before the template changed.
        if made.metadata.deletion_timestamp or has_finalizer(made.metadata, TARGET_FINALIZER):
            return
        if made.spec.template != spec.template:
            await self._cluster.client.delete(POOL_MEMBERS, name, pool.namespace, uid=made.metadata.uid)
            return
        target = Target(
            api_version=API_VERSION, kind=MEMBER_KIND, namespace=pool.namespace, name=name, uid=made.metadata.uid
        )
        run = await births.seal(
            self._cluster, made.metadata, documents, RunSpec(plural=POOL_MEMBERS.plural), target=target
        )
        self._cluster.queue.add(run.metadata.name)

    async def close(self, member: CloseMember) -> None:
        """Close the run of a member, unless it has a holder by now.

        Raises:
            errors.ApiError: it is not closed.
        """
        run = next(map(self._cluster.ledger.get, self._cluster.runs_of(member.uid)), None)
        if run is None or run.ledger.phase is not Phase.OPEN or run.ledger.joins:
            return
        if self.state(run) in CLOSABLE:
            await self._cluster.ledger.commit(run, _NO_PLAN, (Close(request=member.request),))
            self._cluster.queue.add(run.metadata.name)

    async def abandon_unused(self, pool: str, reason: str) -> None:
        """Abandon the cleanup of all members without a holder, including members with a lost ledger."""
        for seen in self.objects(pool):
            run = self.run_of(seen)
            if ABANDON_ANNOTATION in (seen.metadata.annotations or {}) or (run is not None and run.ledger.holders):
                continue
            note = {ABANDON_ANNOTATION: f"force: {reason}"}
            patch = {"metadata": {"uid": seen.metadata.uid, "annotations": note}}
            try:
                await self._cluster.client.patch(
                    POOL_MEMBERS.metadata_only(), patch, seen.metadata.name, seen.metadata.namespace
                )
            except errors.ABSENT:
                continue

    def queue_ended(self, pool: str) -> None:
        """Queue the members that have ended: the pool may need their records no longer."""
        for run in map(self.run_of, self.objects(pool)):
            if run is not None and run.ledger.phase in (Phase.CLEANED, Phase.ABANDONED):
                self._cluster.queue.add(run.metadata.name)


def _is_unschedulable(pod: Pod) -> bool:
    return any(
        each.type == "PodScheduled" and each.status == "False" and each.reason == Reason.UNSCHEDULABLE
        for each in pod.status.conditions or ()
    )
