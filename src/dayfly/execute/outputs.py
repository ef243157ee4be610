"""Outputs of units in the ledger: which are text, and the limit for a run. Pure."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from dayfly.plan import transitions
from dayfly.plan.actions import Record
from dayfly.plan.reasons import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, Sealed
from dayfly.spec.run import ALIVE, OutputRecord, Result, Run, State

RUN_OUTPUT_LIMIT = 1 << 20

F = TypeVar("F", bound=Ended | Sealed)


def mark_binary(fact: F, values: Mapping[str, bytes]) -> F:
    """Mark outputs with a zero byte as binary, because they cannot be passed in environment variables."""
    binary = [name for name in fact.result.outputs if b"\0" in values[name]]
    if not binary:
        return fact
    outputs = dict(fact.result.outputs)
    for name in binary:
        outputs[name] = msgspec.structs.replace(outputs[name], text=False)
    return type(fact)(result=msgspec.structs.replace(fact.result, outputs=outputs))


def enforce_limit(run: Run, facts: Mapping[AttemptKey, Fact], creates: Callable[[str], bool]) -> dict[AttemptKey, Fact]:
    """Return the facts with the size limit for all outputs of a run applied.

    A create step that exceeds the limit fails. A delete step has done its work and would be retried forever, so its
    outputs are discarded and count as absent.
    """
    found = dict(facts)
    if not any(isinstance(fact, (Ended, Sealed)) for fact in facts.values()):
        return found
    kept = sum(_size(record.outputs) for record in run.units.values())
    for (name, attempt), fact in facts.items():
        record = run.unit(name)
        if not isinstance(fact, (Ended, Sealed)) or attempt != record.attempt or record.state is State.DONE:
            continue
        outputs = fact.result.outputs
        # A success replaces all outputs of an earlier attempt; a failure replaces only those with the same name.
        after = outputs if fact.result.outcome == "succeeded" else record.outputs | outputs
        total = kept - _size(record.outputs) + _size(after)
        if total > RUN_OUTPUT_LIMIT:
            limit = _fail if creates(name) else _discard
            found[name, attempt] = type(fact)(result=limit(fact.result, total))
        else:
            kept = total
    return found


def apply_ends(run: Run, facts: Mapping[AttemptKey, Fact]) -> Run:
    """Return the ledger with the ends among these facts recorded, for units that will be claimed in the same turn."""
    ends = [
        Record(unit=name, attempt=attempt, result=fact.result)
        for (name, attempt), fact in facts.items()
        if isinstance(fact, (Ended, Sealed)) and _is_awaited(run, name, attempt)
    ]
    return transitions.apply(run, ends, lambda _: True) if ends else run


def _is_awaited(run: Run, name: str, attempt: int) -> bool:
    record = run.unit(name)
    return record.attempt == attempt and record.state in ALIVE


def _fail(result: Result, total: int) -> Result:
    return msgspec.structs.replace(
        result, outcome="failed", reason=Reason.OUTPUT_TOO_LARGE, message=_limit_message(result, total), outputs={}
    )


def _discard(result: Result, total: int) -> Result:
    message = f"{_limit_message(result, total)}, so they are discarded"
    message = f"{result.message}; {message}" if result.message else message
    return msgspec.structs.replace(result, message=message, outputs={})


def _limit_message(result: Result, total: int) -> str:
    size = _size(result.outputs)
    return f"with its {size} bytes of outputs the run would have {total}; at most {RUN_OUTPUT_LIMIT} are allowed"


def _size(outputs: Mapping[str, OutputRecord]) -> int:
    return sum(output.size for output in outputs.values())
