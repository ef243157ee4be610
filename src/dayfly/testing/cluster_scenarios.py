"""Scenarios for a cluster, where steps are pods that share no file with the test.

The test deletes the pod of a step, or the sandbox, at a moment of the step. A script pauses at that moment
(`fault_scripts.pause_at`), so that a slow cluster does not matter. Other steps are not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dayfly.testing import fault_scripts
from dayfly.testing.fault_scripts import NO_JOURNAL, Moment
from dayfly.testing.scenarios import (
    DeleteAt,
    Scenario,
    ScenarioBuilder,
    Tampering,
    describe_moment,
    is_repeated,
    lost_output_scenarios,
    repeated_delete_scenario,
    sandbox_scenarios,
)
from dayfly.testing.webhook_faults import applicable_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.spec.plugin import PluginSpec, Step

# The longest delay of a status.
_STATUS_DELAY_S = 1.0
# A shorter webhook or command is disturbed only at its start.
_MIN_DURATION_S = 4.0


class SkippedScenario(NamedTuple):
    """A scenario that cannot run, and the reason."""

    name: str
    why: str


class MissingRights(NamedTuple):
    """Why the user may not delete pods of steps, and why not change the object of each step. Empty if allowed."""

    pods: str = ""
    objects: Mapping[str, str] = {}


def undisturbed_cluster_scenario(spec: PluginSpec, params: Mapping[str, str]) -> Scenario:
    """Return the scenario in which nothing goes wrong."""
    return ScenarioBuilder(spec, params, NO_JOURNAL).build("the sandbox is created and deleted", DeleteAt.READY)


def cluster_fault_scenarios(
    spec: PluginSpec, params: Mapping[str, str], durations: Mapping[str, float], missing_rights: MissingRights
) -> Iterator[Scenario | SkippedScenario]:
    """Yield all scenarios with a fault, including those that cannot run.

    Args:
        spec: The plugin.
        params: The params of the test, including all required params.
        durations: The duration of each step in the first scenario, in seconds.
        missing_rights: The rights that the user does not have.
    """
    builder = ScenarioBuilder(spec, params, NO_JOURNAL)
    for step in spec.create:
        yield from _pod_deletion_scenarios(
            builder,
            step,
            durations.get(step.name, 0.0),
            missing_rights.pods,
            DeleteAt.READY if is_repeated(step) else DeleteAt.FAILED,
        )
        if step.script is not None:
            yield from lost_output_scenarios(builder, step)
        yield from _sandbox_deletion_scenarios(builder, step, durations.get(step.name, 0.0))
        if step.object is not None:
            yield from _tampering_scenarios(builder, step, missing_rights.objects.get(step.name, ""))
    for step in spec.delete:
        yield from _pod_deletion_scenarios(
            builder, step, durations.get(step.name, 0.0), missing_rights.pods, DeleteAt.READY
        )
        if step.script is not None:
            yield repeated_delete_scenario(builder, step)
    yield from sandbox_scenarios(builder)
    for step in (*spec.create, *spec.delete):
        if step.webhook is not None:
            creates = step in spec.create
            for webhook_fault in applicable_faults(is_repeated=not creates or is_repeated(step), creates=False):
                yield SkippedScenario(
                    webhook_fault.scenario_name(step.name),
                    "pods send requests to the server directly: run the test without --context",
                )
        yield SkippedScenario(f"the node of {step.name} is lost", "the test has no access to nodes")


def _pod_deletion_scenarios(
    builder: ScenarioBuilder, step: Step, duration: float, pods: str, delete_at: DeleteAt
) -> Iterator[Scenario | SkippedScenario]:
    """Yield a deletion of the step's pod at each moment. Without the right to delete pods, a script kills itself."""
    for moment in Moment:
        name = f"the pod of {step.name} is deleted {describe_moment(moment)}"
        if step.object is not None:
            yield SkippedScenario(name, f"{step.name} is an object and has no pod")
        elif not pods:
            yield from _scenario_at_moment(builder, step, moment, duration, name, delete_at)
        elif step.script is not None:
            yield SkippedScenario(name, pods)
            changed = {step.name: builder.change_script(step, fault_scripts.kill_at, moment, duration / 2)}
            yield builder.build(f"{step.name} is killed {describe_moment(moment)}", delete_at, changed, step=step.name)
        else:
            yield SkippedScenario(name, pods)


def _sandbox_deletion_scenarios(
    builder: ScenarioBuilder, step: Step, duration: float
) -> Iterator[Scenario | SkippedScenario]:
    """Yield a deletion of the sandbox at each moment of a create step."""
    for moment in Moment:
        yield from _scenario_at_moment(
            builder,
            step,
            moment,
            duration,
            f"the sandbox is deleted while {step.name} is {describe_moment(moment)}",
            DeleteAt.WAITS,
        )


def _tampering_scenarios(builder: ScenarioBuilder, step: Step, why: str) -> Iterator[Scenario | SkippedScenario]:
    """Yield an external change of the object of a step, followed by the deletion of the sandbox."""
    for tampering in Tampering:
        name = f"the object of {step.name} is {tampering} from outside"
        yield (
            SkippedScenario(name, why)
            if why
            else builder.build(name, DeleteAt.READY, step=step.name, tampering=tampering)
        )


def _scenario_at_moment(
    builder: ScenarioBuilder, step: Step, moment: Moment, duration: float, name: str, delete_at: DeleteAt
) -> Iterator[Scenario | SkippedScenario]:
    """Yield the scenario in which the test intervenes at a moment of the step."""
    if step.script is not None:
        delay_s = {
            Moment.START: 0.0,
            Moment.MIDDLE: duration / 2 + _STATUS_DELAY_S,
            Moment.END: duration + _STATUS_DELAY_S,
        }[moment]
        changed = {step.name: builder.change_script(step, fault_scripts.pause_at, moment, duration / 2)}
        yield builder.build(name, delete_at, changed, step=step.name, moment=moment, delay_s=delay_s)
    elif moment is Moment.START:
        yield builder.build(name, delete_at, step=step.name, moment=moment)
    elif moment is Moment.MIDDLE and duration > _MIN_DURATION_S:
        yield builder.build(name, delete_at, step=step.name, moment=moment, delay_s=duration / 2)
    else:
        yield SkippedScenario(name, f"{step.name} is not a script and cannot be paused")
