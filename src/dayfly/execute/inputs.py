"""What a unit reads: one resolver and one policy, the same on every host. Pure.

Each input is present, absent, or unfit: its place cannot hold it (a variable holds no zero byte, and no more than 64
KiB). The ledger tells as much of each output, so this is known before any value is read. A unit that creates never runs
with an input that is unfit, and is owed no cleanup then. One that cleans up must run: what is unfit counts as absent
there, is named in `DAYFLY_ABSENT_INPUTS`, and is said.

What a fork tells of itself its host knows, and now: a unit that creates waits until there is something to tell, and for
one that cleans up it is absent until then.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from dayfly.execute.work_order import CannotRenderError
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, SealedStep
from dayfly.spec.lifecycle import ForkValue, Unit, UnitInput, unit_id
from dayfly.spec.run import ALIVE, Phase, Run, State

ENV_INPUT_LIMIT = 64 * 1024


class UnitOutputRef(msgspec.Struct, frozen=True):
    """An output of another unit of the run; who it is that knows where its bytes lie depends on the host."""

    unit: str
    output: str


Source = bytes | UnitOutputRef | None
"""The value itself, who tells it, or (None) nothing: it is absent."""


class UntoldError(CannotRenderError):
    """A fork cannot tell, at this moment, what a unit reads of it. That may pass."""


Forks: TypeAlias = Callable[[ForkValue], str]
"""What a fork of the run tells at this moment; raises `UntoldError`."""


def reads_forks(unit: Unit) -> bool:
    """Whether a fork tells any of the unit's inputs."""
    return any(item.fork is not None for item in unit.inputs)


class Inputs(msgspec.Struct, frozen=True):
    """What a unit reads, by the names of its inputs; `unfit` has a sentence for each that was made absent."""

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
    cleans: bool,
    given: Mapping[str, bytes] = MappingProxyType({}),
    forks: Forks | None = None,
) -> Inputs:
    """Where the values of a unit's inputs are, by what the ledger knows of them.

    `cleans` says that it must run whatever it reads. An output that is still being made counts as present. `given` are
    the values that its target has for it and the secrets that came with the run, by the inputs' names. Without `forks`
    nothing is known, and nothing said, of what forks tell.

    Raises:
        UntoldError: a fork cannot tell now what the unit reads of it, and the unit does not clean up.
        CannotRenderError: an input is unfit, and the unit does not clean up.
    """
    sources: dict[str, Source] = {}
    unfit: dict[str, str] = {}
    for item in unit.inputs:
        fault: CannotRenderError | None = None
        try:
            source, size, text = _source(run, item, resource, given, forks)
            fault = _fault(item, unit, size, text=text) if source is not None else None
        except UntoldError as untold:
            source, fault = None, untold
        if fault is not None and not cleans:
            raise fault
        if fault is not None:
            unfit[item.name] = str(fault)
        sources[item.name] = None if fault is not None else source
    return Inputs(sources, unfit)


def is_fit(run: Run, step: SealedStep) -> bool:
    """Whether the step may be started with what it reads."""
    try:
        resolve(run, step.unit, step.resource, cleans=not step.creates)
    except CannotRenderError:
        return False
    return True


def remarks(plan: Plan, run: Run, forks: Forks | None = None) -> dict[str, str]:
    """What is to be said, by unit, of inputs that a closed run hands over as absent.

    Of forks it is said only until a unit has ended that reads of them: they go before the run is over.
    """
    if run.phase is Phase.OPEN:
        return {}
    found: dict[str, str] = {}
    for step in plan.steps.values():
        if step.creates or not (step.reads or reads_forks(step.unit)):
            continue
        ahead = run.has_started and run.unit(step.id).state is not State.DONE
        unfit = resolve(run, step.unit, step.resource, cleans=True, forks=forks if ahead else None).unfit
        if unfit:
            found[step.id] = "; ".join(f"{sentence}; it is passed as absent" for sentence in unfit.values())
    return found


def is_complete(plan: Plan, run: Run, resource: str) -> bool:
    """Whether every unit that creates the resource has succeeded (`DAYFLY_OUTPUTS_COMPLETE`)."""
    # The last are the likeliest to be missing.
    return all(
        run.unit(step.id).outcome == "succeeded"
        for step in reversed(plan.steps.values())
        if step.creates and step.resource == resource
    )


def _source(
    run: Run, item: UnitInput, resource: str, given: Mapping[str, bytes], forks: Forks | None
) -> tuple[Source, int, bool]:
    """Where one value is, its size, and whether it is text."""
    if item.from_ is None:
        value = None if item.value is None else item.value.encode()
        if item.target or item.comes_with_run:
            value = given.get(item.name)
        elif item.fork is not None:
            value = forks(item.fork).encode() if forks is not None else None
        return value, len(value or b""), b"\0" not in (value or b"")
    producer = unit_id(item.from_.resource or resource, item.from_.unit)
    record = run.unit(producer)
    told = UnitOutputRef(producer, item.from_.output)
    known = record.outputs.get(item.from_.output)
    if record.state in ALIVE:
        return told, 0, True
    return (told, known.size, known.text) if known is not None else (None, 0, True)


def _fault(item: UnitInput, unit: Unit, size: int, *, text: bool) -> CannotRenderError | None:
    """Why the input's place cannot hold it; a file holds everything."""
    if not item.as_.env and unit.fork is None:
        return None
    advice = "" if unit.fork is not None else ": let the step read it as a file (as: {path: ...})"
    if size > ENV_INPUT_LIMIT:
        return CannotRenderError(
            Reason.INPUT_TOO_LARGE,
            f"input {item.name} has {size} bytes; an environment variable takes at most {ENV_INPUT_LIMIT}{advice}",
        )
    if not text:
        return CannotRenderError(
            Reason.INPUT_NOT_TEXT,
            f"input {item.name} contains a zero byte, which no environment variable can hold{advice}",
        )
    return None
