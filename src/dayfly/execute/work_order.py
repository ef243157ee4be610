"""What every work order for the runner has in common, wherever the step runs. Pure."""

from collections.abc import Mapping
from typing import Protocol

from dayfly.spec.identity import nonce, resource_id
from dayfly.spec.lifecycle import Exec, Unit

UNIT_OUTPUT_LIMIT = 512 * 1024

Record = tuple[str, bytes]


class CannotRenderError(Exception):
    """The unit cannot be started with these values. `reason` is one word, the text one sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Program(Exec, frozen=True, kw_only=True):
    """A program of ours: how a unit of another kind is carried out. It stands in no document.

    Its words are taken as they are.
    """


def step_records(unit: Unit) -> list[Record]:
    """The unit's own part of an order: script or program, deadlines, outputs."""
    assert unit.exec is not None, "only exec units have a script"
    return [
        *_program(unit.exec),
        ("run-ms", b"%d" % unit.timeouts.run_ms),
        ("grace-ms", b"%d" % unit.timeouts.grace_ms),
        ("unit-limit", b"%d" % UNIT_OUTPUT_LIMIT),
        *(
            ("sensitive-output" if output.sensitive else "output", _path(f"{output.name}\0{output.path}"))
            for output in unit.outputs
        ),
    ]


def _program(work: Exec) -> list[Record]:
    if not work.command:
        return [("script", work.script.encode())]
    words = [("arg", _path(word)) for word in work.command]
    return words if isinstance(work, Program) else [*words, ("expand", b"1"), ("make-folders", b"1")]


def _path(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def identity_records(run: str, unit: str, number: int, start_before: int) -> list[Record]:
    """Which attempt this is, and until when (unix milliseconds, 0 for ever) it may start."""
    records = [("nonce", nonce(run, unit, number).encode()), ("attempt", b"%d" % number)]
    if start_before:
        records.append(("start-before-ms", b"%d" % start_before))
    return records


class StepAttempt(Protocol):
    """The part of an attempt that its built-in environment is made of. An absent input has the value None."""

    @property
    def run(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def complete(self) -> bool: ...
    @property
    def inputs(self) -> Mapping[str, object]: ...


def built_in(unit: Unit, attempt: StepAttempt) -> dict[str, str]:
    """Return the variables that Dayfly gives to each step. Inputs override them, and they override the pod template."""
    assert unit.exec is not None, "only exec units have an environment"
    return {
        **unit.exec.env,
        "DAYFLY_RESOURCE_ID": resource_id(attempt.run, attempt.resource),
        "DAYFLY_ATTEMPT": str(attempt.number),
        "DAYFLY_ATTEMPT_NONCE": nonce(attempt.run, attempt.unit, attempt.number),
        "DAYFLY_OUTPUTS_COMPLETE": "true" if attempt.complete else "false",
        "DAYFLY_ABSENT_INPUTS": ",".join(item.name for item in unit.inputs if attempt.inputs[item.name] is None),
    }


def env_record(name: str, value: bytes) -> Record:
    """One variable of the order's environment."""
    return "env", name.encode() + b"=" + value
