"""How steps are seen, each in a pod of its own.

Caches suggest, quorum reads say what is gone, logs and Secrets hold the outputs. What is remembered of a run between
turns only saves reads.
"""

import msgspec

from dayfly.execute import receipt
from dayfly.execute.executor import Known
from dayfly.execute.outputs import apply_ends, mark_binary
from dayfly.execute.pod import names, read
from dayfly.execute.pod.run import Pods
from dayfly.execute.state.outcome import resource_of, with_state
from dayfly.execute.turn import adjust_facts
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube.objects import PODS, Pod
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.fork_values import teller
from dayfly.operator.cluster.objects import RunObject, owned
from dayfly.operator.outputs.attempt_secrets import AttemptSecrets, matching
from dayfly.operator.outputs.log_outputs import LogOutputs, LogWait
from dayfly.operator.pods import input_pins
from dayfly.operator.pods.log_follower import Followers
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import PodBuilder, RefusedPodError
from dayfly.operator.pods.pod_events import PodEvents
from dayfly.operator.run_memory import Sight
from dayfly.operator.states.state_access import StateAccess
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, Ended, Fact, Held, NeverRan, Objection, Sealed, Unread, Waiting
from dayfly.spec.identity import nonce
from dayfly.spec.lifecycle import STEP_KINDS, Unit
from dayfly.spec.run import ALIVE, Result, State, UnitRecord


class StepObserver:
    """What is known of the steps of a run."""

    def __init__(
        self,
        cluster: ClusterWatches,
        *,
        pods: Pods,
        followers: Followers,
        outputs: AttemptSecrets,
        builder: PodBuilder,
        states: StateAccess | None = None,
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._pods = pods
        self._followers = followers
        self._outputs = outputs
        self._builder = builder
        self._states = states
        self._log_outputs = LogOutputs(pods, cluster.now)
        self._pod_events = PodEvents(cluster.client, cluster.now)

    async def observe(self, sight: Sight) -> Known:
        """The world of a run's steps as far as it can be known now; their pods are in `sight` then.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        run = sight.run
        sight.pods = self._pods_of(run, sight.plan)
        facts: dict[AttemptKey, Fact] = {}
        for (name, attempt), pod in sight.pods.items():
            facts[name, attempt] = _in_time(
                await self._read(sight, name, attempt, pod), run.ledger.unit(name), sight.now
            )
        await self._missing(sight, facts)
        await self._with_states(sight, facts)
        # As the scene will have them: the ledger is apply_ends from these.
        facts = adjust_facts(sight.plan, run.ledger, facts, sight.now)
        self._pass_over(sight, facts)
        altered = await self._altered(sight, facts)
        return Known(facts=facts, objections=altered, outputs=sight.outputs)

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

    async def _read(self, sight: Sight, name: str, attempt: int, pod: Pod) -> Fact:
        """The pod's own facts, and the outputs that belong to them."""
        plan, now = sight.plan, self._cluster.now()
        record, unit = sight.run.ledger.unit(name), _unit(plan, name)
        if sealed := self._sealed(sight, name, attempt, pod):
            return sealed
        seen = read.read_pod(pod, unit=unit, record=record, nonce=nonce(sight.run.ledger.uid, name, attempt), now=now)
        if isinstance(seen.fact, Waiting):
            silence = sight.session.pod(pod.metadata.uid).silence
            # Whether a create step can be asked for the proof that it never began may be told in an Event alone.
            pressing = sight.closing and name in plan.steps and plan.steps[name].creates
            recallable = read.is_recallable(pod, unit)
            fact = await self._pod_events.explain(pod, seen.fact, silence, recallable=recallable, pressing=pressing)
            if not seen.fact.message:
                self._cluster.queue.add(sight.run.metadata.name, after=self._pod_events.again_in(silence))
            return fact
        memory = sight.session.pods.get(pod.metadata.uid)
        if memory is not None:
            self._pod_events.end(memory.silence)
        if isinstance(seen.fact, NeverRan) and read.recalled_at(pod):
            return await self._pod_events.last_words(pod, seen.fact)
        current = attempt == record.attempt and record.state is not State.DONE
        if not isinstance(seen.fact, (Ended, Sealed)) or not current:
            if memory is not None:
                memory.log_wait = LogWait()
            return seen.fact
        if seen.fact.result.reason in (Reason.NO_RECORD, Reason.START_DEADLINE):
            return type(seen.fact)(result=await self._pod_events.last_words(pod, seen.fact.result))
        return await self._with_outputs(sight, (name, attempt), seen, pod)

    def _sealed(self, sight: Sight, name: str, attempt: int, pod: Pod) -> Ended | Sealed | None:
        """What the followed log has told, as long as the attempt is not recorded. Its pod may have ended since."""
        record = sight.run.ledger.unit(name)
        if attempt != record.attempt or record.state not in ALIVE:
            return None
        if read.has_started(pod):
            sight.session.pod(pod.metadata.uid)  # what follows its log ends with the session
            self._followers.follow(pod, sight.run.metadata.name)
        heard = self._followers.sealed(pod.metadata.uid)
        if heard is None or heard.records is None:
            return None
        unit = _unit(sight.plan, name)
        told = receipt.read_records(heard.records, nonce=nonce(sight.run.ledger.uid, name, attempt), unit=unit)
        if not isinstance(told, Ended) or told.result.reason == Reason.RESULT_LOST:
            return None
        if told.result.reason == Reason.CANCELLED and not pod.metadata.deletion_timestamp:
            return None  # not asked for by us: the kubelet's status has the reason, such as an eviction
        sight.outputs[name, attempt] = heard.contents()
        fact = Ended(result=told.result) if read.is_over(pod) else Sealed(result=told.result)
        return mark_binary(fact, sight.outputs[name, attempt])

    async def _with_outputs(self, sight: Sight, key: AttemptKey, seen: read.PodReading, pod: Pod) -> Fact:
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
        return mark_binary(fact, found)

    async def _missing(self, sight: Sight, facts: dict[AttemptKey, Fact]) -> None:
        """Attempts of which the cache has no pod: only a quorum read may say that it is gone.

        Of those that are recorded it matters where cleanup or another attempt would follow.
        """
        run, work = sight.run, sight.session.work
        for name, record in run.ledger.units.items():
            key = name, record.attempt
            ended = record.state is State.DONE and (sight.closing or record.outcome == "failed")
            if run.ledger.kind(name) not in STEP_KINDS or key in facts or not (ended or record.state in ALIVE):
                continue
            unit = _unit(sight.plan, name)
            pod = None
            if record.ref not in work.gone:
                pod = await self._client.find(PODS, names.pod_name(run.ledger.uid, *key), names.namespace_of(unit))
            if pod is not None and pod.metadata.uid == record.ref:
                sight.pods[key] = pod
                facts[key] = _in_time(await self._read(sight, *key, pod), record, self._cluster.now())
                continue
            work.gone |= {record.ref}
            if not ended:
                facts[key] = read.read_missing_pod(record, unit)

    async def _with_states(self, sight: Sight, facts: dict[AttemptKey, Fact]) -> None:
        """Apply `with_state` to the ends of steps with a state."""
        if self._states is None:
            return
        before = dict(facts)
        for key, fact in before.items():
            if resource := resource_of(sight.plan, sight.run.ledger, key, fact):
                head = await self._states.head(sight.run.metadata.name, resource, key)
                facts[key] = with_state(sight.plan, sight.run.ledger, key, before, head)

    def _pass_over(self, sight: Sight, facts: dict[AttemptKey, Fact]) -> None:
        """Leave out what waits to be claimed and may not be, since it would read other than what is told by now."""
        held = [
            (name, attempt)
            for (name, attempt), fact in facts.items()
            if isinstance(fact, Held) and attempt > sight.run.ledger.unit(name).attempt and name in sight.plan.steps
        ]
        then = msgspec.structs.replace(sight.run, ledger=apply_ends(sight.run.ledger, facts)) if held else sight.run
        forks = teller(self._cluster, then)
        for name, attempt in held:
            if not input_pins.fits(then, sight.plan.steps[name], sight.pods[name, attempt], sight.now, forks):
                del facts[name, attempt]

    async def _altered(self, sight: Sight, facts: dict[AttemptKey, Fact]) -> dict[str, Objection]:
        """Pods that wait to be claimed and are not, as stored, what was made: the cluster's webhooks changed them."""
        found: dict[str, Objection] = {}
        plan, now = sight.plan, sight.now
        for (name, attempt), fact in list(facts.items()):
            if (
                not isinstance(fact, Held)
                or attempt != sight.run.ledger.unit(name).attempt + 1
                or name not in plan.steps
            ):
                continue
            pod = sight.pods[name, attempt]
            memory = sight.session.pod(pod.metadata.uid)
            if memory.judged is None and (stored := await self._pods.read_stored(pod)):
                try:
                    given = sight.given.get(name, {})
                    memory.judged = await self._builder.examine(sight.run, plan, (name, attempt), given, stored)
                    if memory.judged and name in sight.given:
                        # A peer may have made it by what the target said before; we make it by what it says now.
                        await self._pods.release(pod)
                        del facts[name, attempt]
                        continue
                except (NotGrantedError, RefusedPodError, CannotRenderError) as error:
                    found[name] = Objection(reason=Reason.POD_MODIFIED, message=str(error), since=now)
            if memory.judged:
                found[name] = Objection(reason=Reason.POD_MODIFIED, message=memory.judged, since=now)
        return found


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
