"""Which moves the ledger allows, as data, and how each changes the record. The docs' diagram is drawn from here.

A ledger applies moves only through `apply`; a move that the table does not hold is our own mistake, never a user's, and
raises `IllegalMoveError` before anything is written.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dayfly.plan.actions import Bind, Claim, Close, Doubt, Finish, GiveUp, Move, Record, Started, Stopped, Void
from dayfly.spec.run import OutputRecord, Phase, Run, State, UnitRecord


class IllegalMoveError(AssertionError):
    """A move that the table does not hold."""


# from state, by move -> to state. `none < claimed < unknown < {done, void}`; a further claim begins a new attempt.
UNIT_MOVES: Final[dict[tuple[State, type[Move]], State]] = {
    (State.NONE, Claim): State.CLAIMED,
    (State.VOID, Claim): State.CLAIMED,  # it never ran: trying again is the first try
    (State.DONE, Claim): State.CLAIMED,  # only after a failure; whether it may is plan.retry's question
    (State.CLAIMED, Bind): State.CLAIMED,  # once, where the claim named nothing yet
    (State.UNKNOWN, Bind): State.UNKNOWN,
    (State.CLAIMED, Doubt): State.UNKNOWN,
    (State.CLAIMED, Record): State.DONE,
    (State.UNKNOWN, Record): State.DONE,  # a late receipt, the end of its processes, or its own deadline
    (State.CLAIMED, Void): State.VOID,
    (State.UNKNOWN, Void): State.VOID,
}

# from phase, by move -> to phase
RUN_MOVES: Final[dict[tuple[Phase, type[Move]], Phase]] = {
    (Phase.OPEN, Close): Phase.CLOSED,
    (Phase.OPEN, Started): Phase.OPEN,
    (Phase.CLOSED, Started): Phase.CLOSED,  # it was seen late; not once it has stopped
    (Phase.CLOSED, Stopped): Phase.CLOSED,
    (Phase.CLOSED, GiveUp): Phase.CLOSED,
    (Phase.CLOSED, Finish): Phase.CLEANED,  # or abandoned, where that was asked for
}


def apply(run: Run, moves: Iterable[Move], creates: Callable[[str], bool]) -> Run:
    """The run after the moves, with `seq` one higher. `creates(unit)` tells units that no closed run may claim.

    Raises:
        IllegalMoveError: the first move that is not allowed; nothing is changed.
    """
    units = dict(run.units)
    changes: dict[str, object] = {}
    phase = run.phase
    for move in moves:
        if isinstance(move, _OF_RUN):
            phase = _next_phase(phase, move)
            changes |= _run_changes(msgspec.structs.replace(run, **changes), move)
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


_OF_RUN = (Close, Started, Stopped, GiveUp, Finish)


def _next_phase(phase: Phase, move: Move) -> Phase:
    try:
        return RUN_MOVES[phase, type(move)]
    except KeyError:
        raise IllegalMoveError(f"{type(move).__name__} in a run that is {phase}") from None


def _run_changes(run: Run, move: Close | Started | Stopped | GiveUp | Finish) -> dict[str, object]:
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
            return {"closed": request}
        case GiveUp(request=request):
            return {"abandon": request}
        case Finish(at=at):
            return {"ended_at": at, "phase": Phase.ABANDONED if run.abandon is not None else Phase.CLEANED}


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
                outputs=_told(before, move),
                failures=before.failures + (result.outcome == "failed"),
            )
        case Void():
            return msgspec.structs.replace(
                before, state=state, reason=move.reason, message=move.message, ended_at=move.at, voids=before.voids + 1
            )


def _told(before: UnitRecord, move: Record) -> dict[str, OutputRecord]:
    """What is known of the unit's outputs now. A success tells all; after a failure cleanup needs what any try told."""
    known = before.outputs if move.result.outcome == "failed" else {}
    told = {name: msgspec.structs.replace(each, attempt=move.attempt) for name, each in move.result.outputs.items()}
    return known | told


def _claimed(before: UnitRecord, move: Claim, state: State) -> UnitRecord:
    if move.attempt != before.attempt + 1:
        raise IllegalMoveError(f"{move.unit}: claim of attempt {move.attempt} after {before.attempt}")
    if before.state is State.DONE and before.outcome == "succeeded" and not move.generation:
        raise IllegalMoveError(f"{move.unit}: claim after success")
    return UnitRecord(
        attempt=move.attempt,
        state=state,
        kind=move.kind,
        ref=move.ref,
        definition=move.definition,
        generation=move.generation,
        after=move.after,
        claimed_at=move.at,
        failures=before.failures,
        voids=before.voids,
        # Until this attempt's own are recorded, what the former one told stays known: if this one never runs, cleanup
        # needs it.
        outputs=before.outputs,
    )
