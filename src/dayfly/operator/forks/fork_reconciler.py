"""Forks in a cluster: their facts, their birth without replicas, and what is kept of them while they live."""

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
    fork_name,
    form,
)
from dayfly.execute.fork.run import ForeignForkError, Forks
from dayfly.execute.pod import names
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.objects import Key, Pod
from dayfly.operator.cluster.caches import ClusterWatches, belonging
from dayfly.operator.cluster.objects import RunObject, owned
from dayfly.operator.forks.fork_builder import KIND, ForkBuilder, ForkRefusal
from dayfly.operator.forks.namespaces import leave
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.refusals import KEPT_AGAIN_S, Refusals, all_done, kept_again
from dayfly.operator.retries import Request, Retries, attempt_due, deletion
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep, Plan
from dayfly.plan.world import AttemptKey, Fact, Held, Objection, Running, Waiting
from dayfly.spec.errors import with_article
from dayfly.spec.lifecycle import Baseline, Kind, Unit, kept_id, workload_of
from dayfly.spec.run import ALIVE, UnitRecord

T = TypeVar("T")

CONFLICT_S = 1.0
_REFUSALS = (CannotRenderError, ForeignForkError, NotGrantedError, errors.Refused)


class ForkMemory:
    """What is remembered of one run's forks."""

    __slots__ = ("refusals", "refused", "retries", "stuck")

    def __init__(self, refusals: Refusals, retries: Retries | None = None) -> None:
        """`retries` has what was refused of the run's deletions."""
        self.refusals = refusals
        self.retries = Retries() if retries is None else retries
        self.stuck: dict[str, Objection] = {}
        """Why a fork that runs cannot take the form, or have the Service, that it is to."""
        self.refused: dict[str, ForkRefusal] = {}
        """What could not be rendered, and why."""


class ForkSight(msgspec.Struct):
    """One turn's view of a run's forks: facts, objections, and the very Deployments, so that effects can name them."""

    memory: ForkMemory
    facts: dict[AttemptKey, Fact] = {}
    objections: dict[str, Objection] = {}
    seen: dict[str, read.ForkDeployment] = {}


class ForkReconciler:
    """Forks of Deployments; one for each operator. Caches suggest what to do, what is written rests on quorum reads."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._forks = Forks(cluster.client)
        self._builder = ForkBuilder(cluster, self._forks)

    async def observe(self, run: RunObject, plan: Plan, now: int, memory: ForkMemory) -> ForkSight:
        """What is known of the run's forks, those that are no longer wished for included.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        sight = ForkSight(memory)
        wished = _forks(plan)
        known = dict.fromkeys((*wished, *(name for name in run.ledger.units if run.ledger.kind(name) == Kind.FORK)))
        cached = {found.metadata.name: found for found in self._deployments(run)}
        for name in known:
            own = _own_name(run, name)
            if run.ledger.unit(name).state in ALIVE:
                try:
                    await self._claimed(sight, run, name, cached.get(own), now)
                except errors.Refused as error:
                    sight.facts[name, run.ledger.unit(name).attempt] = _unseen(run.ledger.unit(name), error)
                    self._cluster.queue.add(run.metadata.name, after=KEPT_AGAIN_S)
            else:
                _unclaimed(sight, run, name, cached.get(own))
        for name, step in wished.items():
            await self._hold(sight, run, name, step.unit)
        return sight

    async def prepare(self, run: RunObject, plan: Plan, key: AttemptKey, memory: ForkMemory) -> None:
        """Make a fork without replicas, after what it needs: the values it reads, and the Service that leads to it.

        Raises:
            errors.ApiError: the server cannot be asked, or nobody knows what became of it.
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

    async def let_go(self, run: RunObject, seen: read.ForkDeployment) -> None:
        """Its UID is claimed: give it its pods."""
        self._look_again_unless(await self._forks.scale_up(seen), run)

    async def remove(self, run: RunObject, seen: read.ForkDeployment) -> None:
        """Take it away with its pods."""
        self._look_again_unless(await self._forks.remove(seen), run)

    async def keep(self, run: RunObject, plan: Plan, sight: ForkSight) -> None:
        """After a turn: forks that run follow their wish and their baseline, their Services are there, and no others.

        Raises:
            errors.ApiError: not all is done.
        """
        await all_done(self._parts(run, plan, sight))

    def _parts(self, run: RunObject, plan: Plan, sight: ForkSight) -> Iterator[Awaitable[None]]:
        wished = _forks(plan) if run.ledger.closed is None else {}
        ledger = run.ledger
        alive = {name for name in ledger.units if ledger.kind(name) == Kind.FORK and ledger.unit(name).state in ALIVE}
        coming = {_own_name(run, name) for name in wished.keys() - alive}
        yield self._tidy(run, coming, coming | {_own_name(run, name) for name in alive}, sight.memory.retries)
        for name in (each for each in wished if each in alive):  # in the plan's order, the same in every process
            seen, fact = sight.seen.get(name), sight.facts.get((name, run.ledger.unit(name).attempt))
            if seen is not None and not isinstance(fact, Held) and not seen.metadata.deletion_timestamp:
                yield self._follow(run, plan, wished[name], seen, sight.memory)

    async def clear(self, run: str) -> None:
        """The run is over, or gone: take away what is left of its forks.

        Raises:
            errors.ApiError: not all is done.
        """
        forks, services = belonging(self._cluster.forks, run), belonging(self._cluster.services, run)
        await all_done(chain(map(self._forks.remove, forks), map(self._forks.remove_service, services)))

    # --- seeing -----------------------------------------------------------------------------------------------------

    def _deployments(self, run: RunObject) -> list[read.ForkDeployment]:
        """Those in the cache that belong to that very run."""
        return [item for item in belonging(self._cluster.forks, run.metadata.name) if owned(item.metadata, run)]

    async def _claimed(
        self, sight: ForkSight, run: RunObject, name: str, found: read.ForkDeployment | None, now: int
    ) -> None:
        """The attempt that the ledger holds: only quorum reads say that it is gone with all that it made."""
        record, namespace, own = run.ledger.unit(name), _baseline(name).namespace, _own_name(run, name)
        if found is None or found.metadata.uid != record.ref:
            found = await self._forks.find(own, namespace)
        if found is not None and found.metadata.uid == record.ref:
            sight.seen[name] = found
            known = self._cluster.pods.labelled(names.RUN_LABEL, run.metadata.name)
            sight.facts[name, record.attempt] = read.read_fork(found, [pod for pod in known if _is_of(pod, own)], now)
        else:
            # One of ours that nobody claimed goes first (`_tidy`): what it makes looks like what is left of the other.
            stray = found is not None and owned(found.metadata, run)
            sets, pods = await self._forks.count_leftovers(own, namespace)
            if sets:
                self._cluster.queue.add(run.metadata.name, after=CONFLICT_S)  # nobody tells us when they go
            wanted = run.ledger.closed is None and name in {kept_id(unit) for unit in run.spec.forks}
            sight.facts[name, record.attempt] = read.read_missing_fork(
                record, left=stray + sets + pods, wanted=wanted, now=now
            )

    async def _hold(self, sight: ForkSight, run: RunObject, name: str, unit: Unit) -> None:
        """Say what a fork that is wished for lacks: a baseline before it is made, the form that is wished for after."""
        assert unit.fork is not None, "only forks derive from a baseline"
        of, record = unit.fork.baseline, run.ledger.unit(name)
        baseline = self._cluster.baselines.get(of.name, of.namespace)
        if record.state not in ALIVE:
            if of.kind != KIND:
                message = f"its baseline is {with_article(of.kind)}; in a cluster only a {KIND} can be forked"
                sight.objections[name] = Objection(reason=Reason.KIND_NOT_FORKED, message=message)
            elif baseline is None and (name, record.attempt + 1) not in sight.facts:
                sight.objections[name] = await self._missing(run, of)
            return
        seen, fact = sight.seen.get(name), sight.facts.get((name, record.attempt))
        if baseline is None or seen is None or not isinstance(fact, (Running, Waiting)):
            return  # a fork outlives its baseline
        wanted = form(unit, baseline.metadata, self._builder.hosts(run, unit))
        stuck = sight.memory.stuck.get(name)
        if seen.metadata.deletion_timestamp or (stuck is None and _form(seen) == wanted):
            return
        reason, message = (stuck.reason, stuck.message) if stuck else (str(Reason.REPLACED), messages.replaced())
        sight.facts[name, record.attempt] = Waiting(since=fact.since, reason=reason, message=message)

    async def _missing(self, run: RunObject, of: Baseline) -> Objection:
        """A baseline is not there; of another namespace that is said only to those whom it lets fork."""
        try:
            await leave(self._cluster.client, run, of.namespace)
        except (NotGrantedError, errors.Refused) as error:
            self._cluster.queue.add(run.metadata.name, after=KEPT_AGAIN_S)  # nobody tells us when that changes
            return _objection(error, 0)
        message = f"its baseline, {KIND} {of.namespace}/{of.name}, does not exist; the fork is made as soon as it does"
        return Objection(reason=Reason.BASELINE_MISSING, message=message)

    # --- keeping ----------------------------------------------------------------------------------------------------

    async def _follow(
        self, run: RunObject, plan: Plan, step: KeptStep, seen: read.ForkDeployment, memory: ForkMemory
    ) -> None:
        """Give a running fork the form that is wished for, where it is; and its Service the ports of its model."""
        of = _baseline(step.id)
        try:
            own = self._cluster.services.get(_own_name(run, step.id), of.namespace)
            if own is None or not owned(own.metadata, run):
                # Whoever knows more takes it away again: the two would do so without end.
                if await self._is_newest(run):
                    await self._builder.service(run, of)
            elif like := self._cluster.services.get((own.metadata.labels or {}).get(LIKE_LABEL, ""), of.namespace):
                self._look_again_unless(await self._forks.update_service(own, like), run)
            baseline = self._cluster.baselines.get(of.name, of.namespace)
            if baseline is None or _form(seen) == form(
                step.unit, baseline.metadata, self._builder.hosts(run, step.unit)
            ):
                self._unstuck(memory, step.id, run)
                return
            # Read before the form is made: whatever a peer writes from here on, knowing more than we, is not undone.
            now = await self._forks.find(seen.metadata.name, of.namespace)
            if now is None or now.metadata.uid != seen.metadata.uid or now.metadata.deletion_timestamp:
                return
            manifest = await self._builder.manifest(run, plan, step.unit, memory.refused)
            if manifest is not None and await self._is_newest(run):
                self._look_again_unless(await self._forks.update(now, manifest), run)
            self._unstuck(memory, step.id, run)
        except _REFUSALS as error:
            said = _objection(error, self._cluster.now())
            before = memory.stuck.get(step.id)
            memory.stuck[step.id] = said
            self._cluster.queue.add(run.metadata.name, after=kept_again(before, said))

    def _unstuck(self, memory: ForkMemory, fork: str, run: RunObject) -> None:
        """Nothing keeps the fork from its form, or its Service from being there: where something did, that is said."""
        if memory.stuck.pop(fork, None):
            self._cluster.queue.add(run.metadata.name)

    async def _tidy(self, run: RunObject, coming: set[str], kept: set[str], retries: Retries) -> None:
        """Take away Services that are not kept, and never claimed Deployments but of forks that are yet to be claimed.

        One may bear the name of a fork that is claimed: made too late by a paused peer, or put in the place of ours.
        """
        services = belonging(self._cluster.services, run.metadata.name)
        forks = [each for each in services if FORK_LABEL in (each.metadata.labels or {})]  # others are routes' own
        unwanted = [each for each in forks if each.metadata.name not in kept]
        refs = {record.ref for record in run.ledger.units.values()}
        left = [
            found
            for found in self._deployments(run)
            if found.metadata.name not in coming and found.metadata.uid not in refs
        ]
        requests: list[Request] = [
            (deletion(each), partial(self._take_away, self._forks.remove_service, each, run)) for each in unwanted
        ]
        requests += [(deletion(each), partial(self._take_away, self._forks.remove, each, run)) for each in left]
        await attempt_due(self._cluster, run.metadata.name, retries, requests, partial(self._is_newest, run))

    async def _take_away(self, remove: Callable[[T], Awaitable[bool]], item: T, run: RunObject) -> None:
        self._look_again_unless(await remove(item), run)

    def _look_again_unless(self, done: bool, run: RunObject) -> None:
        """Whoever met another version than was seen may be told of nothing that is new."""
        if not done:
            self._cluster.queue.add(run.metadata.name, after=CONFLICT_S)

    async def _is_newest(self, run: RunObject) -> bool:
        """Whether the wish is the newest: one that a peer has revised since is its business, or the next turn's."""
        found = await self._cluster.ledger.fresh(run.metadata.name)
        return found is not None and found.metadata.resource_version == run.metadata.resource_version


def _forks(plan: Plan) -> dict[str, KeptStep]:
    return {name: step for name, step in plan.kept.items() if step.unit.kind == Kind.FORK}


def _unclaimed(sight: ForkSight, run: RunObject, name: str, found: read.ForkDeployment | None) -> None:
    """What bears the name of an attempt that the ledger does not hold: prepared, or on its way out."""
    record = run.ledger.unit(name)
    if found is None or found.metadata.uid == record.ref:
        return  # of an attempt that is recorded: then it is gone, and the cache has not heard of it
    if found.metadata.deletion_timestamp:
        message = f"{KIND} {Key.of(found)} is being deleted; the fork is made again once it is gone"
        sight.objections[name] = Objection(reason=Reason.STOPPING, message=message)
        return
    sight.seen[name] = found
    fact = Held(ref=found.metadata.uid) if not found.spec.replicas else Running(since=0, ready=False)
    sight.facts[name, record.attempt + 1] = fact


def _unseen(record: UnitRecord, error: errors.Refused) -> Running:
    """Return the fact for a claimed fork that the server does not show: it may run, but is not ready."""
    said = _objection(error, 0)
    return Running(since=record.claimed_at, ready=False, reason=said.reason, message=f"cannot be seen: {said.message}")


def _baseline(name: str) -> Baseline:
    """What a fork derives from, by its name in the ledger."""
    found = workload_of(name)
    assert found is not None, "asked of forks alone"
    return found


def _own_name(run: RunObject, name: str) -> str:
    of = _baseline(name)
    return fork_name(run.ledger.target.name, run.ledger.uid, of.namespace, of.name)


def _is_of(pod: Pod, own: str) -> bool:
    return (pod.metadata.labels or {}).get(FORK_LABEL) == own


def _form(seen: read.ForkDeployment) -> str:
    return (seen.metadata.annotations or {}).get(FORM_ANNOTATION, "")


def _objection(error: Exception, now: int) -> Objection:
    """What stands in the way, with what to do about it where somebody can."""
    if isinstance(error, (CannotRenderError, NotGrantedError)):
        return Objection(reason=error.reason, message=str(error), since=now)
    if isinstance(error, errors.Refused):
        message = error.message
        if isinstance(error, errors.Forbidden) and error.not_granted:
            message += "; an administrator can bind the ClusterRole dayfly-forks to the operator in that namespace"
        reason = Reason.FIELD_INVALID if error.is_permanent else error.reason or Reason.REFUSED
        return Objection(reason=reason, message=message, since=now)
    return Objection(reason=Reason.NAME_CONFLICT, message=str(error), since=now)
