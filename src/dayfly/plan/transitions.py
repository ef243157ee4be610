"""The ledger's legal moves as a table, and how each changes the record. The diagram in the docs is generated from it.

A ledger applies moves only through `apply`. A move that is not in the table is a bug in Dayfly, never a user's error.
It raises `IllegalMoveError` before anything is written.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dayfly.plan.actions import (
    Bind,
    Claim,
    Close,
    Doubt,
    Finish,
    GiveUp,
    Join,
    Leave,
    Move,
    Record,
    Started,
    Stopped,
    Void,
)
from dayfly.plan.retry import ran_long
from dayfly.spec.lifecycle import Kind
from dayfly.spec.run import OutputRecord, Phase, Run, State, UnitRecord


class IllegalMoveError(AssertionError):
    """A move that is not in the table."""


# (from state, move) -> to state. `none < claimed < unknown < {done, void}`; another claim begins a new attempt.
UNIT_MOVES: Final[dict[tuple[State, type[Move]], State]] = {
    (State.NONE, Claim): State.CLAIMED,
    (State.VOID, Claim): State.CLAIMED,  # it never ran, so the next attempt is its first
    # Only after a failure, as `plan.retry` decides, or by a stand-in for another pool member.
    (State.DONE, Claim): State.CLAIMED,
    (State.CLAIMED, Bind): State.CLAIMED,  # once, if the claim named no object
    (State.UNKNOWN, Bind): State.UNKNOWN,
    (State.CLAIMED, Doubt): State.UNKNOWN,
    (State.CLAIMED, Record): State.DONE,
    (State.UNKNOWN, Record): State.DONE,  # a late receipt, the end of its processes, or its own deadline
    (State.CLAIMED, Void): State.VOID,
    (State.UNKNOWN, Void): State.VOID,
}

# (from phase, move) -> to phase
RUN_MOVES: Final[dict[tuple[Phase, type[Move]], Phase]] = {
    (Phase.OPEN, Close): Phase.CLOSED,  # not with holders, except for a parent that has failed
    (Phase.OPEN, Started): Phase.OPEN,
    (Phase.OPEN, Join): Phase.OPEN,  # a pool member accepts one holder in its life
    (Phase.OPEN, Leave): Phase.OPEN,  # closed, for a pool member
    (Phase.CLOSED, Started): Phase.CLOSED,  # observed late; not after it has stopped
    (Phase.CLOSED, Stopped): Phase.CLOSED,
    (Phase.CLOSED, GiveUp): Phase.CLOSED,
    (Phase.CLOSED, Leave): Phase.CLOSED,  # a holder of a parent that has failed
    (Phase.CLOSED, Finish): Phase.CLEANED,  # or abandoned, if that was requested
}


def apply(run: Run, moves: Iterable[Move], creates: Callable[[str], bool]) -> Run:
    """Return the run after the moves, with `seq` increased by one.

    Args:
        run: The ledger before the moves.
        moves: The moves, in order.
        creates: Whether a unit may not be claimed in a closed run.

    Raises:
        IllegalMoveError: For the first move that is not allowed. Nothing is changed then.
    """
    units = dict(run.units)
    changes: dict[str, object] = {}
    phase = run.phase
    for move in moves:
        if isinstance(move, _RUN_MOVE_TYPES):
            phase = _next_phase(phase, move)
            changes |= _run_changes(msgspec.structs.replace(run, **{"units": units, **changes}), move, creates)
            if changes.get("phase") is not None:
                phase = Phase(str(changes["phase"]))
            continue
        before = units.get(move.unit, UnitRecord())
        if isinstance(move, Claim) and phase is not Phase.OPEN and creates(move.unit):
            raise IllegalMoveError(f"{move.unit}: claim in a run that is {phase}")
        if phase in (Phase.CLEANED, Phase.ABANDONED):
            raise IllegalMoveError(f"{move.unit}: {type(move).__name__} in a run that is {phase}")
        units[move.unit] = _next_record(before, move)
    return msgspec.structs.replace(run, **{"units": units, "phase": phase, **changes, "seq": run.seq + 1})


_RUN_MOVE_TYPES = (Close, Started, Stopped, Join, Leave, GiveUp, Finish)


def _next_phase(phase: Phase, move: Move) -> Phase:
    try:
        return RUN_MOVES[phase, type(move)]
    except KeyError:
        raise IllegalMoveError(f"{type(move).__name__} in a run that is {phase}") from None


def _run_changes(
    run: Run, move: Close | Started | Stopped | Join | Leave | GiveUp | Finish, creates: Callable[[str], bool]
) -> dict[str, object]:
    match move:
        case Started(at=at):
            if run.started_at or run.stopped_at:
                raise IllegalMoveError("Started in a run whose target has started, or stopped for good")
            return {"started_at": at}
        case Stopped(at=at):
            if run.stopped_at:
                raise IllegalMoveError("Stopped in a run whose target has stopped")
            return {"stopped_at": at}
        case Close(request=request):
            if run.holders and not (run.is_parent and _has_failed(run, creates)):
                raise IllegalMoveError(f"Close of a run with {len(run.holders)} holders")
            return {"closed": request}
        case Join() | Leave():
            return _holder_changes(run, move)
        case GiveUp(request=request):
            return {"abandon": request}
        case Finish(at=at):
            return {"ended_at": at, "phase": Phase.ABANDONED if run.abandon is not None else Phase.CLEANED}


def _has_failed(run: Run, creates: Callable[[str], bool]) -> bool:
    """Return whether a create unit has failed, so that no other run can use its outputs."""
    return any(record.outcome == "failed" and creates(name) for name, record in run.units.items())


def _holder_changes(run: Run, move: Join | Leave) -> dict[str, object]:
    key = move.holder.key if isinstance(move, Join) else move.holder
    others = tuple(each for each in run.holders if each.key != key)
    is_holder = len(others) < len(run.holders)
    if isinstance(move, Join):
        if is_holder or (run.is_member and run.joins):
            raise IllegalMoveError(f"Join of {key} in a run that has had {run.joins} holders")
        return {"holders": (*run.holders, move.holder), "joins": run.joins + 1, "idle_since": 0}
    if not is_holder:
        raise IllegalMoveError(f"Leave of {key}, which is not a holder")
    if run.is_member:
        return {"holders": others, "phase": Phase.CLOSED, "closed": move.request}
    return {"holders": others, "idle_since": 0 if others else move.request.at}


def _next_record(before: UnitRecord, move: Claim | Bind | Doubt | Record | Void) -> UnitRecord:
    state = UNIT_MOVES.get((before.state, type(move)))
    if state is None:
        raise IllegalMoveError(f"{move.unit}: {type(move).__name__} of a unit that is {before.state}")
    if isinstance(move, Claim):
        return _claimed(before, move, state)
    if move.attempt != before.attempt:
        raise IllegalMoveError(
            f"{move.unit}: {type(move).__name__} of attempt {move.attempt}, the ledger is at {before.attempt}"
        )
    match move:
        case Bind():
            if before.ref or not move.ref:
                raise IllegalMoveError(f"{move.unit}: Bind of an attempt that is bound to {before.ref or 'nothing'}")
            return msgspec.structs.replace(before, ref=move.ref)
        case Doubt():
            return msgspec.structs.replace(before, state=state, reason=move.reason, message=move.message)
        case Record(result=result):
            return msgspec.structs.replace(
                before,
                state=state,
                outcome=result.outcome,
                reason=result.reason,
                message=result.message,
                started_at=result.started_at,
                ended_at=result.ended_at,
                outputs=_outputs_after(before, move),
                failures=before.failures + (result.outcome == "failed"),
            )
        case Void():
            return msgspec.structs.replace(
                before, state=state, reason=move.reason, message=move.message, ended_at=move.at, voids=before.voids + 1
            )


def _outputs_after(before: UnitRecord, move: Record) -> dict[str, OutputRecord]:
    """Return the unit's known outputs after the record.

    A success has all outputs. After a failure, cleanup needs the outputs of every attempt.
    """
    known = before.outputs if move.result.outcome == "failed" else {}
    told = {name: msgspec.structs.replace(each, attempt=move.attempt) for name, each in move.result.outputs.items()}
    return known | told


def _claimed(before: UnitRecord, move: Claim, state: State) -> UnitRecord:
    if move.attempt != before.attempt + 1:
        raise IllegalMoveError(f"{move.unit}: claim of attempt {move.attempt} after {before.attempt}")
    repeats = bool(move.generation) or (move.kind == Kind.ACQUIRE and move.ref not in ("", before.ref))
    if before.state is State.DONE and before.outcome == "succeeded" and not repeats:
        raise IllegalMoveError(f"{move.unit}: claim after success")
    starts_over = bool(move.generation) and ran_long(before)
    return UnitRecord(
        attempt=move.attempt,
        state=state,
        kind=move.kind,
        ref=move.ref,
        definition=move.definition,
        generation=move.generation,
        after=move.after,
        claimed_at=move.at,
        failures=0 if starts_over else before.failures,
        voids=0 if starts_over else before.voids,
        # The outputs of the former attempt stay until this attempt's are recorded. Cleanup needs them if it never runs.
        outputs=before.outputs,
    )
