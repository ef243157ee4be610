"""Manifests of attempts' pods, and the check that a stored pod is the one of the manifest."""

import datetime as dt
from typing import Any

import msgspec

from dayfly.execute.inputs import TargetValues, UnitOutputRef, is_complete, resolve
from dayfly.execute.pod import names, read
from dayfly.execute.pod.policy import PodTerms, check, describe, find_changes, references
from dayfly.execute.pod.render import PodAttempt, PodSecretKey, render_pod
from dayfly.execute.state import access
from dayfly.execute.webhook.render import as_exec
from dayfly.execute.work_order import CannotRenderError
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.fork_values import fork_evaluator
from dayfly.operator.cluster.objects import RunObject, run_owner_reference
from dayfly.operator.outputs.producers import find_producer, given_resource_id
from dayfly.operator.pods import input_pins
from dayfly.operator.pods.images import NoSenderError, WebhookSenders
from dayfly.operator.pods.namespaces import Namespaces, RunnerConfigMap
from dayfly.operator.pods.plugin_reads import PluginReads
from dayfly.operator.records.registry import ResourceRegistry
from dayfly.operator.records.resource_key import BrokenKeyError
from dayfly.operator.states.state_access import NoStatesError, StateAccess
from dayfly.plan.reasons import Reason
from dayfly.plan.run_trace import traceparent
from dayfly.plan.sealed import Plan, SealedStep, sensitive_inputs
from dayfly.plan.world import AttemptKey
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import Kind, Unit

# Tolerance for the start deadline of a peer's pod.
_START_DEADLINE_TOLERANCE_MS = 60_000


class RefusedPodError(Exception):
    """A condition in the cluster prevents the pod for now. The text names it."""


class PodBuilder:
    """Builds the manifests of step pods, and compares stored pods with them."""

    def __init__(
        self,
        cluster: ClusterWatches,
        namespaces: Namespaces,
        runner: RunnerConfigMap,
        senders: WebhookSenders,
        states: StateAccess | None = None,
        *,
        traced: bool,
        ephemeral_storage: str = "",
        registry: ResourceRegistry | None = None,
    ) -> None:
        """`traced` adds a trace context to steps, so that their spans have a parent.

        `ephemeral_storage` is the default limit on a step's use of its node's disk, as a Kubernetes quantity.
        `registry` makes the tokens of resources; without it steps have none.
        """
        self._cluster = cluster
        self._namespaces = namespaces
        self._plugin_reads = PluginReads(cluster.client, cluster.now)
        self._runner = runner
        self._senders = senders
        self._states = states
        self._traced = traced
        self._ephemeral_storage = ephemeral_storage
        self._registry = registry

    async def build(
        self,
        run: RunObject,
        plan: Plan,
        key: AttemptKey,
        given: TargetValues,
        start_before: int = 0,
        *,
        traced: bool | None = None,
    ) -> dict[str, Any]:
        """Return the manifest of an attempt's pod with the plugin's overlay; `given` are the values of the run's
        target.

        `start_before` and `traced` are those of a peer's pod, to build the same one.

        Raises:
            NotGrantedError: the step may not run in its namespace.
            RefusedPodError: something in the cluster is missing or conflicts, and can be corrected there.
            CannotRenderError: the step has no valid pod: its inputs are invalid, or its overlay is not allowed.
            errors.ApiError: the API server failed.
        """
        step = plan.steps[key[0]]
        namespace, home = names.namespace_of(step.unit), run.ledger.target.namespace
        granted = await self._namespaces.grant_for(namespace, home)
        attempt = await self._attempt(run, plan, key, given, start_before, granted.level == "restricted")
        if self._traced if traced is None else traced:
            trace = traceparent(run.ledger.uid, *key, creates=step.creates)
            attempt = msgspec.structs.replace(attempt, trace=trace)
        if access.has_state(step.unit):
            attempt = await self._with_state(run, step, attempt)
        made = render_pod(await self._resolve_webhook(run, step.unit, attempt), attempt)
        origin = next(document.origin for document in plan.documents if document.resource == step.resource)
        terms = PodTerms(
            namespace=namespace,
            runner=self._runner.name,
            secrets=frozenset(
                value.secret for value in (*attempt.inputs.values(), attempt.token) if isinstance(value, PodSecretKey)
            ),
            level=granted.level,
            keys=granted.keys,
            inline=origin.inline,
            cleaning=attempt.cleaning,
        )
        found = check(made, terms)
        if found:
            message = f"its pod is not allowed: {describe(found)}"
            # The administrator may allow more keys of labels and annotations at any time.
            if not check(made, msgspec.structs.replace(terms, keys=frozenset({"*"}))):
                raise RefusedPodError(message)
            raise CannotRenderError(Reason.POD_REFUSED, message)
        self._check_services(made)
        await self._plugin_reads.check(origin, namespace, references(made))
        return made

    async def _resolve_webhook(self, run: RunObject, unit: Unit, attempt: PodAttempt) -> Unit:
        """Return the unit as it runs in its pod: a webhook becomes a command."""
        if unit.kind != Kind.WEBHOOK:
            return unit
        try:
            setup = await self._senders.setup()
        except NoSenderError as error:
            raise RefusedPodError(str(error)) from None
        return as_exec(
            unit,
            setup,
            run=attempt.run,
            name=attempt.unit,
            record=run.ledger.unit(attempt.unit),
            absent=[name for name, value in attempt.inputs.items() if value is None],
            sensitive=attempt.sensitive,
        )

    async def _with_state(self, run: RunObject, step: SealedStep, attempt: PodAttempt) -> PodAttempt:
        """Return the attempt with the access to its state."""
        if self._states is None:
            raise RefusedPodError(
                "its plugin uses a state, but the operator does not serve states: start it with --state-port"
            )
        try:
            given = await self._states.environment_for(run, step, attempt.number)
        except NoStatesError as error:
            raise RefusedPodError(str(error)) from None
        return msgspec.structs.replace(attempt, state=given.variables, token=given.token)

    def _check_services(self, made: dict[str, Any]) -> None:
        """Ensure that no Service of the namespace selects the pod: steps must not receive requests."""
        namespace, labels = made["metadata"]["namespace"], made["metadata"]["labels"]
        for service in self._cluster.services:
            selector = service.spec.selector if service.metadata.namespace == namespace else None
            if selector and selector.items() <= labels.items():
                raise RefusedPodError(
                    f"its pod would become an endpoint of Service {namespace}/{service.metadata.name}: change its "
                    f"labels ({', '.join(sorted(selector))}) in the plugin's podTemplateOverlay, or that selector"
                )

    @staticmethod
    def describe_changes(stored: dict[str, Any], made: dict[str, Any]) -> str:
        """Describe how the stored pod differs from the manifest; empty if it does not."""
        found = find_changes(stored, made)
        pod = f"pod {made['metadata']['namespace']}/{made['metadata']['name']}"
        return f"{pod}: {describe(found)}; then delete the pod" if found else ""

    async def check_stored(
        self, run: RunObject, plan: Plan, key: AttemptKey, given: TargetValues, stored: dict[str, Any]
    ) -> str:
        """Describe what is wrong with a peer's pod, by building it again; empty if nothing is.

        The start deadline and the use of tracing come from the stored pod, because the peer may have other settings.
        """
        limits = plan.steps[key[0]].unit.timeouts
        start_before = read.start_before(stored)
        latest = _created(stored) + limits.schedule_ms + limits.pull_ms + _START_DEADLINE_TOLERANCE_MS
        if not 0 < start_before <= latest:
            pod = stored["metadata"]["name"]
            return f"pod {pod} has a later start deadline than Dayfly sets: delete it"
        traced = read.is_traced(stored)
        return self.describe_changes(stored, await self.build(run, plan, key, given, start_before, traced=traced))

    async def _secret_key(self, run: RunObject, plan: Plan, source: UnitOutputRef) -> PodSecretKey | None:
        step = plan.steps[source.unit]
        document = next(each for each in plan.documents if each.resource == step.resource)
        found = await find_producer(self._cluster, run, document, step.unit)
        return input_pins.secret_key(found.run, found.name, source.output)

    async def _attempt(
        self, run: RunObject, plan: Plan, key: AttemptKey, given: TargetValues, start_before: int, restricted: bool
    ) -> PodAttempt:
        unit, number = key
        step, forks = plan.steps[unit], fork_evaluator(self._cluster, run)
        read = resolve(run.ledger, step.unit, step.resource, must_run=not step.creates, given=given, forks=forks)
        inputs = {
            name: await self._secret_key(run, plan, source) if isinstance(source, UnitOutputRef) else source
            for name, source in read.sources.items()
        }
        limits = step.unit.timeouts
        identity = given_resource_id(run, plan.documents, step.resource)
        return PodAttempt(
            run=run.ledger.uid,
            run_name=run.metadata.name,
            owner=run_owner_reference(run),
            resource=step.resource,
            resource_id=identity,
            resource_token=await self._token(run, step.resource, identity),
            unit=unit,
            number=number,
            inputs=inputs,
            sensitive=sensitive_inputs(plan, step.unit, step.resource),
            complete=is_complete(plan, run.ledger, step.resource),
            namespace=names.namespace_of(step.unit),
            runner=self._runner.name,
            architecture=self._runner.architecture,
            restricted=restricted,
            cleaning=not step.creates,
            start_before=start_before or self._cluster.now() + limits.schedule_ms + limits.pull_ms,
            reads=input_pins.pin_label(run, step, forks),
            ephemeral_storage=self._ephemeral_storage,
        )

    async def _token(self, run: RunObject, resource: str, identity: str | None) -> str:
        """Return the token of a resource; empty for hooks and lists, because no record could prove their items."""
        identity = resource_id(run.ledger.uid, resource) if identity is None else identity
        if self._registry is None or not resource or not identity:
            return ""
        try:
            return await self._registry.token(identity)
        except BrokenKeyError as error:
            raise RefusedPodError(str(error)) from None


def _created(stored: dict[str, Any]) -> int:
    return int(dt.datetime.fromisoformat(stored["metadata"]["creationTimestamp"]).timestamp() * 1000)
