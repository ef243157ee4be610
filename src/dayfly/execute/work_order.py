"""The parts of the runner's work order that are the same on every host. Pure."""

from collections.abc import Mapping
from typing import Protocol

from dayfly.spec.identity import nonce, resource_id
from dayfly.spec.lifecycle import Exec, Unit

UNIT_OUTPUT_LIMIT = 512 * 1024

Record = tuple[str, bytes]


class CannotRenderError(Exception):
    """The unit cannot start with these values. `reason` is a `Reason`, and the text is a message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Program(Exec, frozen=True, kw_only=True):
    """A program of Dayfly that executes a unit of another kind. It is never part of a document.

    Variables in its arguments are not expanded.
    """


def step_records(unit: Unit) -> list[Record]:
    """Return the records of the unit: script or program, deadlines, outputs."""
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
    """Return the records of the attempt and its latest start in unix milliseconds, where 0 means no limit."""
    records = [("nonce", nonce(run, unit, number).encode()), ("attempt", b"%d" % number)]
    if start_before:
        records.append(("start-before-ms", b"%d" % start_before))
    return records


class StepAttempt(Protocol):
    """The fields of an attempt that determine its built-in environment. An absent input has the value None.

    `resource_id` is None unless the resource has another ID than that of its run: the ID of the pool member that
    provides it, or the ID that its document has. `resource_token` is empty on hosts that have no key.
    """

    @property
    def run(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def resource_id(self) -> str | None: ...
    @property
    def resource_token(self) -> str: ...
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
    given = attempt.resource_id
    return {
        **unit.exec.env,
        "DAYFLY_RESOURCE_ID": resource_id(attempt.run, attempt.resource) if given is None else given,
        **({"DAYFLY_RESOURCE_TOKEN": attempt.resource_token} if attempt.resource_token else {}),
        "DAYFLY_ATTEMPT": str(attempt.number),
        "DAYFLY_ATTEMPT_NONCE": nonce(attempt.run, attempt.unit, attempt.number),
        "DAYFLY_OUTPUTS_COMPLETE": "true" if attempt.complete else "false",
        "DAYFLY_ABSENT_INPUTS": ",".join(item.name for item in unit.inputs if attempt.inputs[item.name] is None),
    }


def env_record(name: str, value: bytes) -> Record:
    """Return the record of an environment variable."""
    return "env", name.encode() + b"=" + value
