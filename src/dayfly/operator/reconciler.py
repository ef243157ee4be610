"""Turns over runs: observe with caches, decide, commit by compare-and-swap, perform effects by UID."""

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from dayfly.execute.acquire.holder_report import with_members
from dayfly.execute.executor import Registry
from dayfly.execute.fork.run import Forks
from dayfly.execute.log_masks import mask
from dayfly.execute.pod import names
from dayfly.execute.pod.logs import PrintedOutput
from dayfly.execute.pod.read import has_started
from dayfly.execute.pod.run import PodClient
from dayfly.execute.turn import Scene, turn
from dayfly.kube import errors
from dayfly.kube.objects import Pod
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.holders import HolderEntries
from dayfly.operator.cluster.member_reads import held_member, retry_members
from dayfly.operator.cluster.route_kinds import RoutingSettings
from dayfly.operator.effects import Effects
from dayfly.operator.executors.acquire_executor import AcquireExecutor
from dayfly.operator.executors.fork_executor import DeploymentForkExecutor
from dayfly.operator.executors.object_executor import ObjectExecutor
from dayfly.operator.executors.preview_executor import GatewayPreviewExecutor
from dayfly.operator.executors.refused_outputs import outputs_request
from dayfly.operator.executors.route_executor import GatewayRouteExecutor
from dayfly.operator.executors.step_executor import PodStepExecutor, PodWebhookExecutor
from dayfly.operator.executors.step_observer import StepObserver
from dayfly.operator.forks.baselines import PodLabels
from dayfly.operator.forks.fork_reconciler import ForkReconciler
from dayfly.operator.observe import Observer, PlanLostError
from dayfly.operator.outputs.attempt_secrets import AttemptSecrets, ForeignSecretError
from dayfly.operator.pods.images import FallbackImage, WebhookSenders
from dayfly.operator.pods.log_follower import LogFollowers
from dayfly.operator.pods.namespaces import Namespaces, RunnerConfigMap
from dayfly.operator.pods.pod_builder import PodBuilder
from dayfly.operator.pods.step_slots import DEFAULT_LIMIT, StepSlots
from dayfly.operator.records.registry import ResourceRegistry
from dayfly.operator.refusals import is_down
from dayfly.operator.retries import RequestKey, Retries, attempt
from dayfly.operator.routes.previews import Previews
from dayfly.operator.routes.route_reconciler import RouteReconciler
from dayfly.operator.run_memory import RunMemories, RunMemory, Sight
from dayfly.operator.states.state_access import StateAccess
from dayfly.operator.status.step_logs import StepLogWriter
from dayfly.operator.sweeper import OrphanSweeper
from dayfly.operator.targets.adapter import Adapter
from dayfly.operator.targets.targets import Targets, has_begun
from dayfly.plan.actions import Decision, Dissolve, Effect, Move, Record, Void
from dayfly.plan.closed_run import is_past_pre_stop
from dayfly.plan.decide import decide
from dayfly.plan.decision import may_have_processes
from dayfly.plan.reasons import Reason
from dayfly.plan.status import describe
from dayfly.spec.lifecycle import STEP_KINDS, Kind, LifecycleEvent
from dayfly.spec.report import RunReport

log = logging.getLogger(__name__)


class Reconciler:
    """The host of turns in a cluster. Several may be active at once."""

    def __init__(
        self,
        cluster: ClusterWatches,
        targets: Targets,
        *,
        runner: RunnerConfigMap,
        fallback: FallbackImage,
        senders: WebhookSenders,
        ended: Callable[[], None],
        limit: int = DEFAULT_LIMIT,
        states: StateAccess | None = None,
        routing: RoutingSettings = RoutingSettings(),  # noqa: B008 - frozen
        traced: bool,
        ephemeral_storage: str = "",
        pools: bool = False,
        registry: ResourceRegistry | None = None,
    ) -> None:
        """Create the parts of a host.

        `ended` is called after the end of each run. `limit` is the default limit of concurrent steps of a namespace.
        `traced` adds a trace context to steps. `ephemeral_storage` is a step's default limit on its node's disk. With
        `pools`, pool members can provide resources. `registry` makes tokens of resources, and records their ends.
        """
        self._cluster = cluster
        self._ended = ended
        self.targets = targets
        self.followers = LogFollowers(cluster.client, cluster.queue.add)
        cluster.follows_log = self.followers.would_follow
        self._outputs = AttemptSecrets(cluster.client)
        pods = PodClient(cluster.client, cluster.pods.advance)
        self.memories = RunMemories(self._stop_following)
        cluster.is_prepared_ahead = self.memories.is_prepared_ahead
        self.logs = StepLogWriter(cluster)
        self.slots = StepSlots(cluster, limit)
        forks = ForkReconciler(cluster)
        labels = PodLabels(cluster, Forks(cluster.client))
        routes = RouteReconciler(cluster, routing.forms, labels)
        previews = Previews(cluster, routing.edge, labels)
        self.sweeper = OrphanSweeper(cluster, pods, self.targets, forks, routes)
        namespaces = Namespaces(cluster.client, runner, cluster.now)
        storage: dict[str, Any] = {"ephemeral_storage": ephemeral_storage, "registry": registry}
        builder = PodBuilder(cluster, namespaces, runner, senders, states, traced=traced, **storage)
        seen: dict[str, Any] = {"pods": pods, "followers": self.followers, "builder": builder, "states": states}
        steps = StepObserver(cluster, outputs=self._outputs, **seen)
        common: dict[str, Any] = {**seen, "fallback": fallback, "slots": self.slots}
        self.executors: Registry[Sight] = Registry(
            PodStepExecutor(cluster, steps, **common),
            PodWebhookExecutor(cluster, steps, **common),
            ObjectExecutor(cluster, self._outputs),
            DeploymentForkExecutor(forks),
            GatewayRouteExecutor(routes),
            GatewayPreviewExecutor(cluster, previews),
            refusals=(errors.Refused,),
        )
        if pools:
            self.executors.add(AcquireExecutor(cluster, self.latest_report, namespaces))
        self._holders = HolderEntries(cluster)
        self._observer = Observer(cluster, targets=self.targets, executors=self.executors, slots=self.slots)
        self._effects = Effects(cluster, targets=self.targets, executors=self.executors, registry=registry)

    def latest_scene(self, run: str) -> Scene | None:
        """Return the scene of the run's latest turn, with the current ledger and objections."""
        found = self._cluster.ledger.get(run)
        memory = self.memories.find(found)
        if found is None or memory is None or (scene := memory.work.scene) is None:
            return None
        objections = scene.world.objections | memory.refusals.current(found.ledger, self._cluster.now())[0]
        world = msgspec.structs.replace(scene.world, run=found.ledger, objections=objections)
        return msgspec.structs.replace(scene, world=world)

    def latest_report(self, run: str) -> RunReport | None:
        """Return the report on the run's latest turn; None if this process has none."""
        scene = self.latest_scene(run)
        return self.describe(scene) if scene is not None else None

    def describe(self, scene: Scene, decided: Decision | None = None) -> RunReport:
        """Return the report of a run, with the pool members that it holds. `decided` is the decision if it is known."""
        plan, world = scene.plan, scene.world
        report = describe(plan, world, decided or decide(plan, world, scene.now), scene.now)
        home = world.run.target.namespace
        find = partial(held_member, self._cluster, home=home, report_of=self.latest_report)
        return with_members(report, world.run, plan.documents, find)

    def retries(self, run: str) -> Retries:
        """Return the refused requests of that run that will be retried."""
        memory = self.memories.find(self._cluster.ledger.get(run))
        return memory.retries if memory is not None else Retries()

    def ineffective_parts(self, run: str) -> tuple[str, ...]:
        """Return the parts of the spec that had no effect in the latest turn."""
        memory = self.memories.find(self._cluster.ledger.get(run))
        sight = memory.work.sight if memory is not None else None
        return sight.ineffective if sight is not None else ()

    def seconds_until_turn(self, run: str, wake_at: int) -> float:
        """Return the seconds until the run needs a turn without any event; 0 if only an event can change it.

        `wake_at` is the decision's own time, in unix milliseconds.
        """
        memory = self.memories.find(self._cluster.ledger.get(run))
        moments = [wake_at, memory.refusals.retry_at() if memory else 0]
        # One millisecond later, so that the time has certainly come.
        return min((max(at - self._cluster.now(), 0) / 1000 + 0.001 for at in moments if at), default=0.0)

    async def keep_units(self, run: str) -> None:
        """Bring all kept units, such as forks and routes, to their desired state after a turn.

        Raises:
            errors.ApiError: a unit is not in its desired state.
        """
        memory = self.memories.find(self._cluster.ledger.get(run))
        work = memory.work if memory else None
        if work is not None and work.sight is not None:
            await self.executors.keep(work.sight)
        found = self._cluster.ledger.get(run)
        if memory is None or memory.is_hold_removed or found is None or found.ledger.closed is None:
            return
        scene = self.latest_scene(run)
        memory.is_hold_removed = scene is not None and _may_stop(scene) and await self.targets.remove_hold(found)

    async def turn(self, run: str) -> Decision | None:
        """Take a turn over a run. If it fails, kept units are still brought to their desired state.

        For example, if the end of a step cannot be recorded, requests must still not be routed to a fork that ends.

        Raises:
            errors.ApiError: a request failed or was refused.
            ForeignSecretError: another program's Secret has the name of a Secret with outputs.
        """
        self._take_failure(run)
        try:
            decision = await turn(run, self)
            if (error := self._take_failure(run)) is not None:
                raise error
            return decision
        except (errors.ApiError, ForeignSecretError):
            with contextlib.suppress(errors.ApiError):
                await self._keep_after_failure(run)
            raise

    def _take_failure(self, run: str) -> Exception | None:
        """Return and forget the error after which the latest turn continued."""
        memory = self.memories.find(self._cluster.ledger.get(run))
        sight = memory.work.sight if memory is not None else None
        if sight is None:
            return None
        error, sight.first_error = sight.first_error, None
        return error

    async def _keep_after_failure(self, run: str) -> None:
        """Keep the units if the turn has seen the current version of the run."""
        found = self._cluster.ledger.get(run)
        memory = self.memories.find(found)
        sight = memory.work.sight if memory is not None else None
        if found is None or sight is None:
            return
        if sight.run.metadata.resource_version == found.metadata.resource_version:
            await self.executors.keep(sight)

    def shrink_memory(self, run: str) -> None:
        """Drop most of the memory of a run in which nothing happens; most runs are idle most of the time."""
        self.memories.shrink(run)
        self._cluster.share_equal_parts(run)

    def reset(self) -> None:
        """Forget all runs, orphans and nodes: another process is active now."""
        self.memories.clear()
        self.sweeper.orphans.clear()
        self.followers.nodes.reset()

    async def close(self) -> None:
        """Stop all background reads."""
        await self.executors.close()

    async def observe(self, run: str) -> Scene | None:
        found = self._cluster.ledger.get(run)
        if found is None:
            self.memories.drop(run)
            await self.sweeper.remove_orphans(run)
            return None
        if found.ledger.holders and not await self._holders.drop_obsolete(found):
            self._cluster.queue.add(run)
            return None
        memory = self.memories.get_or_create(found)
        if not (memory.has_target_finalizer or has_begun(found.ledger) or await self.targets.ensure_finalizer(found)):
            return None
        memory.has_target_finalizer = True
        try:
            memory.work.scene, memory.work.sight = await self._observer.scene(found, memory)
        except PlanLostError:
            # Documents are deleted before their run, so they are only missing if the run is still as we saw it.
            now = await self._cluster.ledger.read_current(run)
            if now is not None and (now.metadata.uid, now.ledger.seq) == (found.metadata.uid, found.ledger.seq):
                raise
            if now is not None:
                self._cluster.queue.add(run)
            return None
        retry_members(self._cluster, memory.work.scene)
        return memory.work.scene

    def _stop_following(self, memory: RunMemory) -> None:
        """Stop following the pods of a run that has ended."""
        for uid in memory.pods:
            self.followers.forget(uid)

    def _sight(self, scene: Scene) -> Sight:
        sight = self.memories.by_ledger(scene.world.run.uid).work.sight
        assert sight is not None, "each scene has a sight"
        return sight

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        sight = self._sight(scene)
        if not self.slots.claim(sight.run, moves, is_cleanup=sight.closing):
            return False
        for move in moves:
            written = await self._write_outputs(sight, scene, move) if isinstance(move, Record) else move
            if written is not move:
                # The other moves and effects depend on its success, so decide again.
                if written is not None:
                    await self._cluster.ledger.commit(sight.run, scene.plan, (written,))
                return False
        if not await self._cluster.ledger.commit(sight.run, scene.plan, moves):
            return False
        await self._publish_webhook_logs(sight, scene, moves)
        # The effects depend on these moves: a new step reads outputs that were recorded just now.
        sight.run = self._cluster.ledger.get(sight.run.metadata.name) or sight.run
        return True

    async def _write_outputs(self, sight: Sight, scene: Scene, move: Record) -> Record | None:
        """Write outputs before they are recorded. Return what to record, or None if the Secret is refused now.

        If they can never be written, that is a failure.
        """
        if scene.kind(move.unit) == Kind.ACQUIRE:
            return move  # the outputs stay with the pool member
        key = move.unit, move.attempt
        pod = sight.pods.get(key)
        adapter = self.targets.adapter_for(sight.run)
        printed = await self._read_output(sight, adapter, move.unit, pod) if pod is not None else None
        values = sight.outputs.get(key, {}) if move.result.outputs else {}
        sensitive = [values.get(name, b"") for name, output in move.result.outputs.items() if output.sensitive]
        printed = _masked(printed, sensitive)
        step = scene.plan.steps.get(move.unit)
        if scene.kind(move.unit) not in STEP_KINDS and not move.result.outputs:
            return move  # no program, no log
        namespace = pod.metadata.namespace if pod is not None else names.namespace_of(step.unit) if step else ""
        if not namespace:
            return move  # plan and pod are lost, so there is nothing to write
        problem = ""

        async def write() -> None:
            nonlocal problem
            try:
                await self._outputs.write(sight.run, (namespace, *key), move.result, values, printed)
            except (errors.NotFound, errors.Forbidden) as error:
                if isinstance(error, errors.Forbidden) and not (error.is_namespace_ending or sight.abandoned):
                    raise
                problem = error.message

        run, retries = sight.run.metadata.name, sight.memory.retries
        if not await attempt(self._cluster, run, retries, outputs_request(key), write):
            return None
        if problem:
            # The namespace is being deleted, or no cleanup needs the outputs. The result matters more than its log.
            return _outputs_lost(move, problem) if move.result.outputs else move
        if adapter.has_logs:
            self.logs.add_log(sight.memory.logs, key, printed)
        return move

    async def _read_output(self, sight: Sight, adapter: Adapter, unit: str, pod: Pod) -> PrintedOutput | None:
        """Return the tail of the output of an ended step. A target that needs the whole output gets it."""
        if adapter.log_limit:
            adapter.keep_output(sight.run, unit, await self.followers.read_whole(pod, adapter.log_limit))
        return await self.followers.read_tail(pod)

    async def _publish_webhook_logs(self, sight: Sight, scene: Scene, moves: tuple[Move, ...]) -> None:
        """Publish the logs of webhooks that sent nothing, since the sender logs the cause."""
        for move in moves:
            if not isinstance(move, Void) or scene.kind(move.unit) != Kind.WEBHOOK:
                continue
            key = move.unit, move.attempt
            pod = sight.pods.get(key) if self.targets.adapter_for(sight.run).has_logs else None
            if pod is not None and has_started(pod) and (printed := await self.followers.read_tail(pod)):
                self.logs.add_log(sight.memory.logs, key, printed)

    async def perform(self, scene: Scene, effect: Effect) -> None:
        """Perform an effect. After an error the others still follow, unless the API server is down.

        A refused effect is not tried again before its backoff has passed, even if there are turns before that.
        """
        sight = self._sight(scene)
        run, retries, is_done = sight.run.metadata.name, sight.memory.retries, False
        try:
            is_done = await attempt(
                self._cluster, run, retries, _key(effect), lambda: self._effects.perform(scene, sight, effect)
            )
        except Exception as error:
            if isinstance(effect, Dissolve) or is_down(error):
                raise
            sight.first_error = sight.first_error or error
        if is_done and isinstance(effect, Dissolve):
            self.memories.drop(sight.memory.name)
            self._ended()


def _key(effect: Effect) -> RequestKey:
    """Return the key of an effect, without reason and message, which may differ between turns."""
    name = type(effect).__name__
    return (name, "", 0) if isinstance(effect, Dissolve) else (name, effect.unit, effect.attempt)


def _may_stop(scene: Scene) -> bool:
    """Return whether all pre-stop steps are done and proven to have ended."""
    run, facts = scene.world.run, scene.world.facts
    steps = [(step.id, run.unit(step.id).attempt) for step in scene.plan.events[LifecycleEvent.PRE_STOP]]
    return is_past_pre_stop(scene.plan, run) and not any(may_have_processes(facts.get(key), scene.now) for key in steps)


def _masked(printed: PrintedOutput | None, sensitive: list[bytes]) -> PrintedOutput | None:
    """Return the tail of a log without values that only the step's outputs declare as sensitive."""
    if printed is None:
        return None
    return printed._replace(tail=mask(printed.tail, sensitive, cut=printed.size > len(printed.tail)))


def _outputs_lost(move: Record, problem: str) -> Record:
    message = f"its outputs could not be stored: {problem}"
    result = msgspec.structs.replace(
        move.result, outcome="failed", reason=Reason.OUTPUTS_LOST, message=message, outputs={}
    )
    return Record(unit=move.unit, attempt=move.attempt, result=result)
