"""Gathers the world of one run: caches suggest, quorum reads say what is gone, logs and Secrets hold the outputs."""

import logging

import msgspec

from dayfly.execute import receipt
from dayfly.execute.inputs import remarks
from dayfly.execute.order import CannotRenderError
from dayfly.execute.outputs import described, foreseen, within_limit
from dayfly.execute.pod import names, read
from dayfly.execute.pod.run import Pods
from dayfly.execute.turn import Scene
from dayfly.kube.objects import PODS, Pod
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import DOCUMENTS, RunObject, owned
from dayfly.operator.forks.fork_reconciler import ForkReconciler, in_place
from dayfly.operator.outputs.log_outputs import LogOutputs, LogWait
from dayfly.operator.outputs.outputs import Outputs, matching
from dayfly.operator.pods.follow import Followers
from dayfly.operator.pods.input_pins import fits
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import PodBuilder, RefusedPodError
from dayfly.operator.pods.pod_events import PodEvents
from dayfly.operator.session import Session, Sight
from dayfly.operator.targets.targets import Targets
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, seal
from dayfly.plan.world import AttemptKey, Ended, Fact, Held, NeverRan, Objection, Sealed, Unread, Waiting, World
from dayfly.spec.identity import nonce
from dayfly.spec.lifecycle import Kind, Unit, digest
from dayfly.spec.run import Phase, Result, State, UnitRecord

log = logging.getLogger(__name__)

# What is prepared behind a gate before it is claimed.
GATED = frozenset({Kind.EXEC, Kind.FORK})
ALIVE = (State.CLAIMED, State.UNKNOWN)


class PlanLostError(Exception):
    """A document that the run has pinned is not there as it was: nothing is decided without it."""


class Observer:
    """Makes scenes. What is remembered of a run between turns only saves reads."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        pods: Pods,
        targets: Targets,
        followers: Followers,
        outputs: Outputs,
        builder: PodBuilder,
        forks: ForkReconciler,
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._pods = pods
        self._targets = targets
        self._followers = followers
        self._outputs = outputs
        self._builder = builder
        self._forks = forks
        self._log_outputs = LogOutputs(pods, cluster.now)
        self._pod_events = PodEvents(cluster.client, cluster.now)

    async def scene(self, run: RunObject, session: Session) -> tuple[Scene, Sight]:
        """The world of one run as far as it can be known now.

        Raises:
            PlanLostError: its documents are not those that were sealed.
            errors.ApiError: the server cannot be asked.
        """
        wish = await self._targets.wish(run)
        plan = in_place(await self._plan(run, session, given_up=wish.abandon is not None), run.ledger)
        now = self._cluster.now()
        forks = await self._forks.observe(run, plan, now, session.forks)
        closing = run.ledger.phase is not Phase.OPEN or wish.stop or wish.abandon or 0 < wish.expires_at <= now
        pods = self._pods_of(run, plan)
        sight = Sight(run, session, pods, {}, forks, closing=bool(closing), abandoned=wish.abandon is not None)
        facts: dict[AttemptKey, Fact] = {}
        for (name, attempt), pod in sight.pods.items():
            fact = _in_time(await self._read(sight, plan, name, attempt, pod, now), run.ledger.unit(name), now)
            facts[name, attempt] = fact
        await self._missing(sight, plan, facts)
        facts = within_limit(run.ledger, facts)
        _pass_over(sight, plan, facts, now)
        objections, refused = session.refusals.of(run.ledger, now)
        objections |= await self._altered(sight, plan, facts, now) | forks.objections
        world = World(
            run=run.ledger,
            wish=wish,
            facts=facts | forks.facts | refused,
            gated=GATED,
            objections=objections,
            remarks=remarks(plan, run.ledger),
        )
        return Scene(plan=plan, world=world, now=now), sight

    async def _plan(self, run: RunObject, session: Session, *, given_up: bool) -> Plan:
        """The sealed documents, if they are still those that were pinned. A run that is over needs none."""
        forks = digest(run.spec.forks)
        if session.work.plan is not None and session.work.plan[0] == forks:
            return session.work.plan[1]
        over = run.ledger.phase in (Phase.CLEANED, Phase.ABANDONED)
        documents = []
        for pin in run.spec.documents:
            found = self._cluster.documents.get(pin.name)
            if found is None:
                found = await self._client.find(DOCUMENTS, pin.name)
            if found is not None and found.metadata.uid == pin.uid and digest(found.spec) == pin.digest:
                documents.append(found.spec)
            elif not over and not given_up:
                raise PlanLostError(
                    f"document {pin.name} is not the one that was sealed when the run began, so nothing is done: "
                    "restore it, or abandon the run"
                )
        if len(documents) < len(run.spec.documents):
            return seal(())  # references of what is left may lead nowhere
        session.work.plan = forks, seal(tuple(documents), run.spec.forks)
        return session.work.plan[1]

    def _pods_of(self, run: RunObject, plan: Plan) -> dict[AttemptKey, Pod]:
        """The cached pods of attempts: of that UID where the ledger holds one, else one that the run owns."""
        pods = {pod.metadata.name: pod for pod in self._cluster.pods.labelled(names.RUN_LABEL, run.metadata.name)}
        found: dict[AttemptKey, Pod] = {}
        for name in {**plan.steps, **run.ledger.units}:
            record = run.ledger.unit(name)
            for attempt in range(1, record.attempt + 2):
                pod = pods.pop(names.pod_name(run.ledger.uid, name, attempt), None)
                claimed = attempt == record.attempt and record.state not in (State.NONE, State.VOID)
                if pod is not None and (pod.metadata.uid == record.ref if claimed else owned(pod.metadata, run)):
                    found[name, attempt] = pod
        return found

    async def _read(self, sight: Sight, plan: Plan, name: str, attempt: int, pod: Pod, now: int) -> Fact:
        """The pod's own facts, and the outputs that belong to them."""
        record, unit = sight.run.ledger.unit(name), _unit(plan, name)
        if sealed := self._sealed(sight, plan, name, attempt, pod):
            return sealed
        seen = read.pod(pod, unit=unit, record=record, nonce=nonce(sight.run.ledger.uid, name, attempt), now=now)
        if isinstance(seen.fact, Waiting):
            silence = sight.session.pod(pod.metadata.uid).silence
            # Whether a create step can be asked for the proof that it never began may be told in an Event alone.
            pressing = sight.closing and name in plan.steps and plan.steps[name].creates
            fact = await self._pod_events.explain(pod, seen.fact, silence, pressing=pressing)
            if not seen.fact.message:
                self._cluster.queue.add(sight.run.metadata.name, after=self._pod_events.again_in(silence))
            return fact
        memory = sight.session.pods.get(pod.metadata.uid)
        if memory is not None:
            self._pod_events.end(memory.silence)
        if isinstance(seen.fact, NeverRan) and read.recalled(pod):
            return await self._pod_events.last_words(pod, seen.fact)
        current = attempt == record.attempt and record.state is not State.DONE
        if not isinstance(seen.fact, (Ended, Sealed)) or not current:
            if memory is not None:
                memory.log_wait = LogWait()
            return seen.fact
        if seen.fact.result.reason in (Reason.NO_RECORD, Reason.START_DEADLINE):
            return type(seen.fact)(result=await self._pod_events.last_words(pod, seen.fact.result))
        return await self._with_outputs(sight, (name, attempt), seen, pod)

    def _sealed(self, sight: Sight, plan: Plan, name: str, attempt: int, pod: Pod) -> Sealed | None:
        """What the followed log has told, as long as the attempt is not recorded and its pod has not ended."""
        record = sight.run.ledger.unit(name)
        if attempt != record.attempt or record.state not in ALIVE:
            return None
        if read.began(pod):
            sight.session.pod(pod.metadata.uid)  # what follows its log ends with the session
            self._followers.follow(pod, sight.run.metadata.name)
        heard = self._followers.sealed(pod.metadata.uid)
        if heard is None or heard.records is None:
            return None
        unit = _unit(plan, name)
        told = receipt.understand(heard.records, nonce=nonce(sight.run.ledger.uid, name, attempt), unit=unit)
        if not isinstance(told, Ended) or told.result.reason == Reason.LOST:
            return None
        sight.outputs[name, attempt] = heard.contents()
        return described(Sealed(result=told.result), sight.outputs[name, attempt])

    async def _with_outputs(self, sight: Sight, key: AttemptKey, seen: read.Seen, pod: Pod) -> Fact:
        """An end together with its outputs: from the pod, its log, or where an earlier try of ours has kept them."""
        fact = seen.fact
        assert isinstance(fact, (Ended, Sealed)), "only an end has outputs"
        values, wait = dict(seen.values), sight.session.pod(pod.metadata.uid).log_wait
        late = await self._log_outputs.read(pod, seen.log_digest, wait) if seen.in_log else {}
        if not isinstance(late, Unread):
            values |= late
        found = matching(values, fact.result)
        if found is None:
            found = await self._outputs.recall(sight.run, (pod.metadata.namespace, *key), fact.result)
        if found is None and isinstance(late, Unread) and not sight.abandoned:
            self._cluster.queue.add(sight.run.metadata.name, after=self._log_outputs.again_in(wait))
            return late
        if found is None:
            lost = next(name for name in fact.result.outputs if matching(values, _only(fact.result, name)) is None)
            result = msgspec.structs.replace(
                fact.result,
                outcome="failed",
                reason=Reason.OUTPUTS_LOST,
                message=f"output {lost} was written, but its bytes could not be read from the pod's log",
                outputs={},
            )
            return type(fact)(result=result)
        sight.outputs[key] = found
        return described(fact, found)

    async def _missing(self, sight: Sight, plan: Plan, facts: dict[AttemptKey, Fact]) -> None:
        """Attempts of which the cache has no pod: only a quorum read may say that it is gone.

        Of those that are recorded it matters where cleanup or another attempt would follow.
        """
        run = sight.run
        gone = sight.session.work.gone
        for name, record in run.ledger.units.items():
            key = name, record.attempt
            ended = record.state is State.DONE and (sight.closing or record.outcome == "failed")
            if record.kept or key in facts or not (ended or record.state in ALIVE):
                continue
            unit = _unit(plan, name)
            pod = None
            if record.ref not in gone:
                pod = await self._client.find(PODS, names.pod_name(run.ledger.uid, *key), names.namespace_of(unit))
            if pod is not None and pod.metadata.uid == record.ref:
                sight.pods[key] = pod
                now = self._cluster.now()
                facts[key] = _in_time(await self._read(sight, plan, *key, pod, now), record, now)
                continue
            gone.add(record.ref)
            if not ended:
                facts[key] = read.gone(record, unit)

    async def _altered(self, sight: Sight, plan: Plan, facts: dict[AttemptKey, Fact], now: int) -> dict[str, Objection]:
        """Pods that wait to be claimed and are not, as stored, what was made: the cluster's webhooks changed them."""
        found: dict[str, Objection] = {}
        for (name, attempt), fact in facts.items():
            if (
                not isinstance(fact, Held)
                or attempt != sight.run.ledger.unit(name).attempt + 1
                or name not in plan.steps
            ):
                continue
            pod = sight.pods[name, attempt]
            memory = sight.session.pod(pod.metadata.uid)
            if memory.judged is None and (stored := await self._pods.whole(pod)):
                try:
                    memory.judged = await self._builder.examine(sight.run, plan, (name, attempt), pod, stored)
                except (NotGrantedError, RefusedPodError, CannotRenderError) as error:
                    found[name] = Objection(reason=Reason.POD_ALTERED, message=str(error), since=now)
            if memory.judged:
                found[name] = Objection(reason=Reason.POD_ALTERED, message=memory.judged, since=now)
        return found


def _pass_over(sight: Sight, plan: Plan, facts: dict[AttemptKey, Fact], now: int) -> None:
    """Leave out what waits to be claimed and may not be, since it would read other than what is told by now."""
    held = [
        (name, attempt)
        for (name, attempt), fact in facts.items()
        if isinstance(fact, Held) and attempt > sight.run.ledger.unit(name).attempt and name in plan.steps
    ]
    then = msgspec.structs.replace(sight.run, ledger=foreseen(sight.run.ledger, facts)) if held else sight.run
    for name, attempt in held:
        if not fits(then, plan.steps[name], sight.pods[name, attempt], now):
            del facts[name, attempt]


def _in_time(fact: Fact, record: UnitRecord, now: int) -> Fact:
    """The same, with an end that can be: a node's clock may be wrong, or not told, and what follows is timed by it."""
    if not isinstance(fact, (Ended, Sealed)) or record.claimed_at <= fact.result.ended_at <= now:
        return fact
    return type(fact)(result=msgspec.structs.replace(fact.result, ended_at=now))


def _unit(plan: Plan, name: str) -> Unit:
    """The unit as it was sealed; of a lost plan only the name is left, and that is enough to let its pods go."""
    step = plan.steps.get(name)
    return step.unit if step else Unit(name=name, kind="exec")


def _only(result: Result, output: str) -> Result:
    return msgspec.structs.replace(result, outputs={output: result.outputs[output]})
