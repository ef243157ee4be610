"""The inputs of units: one resolver and one policy, the same on every host. Pure.

An input is present, absent, or unfit. It is unfit if its destination cannot contain the value: an environment variable
has no zero byte and at most 64 KiB. The ledger has size and kind of each output, so this is known without the value. A
create step never runs with an unfit input, and needs no cleanup then. A delete step must run: an unfit input counts as
absent, is named in `DAYFLY_ABSENT_INPUTS`, and is reported.

The address of a fork is known only to the host, and only while the fork has one. A create step waits for it. For a
delete step it is absent until then. An input from the target object has a JSONPath that finds one value.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from dayfly.execute.object.read import as_bytes
from dayfly.execute.work_order import CannotRenderError
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, SealedStep
from dayfly.spec.lifecycle import ForkValue, Unit, UnitInput, unit_id
from dayfly.spec.run import ALIVE, Phase, Run, State
from dayfly.spec.scalars import jsonpath

ENV_INPUT_LIMIT = 64 * 1024


TargetValues: TypeAlias = Mapping[str, bytes]
"""Values from the target, by the names of a unit's inputs."""


class UnitOutputRef(msgspec.Struct, frozen=True):
    """An output of another unit of the run. The host knows where its value is stored."""

    unit: str
    output: str


Source = bytes | UnitOutputRef | None
"""The value, a reference to it, or None if the input is absent."""


class ForkAddressUnknownError(CannotRenderError):
    """The address of a fork that a unit reads is not known now, but may be known later."""


Forks: TypeAlias = Callable[[ForkValue], str]
"""Returns the current value from a fork of the run; raises `ForkAddressUnknownError`."""


def reads_forks(unit: Unit) -> bool:
    """Return whether any input of the unit is from a fork."""
    return any(item.fork is not None for item in unit.inputs)


class Inputs(msgspec.Struct, frozen=True):
    """The sources of a unit's inputs by name. `unfit` has a message for each input that counts as absent."""

    sources: Mapping[str, Source]
    unfit: Mapping[str, str] = {}

    @property
    def absent(self) -> list[str]:
        return [name for name, source in self.sources.items() if source is None]


def resolve(
    run: Run,
    unit: Unit,
    resource: str,
    *,
    must_run: bool,
    given: Mapping[str, bytes] = MappingProxyType({}),
    forks: Forks | None = None,
) -> Inputs:
    """Return the sources of a unit's inputs according to the ledger.

    With `must_run`, the unit must run whatever its inputs are. An output that is being produced counts as present.
    `given` has values from the target and secrets of the run, by input name. Without `forks`, inputs from forks are
    absent and not reported.

    Raises:
        ForkAddressUnknownError: The address of a fork is not known now, and the unit does not clean up.
        CannotRenderError: An input is unfit, and the unit does not clean up.
    """
    sources: dict[str, Source] = {}
    unfit: dict[str, str] = {}
    for item in unit.inputs:
        fault: CannotRenderError | None = None
        try:
            source, size, text = _source(run, item, resource, given, forks)
            fault = _fault(item, unit, size, text=text) if source is not None else None
        except ForkAddressUnknownError as untold:
            source, fault = None, untold
        if fault is not None and not must_run:
            raise fault
        if fault is not None:
            unfit[item.name] = str(fault)
        sources[item.name] = None if fault is not None else source
    return Inputs(sources, unfit)


def is_fit(run: Run, step: SealedStep) -> bool:
    """Return whether the step may start with its inputs."""
    try:
        resolve(run, step.unit, step.resource, must_run=not step.creates)
    except CannotRenderError:
        return False
    return True


def unfit_messages(plan: Plan, run: Run, forks: Forks | None = None) -> dict[str, str]:
    """Return messages, by unit, about unfit inputs that a closed run passes as absent.

    Inputs from forks are reported only until the unit has ended, because forks end before the run does.
    """
    if run.phase is Phase.OPEN:
        return {}
    found: dict[str, str] = {}
    for step in plan.steps.values():
        if step.creates or not (step.reads or reads_forks(step.unit)):
            continue
        ahead = run.has_started and run.unit(step.id).state is not State.DONE
        unfit = resolve(run, step.unit, step.resource, must_run=True, forks=forks if ahead else None).unfit
        if unfit:
            found[step.id] = "; ".join(f"{sentence}; it is passed as absent" for sentence in unfit.values())
    return found


def is_complete(plan: Plan, run: Run, resource: str) -> bool:
    """Return whether every create step of the resource has succeeded (`DAYFLY_OUTPUTS_COMPLETE`)."""
    # The last steps are the most likely to be missing.
    return all(
        run.unit(step.id).outcome == "succeeded"
        for step in reversed(plan.steps.values())
        if step.creates and step.resource == resource
    )


def _source(
    run: Run, item: UnitInput, resource: str, given: Mapping[str, bytes], forks: Forks | None
) -> tuple[Source, int, bool]:
    """Return the source of a value, its size, and whether it is text."""
    if item.from_ is None:
        value = None if item.value is None else item.value.encode()
        if item.target or item.comes_with_run:
            value = given.get(item.name)
        elif item.fork is not None:
            value = forks(item.fork).encode() if forks is not None else None
        return value, len(value or b""), b"\0" not in (value or b"")
    producer = unit_id(item.from_.resource or resource, item.from_.unit)
    record = run.unit(producer)
    reference = UnitOutputRef(producer, item.from_.output)
    known = record.outputs.get(item.from_.output)
    if record.state in ALIVE:
        return reference, 0, True
    return (reference, known.size, known.text) if known is not None else (None, 0, True)


def _fault(item: UnitInput, unit: Unit, size: int, *, text: bool) -> CannotRenderError | None:
    """Return why the destination of an input cannot contain the value. A file can contain every value."""
    if not item.as_.env and unit.fork is None:
        return None
    advice = "" if unit.fork is not None else ": let the step read it as a file (as: {path: ...})"
    if size > ENV_INPUT_LIMIT:
        return CannotRenderError(
            Reason.INPUT_TOO_LARGE,
            f"input {item.name} has {size} bytes; an environment variable may have at most {ENV_INPUT_LIMIT}{advice}",
        )
    if not text:
        return CannotRenderError(
            Reason.INPUT_NOT_TEXT,
            f"input {item.name} contains a zero byte, which environment variables cannot contain{advice}",
        )
    return None


def steps_with_target_inputs(plan: Plan, run: Run, *, closing: bool) -> list[SealedStep]:
    """Return the steps with inputs from the target that may still start: create steps, or delete steps if `closing`."""
    return [
        step
        for step in plan.steps.values()
        if step.creates is not closing
        and any(item.target for item in step.unit.inputs)
        and run.unit(step.id).state not in ALIVE
        and run.unit(step.id).outcome != "succeeded"
    ]


def target_values(step: SealedStep, found: Mapping[str, Any] | None) -> dict[str, bytes]:
    """Return the values for a step from the target object `found`; empty if it is gone."""
    values = {item.name: _find_in_target(item.target, found) for item in step.unit.inputs if item.target}
    return {name: as_bytes(some[0]) for name, some in values.items() if len(some) == 1 and some[0] is not None}


def missing_target_field(step: SealedStep, found: Mapping[str, Any] | None, kind: str) -> str:
    """Return why a create step must wait: the first input that the target lacks; empty if it has all."""
    for item in step.unit.inputs if step.creates else ():
        if item.target and len(some := [each for each in _find_in_target(item.target, found) if each is not None]) != 1:
            return messages.waits_for_field(item.target, kind, found=len(some))
    return ""


def _find_in_target(query: str, found: Mapping[str, Any] | None) -> list[Any]:
    return jsonpath.find(query, found) if found is not None else []
