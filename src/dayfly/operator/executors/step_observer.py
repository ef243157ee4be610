"""Facts about steps from their pods.

Pods come from the cache, but only a quorum read proves that a pod is gone. Outputs come from the pod's termination
message, its log, or the Secret of an earlier turn. The memory of a run between turns only saves reads.
"""

import msgspec

from dayfly.execute import receipt
from dayfly.execute.executor import Observations
from dayfly.execute.outputs import apply_ends, mark_binary
from dayfly.execute.pod import names, read
from dayfly.execute.pod.run import PodClient
from dayfly.execute.state.outcome import resource_of, with_state
from dayfly.execute.turn import adjust_facts
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube.objects import PODS, Pod
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.fork_values import fork_evaluator
from dayfly.operator.cluster.objects import RunObject, is_owned_by
from dayfly.operator.executors.refused_outputs import hold_back_refused
from dayfly.operator.outputs.attempt_secrets import AttemptSecrets, verified_values
from dayfly.operator.outputs.log_outputs import LogOutputs, LogWait
from dayfly.operator.pods import input_pins
from dayfly.operator.pods.log_follower import LogFollowers
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import PodBuilder, RefusedPodError
from dayfly.operator.pods.pod_events import PodEvents
from dayfly.operator.run_memory import Sight
from dayfly.operator.states.state_access import StateAccess
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Prepared, Sealed, UnitRefusal, Unread, Waiting
from dayfly.spec.identity import nonce
from dayfly.spec.lifecycle import STEP_KINDS, Unit
from dayfly.spec.run import ALIVE, Result, State, UnitRecord


class StepObserver:
    """Observes the steps of a run."""

    def __init__(
        self,
        cluster: ClusterWatches,
        *,
        pods: PodClient,
        followers: LogFollowers,
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

    async def observe(self, sight: Sight) -> Observations:
        """Return the facts about a run's steps, and store their pods in `sight`.

        Raises:
            errors.ApiError: the API server failed.
        """
        run = sight.run
        sight.pods = self._cached_pods(run, sight.plan)
        facts: dict[AttemptKey, Fact] = {}
        for (name, attempt), pod in sight.pods.items():
            facts[name, attempt] = _with_valid_end(
                await self._read(sight, name, attempt, pod), run.ledger.unit(name), sight.now
            )
        await self._read_missing(sight, facts)
        await self._with_states(sight, facts)
        # The scene gets the same adjusted facts. `_drop_outdated` predicts the ledger after this turn from them.
        facts = adjust_facts(sight.plan, run.ledger, facts, sight.now)
        facts = hold_back_refused(self._cluster, sight, facts)
        self._drop_outdated(sight, facts)
        changed = await self._find_changed(sight, facts)
        return Observations(facts=facts, objections=changed, outputs=sight.outputs)

    def _cached_pods(self, run: RunObject, plan: Plan) -> dict[AttemptKey, Pod]:
        """Return the cached pods of the attempts of each unit, including its next attempt.

        The pod of a claimed attempt must have the UID in the ledger. Any other pod must be owned by the run.
        """
        pods = {pod.metadata.name: pod for pod in self._cluster.pods.labelled(names.RUN_LABEL, run.metadata.name)}
        found: dict[AttemptKey, Pod] = {}
        for name in {**plan.steps, **run.ledger.units}:
            record = run.ledger.unit(name)
            for attempt in range(1, record.attempt + 2):
                pod = pods.pop(names.pod_name(run.ledger.uid, name, attempt), None)
                claimed = attempt == record.attempt and record.state not in (State.NONE, State.VOID)
                if pod is not None and (pod.metadata.uid == record.ref if claimed else is_owned_by(pod.metadata, run)):
                    found[name, attempt] = pod
        return found

    async def _read(self, sight: Sight, name: str, attempt: int, pod: Pod) -> Fact:
        """Return the fact about a pod, with its outputs."""
        plan, now = sight.plan, self._cluster.now()
        record, unit = sight.run.ledger.unit(name), _unit(plan, name)
        if sealed := self._sealed(sight, name, attempt, pod):
            return sealed
        seen = read.read_pod(pod, unit=unit, record=record, nonce=nonce(sight.run.ledger.uid, name, attempt), now=now)
        if isinstance(seen.fact, Waiting):
            query = sight.memory.pod(pod.metadata.uid).event_query
            # Query at once if the run closes: only an Event shows that an image is being pulled, so that a recall can
            # prove that the step never began.
            is_urgent = sight.closing and name in plan.steps and plan.steps[name].creates
            recallable = read.is_recallable(pod, unit)
            fact = await self._pod_events.with_reason(pod, seen.fact, query, recallable=recallable, is_urgent=is_urgent)
            if not seen.fact.message:
                self._cluster.queue.add(sight.run.metadata.name, after=self._pod_events.seconds_until_query(query))
            return fact
        memory = sight.memory.pods.get(pod.metadata.uid)
        if memory is not None:
            self._pod_events.forget(memory.event_query)
        if isinstance(seen.fact, NeverRan) and read.recalled_at(pod):
            return await self._pod_events.add_cause(pod, seen.fact)
        current = attempt == record.attempt and record.state is not State.DONE
        if not isinstance(seen.fact, (Ended, Sealed)) or not current:
            if memory is not None:
                memory.log_wait = LogWait()
            return seen.fact
        if seen.fact.result.reason in (Reason.NO_RECORD, Reason.START_DEADLINE):
            return type(seen.fact)(result=await self._pod_events.add_cause(pod, seen.fact.result))
        return await self._with_outputs(sight, (name, attempt), seen, pod)

    def _sealed(self, sight: Sight, name: str, attempt: int, pod: Pod) -> Ended | Sealed | None:
        """Return the result from the followed log, or None; only for a live attempt.

        The fact is `Ended` if the pod's status proves that its containers have ended, otherwise `Sealed`.
        """
        record = sight.run.ledger.unit(name)
        if attempt != record.attempt or record.state not in ALIVE:
            return None
        if read.has_started(pod):
            sight.memory.pod(pod.metadata.uid)  # create the memory: when it is dropped, the follower is stopped
            self._followers.follow(pod, sight.run.metadata.name)
        followed = self._followers.sealed_log(pod.metadata.uid)
        if followed is None or followed.records is None:
            return None
        unit = _unit(sight.plan, name)
        end = receipt.read_records(followed.records, nonce=nonce(sight.run.ledger.uid, name, attempt), unit=unit)
        if not isinstance(end, Ended) or end.result.reason == Reason.RESULT_LOST:
            return None
        if end.result.reason == Reason.CANCELLED and not pod.metadata.deletion_timestamp:
            return None  # Dayfly did not request the end: the kubelet's status has the reason, such as an eviction
        sight.outputs[name, attempt] = followed.contents()
        fact = Ended(result=end.result) if read.is_over(pod) else Sealed(result=end.result)
        return mark_binary(fact, sight.outputs[name, attempt])

    async def _with_outputs(self, sight: Sight, key: AttemptKey, seen: read.PodReading, pod: Pod) -> Fact:
        """Store the outputs of an end in `sight`, from the pod, its log, or the Secret of an earlier turn.

        Return the fact with binary outputs marked, `Unread` if the log cannot be read now, or a failure if outputs are
        lost.
        """
        fact = seen.fact
        assert isinstance(fact, (Ended, Sealed)), "only an end has outputs"
        values, wait = dict(seen.values), sight.memory.pod(pod.metadata.uid).log_wait
        late = await self._log_outputs.read(pod, seen.log_digest, wait) if seen.in_log else {}
        if not isinstance(late, Unread):
            values |= late
        found = verified_values(values, fact.result)
        if found is None:
            found = await self._outputs.find_values(sight.run, (pod.metadata.namespace, *key), fact.result)
        if found is None and isinstance(late, Unread) and not sight.abandoned:
            self._cluster.queue.add(sight.run.metadata.name, after=self._log_outputs.seconds_until_read(wait))
            return late
        if found is None:
            lost = next(
                name for name in fact.result.outputs if verified_values(values, _only(fact.result, name)) is None
            )
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

    async def _read_missing(self, sight: Sight, facts: dict[AttemptKey, Fact]) -> None:
        """Read the pods of attempts that the cache lacks: only a quorum read proves that a pod is gone.

        For an attempt with a recorded end, the read is only needed before cleanup or another attempt, which must not
        start before its processes are gone.
        """
        run, work = sight.run, sight.memory.work
        for name, record in run.ledger.units.items():
            key = name, record.attempt
            ended = record.state is State.DONE and (sight.closing or record.outcome == "failed")
            if run.ledger.kind(name) not in STEP_KINDS or key in facts or not (ended or record.state in ALIVE):
                continue
            unit = _unit(sight.plan, name)
            pod = None
            if record.ref not in work.absent_pods:
                pod = await self._client.find(PODS, names.pod_name(run.ledger.uid, *key), names.namespace_of(unit))
            if pod is not None and pod.metadata.uid == record.ref:
                sight.pods[key] = pod
                facts[key] = _with_valid_end(await self._read(sight, *key, pod), record, self._cluster.now())
                continue
            work.absent_pods |= {record.ref}
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

    def _drop_outdated(self, sight: Sight, facts: dict[AttemptKey, Fact]) -> None:
        """Remove the facts of gated pods that must not be claimed.

        Their inputs are outdated, or they have too little time left to start.
        """
        held = [
            (name, attempt)
            for (name, attempt), fact in facts.items()
            if isinstance(fact, Prepared) and attempt > sight.run.ledger.unit(name).attempt and name in sight.plan.steps
        ]
        # The ledger after this turn, in which the inputs of these pods are recorded.
        then = msgspec.structs.replace(sight.run, ledger=apply_ends(sight.run.ledger, facts)) if held else sight.run
        forks = fork_evaluator(self._cluster, then)
        for name, attempt in held:
            if not input_pins.is_current(then, sight.plan.steps[name], sight.pods[name, attempt], sight.now, forks):
                del facts[name, attempt]

    async def _find_changed(self, sight: Sight, facts: dict[AttemptKey, Fact]) -> dict[str, UnitRefusal]:
        """Return objections against gated pods that differ from their manifest, and remove the facts of outdated ones.

        An admission webhook, for example, may have changed them.
        """
        found: dict[str, UnitRefusal] = {}
        plan, now = sight.plan, sight.now
        for (name, attempt), fact in list(facts.items()):
            if (
                not isinstance(fact, Prepared)
                or attempt != sight.run.ledger.unit(name).attempt + 1
                or name not in plan.steps
            ):
                continue
            pod = sight.pods[name, attempt]
            memory = sight.memory.pod(pod.metadata.uid)
            if memory.changes is None and (stored := await self._pods.read_stored(pod)):
                try:
                    given = sight.given.get(name, {})
                    memory.changes = await self._builder.check_stored(sight.run, plan, (name, attempt), given, stored)
                    memory.is_outdated = bool(memory.changes) and name in sight.given
                except (NotGrantedError, RefusedPodError, CannotRenderError) as error:
                    found[name] = UnitRefusal(reason=Reason.POD_MODIFIED, message=str(error), since=now)
            if memory.is_outdated:
                del facts[name, attempt]  # the decision then prepares it again, which releases this pod first
            elif memory.changes:
                found[name] = UnitRefusal(reason=Reason.POD_MODIFIED, message=memory.changes, since=now)
        return found


def _with_valid_end(fact: Fact, record: UnitRecord, now: int) -> Fact:
    """Replace an impossible end time by `now`: one before the claim or in the future, from a node with a wrong clock.

    Back-offs begin at that time.
    """
    if not isinstance(fact, (Ended, Sealed)) or record.claimed_at <= fact.result.ended_at <= now:
        return fact
    return type(fact)(result=msgspec.structs.replace(fact.result, ended_at=now))


def _unit(plan: Plan, name: str) -> Unit:
    """Return the sealed unit. If the plan is lost, return a unit with only the name, which suffices to release pods."""
    step = plan.steps.get(name)
    return step.unit if step else Unit(name=name, kind="exec")


def _only(result: Result, output: str) -> Result:
    return msgspec.structs.replace(result, outputs={output: result.outputs[output]})
