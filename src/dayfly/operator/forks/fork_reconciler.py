"""Forks in a cluster: observed, created without replicas, and kept in their desired state."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import chain
from typing import TypeVar

import msgspec

from dayfly.execute.fork import read
from dayfly.execute.fork.render import (
    FORK_LABEL,
    FORM_ANNOTATION,
    LIKE_LABEL,
    fork_digest,
    fork_name,
)
from dayfly.execute.fork.run import ForeignForkError, Forks
from dayfly.execute.pod import names
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.objects import Key, Pod
from dayfly.operator.cluster.caches import ClusterWatches, owned_by_run
from dayfly.operator.cluster.objects import RunObject, is_owned_by
from dayfly.operator.forks.baselines import read_fork_rights
from dayfly.operator.forks.fork_builder import KIND, ForkBuilder, ForkRefusal
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.refusals import KEPT_RETRY_AFTER_S, Refusals, all_done, seconds_until_kept_retry
from dayfly.operator.retries import Request, Retries, attempt_due, deletion
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep, Plan
from dayfly.plan.world import AttemptKey, Fact, Prepared, Running, UnitRefusal, Waiting
from dayfly.spec.errors import with_article
from dayfly.spec.lifecycle import Baseline, Kind, Unit, kept_id, workload_of
from dayfly.spec.run import ALIVE, UnitRecord

T = TypeVar("T")

CONFLICT_RETRY_AFTER_S = 1.0
_REFUSALS = (CannotRenderError, ForeignForkError, NotGrantedError, errors.Refused)


class ForkMemory:
    """Remembered state of the forks of a run."""

    __slots__ = ("refusals", "refused", "retries", "stuck")

    def __init__(self, refusals: Refusals, retries: Retries | None = None) -> None:
        """`retries` has the refused deletions of the run."""
        self.refusals = refusals
        self.retries = Retries() if retries is None else retries
        self.stuck: dict[str, UnitRefusal] = {}
        """Why a running fork cannot get its desired form or its Service."""
        self.refused: dict[str, ForkRefusal] = {}
        """Forks that could not be rendered, and why."""


class ForkSight(msgspec.Struct):
    """One turn's view of a run's forks: facts, objections and the observed Deployments."""

    memory: ForkMemory
    facts: dict[AttemptKey, Fact] = {}
    objections: dict[str, UnitRefusal] = {}
    seen: dict[str, read.ForkDeployment] = {}


class ForkReconciler:
    """Forks of Deployments; one instance for each operator. Caches only suggest actions; writes use quorum reads."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._forks = Forks(cluster.client)
        self._builder = ForkBuilder(cluster, self._forks)

    async def observe(self, run: RunObject, plan: Plan, now: int, memory: ForkMemory) -> ForkSight:
        """Observe the run's forks, including unwanted ones.

        Raises:
            errors.ApiError: the API server does not answer.
        """
        sight = ForkSight(memory)
        wanted = _forks(plan)
        known = dict.fromkeys((*wanted, *(name for name in run.ledger.units if run.ledger.kind(name) == Kind.FORK)))
        cached = {found.metadata.name: found for found in self._deployments(run)}
        for name in known:
            own = _own_name(run, name)
            if run.ledger.unit(name).state in ALIVE:
                try:
                    await self._observe_claimed(sight, run, name, cached.get(own), now)
                except errors.Refused as error:
                    sight.facts[name, run.ledger.unit(name).attempt] = _unreadable(run.ledger.unit(name), error)
                    self._cluster.queue.add(run.metadata.name, after=KEPT_RETRY_AFTER_S)
            else:
                _observe_unclaimed(sight, run, name, cached.get(own))
        for name, step in wanted.items():
            await self._add_objections(sight, run, name, step.unit)
        return sight

    async def prepare(self, run: RunObject, plan: Plan, key: AttemptKey, memory: ForkMemory) -> None:
        """Create a fork without replicas, after its inputs and the Service that routes to it.

        Raises:
            errors.ApiError: the API server does not answer, or the outcome is unknown.
        """
        name, _ = key
        unit = plan.kept[name].unit
        try:
            manifest = await self._builder.manifest(run, plan, unit, memory.refused)
            if manifest is not None:
                await self._builder.service(run, _baseline(name))
                await self._forks.prepare(manifest)
            memory.refusals.drop(key)
        except _REFUSALS as error:
            memory.refusals.put(key, _objection(error, self._cluster.now()))

    async def start(self, run: RunObject, seen: read.ForkDeployment) -> None:
        """Give the fork its replicas. Its UID is claimed."""
        self._requeue_unless(await self._forks.scale_up(seen), run)

    async def remove(self, run: RunObject, seen: read.ForkDeployment) -> None:
        """Delete the fork and its pods."""
        self._requeue_unless(await self._forks.remove(seen), run)

    async def keep(self, run: RunObject, plan: Plan, sight: ForkSight) -> None:
        """After a turn, update running forks and their Services, and remove unwanted ones.

        Raises:
            errors.ApiError: some of this is not done.
        """
        await all_done(self._changes(run, plan, sight))

    def _changes(self, run: RunObject, plan: Plan, sight: ForkSight) -> Iterator[Awaitable[None]]:
        wanted = _forks(plan) if run.ledger.closed is None else {}
        ledger = run.ledger
        alive = {name for name in ledger.units if ledger.kind(name) == Kind.FORK and ledger.unit(name).state in ALIVE}
        coming = {_own_name(run, name) for name in wanted.keys() - alive}
        kept = coming | {_own_name(run, name) for name in alive}
        yield self._remove_unwanted(run, coming, kept, sight.memory.retries)
        for name in (each for each in wanted if each in alive):  # in the plan's order, the same in every process
            seen, fact = sight.seen.get(name), sight.facts.get((name, run.ledger.unit(name).attempt))
            if seen is not None and not isinstance(fact, Prepared) and not seen.metadata.deletion_timestamp:
                yield self._follow(run, plan, wanted[name], seen, sight.memory)

    async def clear(self, run: str) -> None:
        """Remove what is left of the forks of a run that has ended or is gone.

        Raises:
            errors.ApiError: some of this is not done.
        """
        forks, services = owned_by_run(self._cluster.forks, run), owned_by_run(self._cluster.services, run)
        await all_done(chain(map(self._forks.remove, forks), map(self._forks.remove_service, services)))

    # --- observing --------------------------------------------------------------------------------------------------

    def _deployments(self, run: RunObject) -> list[read.ForkDeployment]:
        """Return the cached Deployments of the run with that UID."""
        return [
            item for item in owned_by_run(self._cluster.forks, run.metadata.name) if is_owned_by(item.metadata, run)
        ]

    async def _observe_claimed(
        self, sight: ForkSight, run: RunObject, name: str, found: read.ForkDeployment | None, now: int
    ) -> None:
        """Observe the attempt that the ledger holds. Only quorum reads prove that it and its pods are gone."""
        record, namespace, own = run.ledger.unit(name), _baseline(name).namespace, _own_name(run, name)
        if found is None or found.metadata.uid != record.ref:
            found = await self._forks.find(own, namespace)
        if found is not None and found.metadata.uid == record.ref:
            sight.seen[name] = found
            known = self._cluster.pods.labelled(names.RUN_LABEL, run.metadata.name)
            sight.facts[name, record.attempt] = read.read_fork(found, [pod for pod in known if _is_of(pod, own)], now)
        else:
            # Our unclaimed one goes first (`_remove_unwanted`): its pods look like those of the claimed one.
            stray = found is not None and is_owned_by(found.metadata, run)
            sets, pods = await self._forks.count_leftovers(own, namespace)
            if sets:
                self._cluster.queue.add(run.metadata.name, after=CONFLICT_RETRY_AFTER_S)  # ReplicaSets are not watched
            wanted = run.ledger.closed is None and name in {kept_id(unit) for unit in run.spec.forks}
            sight.facts[name, record.attempt] = read.read_missing_fork(
                record, left=stray + sets + pods, wanted=wanted, now=now
            )

    async def _add_objections(self, sight: ForkSight, run: RunObject, name: str, unit: Unit) -> None:
        """Record why a wanted fork cannot be created (no baseline), or does not have its desired form yet."""
        assert unit.fork is not None, "only forks derive from a baseline"
        source, record = unit.fork.baseline, run.ledger.unit(name)
        baseline = self._cluster.baselines.get(source.name, source.namespace)
        if record.state not in ALIVE:
            if source.kind != KIND:
                message = f"its baseline is {with_article(source.kind)}; in a cluster only a {KIND} can be forked"
                sight.objections[name] = UnitRefusal(reason=Reason.KIND_NOT_FORKED, message=message)
            elif baseline is None and (name, record.attempt + 1) not in sight.facts:
                sight.objections[name] = await self._missing_baseline(run, source)
            return
        seen, fact = sight.seen.get(name), sight.facts.get((name, record.attempt))
        if baseline is None or seen is None or not isinstance(fact, (Running, Waiting)):
            return  # a fork outlives its baseline
        wanted = fork_digest(unit, baseline.metadata, self._builder.hosts(run, unit))
        stuck = sight.memory.stuck.get(name)
        if seen.metadata.deletion_timestamp or (stuck is None and _form(seen) == wanted):
            return
        reason, message = (stuck.reason, stuck.message) if stuck else (str(Reason.REPLACED), messages.replaced())
        sight.facts[name, record.attempt] = Waiting(since=fact.since, reason=reason, message=message)

    async def _missing_baseline(self, run: RunObject, source: Baseline) -> UnitRefusal:
        """Report a missing baseline. In another namespace, that is reported only if its workloads may be forked."""
        try:
            await read_fork_rights(self._cluster.client, run, source.namespace)
        except (NotGrantedError, errors.Refused) as error:
            self._cluster.queue.add(run.metadata.name, after=KEPT_RETRY_AFTER_S)  # namespaces are not watched
            return _objection(error, 0)
        name = f"{source.namespace}/{source.name}"
        message = f"its baseline, {KIND} {name}, does not exist; the fork is created as soon as it does"
        return UnitRefusal(reason=Reason.BASELINE_MISSING, message=message)

    # --- updating ---------------------------------------------------------------------------------------------------

    async def _follow(
        self, run: RunObject, plan: Plan, step: KeptStep, seen: read.ForkDeployment, memory: ForkMemory
    ) -> None:
        """Update a running fork to its desired form, and its Service to the ports of the Service it follows."""
        source = _baseline(step.id)
        try:
            own = self._cluster.services.get(_own_name(run, step.id), source.namespace)
            if own is None or not is_owned_by(own.metadata, run):
                # A peer with a newer run may have removed it: then the two would create and remove it in turns.
                if await self._is_current(run):
                    await self._builder.service(run, source)
            elif like := self._cluster.services.get((own.metadata.labels or {}).get(LIKE_LABEL, ""), source.namespace):
                self._requeue_unless(await self._forks.update_service(own, like), run)
            baseline = self._cluster.baselines.get(source.name, source.namespace)
            if baseline is None or _form(seen) == fork_digest(
                step.unit, baseline.metadata, self._builder.hosts(run, step.unit)
            ):
                self._clear_stuck(memory, step.id, run)
                return
            # Read before the form is rendered, so that a newer write of a peer conflicts and is not undone.
            now = await self._forks.find(seen.metadata.name, source.namespace)
            if now is None or now.metadata.uid != seen.metadata.uid or now.metadata.deletion_timestamp:
                return
            manifest = await self._builder.manifest(run, plan, step.unit, memory.refused)
            if manifest is not None and await self._is_current(run):
                self._requeue_unless(await self._forks.update(now, manifest), run)
            self._clear_stuck(memory, step.id, run)
        except _REFUSALS as error:
            objection = _objection(error, self._cluster.now())
            before = memory.stuck.get(step.id)
            memory.stuck[step.id] = objection
            self._cluster.queue.add(run.metadata.name, after=seconds_until_kept_retry(before, objection))

    def _clear_stuck(self, memory: ForkMemory, fork: str, run: RunObject) -> None:
        """Forget why the fork could not be updated, and queue the run so that its status changes."""
        if memory.stuck.pop(fork, None):
            self._cluster.queue.add(run.metadata.name)

    async def _remove_unwanted(self, run: RunObject, coming: set[str], kept: set[str], retries: Retries) -> None:
        """Remove Services outside `kept`, and unclaimed Deployments that no fork in `coming` is about to claim.

        An unclaimed Deployment can have the name of a claimed fork: a paused peer has created it too late, or another
        user has replaced ours.
        """
        services = owned_by_run(self._cluster.services, run.metadata.name)
        forks = [each for each in services if FORK_LABEL in (each.metadata.labels or {})]  # the others are of routes
        unwanted = [each for each in forks if each.metadata.name not in kept]
        refs = {record.ref for record in run.ledger.units.values()}
        left = [
            found
            for found in self._deployments(run)
            if found.metadata.name not in coming and found.metadata.uid not in refs
        ]
        requests: list[Request] = [
            (deletion(each), partial(self._remove, self._forks.remove_service, each, run)) for each in unwanted
        ]
        requests += [(deletion(each), partial(self._remove, self._forks.remove, each, run)) for each in left]
        await attempt_due(self._cluster, run.metadata.name, retries, requests, partial(self._is_current, run))

    async def _remove(self, remove: Callable[[T], Awaitable[bool]], item: T, run: RunObject) -> None:
        self._requeue_unless(await remove(item), run)

    def _requeue_unless(self, done: bool, run: RunObject) -> None:
        """Requeue the run after a conflict: its watch event may have arrived before."""
        if not done:
            self._cluster.queue.add(run.metadata.name, after=CONFLICT_RETRY_AFTER_S)

    async def _is_current(self, run: RunObject) -> bool:
        """Return whether the run has not changed since it was read. If a peer has changed it, another turn follows."""
        found = await self._cluster.ledger.read_current(run.metadata.name)
        return found is not None and found.metadata.resource_version == run.metadata.resource_version


def _forks(plan: Plan) -> dict[str, KeptStep]:
    return {name: step for name, step in plan.kept.items() if step.unit.kind == Kind.FORK}


def _observe_unclaimed(sight: ForkSight, run: RunObject, name: str, found: read.ForkDeployment | None) -> None:
    """Observe a Deployment whose name is that of a fork without a claimed attempt: prepared, or being deleted."""
    record = run.ledger.unit(name)
    if found is None or found.metadata.uid == record.ref:
        return  # of a recorded attempt: it is gone, and the cache is behind
    if found.metadata.deletion_timestamp:
        message = f"{KIND} {Key.from_object(found)} is being deleted; the fork is created again once it is gone"
        sight.objections[name] = UnitRefusal(reason=Reason.STOPPING, message=message)
        return
    sight.seen[name] = found
    fact = Prepared(ref=found.metadata.uid) if not found.spec.replicas else Running(since=0, ready=False)
    sight.facts[name, record.attempt + 1] = fact


def _unreadable(record: UnitRecord, error: errors.Refused) -> Running:
    """Return the fact for a claimed fork that the operator may not read: it may run, but is not ready."""
    objection = _objection(error, 0)
    message = f"cannot be read: {objection.message}"
    return Running(since=record.claimed_at, ready=False, reason=objection.reason, message=message)


def _baseline(name: str) -> Baseline:
    """Return the baseline of a fork from its name in the ledger."""
    found = workload_of(name)
    assert found is not None, "only names of forks"
    return found


def _own_name(run: RunObject, name: str) -> str:
    source = _baseline(name)
    return fork_name(run.ledger.target.name, run.ledger.uid, source.namespace, source.name)


def _is_of(pod: Pod, own: str) -> bool:
    return (pod.metadata.labels or {}).get(FORK_LABEL) == own


def _form(seen: read.ForkDeployment) -> str:
    return (seen.metadata.annotations or {}).get(FORM_ANNOTATION, "")


def _objection(error: Exception, now: int) -> UnitRefusal:
    """Return why a fork is blocked, with advice if a user can resolve it."""
    if isinstance(error, (CannotRenderError, NotGrantedError)):
        return UnitRefusal(reason=error.reason, message=str(error), since=now)
    if isinstance(error, errors.Refused):
        message = error.message
        if isinstance(error, errors.Forbidden) and error.is_not_granted:
            message += "; an administrator can bind the ClusterRole dayfly-forks to the operator in that namespace"
        reason = Reason.FIELD_INVALID if error.is_permanent else error.reason or Reason.REFUSED
        return UnitRefusal(reason=reason, message=message, since=now)
    return UnitRefusal(reason=Reason.NAME_CONFLICT, message=str(error), since=now)
