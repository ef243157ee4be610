"""What units tell, as it goes into the ledger: which of it is text, and how much of it a run may keep. Pure."""

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


def described(fact: F, values: Mapping[str, bytes]) -> F:
    """The end with what its values are told of them: a zero byte decides where each can be read later."""
    binary = [name for name in fact.result.outputs if b"\0" in values[name]]
    if not binary:
        return fact
    outputs = dict(fact.result.outputs)
    for name in binary:
        outputs[name] = msgspec.structs.replace(outputs[name], text=False)
    return type(fact)(result=msgspec.structs.replace(fact.result, outputs=outputs))


def within_limit(run: Run, facts: Mapping[AttemptKey, Fact], creates: Callable[[str], bool]) -> dict[AttemptKey, Fact]:
    """The same facts; but all outputs of a run together have a limit.

    Of a unit that creates a result beyond it is a failure. One that cleans up has done what counts, and would be tried
    again for ever: its outputs are not kept, and whoever reads them finds them absent.
    """
    found = dict(facts)
    if not any(isinstance(fact, (Ended, Sealed)) for fact in facts.values()):
        return found
    kept = sum(_size(record.outputs) for record in run.units.values())
    for (name, attempt), fact in facts.items():
        record = run.unit(name)
        if not isinstance(fact, (Ended, Sealed)) or attempt != record.attempt or record.state is State.DONE:
            continue
        told = fact.result.outputs
        # What a former attempt told is replaced: all of it by a success, by name after another failure.
        then = told if fact.result.outcome == "succeeded" else record.outputs | told
        total = kept - _size(record.outputs) + _size(then)
        if total > RUN_OUTPUT_LIMIT:
            judge = _too_large if creates(name) else _untold
            found[name, attempt] = type(fact)(result=judge(fact.result, total))
        else:
            kept = total
    return found


def foreseen(run: Run, facts: Mapping[AttemptKey, Fact]) -> Run:
    """The ledger as it will be once the ends among these facts are recorded: what is claimed then reads that."""
    ends = [
        Record(unit=name, attempt=attempt, result=fact.result)
        for (name, attempt), fact in facts.items()
        if isinstance(fact, (Ended, Sealed)) and _is_awaited(run, name, attempt)
    ]
    return transitions.apply(run, ends, lambda _: True) if ends else run


def _is_awaited(run: Run, name: str, attempt: int) -> bool:
    record = run.unit(name)
    return record.attempt == attempt and record.state in ALIVE


def _too_large(result: Result, total: int) -> Result:
    return msgspec.structs.replace(
        result, outcome="failed", reason=Reason.OUTPUT_TOO_LARGE, message=_beyond(result, total), outputs={}
    )


def _untold(result: Result, total: int) -> Result:
    said = f"{_beyond(result, total)}, so they are not kept"
    return msgspec.structs.replace(result, message=f"{result.message}; {said}" if result.message else said, outputs={})


def _beyond(result: Result, total: int) -> str:
    size = _size(result.outputs)
    return f"its {size} bytes of outputs would make {total} for the run; at most {RUN_OUTPUT_LIMIT} fit"


def _size(outputs: Mapping[str, OutputRecord]) -> int:
    return sum(output.size for output in outputs.values())
