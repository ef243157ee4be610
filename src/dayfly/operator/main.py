"""The operator's process: caches, workers over runs and sandboxes, and their end."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from dayfly import __version__
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.lease import Elector, Terms
from dayfly.kube.manager import Manager, Runnable
from dayfly.lib.clock import now_ms
from dayfly.lib.queue import WorkQueue, work
from dayfly.lib.tasks import background, first
from dayfly.operator.cluster.caches import WORKERS, ClusterWatches
from dayfly.operator.cluster.objects import RunObject, SandboxObject
from dayfly.operator.cluster.route_kinds import RoutingSettings
from dayfly.operator.extensions import AgentExtension, Agents, Extension, ExtensionFactory, Fronts, Heralds, Kinds
from dayfly.operator.monitoring import json_log
from dayfly.operator.monitoring.health_server import serving
from dayfly.operator.monitoring.metrics import Metrics
from dayfly.operator.monitoring.run_tracing import RunTraces
from dayfly.operator.outputs.attempt_secrets import ForeignSecretError
from dayfly.operator.outputs.resource_secrets import Bindings
from dayfly.operator.pods.fallback_image import FallbackImage
from dayfly.operator.pods.namespaces import RunnerConfigMap
from dayfly.operator.pods.step_slots import STEPS
from dayfly.operator.pods.webhook_pods import Senders
from dayfly.operator.reconciler import Reconciler
from dayfly.operator.refusals import hindrance, patience
from dayfly.operator.retries import RequestKey, Retries, attempt
from dayfly.operator.states import state_server
from dayfly.operator.states.state_access import StateAccess
from dayfly.operator.status.resource_status import ResourceStatusWriter
from dayfly.operator.status.sandbox_events import SandboxEvents
from dayfly.operator.status.sandbox_status import Heeded, SandboxNotReadyError, SandboxStatusWriter
from dayfly.operator.targets.adapter import Adapter, UndecidableError
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.operator.targets.targets import Targets
from dayfly.plan.actions import Decision
from dayfly.plan.decide import decide
from dayfly.plan.status import describe
from dayfly.spec.lifecycle import Lifecycle, Unit
from dayfly.spec.report import RunReport

log = logging.getLogger(__name__)

# What is written of a run for people, after each turn.
_RESOURCES, _STATUS, _LOGS = ("Resources", "", 0), ("Status", "", 0), ("StepLogs", "", 0)


class Operator:
    """All controllers over one cluster. Several operators may be at work at once; a Lease only saves work."""

    def __init__(
        self,
        client: Client,
        *,
        runner: RunnerConfigMap,
        front: Fronts | None = None,
        fallback: FallbackImage | None = None,
        senders: Senders | None = None,
        elector: Elector | None = None,
        identity: str = "operator",
        steps: int = STEPS,
        ephemeral_storage: str = "",
        kinds: Kinds = (),
        hooks: ExtensionFactory | None = None,
        groups: ExtensionFactory | None = None,
        states: StateAccess | None = None,
        routing: RoutingSettings = RoutingSettings(),  # noqa: B008 - frozen
        agent: Agents | None = None,
        heralds: Heralds = Heralds(),  # noqa: B008 - frozen
        now: Callable[[], int] = now_ms,
        seed: int | None = None,
    ) -> None:
        self.cluster = ClusterWatches(client, now=now, seed=seed, istio=routing.istio)
        self._manager = Manager(client, "dayfly.dev/operator", identity, elector=elector, watches=self.cluster)
        self._manager.add(Runnable(self._work, self.cluster.close, self._stand_by, self._take_over))
        self._traces = RunTraces(self.cluster, json_log.moved, heralds.tracer)
        self._sandbox_status = SandboxStatusWriter(self.cluster, self._manager.events)
        self._told = SandboxEvents(self.cluster, heralds.receiver, self._sandbox_status) if heralds.receiver else None
        self._front = front(self.cluster, self._sandbox_status) if front else None
        for queue in () if self._front else (self.cluster.wishes, self.cluster.published):
            queue.close()
        speaker = _OfSandboxes(self.cluster, self._sandbox_status, self._heeded)
        self._agent = agent(self.cluster, self._admit) if agent else None
        others = (make(self.cluster) for make in kinds)
        self.targets = Targets(self.cluster, SandboxTarget(self.cluster, speaker, self._agent), *others)
        self._extensions = [
            *self._extension(hooks, self.cluster.hooked, self.cluster.pairs),
            *self._extension(groups, self.cluster.grouped),
        ]
        self._reconciler = Reconciler(
            self.cluster,
            self.targets,
            runner=runner,
            fallback=fallback or FallbackImage(client),
            senders=senders or Senders(FallbackImage(client)),
            ended=self._ended,
            bound=steps,
            states=states,
            routing=routing,
            traced=heralds.tracer is not None,
            ephemeral_storage=ephemeral_storage,
        )
        self._resource_status = ResourceStatusWriter(self.cluster, Bindings(self.cluster).of)
        self.metrics = self._metrics()

    def _metrics(self) -> Metrics:
        """Return the metrics, which read the parts of this operator when they are scraped."""
        return Metrics(
            self.cluster,
            orphans=lambda: len(self._reconciler.sweeper.orphans),
            frozen=lambda: len(self._sandbox_status.frozen) + sum(extension.frozen for extension in self._extensions),
            events_lost=lambda: self._manager.events.lost,
            nodes_without_logs=self._reconciler.followers.nodes.silent,
            leading=lambda: self._manager.leading,
            **(self._agent.figures() if self._agent else {}),
        )

    def _extension(self, make: ExtensionFactory | None, *queues: WorkQueue[Any]) -> list[Extension]:
        """The extension that works these queues off; without one nobody waits for them."""
        if make is not None:
            return [make(self.cluster, self.targets, self._manager.events)]
        for queue in queues:
            queue.close()
        return []

    def stop(self) -> None:
        """End gracefully: turns that are under way are finished, no further ones begun."""
        self._manager.stop()

    async def run(self) -> None:
        """Until stopped or cancelled."""
        try:
            await self._manager.run()
        finally:
            await self._reconciler.close()

    def _stand_by(self) -> None:
        """Forget what only work keeps up to date: another process works from now on."""
        self.cluster.stand_by()
        self._sandbox_status.reset()
        self._reconciler.reset()
        if self._front is not None:
            self._front.reset()
        for extension in self._extensions:
            extension.reset()

    def _take_over(self) -> None:
        """Look at all objects: this process does not know which of them another process has finished."""
        self._traces.reset()
        self.cluster.take_over(self.targets.queue_all)

    async def _work(self) -> None:
        """Until the queues are closed."""
        with contextlib.suppress(errors.ApiError):  # who needs to know asks again
            await self.cluster.looked()
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._reconciler.sweeper.run())]
            if self._told is not None:
                await self._told.begin()
                beside.append(tasks.create_task(self._told.run()))
            if self._agent is not None:
                beside.append(tasks.create_task(self._agent.run()))
            working = [tasks.create_task(work(self.cluster.queue, self._take_turn)) for _ in range(WORKERS)]
            if self._front is not None:
                working.append(tasks.create_task(self._front.run()))
            working += [tasks.create_task(extension.run()) for extension in self._extensions]
            await asyncio.wait(working)
            for task in beside:
                task.cancel()

    def _admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        self._reconciler.executors.admit(documents, forks)

    def _heeded(self, seen: SandboxObject) -> Heeded:
        return self._front.heeded(seen) if self._front else Heeded(seen.metadata.generation)

    def _ended(self) -> None:
        if self._front is not None:
            self._front.ended()

    async def _take_turn(self, run: str) -> None:
        began, result, decision, is_complete = time.perf_counter(), "error", None, False
        try:
            decision = await self._reconciler.turn(run)
            await self._reconciler.keep(run)
            self._reconciler.retries(run).sweep()
            scene, then = self._reconciler.last(run), None
            done = decision.effects if decision is not None else ()
            if scene is not None and decision is not None and decision.moves:
                decision = then = self._follow_up(run, scene, decision)
            if decision is not None and (after := self._reconciler.again(run, decision.wake_at)):
                self.cluster.queue.add(run, after=after)
            await self._tell(run, scene, then)
            if decision is None and self._agent is not None:
                await self._say_waiting(run, self._agent)
            refused = bool(self._reconciler.retries(run))
            if decision is not None and not refused and decision.is_idle_after(done):
                self._reconciler.rest(run)
            result = "error" if refused else "done"
        except (errors.ApiError, ForeignSecretError) as error:
            log.warning("run %s: %s", run, error)
            self.cluster.queue.retry(run)
            await self._say_hindered(run, error)
        except UndecidableError as error:
            log.error("run %s is frozen: %s", run, error)  # noqa: TRY400 - the sentence is all there is to say
            self.cluster.queue.retry(run)
            await self._say_frozen(run, error)
            result = "frozen"
        except Exception as error:
            # A defect of ours in one run must not stop the others; it stays visible and is tried again.
            log.exception("turn of run %s failed", run)
            self.cluster.queue.retry(run)
            await self._say_hindered(run, error)
            result = "defect"
        else:
            self.cluster.queue.forget(run)
            is_complete = True
        self._reconciler.places.settle(run, decision if is_complete else None)
        self.metrics.turns.labels(result).inc()
        self.metrics.turn_seconds.observe(time.perf_counter() - began)

    def _follow_up(self, run: str, scene: Scene, made: Decision) -> Decision:
        """What is decided with the moves of `made` in the ledger: the watch brings no news of our own commits."""
        decision = decide(scene.plan, scene.world, scene.now)
        if decision.moves or any(effect not in made.effects for effect in decision.effects):
            self.cluster.queue.add(run)
        return decision

    async def _tell(self, run: str, scene: Scene | None, decided: Decision | None) -> None:
        """Say how the run stands, of its target and of each resource; `decided` is what follows from the scene."""
        found = self.cluster.ledger.get(run)
        if scene is None or found is None:
            return
        target, session = self.targets.adapter_for(found), self._reconciler.sessions.of(found)
        report = describe(scene.plan, scene.world, decided or decide(scene.plan, scene.world, scene.now), scene.now)
        if lacking := self._reconciler.lacking(run):
            report = msgspec.structs.replace(report, unsupported=(*report.unsupported, *lacking))
        self._traces.look(found.ledger, report)
        try:
            # First, so that whoever waits for the Sandbox finds its resources' outputs.
            if target.copies:
                resources = partial(self._resource_status.run, scene, found, report, session.resources)
                await self._write(run, session.retries, _RESOURCES, resources)
        except Exception as error:
            # Not `finally`: a worker that is to end says nothing more, and what fails then would make it forget to end.
            if self.cluster.queue.failures(run) + 1 < patience(error):
                await self._speak(run, target, scene, report)
            # Else it is said with what hinders it, and not now without and then with it, turn after turn.
            raise
        await self._speak(run, target, scene, report)
        if target.copies:
            logs = partial(self._reconciler.logs.run, scene, found, report, session.logs)
            if await self._write(run, session.retries, _LOGS, logs):
                self.cluster.queue.add(run)  # the status was written before, with this refusal

    async def _write(self, run: str, retries: Retries, what: RequestKey, write: Callable[[], Awaitable[float]]) -> bool:
        """Write what is shown of a run. If that is refused, the run itself goes on, and it is written later.

        Return whether it succeeded after refusals.
        """

        async def written() -> None:
            if after := await write():
                self.cluster.queue.add(run, after=after)

        failures = retries.failures(what)
        return await attempt(self.cluster, run, retries, what, written) and failures > 0

    async def _speak(self, run: str, target: Adapter, scene: Scene, report: RunReport, hindrance: str = "") -> None:
        retries = self._reconciler.retries(run)
        said = hindrance or retries.hindrance(_STATUS)
        await self._write(run, retries, _STATUS, partial(target.report_status, scene, report, hindrance=said))

    async def _say_waiting(self, run: str, agent: AgentExtension) -> None:
        found = self.cluster.ledger.get(run)
        target = found.ledger.target if found is not None and found.spec.offered is not None else None
        seen = self.cluster.sandboxes.get(target.name, target.namespace) if target is not None else None
        if seen is not None and (why := agent.why_waiting(seen)) is not None:
            await self._sandbox_status.waiting(seen, why)

    async def _say_hindered(self, run: str, error: Exception) -> None:
        """Nobody need read our log to learn what keeps a run from going on, once it has for a while."""
        try:
            await self._try_to_say(run, error)
        except errors.ApiError:
            pass  # it is said at the next try
        except Exception:
            log.exception("what keeps run %s from going on cannot be said", run)  # perhaps the very same defect

    async def _try_to_say(self, run: str, error: Exception) -> None:
        scene, found = self._reconciler.last(run), self.cluster.ledger.get(run)
        if found is None or self.cluster.queue.failures(run) < patience(error):
            return
        said = str(error) if isinstance(error, ForeignSecretError) else hindrance(error)
        if scene is None:
            await self.targets.report_blocked(found, said)
            return
        report = describe(scene.plan, scene.world, decide(scene.plan, scene.world, scene.now), scene.now)
        await self._speak(run, self.targets.adapter_for(found), scene, report, said)

    async def _say_frozen(self, run: str, error: UndecidableError) -> None:
        if (found := self.cluster.ledger.get(run)) is not None:
            with contextlib.suppress(errors.ApiError):  # it is said at the next try
                await self.targets.adapter_for(found).report_frozen(found, error)


class _OfSandboxes:
    """Tells the owners of Sandboxes how their runs stand."""

    def __init__(
        self, cluster: ClusterWatches, status: SandboxStatusWriter, heeded: Callable[[SandboxObject], Heeded]
    ) -> None:
        self._cluster = cluster
        self._status = status
        self._heeded = heeded

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        return await self._status.run(scene, report, self._heeded, hindrance=hindrance)

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        target = run.ledger.target
        seen = self._cluster.sandboxes.get(target.name, target.namespace)
        if seen is not None and seen.metadata.uid == target.uid:
            await self._status.waiting(seen, SandboxNotReadyError(why.reason, str(why)))


class ProcessIdentity(NamedTuple):
    """Who this process is and where: for the Lease, for the port on which it answers, and for images of its own.

    `lease_s` is 0 where it has no others beside it. `pod` is the name of its own pod in that namespace, if it runs in
    one; `fallback_image` and `webhook_image` are used rather than that pod's. `steps` of a namespace run at once.
    `webhooks` are servers that webhooks may reach wherever they are. `state_port` is 0 where no states are served.
    `routing` says how requests are led to forks.
    `ephemeral_storage` is the default limit on a step's use of its node's disk, as a Kubernetes quantity. Empty: none.
    """

    identity: str
    namespace: str
    port: int = 8080
    lease_s: int = Terms().duration
    pod: str = ""
    fallback_image: str = ""
    steps: int = STEPS
    webhook_image: str = ""
    webhooks: frozenset[str] = frozenset()
    state_port: int = 0
    routing: RoutingSettings = RoutingSettings()
    ephemeral_storage: str = ""


async def operate(
    client: Client,
    runner: RunnerConfigMap,
    place: ProcessIdentity,
    stop: asyncio.Event,
    front: Fronts | None = None,
    hooks: ExtensionFactory | None = None,
    groups: ExtensionFactory | None = None,
    agent: Agents | None = None,
    heralds: Heralds = Heralds(),  # noqa: B008 - frozen
    now: Callable[[], int] = now_ms,
) -> None:
    """Run an operator until `stop` is set, then end gracefully: another one takes over at once."""
    began = time.monotonic()
    terms = Terms.lasting(place.lease_s)
    elector = Elector(client, "dayfly-operator", place.namespace, place.identity, terms) if place.lease_s else None
    own = (place.namespace, place.pod) if place.pod else None
    states = StateAccess(client, place.namespace, place.state_port) if place.state_port else None
    operator = Operator(
        client,
        now=now,
        runner=runner,
        front=front,
        hooks=hooks,
        groups=groups,
        states=states,
        agent=agent,
        heralds=heralds,
        fallback=FallbackImage(client, place.fallback_image, own),
        senders=Senders(FallbackImage(client, place.webhook_image, own), place.webhooks),
        elector=elector,
        identity=place.identity,
        steps=place.steps,
        ephemeral_storage=place.ephemeral_storage,
        routing=place.routing,
    )
    watched = ", ".join(operator.cluster.watched)
    said = f"dayfly {__version__} begins as {place.identity}: it watches {watched} in all namespaces"
    json_log.say(said, event="begun", version=__version__, identity=place.identity, watches=watched)
    answering = serving(
        place.port,
        age=lambda: operator.cluster.age,
        started=lambda: time.monotonic() - began,
        metrics=operator.metrics,
    )
    keeping = state_server.serving(states, place.state_port, now) if states else contextlib.nullcontext()
    async with answering, keeping, background(operator.run(), "operator") as task:
        log.info("%s answers on port %d", place.identity, place.port)
        await first(stop.wait(), asyncio.shield(task))
        operator.stop()
        await task
