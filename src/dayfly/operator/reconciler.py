"""Turns over Run objects: observe by the caches, decide, commit by compare-and-swap, bring effects about by UID."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from dayfly.execute.executor import Registry
from dayfly.execute.fork.run import Forks
from dayfly.execute.log_masks import mask
from dayfly.execute.pod import names
from dayfly.execute.pod.logs import Printed
from dayfly.execute.pod.read import has_started
from dayfly.execute.pod.run import Pods
from dayfly.execute.turn import Scene, turn
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.route_kinds import RoutingSettings
from dayfly.operator.effects import Effects
from dayfly.operator.executors.fork_executor import DeploymentForkExecutor
from dayfly.operator.executors.object_executor import ObjectExecutor
from dayfly.operator.executors.preview_executor import GatewayPreviewExecutor
from dayfly.operator.executors.route_executor import GatewayRouteExecutor
from dayfly.operator.executors.step_executor import PodStepExecutor
from dayfly.operator.executors.step_observer import StepObserver
from dayfly.operator.executors.webhook_executor import PodWebhookExecutor
from dayfly.operator.forks.baselines import PodLabels
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.observe import Observer, PlanLostError
from dayfly.operator.outputs.attempt_secrets import AttemptSecrets, ForeignSecretError
from dayfly.operator.pods.fallback_image import FallbackImage
from dayfly.operator.pods.log_follower import Followers
from dayfly.operator.pods.namespaces import Namespaces, RunnerConfigMap
from dayfly.operator.pods.pod_builder import PodBuilder
from dayfly.operator.pods.step_slots import STEPS, Places
from dayfly.operator.pods.webhook_pods import Senders
from dayfly.operator.refusals import is_down
from dayfly.operator.retries import RequestKey, Retries, attempt
from dayfly.operator.routes.previews import Previews
from dayfly.operator.routes.route_reconciler import RouteReconciler
from dayfly.operator.run_memory import RunMemories, RunMemory, Sight
from dayfly.operator.states.state_access import StateAccess
from dayfly.operator.status.step_logs import StepLogWriter
from dayfly.operator.sweeper import OrphanSweeper
from dayfly.operator.targets.targets import Targets
from dayfly.plan.actions import Decision, Dissolve, Effect, Move, Record, Void
from dayfly.plan.closed_run import is_past_pre_stop
from dayfly.plan.decision import lingers
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import STEP_KINDS, Kind, LifecycleEvent

log = logging.getLogger(__name__)


class Reconciler:
    """The host of turns in a cluster. Any number may be active at once."""

    def __init__(
        self,
        cluster: ClusterWatches,
        targets: Targets,
        *,
        runner: RunnerConfigMap,
        fallback: FallbackImage,
        senders: Senders,
        ended: Callable[[], None],
        bound: int = STEPS,
        states: StateAccess | None = None,
        routing: RoutingSettings = RoutingSettings(),  # noqa: B008 - frozen
        traced: bool,
        ephemeral_storage: str = "",
    ) -> None:
        """`ended` is told of each run that is over; `bound` steps run at once in a namespace that says nothing else.

        `traced` if steps are to know what their own spans hang below. `ephemeral_storage` is the default limit on a
        step's use of its node's disk.
        """
        self._cluster = cluster
        self._ended = ended
        self.targets = targets
        self.followers = Followers(cluster.client, cluster.queue.add)
        cluster.heeds = self.followers.wants
        self._outputs = AttemptSecrets(cluster.client)
        pods = Pods(cluster.client, cluster.pods.advance)
        self.sessions = RunMemories(self._end)
        cluster.made_ahead = self.sessions.made_ahead
        self.logs = StepLogWriter(cluster)
        self.places = Places(cluster, bound)
        forks = ForkReconciler(cluster)
        labels = PodLabels(cluster, Forks(cluster.client))
        routes = RouteReconciler(cluster, routing.forms, labels)
        previews = Previews(cluster, routing.edge, labels)
        self.sweeper = OrphanSweeper(cluster, pods, self.targets, forks, routes)
        namespaces = Namespaces(cluster.client, runner, cluster.now)
        builder = PodBuilder(
            cluster, namespaces, runner, senders, states, traced=traced, ephemeral_storage=ephemeral_storage
        )
        seen: dict[str, Any] = {"pods": pods, "followers": self.followers, "builder": builder, "states": states}
        steps = StepObserver(cluster, outputs=self._outputs, **seen)
        common: dict[str, Any] = {**seen, "fallback": fallback, "places": self.places}
        self.executors: Registry[Sight] = Registry(
            PodStepExecutor(cluster, steps, **common),
            PodWebhookExecutor(cluster, steps, **common),
            ObjectExecutor(cluster, self._outputs),
            DeploymentForkExecutor(forks),
            GatewayRouteExecutor(routes),
            GatewayPreviewExecutor(cluster, previews),
            refusals=(errors.Refused,),
        )
        self._observer = Observer(cluster, targets=self.targets, executors=self.executors, places=self.places)
        self._effects = Effects(cluster, targets=self.targets, executors=self.executors)

    def last(self, run: str) -> Scene | None:
        """What the latest turn of that run saw, with the ledger and the objections as they are now."""
        found = self._cluster.ledger.get(run)
        session = self.sessions.find(found)
        if found is None or session is None or (scene := session.work.scene) is None:
            return None
        objections = scene.world.objections | session.refusals.of(found.ledger, self._cluster.now())[0]
        world = msgspec.structs.replace(scene.world, run=found.ledger, objections=objections)
        return msgspec.structs.replace(scene, world=world)

    def retries(self, run: str) -> Retries:
        """Return the requests of that run that were refused and are tried again."""
        session = self.sessions.find(self._cluster.ledger.get(run))
        return session.retries if session is not None else Retries()

    def lacking(self, run: str) -> tuple[str, ...]:
        """What the latest turn of that run found to be wished for in vain."""
        session = self.sessions.find(self._cluster.ledger.get(run))
        sight = session.work.sight if session is not None else None
        return sight.unrouted if sight is not None else ()

    def again(self, run: str, wake_at: int) -> float:
        """Seconds from now after which the run is to be looked at even without news; 0 if only news can change it.

        `wake_at` is the decision's own moment, in unix milliseconds.
        """
        session = self.sessions.find(self._cluster.ledger.get(run))
        moments = [wake_at, session.refusals.again_at() if session else 0]
        # A hair later, so that the moment has come for certain when we look.
        return min((max(at - self._cluster.now(), 0) / 1000 + 0.001 for at in moments if at), default=0.0)

    async def keep(self, run: str) -> None:
        """After a turn: what is kept as it is wished for, and not done once, is brought there.

        Raises:
            errors.ApiError: not all of it is.
        """
        session = self.sessions.find(self._cluster.ledger.get(run))
        work = session.work if session else None
        if work is not None and work.sight is not None:
            await self.executors.keep(work.sight)
        found = self._cluster.ledger.get(run)
        if session is None or session.loosened or found is None or found.ledger.closed is None:
            return
        scene = self.last(run)
        session.loosened = scene is not None and _may_stop(scene) and await self.targets.remove_hold(found)

    async def turn(self, run: str) -> Decision | None:
        """Take a run a step further. Where that cannot be finished, what is kept is kept all the same: that the end of
        a step cannot be recorded is no reason to lead requests to a fork that goes.

        Raises:
            errors.ApiError: the server cannot be asked, or says no.
            ForeignSecretError: what is to be kept would take somebody else's place.
        """
        self._take_failure(run)
        try:
            decision = await turn(run, self)
            if (error := self._take_failure(run)) is not None:
                raise error
            return decision
        except (errors.ApiError, ForeignSecretError):
            with contextlib.suppress(errors.ApiError):
                await self._keep_on(run)
            raise

    def _take_failure(self, run: str) -> Exception | None:
        """Return the error that the latest turn went on after, and forget it."""
        session = self.sessions.find(self._cluster.ledger.get(run))
        sight = session.work.sight if session is not None else None
        if sight is None:
            return None
        error, sight.failed = sight.failed, None
        return error

    async def _keep_on(self, run: str) -> None:
        """If the turn saw the run as it is now."""
        found = self._cluster.ledger.get(run)
        session = self.sessions.find(found)
        sight = session.work.sight if session is not None else None
        if found is None or sight is None:
            return
        if sight.run.metadata.resource_version == found.metadata.resource_version:
            await self.executors.keep(sight)

    def rest(self, run: str) -> None:
        """Nothing is under way in that run: keep nothing of it in memory. Most sandboxes rest most of the time."""
        self.sessions.rest(run)
        self._cluster.rest(run)

    def reset(self) -> None:
        """Forget all runs, orphans and nodes: another process works from now on."""
        self.sessions.clear()
        self.sweeper.orphans.clear()
        self.followers.nodes.reset()

    async def close(self) -> None:
        """Look at nothing any more."""
        await self.executors.close()

    async def observe(self, run: str) -> Scene | None:
        found = self._cluster.ledger.get(run)
        if found is None:
            self.sessions.drop(run)
            await self.sweeper.tidy(run)
            return None
        session = self.sessions.of(found)
        begun = found.ledger.units or found.ledger.seq
        if not (session.fenced or begun or await self.targets.fence(found)):
            return None
        session.fenced = True
        try:
            session.work.scene, session.work.sight = await self._observer.scene(found, session)
        except PlanLostError:
            # Documents go before their run does: only of a run that is as we saw it are they missed.
            now = await self._cluster.ledger.fresh(run)
            if now is not None and (now.metadata.uid, now.ledger.seq) == (found.metadata.uid, found.ledger.seq):
                raise
            if now is not None:
                self._cluster.queue.add(run)
            return None
        return session.work.scene

    def _end(self, session: RunMemory) -> None:
        """That run is no more, whoever has ended it."""
        for uid in session.pods:
            self.followers.forget(uid)

    def _sight(self, scene: Scene) -> Sight:
        sight = self.sessions.by_ledger(scene.world.run.uid).work.sight
        assert sight is not None, "a scene comes with its sight"
        return sight

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        sight = self._sight(scene)
        if not self.places.claim(sight.run, moves, cleaning=sight.closing):
            return False
        for move in moves:
            if isinstance(move, Record) and not await self._keep(sight, scene, move):
                # What follows from its success does not follow from this: it is decided anew.
                await self._cluster.ledger.commit(sight.run, scene.plan, (_outputs_lost(move),))
                return False
        if not await self._cluster.ledger.commit(sight.run, scene.plan, moves):
            return False
        await self._hear_unsent(sight, scene, moves)
        # The effects rest on these moves: a step that is made now reads outputs that were recorded just now.
        sight.run = self._cluster.ledger.get(sight.run.metadata.name) or sight.run
        return True

    async def _keep(self, sight: Sight, scene: Scene, move: Record) -> bool:
        """Outputs first: the ledger never speaks of what is not there. False if they cannot be kept, and never can."""
        key = move.unit, move.attempt
        pod = sight.pods.get(key)
        printed = await self.followers.printed(pod) if pod is not None else None
        values = sight.outputs.get(key, {}) if move.result.outputs else {}
        sensitive = [values.get(name, b"") for name, output in move.result.outputs.items() if output.sensitive]
        printed = _masked(printed, sensitive)
        step = scene.plan.steps.get(move.unit)
        if scene.kind(move.unit) not in STEP_KINDS and not move.result.outputs:
            return True  # no program, no log
        namespace = pod.metadata.namespace if pod is not None else names.namespace_of(step.unit) if step else ""
        if not namespace:
            return True  # its plan and its pod are lost: there is nothing to keep
        try:
            await self._outputs.keep(sight.run, (namespace, *key), move.result, values, printed)
        except (errors.NotFound, errors.Forbidden) as error:
            # Its namespace is gone or going. How it ended is worth more than the end of its log.
            if isinstance(error, errors.Forbidden) and not error.namespace_ending:
                raise
            return not move.result.outputs
        if self.targets.adapter_for(sight.run).copies:
            self.logs.heard(sight.session.logs, key, printed)
        return True

    async def _hear_unsent(self, sight: Sight, scene: Scene, moves: tuple[Move, ...]) -> None:
        """Show the logs of webhooks that sent nothing: the sender logs the cause there."""
        for move in moves:
            if not isinstance(move, Void) or scene.kind(move.unit) != Kind.WEBHOOK:
                continue
            key = move.unit, move.attempt
            pod = sight.pods.get(key) if self.targets.adapter_for(sight.run).copies else None
            if pod is not None and has_started(pod) and (printed := await self.followers.printed(pod)):
                self.logs.heard(sight.session.logs, key, printed)

    async def perform(self, scene: Scene, effect: Effect) -> None:
        """Bring an effect about. If it fails, the others still follow, unless the server is down.

        A refused effect waits before it is tried again, whatever turns the run has until then.
        """
        sight = self._sight(scene)
        run, retries, is_done = sight.run.metadata.name, sight.session.retries, False
        try:
            is_done = await attempt(
                self._cluster, run, retries, _key(effect), lambda: self._effects.perform(scene, sight, effect)
            )
        except Exception as error:
            if isinstance(effect, Dissolve) or is_down(error):
                raise
            sight.failed = sight.failed or error
        if is_done and isinstance(effect, Dissolve):
            self.sessions.drop(sight.session.name)
            self._ended()


def _key(effect: Effect) -> RequestKey:
    """What identifies an effect: its reason and its message may differ between turns."""
    name = type(effect).__name__
    return (name, "", 0) if isinstance(effect, Dissolve) else (name, effect.unit, effect.attempt)


def _may_stop(scene: Scene) -> bool:
    """Whether all that has to be done before its target stops is done, and proven to be."""
    run, facts = scene.world.run, scene.world.facts
    steps = [(step.id, run.unit(step.id).attempt) for step in scene.plan.events[LifecycleEvent.PRE_STOP]]
    return is_past_pre_stop(scene.plan, run) and not any(lingers(facts.get(key), scene.now) for key in steps)


def _masked(printed: Printed | None, sensitive: list[bytes]) -> Printed | None:
    """The end of a log without what only its step's outputs have told to be sensitive."""
    if printed is None:
        return None
    return printed._replace(tail=mask(printed.tail, sensitive, cut=printed.size > len(printed.tail)))


def _outputs_lost(move: Record) -> Record:
    message = "its outputs could not be kept: the namespace in which it ran is being deleted"
    result = msgspec.structs.replace(
        move.result, outcome="failed", reason=Reason.OUTPUTS_LOST, message=message, outputs={}
    )
    return Record(unit=move.unit, attempt=move.attempt, result=result)
