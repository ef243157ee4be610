"""Units: each step becomes a unit with its inputs, time limits, retries and place to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.compile import objects, unit_defaults
from dayfly.spec import plugin as written
from dayfly.spec.errors import Path, SpecError
from dayfly.spec.lifecycle import (
    PARENT_PREFIX,
    PRE_STOP_TRIES,
    As,
    Exec,
    ForkValue,
    Kind,
    Lifecycle,
    LifecycleEvent,
    Object,
    Ref,
    SecretKey,
    StepOrigin,
    Target,
    Unit,
    UnitInput,
    UnitOutput,
    UnitTimeouts,
    WebhookUnit,
)
from dayfly.spec.lifecycle_hook import HookInput
from dayfly.spec.sandbox import Param
from dayfly.spec.steps import kube_object
from dayfly.spec.steps.overlay import parse_overlay
from dayfly.spec.steps.value_from import ResourceOutput

if TYPE_CHECKING:
    from dayfly.compile.references import Workflow
    from dayfly.spec.steps.kube_object import KubeObject

MAX_VARIABLE_BYTES = 64 * 1024

_STOPPING = frozenset({LifecycleEvent.PRE_STOP, LifecycleEvent.POST_STOP})


class DocumentSettings(msgspec.Struct, frozen=True):
    """Data that all units of one document share.

    Attributes:
        resource: The document's resource; empty for the target's own hooks.
        params: The resource's params in the sandbox, by name.
        params_at: The path to them.
        secrets: The params that are secrets.
        exec_template: The place of scripts, and the built-in environment, without script and command.
        origin: The author of the steps.
    """

    resource: str
    params: Mapping[str, str | Param]
    params_at: Path
    exec_template: Exec
    origin: StepOrigin = StepOrigin()
    secrets: frozenset[str] = frozenset()


def exec_template(runner: written.Runner, env: dict[str, str], *, state: bool = False) -> Exec:
    """Return where a runner's scripts run, with the built-in environment `env`. The host chooses missing settings."""
    return Exec(
        image=runner.image,
        namespace=runner.namespace,
        pod_template=parse_overlay(runner.pod_template_overlay) or None,
        env=env,
        state=state,
    )


def build_units(shared: DocumentSettings, workflow: Workflow) -> tuple[Unit, ...]:
    """Return the units of one event, in the order of its steps.

    Raises:
        SpecError: A constant that no environment variable can hold.
    """
    return tuple(_build_unit(shared, step, workflow.event, here) for step, here in workflow.steps_with_paths())


def build_document(target: Target, workflows: tuple[Workflow, ...], shared: DocumentSettings) -> Lifecycle:
    """Return the document of checked workflows."""
    by_event = {workflow.event: build_units(shared, workflow) for workflow in workflows}
    return Lifecycle(
        target=target,
        resource=shared.resource,
        origin=shared.origin,
        pre_start=by_event.get(LifecycleEvent.PRE_START, ()),
        post_start=by_event.get(LifecycleEvent.POST_START, ()),
        pre_stop=by_event.get(LifecycleEvent.PRE_STOP, ()),
        post_stop=(
            *by_event.get(LifecycleEvent.POST_STOP, ()),
            *objects.removals(workflows, shared.exec_template.namespace),
        ),
    )


def check_retry(workflow: Workflow) -> None:
    """Refuse settings without effect: the retries of stop events are fixed.

    Raises:
        SpecError: `idempotent: false` for a step of a stop event, or a limit or a webhook's `find` for preStop.
    """
    if workflow.event not in _STOPPING:
        return
    for step, here in workflow.steps_with_paths():
        if step.retry is not None and step.retry.idempotent is False:
            problem = f"a {workflow.word} may be retried; make its script safe to run twice and leave this out"
            raise SpecError(problem, (*here, "retry", "idempotent"))
        if workflow.event is LifecycleEvent.PRE_STOP and step.retry is not None and step.retry.limit is not None:
            problem = f"a {workflow.word} has {PRE_STOP_TRIES} attempts; leave the limit out"
            raise SpecError(problem, (*here, "retry", "limit"))
        if step.webhook is not None and step.webhook.find is not None:
            problem = f"a {workflow.word} is sent again with the same key; leave find out"
            raise SpecError(problem, (*here, "webhook", "find"))


def check_variable(value: str, keys: Path) -> None:
    """Refuse a constant too large for an environment variable."""
    if (size := len(value.encode())) > MAX_VARIABLE_BYTES:
        problem = f"has {size} bytes; an environment variable holds at most {MAX_VARIABLE_BYTES}: use a file"
        raise SpecError(problem, keys)


def output_reference(wanted: ResourceOutput, own: str = "") -> Ref:
    """Return the reference to a resource's output from the document of the resource `own`."""
    step, _, output = wanted.output_key.partition(".")
    return Ref(resource="" if wanted.name == own else wanted.name, unit=step, output=output)


def _build_unit(shared: DocumentSettings, step: written.Step, event: LifecycleEvent, keys: Path) -> Unit:
    common: dict[str, Any] = {
        "name": step.name,
        "inputs": tuple(
            _input(shared, item, (*keys, "inputs", index), _input_destination(item, step))
            for index, item in enumerate(step.inputs)
        ),
        "outputs": tuple(_output(item) for item in step.outputs),
        "retry": unit_defaults.retry(step.retry or written.Retry(), event),
    }
    timeouts = unit_defaults.timeouts(step.timeouts or written.Timeouts())
    if step.object is not None:
        return _build_object_unit(shared, step.object, timeouts, common)
    if step.webhook is None:
        work = msgspec.structs.replace(shared.exec_template, script=step.script or "", command=step.command or ())
        return Unit(kind=Kind.EXEC, timeouts=timeouts, exec=work, **common)
    return Unit(
        kind=Kind.WEBHOOK,
        timeouts=unit_defaults.webhook_timeouts(timeouts, step),
        webhook=WebhookUnit(
            request=msgspec.json.decode(msgspec.json.encode(step.webhook)),
            namespace=shared.exec_template.namespace,
            env=shared.exec_template.env,
        ),
        **common,
    )


def _build_object_unit(
    shared: DocumentSettings, item: KubeObject, timeouts: UnitTimeouts, common: dict[str, Any]
) -> Unit:
    """Return the unit of an object. Its creation has one time limit, until it is ready; its removal has none."""
    if item.remove:
        common["outputs"] = (UnitOutput(name=kube_object.GONE),)
    return Unit(
        kind=Kind.OBJECT,
        timeouts=msgspec.structs.replace(timeouts, run_ms=0 if item.remove else timeouts.run_ms, grace_ms=0),
        object=Object(
            written={} if item.remove else msgspec.json.decode(msgspec.json.encode(item)),
            remove=item.remove,
            namespace=shared.exec_template.namespace,
        ),
        **common,
    )


def _output(item: written.Output) -> UnitOutput:
    secret = item.value_from_secret
    return UnitOutput(
        name=item.name,
        path=item.value_from_path or "",
        json_path=item.value_from_json_path or "",
        header=item.value_from_header or "",
        status=item.value_from_status,
        secret=SecretKey(key=secret.key, name=secret.name, json_path=secret.name_from_json_path) if secret else None,
        sensitive=item.sensitive or secret is not None,
    )


def _input_destination(item: written.Input, step: written.Step) -> As:
    if step.object is not None:
        return As()  # its manifest has the place
    # The sender is Dayfly's own program, so no input may be a variable that the sender reads.
    return As(env=f"DAYFLY_INPUT_{item.env}") if step.webhook is not None else As(env=item.env, path=item.path)


def _input(shared: DocumentSettings, item: written.Input, keys: Path, place: As) -> UnitInput:
    if item.value_from_step is not None:
        ref = Ref(unit=item.value_from_step.name, output=item.value_from_step.output)
        return UnitInput(name=item.name, from_=ref, as_=place)
    if item.value_from_parent is not None:
        wanted = item.value_from_parent
        ref = Ref(unit=f"{PARENT_PREFIX}{wanted.step}", output=wanted.output)
        return UnitInput(name=item.name, from_=ref, as_=place)
    if isinstance(item, HookInput) and item.value_from_target is not None:
        return UnitInput(name=item.name, target=item.value_from_target, as_=place)
    if item.value_from is not None and item.value_from.fork is not None:
        source_fork = item.value_from.fork
        fork = ForkValue(fork_of=source_fork.fork_of.baseline, expression=source_fork.expression)
        return UnitInput(name=item.name, fork=fork, as_=place)
    source: str | ResourceOutput | None = item.value_from.resource if item.value_from is not None else item.value
    here: Path = (*keys, "value")
    if item.value_from_sandbox:
        param, here = shared.params.get(item.name), (*shared.params_at, item.name)
        source = param.value_from.resource if isinstance(param, Param) else param
    secret = item.value_from_sandbox and item.name in shared.secrets
    if isinstance(source, ResourceOutput):
        return UnitInput(name=item.name, from_=output_reference(source, shared.resource), secret=secret, as_=place)
    if source is not None and place.env:
        check_variable(source, here)
    return UnitInput(name=item.name, value=source, secret=secret, as_=place)
