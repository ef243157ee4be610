"""The scenarios of a plugin on this machine, each with its expected result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from dayfly.spec.plugin import Output, PluginSpec, Retry, Step
from dayfly.testing import fault_scripts
from dayfly.testing.fault_scripts import Moment
from dayfly.testing.webhook_faults import SOON, WebhookFault, applicable_faults, use_proxy

LONG = "x" * 10_000
ODD = "quote ' double \" dollar $HOME tick `id` semicolon ; a new\nline, and ä"


class DeleteAt(StrEnum):
    """The state in which the sandbox is deleted."""

    READY = "ready"
    FAILED = "failed"
    SETTLED = "settled"  # ready or failed
    WAITS = "waits"  # a step waits for its end


class Tampering(StrEnum):
    """An external change of an object that a step has created."""

    EDITS = "edited"
    DELETES = "deleted"


class Scenario(NamedTuple):
    """One run of a plugin with one fault.

    Attributes:
        name: What happens, such as `provision is killed at its end`.
        spec: The plugin, changed for the scenario.
        params: The params of the resource.
        delete_at: The state in which the sandbox is deleted.
        wait_line: The line in the journal that shows this state, for `DeleteAt.WAITS`.
        twin: Whether a second sandbox exists at the same time, and is deleted later.
        step: The step with the fault; empty for none.
        moment: The moment of the step at which the test intervenes: it deletes the sandbox for `DeleteAt.WAITS`,
            otherwise the pod of the step.
        delay_s: The time of the intervention in seconds after the start of the step.
        tampering: The change of the object of the step, before the sandbox is deleted.
        webhook_fault: The fault of the first request of the step, which is a webhook.
    """

    name: str
    spec: PluginSpec
    params: Mapping[str, str]
    delete_at: DeleteAt
    wait_line: str = ""
    twin: bool = False
    step: str = ""
    moment: Moment | None = None
    delay_s: float = 0.0
    webhook_fault: WebhookFault | None = None
    tampering: Tampering | None = None

    @property
    def deletes_pod(self) -> bool:
        """Whether the test deletes the pod of the step."""
        return self.moment is not None and self.delete_at is not DeleteAt.WAITS


class Outcome(NamedTuple):
    """The outcome of a scenario.

    Attributes:
        reached: The state before the deletion: ready or failed; empty if it reached neither in time.
        message: The message of that state, or of a cleanup that did not end.
        cleanup_ended: Whether the cleanup ended in time.
        listed_while_ready: The inventory while the sandbox was ready; None if it could not run.
        listed_after: The inventory after the deletion; None if it could not run.
        lost_of_twin: Lines missing in the inventory of the twin after the deletion.
        inventory_error: The error of the inventory.
        start_counts: The number of starts of each step.
        log: The last lines of the log of the failed step.
        missed_reason: Why the fault did not occur; empty if it did.
    """

    reached: str = ""
    message: str = ""
    cleanup_ended: bool = True
    listed_while_ready: tuple[str, ...] | None = None
    listed_after: tuple[str, ...] | None = None
    lost_of_twin: tuple[str, ...] = ()
    inventory_error: str = ""
    start_counts: Mapping[str, int] = {}
    log: tuple[str, ...] = ()
    missed_reason: str = ""


class ScenarioBuilder(NamedTuple):
    """Builds the scenarios of one plugin. `proxy_urls` are those of webhook steps."""

    spec: PluginSpec
    params: Mapping[str, str]
    journal: str
    proxy_urls: Mapping[str, str] = {}

    def build(self, name: str, delete_at: DeleteAt, changed: Mapping[str, Step] = {}, **more: object) -> Scenario:
        """Build a scenario with these changed steps. The other scripts record their attempts."""
        spec = _change_steps(self.spec, lambda step: changed.get(step.name) or self.record_attempts(step))
        return Scenario(name, spec, more.pop("params", self.params), delete_at, **more)  # type: ignore[arg-type] # the fields of Scenario

    def record_attempts(self, step: Step) -> Step:
        return self.change_script(step, fault_scripts.record_attempts)

    def change_script(self, step: Step, around: Callable[..., str], *more: object) -> Step:
        """Return the step with a changed script and a short retry delay, or a webhook with the URL of its proxy."""
        if step.name in self.proxy_urls:
            return use_proxy(step, self.proxy_urls[step.name])
        if step.script is None:
            return step
        retry = msgspec.structs.replace(step.retry or Retry(), backoff=SOON)
        script = around(step.script, step.name, self.journal, *more)
        return msgspec.structs.replace(step, script=script, retry=retry)


def undisturbed_scenario(spec: PluginSpec, params: Mapping[str, str], journal: str) -> Scenario:
    """Return the scenario without a fault. The durations of its steps define the middle of each step."""
    return ScenarioBuilder(commands_to_scripts(spec), params, journal).build(
        "the sandbox is created and deleted", DeleteAt.READY
    )


def fault_scenarios(
    spec: PluginSpec,
    params: Mapping[str, str],
    journal: str,
    durations: Mapping[str, float],
    proxy_urls: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Scenario]:
    """Yield all scenarios with a fault.

    Args:
        spec: The plugin.
        params: The params of the test, including all required params.
        journal: A file to which steps can append.
        durations: The duration of each step in the first scenario, in seconds.
        proxy_urls: The URL of the proxy for the requests of a webhook, by step.
    """
    builder = ScenarioBuilder(commands_to_scripts(spec), params, journal, proxy_urls)
    for step in builder.spec.create:
        if step.script is not None:
            yield from _create_step_scenarios(builder, step, durations.get(step.name, 0.0) / 2)
        elif step.name in proxy_urls:
            yield from _webhook_scenarios(builder, step, creates=True)
    for step in builder.spec.delete:
        if step.script is not None:
            yield from _delete_step_scenarios(builder, step, durations.get(step.name, 0.0) / 2)
        elif step.name in proxy_urls:
            yield from _webhook_scenarios(builder, step, creates=False)
    yield from sandbox_scenarios(builder)


def _create_step_scenarios(builder: ScenarioBuilder, step: Step, half: float) -> Iterator[Scenario]:
    again = is_repeated(step)
    for moment in Moment:
        changed = {step.name: builder.change_script(step, fault_scripts.kill_at, moment, half)}
        delete_at = DeleteAt.READY if again else DeleteAt.FAILED
        yield builder.build(f"{step.name} is killed {describe_moment(moment)}", delete_at, changed, step=step.name)
    yield from lost_output_scenarios(builder, step)
    for name, waiting in (
        (f"the sandbox is deleted before {step.name}", builder.change_script(step, fault_scripts.block_before_work)),
        (
            f"the sandbox is deleted while {step.name} runs",
            builder.change_script(step, fault_scripts.block_in_work, half),
        ),
    ):
        yield builder.build(
            name, DeleteAt.WAITS, {step.name: waiting}, wait_line=fault_scripts.wait_line(step.name), step=step.name
        )


def _delete_step_scenarios(builder: ScenarioBuilder, step: Step, half: float) -> Iterator[Scenario]:
    for moment in Moment:
        changed = {step.name: builder.change_script(step, fault_scripts.kill_at, moment, half)}
        yield builder.build(f"{step.name} is killed {describe_moment(moment)}", DeleteAt.READY, changed, step=step.name)
    yield repeated_delete_scenario(builder, step)


def _webhook_scenarios(builder: ScenarioBuilder, step: Step, *, creates: bool) -> Iterator[Scenario]:
    """Yield the faults of a webhook's first request. The step may still succeed through its `find` or its key."""
    for webhook_fault in applicable_faults(is_repeated=is_repeated(step) or not creates, creates=creates):
        waits = webhook_fault in (WebhookFault.BEFORE, WebhookFault.AFTER)
        settled = DeleteAt.READY if is_repeated(step) or not creates else DeleteAt.SETTLED
        yield builder.build(
            webhook_fault.scenario_name(step.name),
            DeleteAt.WAITS if waits else settled,
            wait_line=fault_scripts.wait_line(step.name) if waits else "",
            step=step.name,
            webhook_fault=webhook_fault,
        )


def commands_to_scripts(spec: PluginSpec) -> PluginSpec:
    """Return the plugin with its commands as equivalent scripts, which can be changed."""

    def changed(step: Step) -> Step:
        if step.command is None:
            return step
        return msgspec.structs.replace(step, command=None, script=fault_scripts.command_to_script(step.command))

    return msgspec.structs.replace(
        spec, create=tuple(map(changed, spec.create)), delete=tuple(map(changed, spec.delete))
    )


def lost_output_scenarios(builder: ScenarioBuilder, step: Step) -> Iterator[Scenario]:
    """Yield the loss of all outputs of a create step."""
    if step.outputs:
        nowhere = [_without_report(output) for output in step.outputs]
        lost = msgspec.structs.replace(builder.record_attempts(step), outputs=tuple(nowhere))
        once = msgspec.structs.replace(lost, retry=None)
        yield builder.build(f"the outputs of {step.name} are lost", DeleteAt.FAILED, {step.name: once}, step=step.name)


def repeated_delete_scenario(builder: ScenarioBuilder, step: Step) -> Scenario:
    """Return the scenario in which a delete step fails after its work and runs again."""
    twice = {step.name: builder.change_script(step, fault_scripts.fail_after_work)}
    return builder.build(f"{step.name} fails after its work and runs again", DeleteAt.READY, twice, step=step.name)


def sandbox_scenarios(builder: ScenarioBuilder) -> Iterator[Scenario]:
    """Yield the scenarios with a second sandbox, and with other params."""
    yield builder.build("one of two sandboxes is deleted", DeleteAt.READY, twin=True)
    yield from _param_scenarios(builder)


def is_repeated(step: Step) -> bool:
    """Whether a create step is retried after a failure."""
    return bool(step.retry and step.retry.idempotent and step.retry.limit != 1)


def _param_scenarios(builder: ScenarioBuilder) -> Iterator[Scenario]:
    for name, rule in builder.spec.params().items():
        if rule.fixed:
            continue
        if name in builder.params and not rule.required:
            less = {key: value for key, value in builder.params.items() if key != name}
            yield builder.build(f"the param {name} is missing", DeleteAt.SETTLED, params=less)
        for what, value in (("is very long", LONG), ("has quotes and a line break", ODD)):
            yield builder.build(f"the param {name} {what}", DeleteAt.SETTLED, params={**builder.params, name: value})


def describe_moment(moment: Moment) -> str:
    """Return the moment as text."""
    return "in its middle" if moment is Moment.MIDDLE else f"at its {moment}"


def _without_report(output: Output) -> Output:
    return msgspec.structs.replace(output, value_from_path="/nowhere/at-all")


def _change_steps(spec: PluginSpec, change: Callable[[Step], Step]) -> PluginSpec:
    return msgspec.structs.replace(
        spec, create=tuple(map(change, spec.create)), delete=tuple(map(change, spec.delete)), inventory=()
    )
