"""The executors of steps and webhooks, each in a pod: prepared with a gate, started, ended and released by UID."""

from typing import Any

import msgspec

from dayfly.execute.executor import Observations
from dayfly.execute.inputs import ForkAddressUnknownError
from dayfly.execute.pod import read
from dayfly.execute.pod.run import ForeignPodError, PodClient
from dayfly.execute.state import access
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.objects import Pod
from dayfly.operator.cluster.caches import DELETION_CHECK_S, ClusterWatches, owned_by_run
from dayfly.operator.cluster.fork_values import fork_evaluator
from dayfly.operator.executors.step_observer import StepObserver
from dayfly.operator.pods import input_pins
from dayfly.operator.pods.images import FallbackImage
from dayfly.operator.pods.log_follower import LogFollowers
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import PodBuilder, RefusedPodError
from dayfly.operator.pods.step_slots import StepSlots
from dayfly.operator.refusals import RETRY_AFTER_S
from dayfly.operator.run_memory import Sight
from dayfly.operator.states.state_access import ForeignTokenError, StateAccess
from dayfly.plan import messages
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, SealedStep
from dayfly.plan.world import AttemptKey, NeverRan, UnitRefusal
from dayfly.spec.lifecycle import Kind, Unit

_REFUSALS = (
    CannotRenderError,
    ForeignPodError,
    ForeignTokenError,
    NotGrantedError,
    RefusedPodError,
    ForkAddressUnknownError,
    errors.Refused,
)


class PodStepExecutor:
    """Scripts and commands in pods."""

    kind: str = Kind.EXEC
    is_gated = True

    def __init__(
        self,
        cluster: ClusterWatches,
        observer: StepObserver,
        *,
        pods: PodClient,
        followers: LogFollowers,
        builder: PodBuilder,
        fallback: FallbackImage,
        slots: StepSlots,
        states: StateAccess | None = None,
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._pods = pods
        self._followers = followers
        self._builder = builder
        self._fallback = fallback
        self._slots = slots
        self._states = states

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Accept every sealed step."""

    async def observe(self, sight: Sight) -> None:
        sight.known[self.kind] = await self._observer.observe(sight)

    def observations(self, sight: Sight) -> Observations:
        return sight.known[self.kind]

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        # A pod that is prepared ahead takes the slot of the step that it waits for, once that step has ended.
        is_cleanup = not sight.plan.steps[effect.unit].creates
        has_slot = effect.ahead or self._slots.reserve(sight.run, effect.unit, is_cleanup=is_cleanup)
        if has_slot and await self._make_room(sight, effect):
            await self._prepare(sight, effect.unit, effect.attempt, ahead=effect.ahead)

    async def _make_room(self, sight: Sight, effect: Prepare) -> bool:
        """Make room for the pod; false if there is a usable one.

        Release one with outdated inputs, outdated values of the target, or too little time left.
        """
        step, forks = sight.plan.steps[effect.unit], fork_evaluator(self._cluster, sight.run)
        if effect.ahead and (_reads_member(sight.plan, step) or not input_pins.pin_label(sight.run, step, forks)):
            return False
        pod = sight.pods.get((effect.unit, effect.attempt))
        if pod is not None and read.is_gated(pod):
            if sight.memory.pod(pod.metadata.uid).is_outdated:
                await self._pods.release(pod)
                return True
            if input_pins.is_current(sight.run, step, pod, sight.now, forks) or input_pins.is_newer(
                sight.run, step, pod
            ):
                return False
            if self._waits_for_clock(sight, effect, pod):
                return False
            await self._pods.release(pod)
        return True

    def _waits_for_clock(self, sight: Sight, effect: Prepare, pod: Pod) -> bool:
        """Return whether the pod is only too old by our clock. A new one would be as well, so wait for the clocks."""
        refusal, step, now = sight.memory.pod(pod.metadata.uid).clock_skew, sight.plan.steps[effect.unit], sight.now
        if refusal is None or now < refusal.since or not input_pins.has_time_to_start(step, refusal.since, now):
            return False
        if not effect.ahead:
            self._slots.release(sight.run, effect.unit)
            sight.memory.refusals.put((effect.unit, effect.attempt), msgspec.structs.replace(refusal, since=now))
        return True

    async def _prepare(self, sight: Sight, name: str, attempt: int, *, ahead: bool) -> None:
        run, key = sight.run, (name, attempt)
        now = self._cluster.now()
        self._record_ahead(sight, key, ahead=ahead)
        try:
            made = await self._builder.build(run, sight.plan, key, sight.given.get(name, {}))
            await self._grant(sight, name, attempt)
            stored = await self._pods.prepare(made)
            if stored is not None:
                memory = sight.memory.pod(stored["metadata"]["uid"])
                memory.changes = self._builder.describe_changes(stored, made)
                memory.clock_skew = _clock_skew(sight.plan.steps[name], stored, now)
            sight.memory.refusals.drop(key)
            return
        except _REFUSALS as error:
            refusal = _refusal_of(error, now)
        if ahead:
            return  # it is tried again, and reported, when it is the step's turn
        self._slots.release(run, name)
        sight.memory.refusals.put(key, refusal)
        if isinstance(refusal, NeverRan):
            self._cluster.queue.add(run.metadata.name)

    def _record_ahead(self, sight: Sight, key: AttemptKey, *, ahead: bool) -> None:
        """Record whether the pod is prepared ahead. Changes of such a pod need no immediate turn."""
        memory = sight.memory
        if ahead:
            memory.ahead |= {key}
        elif key in memory.ahead:
            memory.ahead -= {key}
            self._cluster.queue.add(sight.run.metadata.name)  # a turn for the pod may have been delayed

    async def _grant(self, sight: Sight, name: str, attempt: int) -> None:
        """Create the token of a step with a state before the step's pod."""
        if self._states is not None and access.has_state((step := sight.plan.steps[name]).unit):
            await self._states.grant(sight.run, step, attempt)

    async def _revoke(self, sight: Sight, effect: Release, namespace: str) -> None:
        if self._states is not None:
            step = sight.plan.steps.get(effect.unit)
            if step is not None and access.has_state(step.unit):
                await self._states.revoke(sight.run, effect.unit, effect.attempt, namespace)

    async def launch(self, sight: Sight, effect: Launch) -> None:
        if not await self._pods.remove_gate(sight.pods[effect.unit, effect.attempt]):
            # The pod may not have changed, and then no event would bring a turn.
            self._cluster.queue.add(sight.run.metadata.name, after=RETRY_AFTER_S)

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._remove(sight, effect)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._remove(sight, effect)

    async def recall(self, sight: Sight, effect: Recall) -> None:
        if pod := sight.pods.get((effect.unit, effect.attempt)):
            image = await self._fallback.find()
            if not (image and await self._pods.recall(pod, image, self._cluster.now())):
                await self._pods.request_deletion(pod)

    async def release(self, sight: Sight, effect: Release) -> None:
        if pod := sight.pods.get((effect.unit, effect.attempt)):
            self._followers.forget(pod.metadata.uid)
            sight.memory.pods.pop(pod.metadata.uid, None)
            await self._revoke(sight, effect, pod.metadata.namespace)
            with self._cluster.releasing(pod):
                if not await self._pods.release(pod):
                    self._cluster.queue.add(sight.run.metadata.name, after=DELETION_CHECK_S)

    async def keep(self, sight: Sight) -> None:
        """Do nothing: a step runs once and is not kept."""

    async def clear(self, sight: Sight) -> None:
        if self._states is not None and any(access.has_state(step.unit) for step in sight.plan.steps.values()):
            await self._states.end_run(sight.run)
        for pod in owned_by_run(self._cluster.pods, sight.run.metadata.name):
            if read.is_gated(pod):  # created by a peer that never claimed it, and it can no longer be claimed
                await self._pods.release(pod)

    async def close(self) -> None:
        """Stop following logs."""
        await self._followers.close()

    async def _remove(self, sight: Sight, effect: Fence | Cancel) -> None:
        if pod := sight.pods.get((effect.unit, effect.attempt)):
            await self._pods.request_deletion(pod)


class PodWebhookExecutor(PodStepExecutor):
    """Webhooks, each sent by a pod. The executor of steps observes and clears these pods, and closes the followers."""

    kind: str = Kind.WEBHOOK

    async def observe(self, sight: Sight) -> None:
        """Do nothing: the executor of steps observes all pods."""

    def observations(self, _sight: Sight) -> Observations:
        return Observations()

    async def clear(self, sight: Sight) -> None:
        """Do nothing: the executor of steps clears all pods."""

    async def close(self) -> None:
        """Do nothing: the executor of steps closes the followers."""


def _reads_member(plan: Plan, step: SealedStep) -> bool:
    """Return whether the step reads outputs of a pool member, whose attempts may change while the step waits."""
    return any(plan.steps[name].unit.kind == Kind.ACQUIRE for name in step.reads if name in plan.steps)


def _refusal_of(error: Exception, now: int) -> NeverRan | UnitRefusal:
    """Return what a refused pod means for its attempt: it never runs, or the cluster has to change first."""
    if isinstance(error, (ForkAddressUnknownError, NotGrantedError)):
        return UnitRefusal(reason=error.reason, message=str(error), since=now)
    if isinstance(error, CannotRenderError):
        return NeverRan(reason=error.reason, message=str(error))
    if isinstance(error, errors.Refused):
        # Nothing was permitted, so no cleanup is due. A quota or an admission rule may change, the step cannot.
        if error.is_permanent:
            return NeverRan(reason=Reason.FIELD_INVALID, message=error.message)
        return UnitRefusal(reason=error.reason or Reason.REFUSED, message=error.message, since=now)
    reason = Reason.POD_REFUSED if isinstance(error, RefusedPodError) else Reason.NAME_CONFLICT
    return UnitRefusal(reason=reason, message=str(error), since=now)


def _clock_skew(step: SealedStep, stored: dict[str, Any], now: int) -> UnitRefusal | None:
    """Return the objection against a pod that was too old by our clock in the moment of its creation."""
    created = read.parse_time(stored["metadata"]["creationTimestamp"])
    if input_pins.has_time_to_start(step, created, now):
        return None
    message = messages.clock_skew(read.format_time(created), read.format_time(now))
    return UnitRefusal(reason=Reason.CLOCK_SKEW, message=message, since=now)
