"""The meaning of a runner's receipt, the same for processes and pods. Pure."""

import signal
from collections.abc import Iterable

from dayfly.execute.webhook.read import UNSENT, explain_exit_code
from dayfly.execute.work_order import UNIT_OUTPUT_LIMIT
from dayfly.plan.messages import format_duration, killed_processes, out_of_memory, run_deadline
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, NeverRan
from dayfly.spec.errors import SpecError
from dayfly.spec.frames import FrameError, decode
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import OutputRecord, Result
from dayfly.spec.scalars import names
from dayfly.spec.scalars.numbers import MAX_INTEGER, parse_whole


def read_receipt(data: bytes, *, nonce: str, unit: Unit) -> Ended | NeverRan:
    """Return the fact that a sealed receipt proves. If it is damaged or of another attempt, the result is lost."""
    try:
        records = decode("dayfly-receipt", data)
    except FrameError as error:
        return lost_receipt(f"its receipt is damaged: {error}")
    return read_records(records, nonce=nonce, unit=unit)


def read_records(records: Iterable[tuple[str, bytes]], *, nonce: str, unit: Unit) -> Ended | NeverRan:
    """Return the fact that the records of a complete receipt prove.

    A step knows its nonce, so it can forge a receipt and have the runner killed. The records can contain anything.
    """
    try:
        return _read(list(records), nonce=nonce, unit=unit)
    except (ValueError, SpecError):
        return lost_receipt("its receipt is damaged")


def _read(records: list[tuple[str, bytes]], *, nonce: str, unit: Unit) -> Ended | NeverRan:
    fields = {key: value.decode(errors="replace") for key, value in records}
    if fields.get("nonce") != nonce:
        return lost_receipt("its receipt belongs to another attempt")
    detail = fields.get("detail", "").removesuffix(".")  # it becomes a part of a sentence
    outcome = fields.get("outcome", "")
    if outcome == "void":
        return NeverRan(reason=Reason.NEVER_RAN, message=detail or "it was fenced before it started")
    if outcome == "refused":
        return NeverRan(reason=Reason.CANNOT_PREPARE, message=detail)
    if outcome == "not-executable":
        return NeverRan(reason=Reason.NOT_EXECUTABLE, message=detail)
    states = [value.decode(errors="replace").split("\0") for key, value in records if key == "output"]
    code = _number(fields.get("code"))
    reason, message = _reason(outcome, code, detail, unit)
    if outcome == "exited" and unit.kind == Kind.WEBHOOK and reason in UNSENT:
        return NeverRan(reason=reason, message=message)
    if not reason:
        reason, message = _output_fault(states, unit)
    if reason and reason != Reason.CANCELLED and (kills := _number(fields.get("oom-kills"))):
        limit = format_quantity(_number(fields.get("memory-limit")))
        reason, message = _explain_oom_kill(reason, message, code, kills, limit)
    return Ended(
        result=Result(
            outcome="failed" if reason else "succeeded",
            reason=reason,
            message=message,
            started_at=_number(fields.get("started-ms")),
            ended_at=_number(fields.get("ended-ms")),
            outputs=_present_outputs(states, unit),
        )
    )


def contents(records: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Return the outputs in the records by name. Malformed records are ignored."""
    parts = (value.partition(b"\0") for key, value in records if key == "content")
    return {name.decode(errors="replace"): value for name, end, value in parts if end}


def lost_receipt(message: str, *, started_at: int = 0, ended_at: int = 0) -> Ended:
    """Return the fact of an attempt whose processes have ended without a receipt."""
    return Ended(
        result=Result(
            outcome="failed", reason=Reason.RESULT_LOST, message=message, started_at=started_at, ended_at=ended_at
        )
    )


def _number(text: str | None) -> int:
    """Parse a number of the runner, within the range of ledgers; 0 for None.

    Raises:
        ValueError: The text is not such a number.
    """
    number = parse_whole(text or "0", MAX_INTEGER)
    if number is None:
        raise ValueError(text)
    return number


def _reason(outcome: str, code: int, detail: str, unit: Unit) -> tuple[str, str]:
    match outcome:
        case "exited" if code == 0:
            return "", ""
        case "exited" if unit.kind == Kind.WEBHOOK:
            return explain_exit_code(code, unit)
        case "exited":
            return Reason.EXIT_CODE, f"exit code {code}"
        case "signaled":
            return Reason.SIGNAL, f"killed by signal {code} ({_signal(code)})"
        case "deadline":
            return Reason.RUN_DEADLINE, run_deadline(unit.timeouts.run_ms)
        case "cancelled":
            return Reason.CANCELLED, f"was cancelled, with a grace period of {format_duration(unit.timeouts.grace_ms)}"
        case _:
            return Reason.RESULT_LOST, detail or f"its receipt has the unknown outcome {outcome!r}"


def _explain_oom_kill(reason: str, message: str, code: int, kills: int, limit: str) -> tuple[str, str]:
    """Return reason and message of a failed step in which the kernel killed a process because of memory.

    This is the reason if the script itself was killed, or ended with the exit code of a shell whose child was killed.
    Otherwise the script continued after it, and its own failure comes first in the message.
    """
    if reason == Reason.SIGNAL and code == signal.SIGKILL:
        return Reason.OOM_KILLED, out_of_memory(message, limit)
    within = killed_processes(kills)
    if reason == Reason.EXIT_CODE and code == 128 + signal.SIGKILL:
        return Reason.OOM_KILLED, out_of_memory(f"{within}; {message}", limit)
    return reason, f"{message}; it {out_of_memory(within, limit)}"


def format_quantity(size: int) -> str:
    """Return bytes as a Kubernetes quantity: `24Mi`; empty for 0."""
    for power, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size or "")


def _signal(code: int) -> str:
    try:
        return signal.Signals(code).name
    except ValueError:
        return "unknown"


_FAULTS = {
    "missing": (Reason.OUTPUT_MISSING, "output {name} was not written: the step succeeded but left no file {path}"),
    "too-large": (
        Reason.OUTPUT_TOO_LARGE,
        f"output {{name}} has {{size}} bytes; all outputs of a step together may have at most {UNIT_OUTPUT_LIMIT}",
    ),
    "refused": (Reason.OUTPUT_REFUSED, "output {name} is not a plain file (links, pipes and devices are not read)"),
}


def _output_fault(states: list[list[str]], unit: Unit) -> tuple[str, str]:
    """Return reason and message if a declared output of a successful step is missing or invalid."""
    found = {name: (state, size) for name, state, size, _ in states}
    for output in unit.outputs:
        state, size = found.get(output.name, ("missing", "0"))
        if state in _FAULTS:
            reason, sentence = _FAULTS[state]
            return reason, sentence.format(name=output.name, path=output.path, size=size)
    return "", ""


def _present_outputs(states: list[list[str]], unit: Unit) -> dict[str, OutputRecord]:
    sensitive = {output.name for output in unit.outputs if output.sensitive}
    for name, *_ in states:
        names.check("output", name)
    return {
        name: OutputRecord(digest=f"sha256:{digest}", size=_number(size), sensitive=name in sensitive)
        for name, state, size, digest in states
        if state == "present"
    }
