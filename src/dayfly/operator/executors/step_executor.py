"""Steps in a cluster, each in a pod of its own: prepared behind a gate, let go, ended and released by UID."""

from typing import Any

import msgspec

from dayfly.execute.executor import Known
from dayfly.execute.inputs import ForkAddressUnknownError
from dayfly.execute.pod import read
from dayfly.execute.pod.run import ForeignPodError, Pods
from dayfly.execute.state import access
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.objects import Pod
from dayfly.operator.cluster.caches import ALONE_S, ClusterWatches, belonging
from dayfly.operator.cluster.fork_values import teller
from dayfly.operator.executors.step_observer import StepObserver
from dayfly.operator.pods import input_pins
from dayfly.operator.pods.fallback_image import FallbackImage
from dayfly.operator.pods.log_follower import Followers
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.pods.pod_builder import PodBuilder, RefusedPodError
from dayfly.operator.pods.step_slots import Places
from dayfly.operator.refusals import AGAIN_S
from dayfly.operator.run_memory import Sight
from dayfly.operator.states.state_access import ForeignTokenError, StateAccess
from dayfly.plan import messages
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import SealedStep
from dayfly.plan.world import AttemptKey, NeverRan, Objection
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
    """Scripts in pods."""

    kind: str = Kind.EXEC
    gated = True

    def __init__(
        self,
        cluster: ClusterWatches,
        observer: StepObserver,
        *,
        pods: Pods,
        followers: Followers,
        builder: PodBuilder,
        fallback: FallbackImage,
        places: Places,
        states: StateAccess | None = None,
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._pods = pods
        self._followers = followers
        self._builder = builder
        self._fallback = fallback
        self._places = places
        self._states = states

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Whatever has been sealed can be tried here."""

    async def observe(self, sight: Sight) -> None:
        sight.known[self.kind] = await self._observer.observe(sight)

    def known(self, sight: Sight) -> Known:
        return sight.known[self.kind]

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        # What is made ahead has the place of what it waits for, once that has ended.
        cleaning = not sight.plan.steps[effect.unit].creates
        placed = effect.ahead or self._places.hold(sight.run, effect.unit, cleaning=cleaning)
        if placed and await self._free(sight, effect):
            await self._prepare(sight, effect.unit, effect.attempt, ahead=effect.ahead)

    async def _free(self, sight: Sight, effect: Prepare) -> bool:
        """Take away a pod of that name that waits for what will never be recorded, or has waited for too long."""
        step, forks = sight.plan.steps[effect.unit], teller(self._cluster, sight.run)
        if effect.ahead and not input_pins.label(sight.run, step, forks):
            return False
        pod = sight.pods.get((effect.unit, effect.attempt))
        if pod is not None and read.is_gated(pod):
            if input_pins.fits(sight.run, step, pod, sight.now, forks) or input_pins.newer(sight.run, step, pod):
                return False
            if self._waits(sight, effect, pod):
                return False
            await self._pods.release(pod)
        return True

    def _waits(self, sight: Sight, effect: Prepare, pod: Pod) -> bool:
        """Whether it is too old by our clock alone, as another one would be: it waits for the clocks to be set."""
        said, step, now = sight.session.pod(pod.metadata.uid).apart, sight.plan.steps[effect.unit], sight.now
        if said is None or now < said.since or not input_pins.in_time(step, said.since, now):
            return False
        if not effect.ahead:
            self._places.give_back(sight.run, effect.unit)
            sight.session.refusals.put((effect.unit, effect.attempt), msgspec.structs.replace(said, since=now))
        return True

    async def _prepare(self, sight: Sight, name: str, attempt: int, *, ahead: bool) -> None:
        run, key = sight.run, (name, attempt)
        now = self._cluster.now()
        self._mark(sight, key, ahead=ahead)
        try:
            made = await self._builder.manifest(run, sight.plan, key, sight.given.get(name, {}))
            await self._grant(sight, name, attempt)
            stored = await self._pods.prepare(made)
            if stored is not None:
                memory = sight.session.pod(stored["metadata"]["uid"])
                memory.judged = self._builder.judge(stored, made)
                memory.apart = _apart(sight.plan.steps[name], stored, now)
            sight.session.refusals.drop(key)
            return
        except _REFUSALS as error:
            said = _said(error, now)
        if ahead:
            return  # it is tried again, and said, when it is its turn
        self._places.give_back(run, name)
        sight.session.refusals.put(key, said)
        if isinstance(said, NeverRan):
            self._cluster.queue.add(run.metadata.name)

    def _mark(self, sight: Sight, key: AttemptKey, *, ahead: bool) -> None:
        """Before its pod is made: one that is made ahead need not be looked at as soon as it is heard of."""
        session = sight.session
        if ahead:
            session.ahead |= {key}
        elif key in session.ahead:
            session.ahead -= {key}
            self._cluster.queue.add(sight.run.metadata.name)  # news of it may have been put off

    async def _grant(self, sight: Sight, name: str, attempt: int) -> None:
        """A step with a state finds what opens it, from before there is its pod."""
        if self._states is not None and access.has_state((step := sight.plan.steps[name]).unit):
            await self._states.grant(sight.run, step, attempt)

    async def _revoke(self, sight: Sight, effect: Release, namespace: str) -> None:
        if self._states is not None:
            step = sight.plan.steps.get(effect.unit)
            if step is not None and access.has_state(step.unit):
                await self._states.revoke(sight.run, effect.unit, effect.attempt, namespace)

    async def launch(self, sight: Sight, effect: Launch) -> None:
        if not await self._pods.remove_gate(sight.pods[effect.unit, effect.attempt]):
            # Perhaps nothing has become of it of which anybody would tell.
            self._cluster.queue.add(sight.run.metadata.name, after=AGAIN_S)

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._remove(sight, effect)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._remove(sight, effect)

    async def recall(self, sight: Sight, effect: Recall) -> None:
        if pod := sight.pods.get((effect.unit, effect.attempt)):
            image = await self._fallback.image()
            if not (image and await self._pods.recall(pod, image, self._cluster.now())):
                await self._pods.remove(pod)

    async def release(self, sight: Sight, effect: Release) -> None:
        if pod := sight.pods.get((effect.unit, effect.attempt)):
            self._followers.forget(pod.metadata.uid)
            sight.session.pods.pop(pod.metadata.uid, None)
            await self._revoke(sight, effect, pod.metadata.namespace)
            with self._cluster.letting_go(pod):
                if not await self._pods.release(pod):
                    self._cluster.queue.add(sight.run.metadata.name, after=ALONE_S)

    async def keep(self, sight: Sight) -> None:
        """A step is done once."""

    async def clear(self, sight: Sight) -> None:
        if self._states is not None and any(access.has_state(step.unit) for step in sight.plan.steps.values()):
            await self._states.clear(sight.run)
        for pod in belonging(self._cluster.pods, sight.run.metadata.name):
            if read.is_gated(pod):  # made by a peer that never claimed it, and now nobody can
                await self._pods.release(pod)

    async def close(self) -> None:
        """Follow no log any more."""
        await self._followers.close()

    async def _remove(self, sight: Sight, effect: Fence | Cancel) -> None:
        if pod := sight.pods.get((effect.unit, effect.attempt)):
            await self._pods.remove(pod)


def _said(error: Exception, now: int) -> NeverRan | Objection:
    """Return what a refused pod means for its attempt: it never runs, or the cluster has to change first."""
    if isinstance(error, (ForkAddressUnknownError, NotGrantedError)):
        return Objection(reason=error.reason, message=str(error), since=now)
    if isinstance(error, CannotRenderError):
        return NeverRan(reason=error.reason, message=str(error))
    if isinstance(error, errors.Refused):
        # Nothing was permitted, so no cleanup is due. A quota or an admission rule may change, the step cannot.
        if error.is_permanent:
            return NeverRan(reason=Reason.FIELD_INVALID, message=error.message)
        return Objection(reason=error.reason or Reason.REFUSED, message=error.message, since=now)
    reason = Reason.POD_REFUSED if isinstance(error, RefusedPodError) else Reason.NAME_CONFLICT
    return Objection(reason=reason, message=str(error), since=now)


def _apart(step: SealedStep, stored: dict[str, Any], now: int) -> Objection | None:
    """What is to be said of a pod that was too old by our clock when it was made `now`."""
    created = read.milliseconds(stored["metadata"]["creationTimestamp"])
    if input_pins.in_time(step, created, now):
        return None
    message = messages.clock_skew(read.stamp(created), read.stamp(now))
    return Objection(reason=Reason.CLOCK_SKEW, message=message, since=now)
