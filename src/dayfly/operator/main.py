"""The operator's process: start, workers over runs and sandboxes, shutdown."""

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
from dayfly.kube.client import KubeClient
from dayfly.kube.lease import Elector, LeaseTerms
from dayfly.kube.manager import Manager, Runnable
from dayfly.lib.clock import now_ms
from dayfly.lib.queue import WorkQueue, work
from dayfly.lib.tasks import background, run_until_first
from dayfly.operator.cluster.caches import WORKERS, ClusterWatches
from dayfly.operator.cluster.objects import RunObject, SandboxObject
from dayfly.operator.cluster.route_kinds import RoutingSettings
from dayfly.operator.extensions import (
    AdapterFactories,
    AgentExtension,
    AgentFactory,
    Extension,
    ExtensionFactory,
    LeaksExtension,
    LeaksFactory,
    Receivers,
    SandboxExtensionFactory,
)
from dayfly.operator.monitoring import json_log
from dayfly.operator.monitoring.health_server import serve_health
from dayfly.operator.monitoring.metrics import Metrics
from dayfly.operator.monitoring.run_tracing import RunTraces
from dayfly.operator.outputs.attempt_secrets import ForeignSecretError
from dayfly.operator.outputs.resource_secrets import ResourceSecrets
from dayfly.operator.pods.images import FallbackImage, WebhookSenders
from dayfly.operator.pods.namespaces import RunnerConfigMap
from dayfly.operator.pods.step_slots import DEFAULT_LIMIT
from dayfly.operator.reconciler import Reconciler
from dayfly.operator.records.registry import ResourceRegistry
from dayfly.operator.refusals import error_message, failures_until_report
from dayfly.operator.retries import RequestKey, Retries, attempt
from dayfly.operator.states import state_server
from dayfly.operator.states.state_access import StateAccess
from dayfly.operator.status.resource_status import ResourceStatusWriter
from dayfly.operator.status.sandbox_events import SandboxEvents
from dayfly.operator.status.sandbox_status import AppliedSpec, SandboxNotReadyError, SandboxStatusWriter
from dayfly.operator.targets.adapter import Adapter, UndecidableError
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.operator.targets.targets import Targets
from dayfly.plan.actions import Decision
from dayfly.plan.decide import decide
from dayfly.spec.lifecycle import Lifecycle, Unit
from dayfly.spec.report import RunReport

log = logging.getLogger(__name__)

# What is written of a run for people, after each turn.
_RESOURCES, _STATUS, _LOGS = ("Resources", "", 0), ("Status", "", 0), ("StepLogs", "", 0)


class Operator:
    """All controllers over one cluster.

    Several operators may be active at once; the Lease only avoids duplicate work.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        runner: RunnerConfigMap,
        front: SandboxExtensionFactory | None = None,
        fallback: FallbackImage | None = None,
        senders: WebhookSenders | None = None,
        elector: Elector | None = None,
        identity: str = "operator",
        steps: int = DEFAULT_LIMIT,
        ephemeral_storage: str = "",
        kinds: AdapterFactories = (),
        hooks: ExtensionFactory | None = None,
        groups: ExtensionFactory | None = None,
        pools: ExtensionFactory | None = None,
        leaks: LeaksFactory | None = None,
        states: StateAccess | None = None,
        registry: ResourceRegistry | None = None,
        routing: RoutingSettings = RoutingSettings(),  # noqa: B008 - frozen
        agent: AgentFactory | None = None,
        receivers: Receivers = Receivers(),  # noqa: B008 - frozen
        now: Callable[[], int] = now_ms,
        seed: int | None = None,
    ) -> None:
        self.cluster = ClusterWatches(client, now=now, seed=seed, istio=routing.istio)
        self._manager = Manager(client, "dayfly.dev/operator", identity, elector=elector, watches=self.cluster)
        self._manager.add(Runnable(self._work, self.cluster.close, self._stand_by, self._take_over))
        self._traces = RunTraces(self.cluster, json_log.log_moves, receivers.tracer)
        self._sandbox_status = SandboxStatusWriter(self.cluster, self._manager.events)
        self._sandbox_events = (
            SandboxEvents(self.cluster, receivers.receiver, self._sandbox_status) if receivers.receiver else None
        )
        self._front = front(self.cluster, self._sandbox_status) if front else None
        for queue in () if self._front else (self.cluster.sandbox_queue, self.cluster.published):
            queue.close()
        reporter = _SandboxReporter(self.cluster, self._sandbox_status, self._applied_spec)
        self._agent = agent(self.cluster, self._admit) if agent else None
        if self._agent is not None and registry is not None:
            self._agent.use_registry(registry)
        others = (make(self.cluster) for make in kinds)
        self.targets = Targets(self.cluster, SandboxTarget(self.cluster, reporter, self._agent), *others)
        self._extensions = [
            *self._extension(hooks, self.cluster.hooked, self.cluster.pairs),
            *self._extension(groups, self.cluster.grouped),
            *self._extension(pools, self.cluster.pooled, self.cluster.members),
            *self._leak_checks(leaks(registry) if leaks and registry else None),
        ]
        self._reconciler = Reconciler(
            self.cluster,
            self.targets,
            runner=runner,
            fallback=fallback or FallbackImage(client),
            senders=senders or WebhookSenders(FallbackImage(client)),
            ended=self._on_run_end,
            limit=steps,
            states=states,
            routing=routing,
            traced=receivers.tracer is not None,
            ephemeral_storage=ephemeral_storage,
            pools=pools is not None,
            registry=registry,
        )
        self._resource_status = ResourceStatusWriter(self.cluster, ResourceSecrets(self.cluster).ensure)
        self.metrics = self._metrics()

    def _metrics(self) -> Metrics:
        """Return the metrics, which read the parts of this operator when they are scraped."""
        return Metrics(
            self.cluster,
            orphans=lambda: len(self._reconciler.sweeper.orphans),
            frozen=lambda: (
                len(self._sandbox_status.frozen) + sum(extension.frozen_count for extension in self._extensions)
            ),
            events_lost=lambda: self._manager.events.lost,
            nodes_without_logs=self._reconciler.followers.nodes.count_unreachable,
            leading=lambda: self._manager.is_leading,
            **(self._agent.gauges() if self._agent else {}),
        )

    def _extension(self, make: ExtensionFactory | None, *queues: WorkQueue[Any]) -> list[Extension]:
        """Return the extension that handles these queues. Without one, close the queues."""
        if make is not None:
            return [make(self.cluster, self.targets, self._manager.events)]
        for queue in queues:
            queue.close()
        return []

    def _leak_checks(self, make: Callable[..., LeaksExtension] | None) -> list[Extension]:
        """Return the extension for leak checks, which also serves those of the server."""
        if make is None:
            return self._extension(None, self.cluster.checked)
        made = make(self.cluster, self.targets, self._manager.events)
        if self._agent is not None:
            self._agent.serve_leak_checks(made.served)
            made.ask(self._agent.query_resources)
        return [made]

    def stop(self) -> None:
        """Stop gracefully: current turns are completed, and no other turn begins."""
        self._manager.stop()

    async def run(self) -> None:
        """Run until stopped or cancelled."""
        try:
            await self._manager.run()
        finally:
            await self._reconciler.close()

    def _stand_by(self) -> None:
        """Forget all state that only an active operator keeps current: another process is active now."""
        self.cluster.stand_by()
        self._sandbox_status.reset()
        self._reconciler.reset()
        if self._front is not None:
            self._front.reset()
        for extension in self._extensions:
            extension.reset()

    def _take_over(self) -> None:
        """Queue all objects: this process does not know which of them another process has finished."""
        self._traces.reset()
        self.cluster.take_over(self.targets.queue_all)

    async def _work(self) -> None:
        """Work until the queues are closed."""
        with contextlib.suppress(errors.ApiError):  # controllers that need it repeat the discovery
            await self.cluster.wait_discovered()
        async with asyncio.TaskGroup() as tasks:
            background_tasks = [tasks.create_task(self._reconciler.sweeper.run())]
            if self._sandbox_events is not None:
                await self._sandbox_events.identify_cluster()
                background_tasks.append(tasks.create_task(self._sandbox_events.run()))
            if self._agent is not None:
                background_tasks.append(tasks.create_task(self._agent.run()))
            working = [tasks.create_task(work(self.cluster.queue, self._take_turn)) for _ in range(WORKERS)]
            if self._front is not None:
                working.append(tasks.create_task(self._front.run()))
            working += [tasks.create_task(extension.run()) for extension in self._extensions]
            await asyncio.wait(working)
            for task in background_tasks:
                task.cancel()

    def _admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        self._reconciler.executors.admit(documents, forks)

    def _applied_spec(self, seen: SandboxObject) -> AppliedSpec:
        return self._front.applied_spec(seen) if self._front else AppliedSpec(seen.metadata.generation)

    def _on_run_end(self) -> None:
        if self._front is not None:
            self._front.on_run_end()

    async def _take_turn(self, run: str) -> None:
        began, result, decision, is_complete = time.perf_counter(), "error", None, False
        try:
            decision = await self._reconciler.turn(run)
            await self._reconciler.keep_units(run)
            self._reconciler.retries(run).sweep()
            scene, then = self._reconciler.latest_scene(run), None
            done = decision.effects if decision is not None else ()
            if scene is not None and decision is not None and decision.moves:
                decision = then = self._follow_up(run, scene, decision)
            if decision is not None and (after := self._reconciler.seconds_until_turn(run, decision.wake_at)):
                self.cluster.queue.add(run, after=after)
            await self._report(run, scene, then)
            if decision is None and self._agent is not None:
                await self._report_waiting(run, self._agent)
            refused = bool(self._reconciler.retries(run))
            if decision is not None and not refused and decision.is_idle_after(done):
                self._reconciler.shrink_memory(run)
            result = "error" if refused else "done"
        except (errors.ApiError, ForeignSecretError) as error:
            log.warning("run %s: %s", run, error)
            self.cluster.queue.retry(run)
            await self._report_error(run, error)
        except UndecidableError as error:
            log.error("run %s is frozen: %s", run, error)  # noqa: TRY400 - the message says everything
            self.cluster.queue.retry(run)
            await self._report_frozen(run, error)
            result = "frozen"
        except Exception as error:
            # A bug in our code in one run must not stop other runs. It is logged and the turn is retried.
            log.exception("turn of run %s failed", run)
            self.cluster.queue.retry(run)
            await self._report_error(run, error)
            result = "defect"
        else:
            self.cluster.queue.forget(run)
            is_complete = True
        self._reconciler.slots.end_turn(run, decision if is_complete else None)
        self.metrics.turns.labels(result).inc()
        self.metrics.turn_seconds.observe(time.perf_counter() - began)

    def _follow_up(self, run: str, scene: Scene, made: Decision) -> Decision:
        """Decide again after the moves of `made`, since the watch does not queue the run for our own commits."""
        decision = decide(scene.plan, scene.world, scene.now)
        if decision.moves or any(effect not in made.effects for effect in decision.effects):
            self.cluster.queue.add(run)
        return decision

    async def _report(self, run: str, scene: Scene | None, decided: Decision | None) -> None:
        """Report the state of a run to its target and resources. `decided` is the decision if it is known."""
        found = self.cluster.ledger.get(run)
        if scene is None or found is None:
            return
        target, memory = self.targets.adapter_for(found), self._reconciler.memories.get_or_create(found)
        if memory.work.sight is not None and memory.work.sight.has_joined:
            return  # a report of this moment would only delay the next turn
        report = self._reconciler.describe(scene, decided)
        if ineffective := self._reconciler.ineffective_parts(run):
            report = msgspec.structs.replace(report, unsupported=(*report.unsupported, *ineffective))
        self._traces.add_report(found.ledger, report)
        try:
            # Resources first, so that a client that waits for the Sandbox finds the outputs of its resources.
            if target.has_resources:
                resources = partial(self._resource_status.write_due, scene, found, report, memory.resources)
                await self._write(run, memory.retries, _RESOURCES, resources)
        except Exception as error:
            # Not `finally`: on cancellation nothing more is written, and an error there would replace the cancellation.
            if self.cluster.queue.failures(run) + 1 < failures_until_report(error):
                await self._write_target_status(run, target, scene, report)
            # Otherwise the report follows with the error, so that the status does not alternate between both in each
            # turn.
            raise
        await self._write_target_status(run, target, scene, report)
        if target.has_logs:
            logs = partial(self._reconciler.logs.write_due, scene, found, report, memory.logs)
            if await self._write(run, memory.retries, _LOGS, logs):
                self.cluster.queue.add(run)  # the status was written before, with this refusal

    async def _write(self, run: str, retries: Retries, what: RequestKey, write: Callable[[], Awaitable[float]]) -> bool:
        """Write a part of a run's output. If it is refused, the run continues and the write is retried later.

        Return whether it succeeded after refusals.
        """

        async def written() -> None:
            if after := await write():
                self.cluster.queue.add(run, after=after)

        failures = retries.failures(what)
        return await attempt(self.cluster, run, retries, what, written) and failures > 0

    async def _write_target_status(
        self, run: str, target: Adapter, scene: Scene, report: RunReport, hindrance: str = ""
    ) -> None:
        retries = self._reconciler.retries(run)
        hindrance = hindrance or retries.reportable_refusal(_STATUS)
        await self._write(run, retries, _STATUS, partial(target.report_status, scene, report, hindrance=hindrance))

    async def _report_waiting(self, run: str, agent: AgentExtension) -> None:
        found = self.cluster.ledger.get(run)
        target = found.ledger.target if found is not None and found.spec.offered is not None else None
        seen = self.cluster.sandboxes.get(target.name, target.namespace) if target is not None else None
        if seen is not None and (why := agent.why_waiting(seen)) is not None:
            await self._sandbox_status.report_waiting(seen, why)

    async def _report_error(self, run: str, error: Exception) -> None:
        """Report the error that prevents a run from continuing, once it has occurred often enough."""
        try:
            await self._write_error(run, error)
        except errors.ApiError:
            pass  # the next failed turn tries again
        except Exception:
            log.exception("the error of run %s could not be reported", run)  # possibly the same bug

    async def _write_error(self, run: str, error: Exception) -> None:
        scene, found = self._reconciler.latest_scene(run), self.cluster.ledger.get(run)
        if found is None or self.cluster.queue.failures(run) < failures_until_report(error):
            return
        message = str(error) if isinstance(error, ForeignSecretError) else error_message(error)
        if scene is None:
            await self.targets.report_blocked(found, message)
            return
        report = self._reconciler.describe(scene)
        await self._write_target_status(run, self.targets.adapter_for(found), scene, report, message)

    async def _report_frozen(self, run: str, error: UndecidableError) -> None:
        if (found := self.cluster.ledger.get(run)) is not None:
            with contextlib.suppress(errors.ApiError):  # the next turn tries again
                await self.targets.adapter_for(found).report_frozen(found, error)


class _SandboxReporter:
    """Reports the states of runs to the statuses of their Sandboxes."""

    def __init__(
        self, cluster: ClusterWatches, status: SandboxStatusWriter, applied_spec: Callable[[SandboxObject], AppliedSpec]
    ) -> None:
        self._cluster = cluster
        self._status = status
        self._applied_spec = applied_spec

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        return await self._status.write_report(scene, report, self._applied_spec, hindrance=hindrance)

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        target = run.ledger.target
        seen = self._cluster.sandboxes.get(target.name, target.namespace)
        if seen is not None and seen.metadata.uid == target.uid:
            await self._status.report_waiting(seen, SandboxNotReadyError(why.reason, str(why)))


class ProcessIdentity(NamedTuple):
    """Identity, address and settings of this process.

    `lease_s`: duration of the Lease; 0 for an operator without replicas.
    `pod`: name of our own pod in the namespace, if there is one; its image is used unless `fallback_image` or
    `webhook_image` is set.
    `steps`: default limit of concurrent steps of a namespace.
    `webhooks`: servers that webhooks may reach even if their addresses are private.
    `state_port`: 0 if no states are served.
    `ephemeral_storage`: default limit of a step on its node's disk, as a Kubernetes quantity; empty for none.
    """

    identity: str
    namespace: str
    port: int = 8080
    lease_s: int = LeaseTerms().duration
    pod: str = ""
    fallback_image: str = ""
    steps: int = DEFAULT_LIMIT
    webhook_image: str = ""
    webhooks: frozenset[str] = frozenset()
    state_port: int = 0
    routing: RoutingSettings = RoutingSettings()
    ephemeral_storage: str = ""


async def operate(
    client: KubeClient,
    runner: RunnerConfigMap,
    process: ProcessIdentity,
    stop: asyncio.Event,
    front: SandboxExtensionFactory | None = None,
    hooks: ExtensionFactory | None = None,
    groups: ExtensionFactory | None = None,
    pools: ExtensionFactory | None = None,
    leaks: LeaksFactory | None = None,
    agent: AgentFactory | None = None,
    receivers: Receivers = Receivers(),  # noqa: B008 - frozen
    now: Callable[[], int] = now_ms,
) -> None:
    """Run an operator until `stop` is set, then stop it gracefully, so that another one takes over at once."""
    began = time.monotonic()
    terms = LeaseTerms.for_duration(process.lease_s)
    elector = (
        Elector(client, "dayfly-operator", process.namespace, process.identity, terms) if process.lease_s else None
    )
    own = (process.namespace, process.pod) if process.pod else None
    states = StateAccess(client, process.namespace, process.state_port) if process.state_port else None
    operator = Operator(
        client,
        now=now,
        runner=runner,
        front=front,
        hooks=hooks,
        groups=groups,
        pools=pools,
        leaks=leaks,
        states=states,
        registry=ResourceRegistry(client, process.namespace, now),
        agent=agent,
        receivers=receivers,
        fallback=FallbackImage(client, process.fallback_image, own),
        senders=WebhookSenders(FallbackImage(client, process.webhook_image, own), process.webhooks),
        elector=elector,
        identity=process.identity,
        steps=process.steps,
        ephemeral_storage=process.ephemeral_storage,
        routing=process.routing,
    )
    watched = ", ".join(operator.cluster.watched)
    message = f"dayfly {__version__} starts as {process.identity} and watches {watched} in all namespaces"
    json_log.log_event(message, event="begun", version=__version__, identity=process.identity, watches=watched)
    health = serve_health(
        process.port,
        age=lambda: operator.cluster.age,
        started=lambda: time.monotonic() - began,
        metrics=operator.metrics,
    )
    states_server = state_server.serve_states(states, process.state_port, now) if states else contextlib.nullcontext()
    async with health, states_server, background(operator.run(), "operator") as task:
        log.info("%s serves health checks and metrics on port %d", process.identity, process.port)
        await run_until_first(stop.wait(), asyncio.shield(task))
        operator.stop()
        await task
