"""Makes the manifests of attempts' pods, and holds what the cluster made of them to what was meant."""

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
from dayfly.operator.cluster.fork_values import teller
from dayfly.operator.cluster.objects import RunObject, owner
from dayfly.operator.pods import input_pins
from dayfly.operator.pods.namespaces import Namespaces, RunnerConfigMap
from dayfly.operator.pods.plugin_reads import PluginReads
from dayfly.operator.pods.webhook_pods import NoSenderError, Senders
from dayfly.operator.states.state_access import NoStatesError, StateAccess
from dayfly.plan.reasons import Reason
from dayfly.plan.run_trace import traceparent
from dayfly.plan.sealed import Plan, SealedStep, sensitive_inputs
from dayfly.spec.lifecycle import Kind, Unit

_LATE_MS = 60_000


class RefusedPodError(Exception):
    """A condition in the cluster prevents the pod for now. The text names it."""


class PodBuilder:
    """What a pod of ours looks like; asked before it is made, and again before it is claimed."""

    def __init__(
        self,
        cluster: ClusterWatches,
        namespaces: Namespaces,
        runner: RunnerConfigMap,
        senders: Senders,
        states: StateAccess | None = None,
        *,
        traced: bool,
        ephemeral_storage: str = "",
    ) -> None:
        """`traced` if steps are to know what their own spans hang below.

        `ephemeral_storage` is the default limit on a step's use of its node's disk, as a Kubernetes quantity.
        """
        self._cluster = cluster
        self._namespaces = namespaces
        self._plugin_reads = PluginReads(cluster.client, cluster.now)
        self._runner = runner
        self._senders = senders
        self._states = states
        self._traced = traced
        self._ephemeral_storage = ephemeral_storage

    async def manifest(
        self,
        run: RunObject,
        plan: Plan,
        place: tuple[str, int],
        given: TargetValues,
        start_before: int = 0,
        *,
        traced: bool | None = None,
    ) -> dict[str, Any]:
        """The pod of one attempt, overlay and all, as it may be created; `given` is what its target has for it.

        `start_before` and `traced` are those of a peer's pod that is to be made again.

        Raises:
            NotGrantedError: no step may run in its namespace.
            RefusedPodError: something in the cluster is missing or conflicts, and can be changed there.
            CannotRenderError: no pod can be made of this step: its inputs do not fit, or its overlay is not allowed.
            errors.ApiError: the server cannot be asked.
        """
        step = plan.steps[place[0]]
        namespace, home = names.namespace_of(step.unit), run.ledger.target.namespace
        granted = await self._namespaces.of(namespace, home)
        attempt = self._attempt(run, plan, place, given, start_before, granted.level == "restricted")
        if self._traced if traced is None else traced:
            trace = traceparent(run.ledger.uid, *place, creates=step.creates)
            attempt = msgspec.structs.replace(attempt, trace=trace)
        if access.has_state(step.unit):
            attempt = await self._stated(run, step, attempt)
        made = render_pod(await self._executed(run, step.unit, attempt), attempt)
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
            message = f"its pod may not be made: {describe(found)}"
            # The administrator can allow further keys of labels and annotations at any time.
            if not check(made, msgspec.structs.replace(terms, keys=frozenset({"*"}))):
                raise RefusedPodError(message)
            raise CannotRenderError(Reason.POD_REFUSED, message)
        self._unselected(made)
        await self._plugin_reads.check(origin, namespace, references(made))
        return made

    async def _executed(self, run: RunObject, unit: Unit, attempt: PodAttempt) -> Unit:
        """The unit as what runs in its pod."""
        if unit.kind != Kind.WEBHOOK:
            return unit
        try:
            place = await self._senders.place()
        except NoSenderError as error:
            raise RefusedPodError(str(error)) from None
        return as_exec(
            unit,
            place,
            run=attempt.run,
            name=attempt.unit,
            record=run.ledger.unit(attempt.unit),
            absent=[name for name, value in attempt.inputs.items() if value is None],
            sensitive=attempt.sensitive,
        )

    async def _stated(self, run: RunObject, step: SealedStep, attempt: PodAttempt) -> PodAttempt:
        """The attempt with what leads to its state."""
        if self._states is None:
            raise RefusedPodError("its plugin wants a state, and this operator serves none: give it --state-port")
        try:
            given = await self._states.given(run, step, attempt.number)
        except NoStatesError as error:
            raise RefusedPodError(str(error)) from None
        return msgspec.structs.replace(attempt, state=given.variables, token=given.token)

    def _unselected(self, made: dict[str, Any]) -> None:
        """A step answers nobody: no Service of its namespace may lead to it."""
        namespace, labels = made["metadata"]["namespace"], made["metadata"]["labels"]
        for service in self._cluster.services:
            selector = service.spec.selector if service.metadata.namespace == namespace else None
            if selector and selector.items() <= labels.items():
                raise RefusedPodError(
                    f"its pod would become an endpoint of Service {namespace}/{service.metadata.name}: change its "
                    f"labels ({', '.join(sorted(selector))}) in the plugin's podTemplateOverlay, or that selector"
                )

    @staticmethod
    def judge(stored: dict[str, Any], made: dict[str, Any]) -> str:
        """What is wrong with a pod as it is stored, if it is not the one that was made; empty if it is."""
        found = find_changes(stored, made)
        pod = f"pod {made['metadata']['namespace']}/{made['metadata']['name']}"
        return f"{pod}: {describe(found)}; then delete the pod" if found else ""

    async def examine(
        self, run: RunObject, plan: Plan, place: tuple[str, int], given: TargetValues, stored: dict[str, Any]
    ) -> str:
        """Judge a pod that a peer has made, by making it again.

        Taken from it are the end of its start window, and whether it is traced: the peer may have been told otherwise.
        """
        limits = plan.steps[place[0]].unit.timeouts
        start_before = read.start_before(stored)
        latest = _created(stored) + limits.schedule_ms + limits.pull_ms + _LATE_MS
        if not 0 < start_before <= latest:
            pod = stored["metadata"]["name"]
            return f"pod {pod} would be allowed to start later than any that Dayfly makes; delete it"
        traced = read.is_traced(stored)
        return self.judge(stored, await self.manifest(run, plan, place, given, start_before, traced=traced))

    def _attempt(
        self,
        run: RunObject,
        plan: Plan,
        place: tuple[str, int],
        given: TargetValues,
        start_before: int,
        restricted: bool,
    ) -> PodAttempt:
        unit, number = place
        step, forks = plan.steps[unit], teller(self._cluster, run)
        read = resolve(run.ledger, step.unit, step.resource, cleans=not step.creates, given=given, forks=forks)
        inputs = {
            name: input_pins.where(run, source.unit, source.output) if isinstance(source, UnitOutputRef) else source
            for name, source in read.sources.items()
        }
        limits = step.unit.timeouts
        return PodAttempt(
            run=run.ledger.uid,
            run_name=run.metadata.name,
            owner=owner(run),
            resource=step.resource,
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
            reads=input_pins.label(run, step, forks),
            ephemeral_storage=self._ephemeral_storage,
        )


def _created(stored: dict[str, Any]) -> int:
    return int(dt.datetime.fromisoformat(stored["metadata"]["creationTimestamp"]).timestamp() * 1000)
