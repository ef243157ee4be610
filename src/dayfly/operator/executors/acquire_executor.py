"""The executor of kind acquire: a holder joins a member or parent first, and its own ledger claims it after that.

A hit takes two writes: the `Join` in the member's ledger, and one commit of the holder that claims and records. A miss
creates a member that already has its holder. Both are safe to repeat: an entry that exists is used again. The release
of a parent is two writes, too: `Leave`, and one commit of the holder.
"""

import contextlib
import statistics
from collections.abc import Iterable, Iterator

from dayfly.execute.acquire.acquisition import Acquisition, Template, find_acquisitions
from dayfly.execute.acquire.facts import (
    Member,
    acquire_facts,
    acquire_objections,
    needs_member,
    replacement_facts,
)
from dayfly.execute.acquire.members import AcquireProgress, is_free, is_held_by, join, leave, may_claim, progress
from dayfly.execute.executor import Observations
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster import births
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.hold_index import refs_of
from dayfly.operator.cluster.holders import MAX_ROUNDS, PENDING_RECHECK_S, join_run
from dayfly.operator.cluster.member_reads import ENDING_RECHECK_S, MemberReader, ReportOf
from dayfly.operator.cluster.objects import POOL_MEMBERS, MemberRef, RunObject
from dayfly.operator.executors.shared_parents import SharedParents
from dayfly.operator.pods.namespaces import Namespaces, NotGrantedError
from dayfly.operator.run_memory import Sight
from dayfly.operator.shared_pools import SharedPools, step_namespaces, why_unshared
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import AttemptKey, Ended, Fact, Prepared, UnitRefusal
from dayfly.spec.kinds import PoolMemberSpec, RunSpec
from dayfly.spec.lifecycle import API_VERSION, MEMBER_KIND, Kind, Target, Unit
from dayfly.spec.run import ALIVE, Phase, Result, Run


class HoldNotLeftError(errors.ApiError):
    """A run that ends could not leave a pool member, so its ledger must stay."""


class AcquireExecutor:
    """Provides resources of runs with pool members, and children with shared parents of their namespace."""

    kind: str = Kind.ACQUIRE
    is_gated = True

    def __init__(self, cluster: ClusterWatches, report_of: ReportOf, namespaces: Namespaces) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._shared_pools = SharedPools(cluster)
        self._members = MemberReader(cluster, report_of)
        self._parents = SharedParents(cluster, report_of)
        # Members that a turn of this process is joining now.
        self._joining: set[str] = set()

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Accept each unit: the registry checks it together with the template of its document."""

    # --- facts ------------------------------------------------------------------------------------------------------

    async def observe(self, sight: Sight) -> None:
        ledger = sight.run.ledger
        facts: dict[AttemptKey, Fact] = {}
        objections: dict[str, UnitRefusal] = {}
        if ledger.phase in (Phase.OPEN, Phase.CLOSED):
            for acquisition in find_acquisitions(sight.plan.documents).values():
                if not needs_member(ledger, acquisition):
                    continue
                member = await self._member(sight, acquisition)
                if member is None:
                    objections |= self._select_parent(sight, acquisition)
                    continue
                found = acquire_facts(ledger, acquisition, member, sight.now)
                facts |= _without_early_releases(ledger, acquisition, member, found)
                if not sight.abandoned:
                    facts |= _unfinished_releases(ledger, acquisition, member)
                objections |= acquire_objections(acquisition, member)
                if acquisition.resource in sight.reset and (joined := self._joined(sight, acquisition)) is not None:
                    facts |= replacement_facts(ledger, acquisition, self._members.known(joined), sight.now)
            if sight.abandoned:
                facts = _without_plan(sight, facts) | facts
        sight.known[self.kind] = Observations(facts=facts, objections=objections)

    def observations(self, sight: Sight) -> Observations:
        return sight.known[self.kind]

    async def _member(self, sight: Sight, acquisition: Acquisition) -> Member | None:
        """Return what is known about the member of a resource; None if the run has joined none."""
        ledger = sight.run.ledger
        if ref := acquisition.member(ledger):
            return await self._members.read(MemberRef.parse(ref), sight.run, acquisition)
        if ledger.phase is not Phase.OPEN:
            return Member(uid="")
        joined = self._joined(sight, acquisition)
        return self._members.known(joined) if joined is not None else None

    def _select_parent(self, sight: Sight, acquisition: Acquisition) -> dict[str, UnitRefusal]:
        """Return why the steps of a parent wait: the run can join none of the equal parents now."""
        if acquisition.template.sharing is None:
            return {}
        place = self._parents.select(sight.run, acquisition, sight.now)
        return dict.fromkeys(acquisition.steps, place) if isinstance(place, UnitRefusal) else {}

    def _joined(self, sight: Sight, acquisition: Acquisition) -> RunObject | None:
        """Return a member that the run has joined and may claim for the resource, according to the caches."""
        ledger, resource = sight.run.ledger, acquisition.resource
        former = acquisition.member(ledger)
        just_joined = sight.memory.joined.get(resource, "")
        for name in (just_joined, *sorted(self._cluster.holds.held_by(ledger.uid))):
            found = self._cluster.ledger.get(name)
            if found is not None and may_claim(found.ledger, ledger, resource, former):
                return found
        return None

    # --- hit and miss -----------------------------------------------------------------------------------------------

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        acquisition = find_acquisitions(sight.plan.documents)[sight.plan.steps[effect.unit].resource]
        resource = acquisition.resource
        if effect.unit in acquisition.releases and acquisition.template.sharing is not None:
            await self._leave(MemberRef.parse(acquisition.member(sight.run.ledger)), sight.run.ledger, resource)
        is_claimed = bool(acquisition.member(sight.run.ledger)) and resource not in sight.reset
        found = is_claimed or self._joined(sight, acquisition) is not None
        if not found:  # otherwise a release, or another unit of the resource has prepared it in this turn
            joined = await self._hold(sight, acquisition, effect.attempt)
            if joined:
                sight.memory.joined[resource] = joined
                # The ledger of this run may already have another member, of which this process does not know yet.
                self._cluster.queue.add(joined, after=PENDING_RECHECK_S)
            found = sight.has_joined = bool(joined)
        # No event may follow: the next turn has the facts.
        self._cluster.queue.add(sight.run.metadata.name, after=0.0 if found else ENDING_RECHECK_S)

    async def _hold(self, sight: Sight, acquisition: Acquisition, attempt: int) -> str:
        """Join a member or parent, or create one. Return its run; empty if the run must wait."""
        if acquisition.template.sharing is not None:
            return await self._parents.hold(sight.run, acquisition, sight.now)
        return await self._join(sight, acquisition) or await self._create(sight, acquisition, attempt)

    async def _join(self, sight: Sight, acquisition: Acquisition) -> str:
        """Join a ready member, or else one that is being created. Return its run; empty if all are taken.

        Ready members of the run's own namespace come first, then those of namespaces that serve it. A run waits for no
        step of another namespace, because its slots and quotas are not those of the run.
        """
        holder, template = sight.run.ledger, acquisition.template
        home = holder.target.namespace
        free = self._free(home, template)
        if joined := await self._join_first(_ready(free, template), sight, acquisition):
            return joined
        for each in await self._serving(holder, template):
            ready = _ready(self._free(each, template), template)
            if joined := await self._join_first(ready, sight, acquisition):
                return joined
        return await self._join_first(self._expected(home, free, template, sight.now), sight, acquisition)

    async def _join_first(self, candidates: Iterable[RunObject], sight: Sight, acquisition: Acquisition) -> str:
        """Join the first of these members that is not taken. Return its run; empty if all are."""
        for found in candidates:
            name = found.metadata.name
            if name not in self._joining:
                with self._taking(name):
                    if await self._join_member(found, sight, acquisition):
                        return name
        return ""

    async def _join_member(self, found: RunObject, sight: Sight, acquisition: Acquisition) -> bool:
        """Join a member unless another run has. Its ledger changes while it is being created."""
        holder, resource = sight.run.ledger, acquisition.resource
        move = join(holder, resource, sight.now, replaces=acquisition.member(holder))
        newest = await join_run(self._cluster, found, acquisition.template.plan, move, is_free)
        return newest is not None and may_claim(newest.ledger, holder, resource, acquisition.member(holder))

    @contextlib.contextmanager
    def _taking(self, name: str) -> Iterator[None]:
        self._joining.add(name)
        try:
            yield
        finally:
            self._joining.discard(name)

    def _expected(self, namespace: str, free: Iterable[RunObject], template: Template, now: int) -> Iterator[RunObject]:
        """Yield the members that are being created and are expected soon."""
        usual = self._usual_duration(namespace, template)
        for run in free:
            is_creating = progress(template.plan, run.ledger) is AcquireProgress.CREATING
            if is_creating and (usual is None or now - run.ledger.born_at < usual):
                yield run

    def _free(self, namespace: str, template: Template) -> list[RunObject]:
        """Return the members of a namespace that a run may join, the oldest first."""
        known = map(self._cluster.ledger.get, self._cluster.holds.free(namespace, template.digest))
        return sorted((run for run in known if run is not None and self._is_free(run)), key=_age)

    async def _serving(self, holder: Run, template: Template) -> list[str]:
        """Return the other namespaces whose pools serve the run, by the grants of administrators.

        Its own steps must be permitted in the namespaces of the members' steps, so it gets nothing that it could not
        create.
        """
        home = holder.target.namespace
        if why_unshared(template.documents):
            return []
        serving = await self._shared_pools.serving(home, self._pool_namespaces(template))
        try:
            for each in sorted(step_namespaces(template.documents)) if serving else ():
                await self._namespaces.grant_for(each, home)
        except NotGrantedError:
            return []
        return serving

    def _pool_namespaces(self, template: Template) -> set[str]:
        """Return the namespaces with pools of a template."""
        runs = map(self._cluster.ledger.get, self._cluster.holds.pools_of(template.digest))
        return {run.ledger.target.namespace for run in runs if run is not None}

    async def _count_miss(self, holder: Run, template: Template) -> None:
        """Count a miss in the pools of the run's namespace, or else in the first namespace that serves it."""
        home = holder.target.namespace
        is_own = home in self._pool_namespaces(template)
        for namespace in [home] if is_own else (await self._serving(holder, template))[:1]:
            self._cluster.holds.on_miss(namespace, template.digest)

    def _is_free(self, run: RunObject) -> bool:
        """Return whether a holder may join the member. The watch may be ahead of the index."""
        target = run.ledger.target
        seen = self._cluster.holds.members.get(target.name, target.namespace)
        is_ending = seen is None or seen.metadata.deletion_timestamp is not None
        return is_free(run.ledger) and not is_ending

    def _usual_duration(self, namespace: str, template: Template) -> float | None:
        """Return the usual milliseconds until a member of the template is ready; None if there is no example."""
        names_ = self._cluster.holds.living(namespace, template.digest)
        known = [run.ledger for name in names_ if (run := self._cluster.ledger.get(name)) is not None]
        durations = [_creation_ms(run) for run in known if progress(template.plan, run) is AcquireProgress.READY]
        return statistics.median(durations) if durations else None

    async def _create(self, sight: Sight, acquisition: Acquisition, attempt: int) -> str:
        """Create a member that has its holder from its birth. Return its run.

        The result is empty if a member of that name is still being deleted.

        The name is derived from the holder's run, the resource and the attempt, so another try finds the same member.
        """
        ledger, resource = sight.run.ledger, acquisition.resource
        owner = ledger.target
        name = names.derive_name("", f"{owner.name}-{resource}", "member", ledger.uid, resource, str(attempt))
        holder = join(ledger, resource, sight.now, replaces=acquisition.member(ledger)).holder
        spec = PoolMemberSpec(template=acquisition.template.digest, holder=holder)
        born, is_new = await births.create_member(
            self._cluster, AnnotatedMeta(name=name, namespace=owner.namespace), spec
        )
        meta = born.metadata
        if is_new:
            await self._count_miss(ledger, acquisition.template)
        if meta.deletion_timestamp:
            return ""
        target = Target(api_version=API_VERSION, kind=MEMBER_KIND, namespace=owner.namespace, name=name, uid=meta.uid)
        made = await births.seal(
            self._cluster,
            meta,
            acquisition.template.documents,
            RunSpec(plural=POOL_MEMBERS.plural),
            target=target,
            holder=holder,
        )
        return made.metadata.name if may_claim(made.ledger, ledger, resource, acquisition.member(ledger)) else ""

    # --- the end of a hold ------------------------------------------------------------------------------------------

    async def launch(self, sight: Sight, effect: Launch) -> None:
        """Leave the member if the unit releases it. Any other unit waits for a step that the member runs by itself."""
        if not sight.plan.steps[effect.unit].creates:
            await self._leave_by(sight, effect)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._leave_by(sight, effect)

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._leave_by(sight, effect)

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """Do nothing: no attempt of this kind is offered for recall."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """Do nothing: an attempt of this kind leaves no evidence outside of the ledgers."""

    async def keep(self, sight: Sight) -> None:
        """Do nothing: a member is held once and not kept."""

    async def clear(self, sight: Sight) -> None:
        """Leave every member that an abandoned run may still hold. It may have no plan, so its ledger names them.

        Raises:
            HoldNotLeftError: a member could not be left, so that it would stay held by a run that is gone.
        """
        ledger = sight.run.ledger
        for ref in refs_of(sight.run) if ledger.phase is Phase.ABANDONED else ():
            try:
                await self._leave(MemberRef.parse(ref), ledger, certain=True)
            except errors.Refused as error:
                raise HoldNotLeftError(error.request, error.message) from error

    async def close(self) -> None:
        """Do nothing: this executor has no background tasks."""

    async def _leave_by(self, sight: Sight, effect: Launch | Cancel | Fence) -> None:
        ledger = sight.run.ledger
        if ref := ledger.unit(effect.unit).ref:
            step = sight.plan.steps.get(effect.unit)
            await self._leave(MemberRef.parse(ref), ledger, step.resource if step is not None else "")
        self._cluster.queue.add(sight.run.metadata.name)

    async def _leave(self, ref: MemberRef, holder: Run, resource: str = "", *, certain: bool = False) -> None:
        """Leave a member if the run holds it. With `certain`, only a quorum read proves that it does not."""
        for _ in range(MAX_ROUNDS):
            found = None if certain else self._members.cached_run(ref)
            if found is None or (found.ledger.phase is Phase.OPEN and not found.ledger.holders):
                found = await self._cluster.ledger.read_current(ref.run)  # the cache may be behind
            if found is None or found.ledger.uid != ref.uid:
                return
            moves = leave(found.ledger, holder, self._cluster.now(), resource)
            if not moves or await self._cluster.ledger.commit(found, seal(()), moves):
                self._cluster.queue.add(ref.run)
                return
        raise HoldNotLeftError(f"Run {ref.run}", "the ledger of the pool member or parent changes all the time")


def _without_early_releases(
    run: Run, acquisition: Acquisition, member: Member, facts: dict[AttemptKey, Fact]
) -> dict[AttemptKey, Fact]:
    """Return the facts without the release of a parent that the run must leave first.

    The entries of a parent that has ended have no effect.
    """
    parent = member.run
    if parent is None or acquisition.template.sharing is None or parent.phase not in (Phase.OPEN, Phase.CLOSED):
        return facts
    if not is_held_by(parent, run.uid, acquisition.resource):
        return facts
    return {key: fact for key, fact in facts.items() if key[0] not in acquisition.releases}


def _unfinished_releases(run: Run, acquisition: Acquisition, member: Member) -> dict[AttemptKey, Fact]:
    """Return the facts of claimed releases that have not left the member yet: they are launched again."""
    if member.run is None or not is_held_by(member.run, run.uid, acquisition.resource):
        return {}
    every = ((name, run.unit(name)) for name in acquisition.releases)
    return {(name, each.attempt): Prepared(ref=each.ref) for name, each in every if each.state in ALIVE}


def _without_plan(sight: Sight, known: dict[AttemptKey, Fact]) -> dict[AttemptKey, Fact]:
    """Return facts for the attempts of an abandoned run whose plan is lost. `clear` leaves their members."""
    ledger, message = sight.run.ledger, "its run was abandoned without its documents"
    every = ((name, each) for name, each in ledger.units.items() if each.kind == Kind.ACQUIRE and each.state in ALIVE)
    return {
        (name, each.attempt): Ended(
            result=Result(
                outcome="failed",
                reason=Reason.CANCELLED,
                message=message,
                started_at=each.claimed_at,
                ended_at=sight.now,
            )
        )
        for name, each in every
        if (name, each.attempt) not in known and name not in sight.plan.steps
    }


def _ready(members: Iterable[RunObject], template: Template) -> Iterator[RunObject]:
    """Yield the members whose create steps have all succeeded."""
    return (run for run in members if progress(template.plan, run.ledger) is AcquireProgress.READY)


def _age(run: RunObject) -> tuple[int, str]:
    return run.ledger.born_at, run.metadata.name


def _creation_ms(run: Run) -> int:
    return max((record.ended_at for record in run.units.values()), default=run.born_at) - run.born_at
