"""Changes of the stored record of a leak check during a sweep.

A deletion is in the record before its run is created: the write that names the run adds it. So the record keeps a
deletion whose operator stops or whose result is lost.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import msgspec

from dayfly.plan.leaks.sweep import LeakState, begin_sweep, count_changed, record_deletions
from dayfly.spec.leak_report import LeakDeletion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.operator.leaks.check_store import CheckRecord, Sweep

# As many as a plan may have: the server reads them once a minute.
KEPT_DELETIONS: Final = 1_000
# A record has the errors of up to 1,000 deletions.
MAX_ERROR_BYTES: Final = 200
CHANGED: Final = "the check or the run of the resource has changed, or another check deletes it"
_CHANGED_DURING_DELETION: Final = (
    "the check was changed during its deletion, which may have run: see status.deletions and the next list"
)


def begin_deletion(
    record: CheckRecord, sweep: Sweep, waiting: Mapping[str, str], now: int, least: int = 0
) -> CheckRecord:
    """Return the record with the deletion of the first waiting resource, which has a new run.

    Its sequence is at least `least`.
    """
    id_, plugin = next(iter(waiting.items()))
    # At least the time: a record that was lost would begin with the sequences of earlier deletions.
    sequence = max(now, least, record.deletions[-1].sequence + 1 if record.deletions else 0)
    deletion = LeakDeletion(sequence=sequence, id=id_, plugin=plugin, plan=sweep.plan, at=now)
    return msgspec.structs.replace(
        record,
        deletions=(*record.deletions, deletion)[-KEPT_DELETIONS:],
        sweep=msgspec.structs.replace(sweep, is_listing=False, waiting=dict(waiting), run=uuid.uuid4().hex),
    )


def end_deletion(record: CheckRecord, sweep: Sweep, error: str, now: int, least: int = 0) -> CheckRecord:
    """Return the record with the result of the current deletion; begin the next one, or end the sweep.

    The sequence of the next one is at least `least`.
    """
    (id_, _), *rest = sweep.waiting.items()
    if error:
        sweep = msgspec.structs.replace(sweep, errors={**sweep.errors, id_: limit_text(error, MAX_ERROR_BYTES)})
    else:
        sweep = msgspec.structs.replace(sweep, deleted=(*sweep.deleted, id_))
        record = msgspec.structs.replace(record, deletions=_with_success(record.deletions, id_))
    if rest:
        return begin_deletion(record, sweep, dict(rest), now, least)
    state = record_deletions(record.state, sweep.deleted, sweep.errors)
    return msgspec.structs.replace(record, state=state, sweep=None)


def abort_sweep(record: CheckRecord, sweep: Sweep) -> CheckRecord:
    """Return the record after a sweep that a change of the check has ended. Deletions so far are in the state."""
    before = record.state
    if sweep.is_listing:
        after = begin_sweep(before, sweep.began_at, "", sweep.plan)
        return msgspec.structs.replace(record, state=count_changed(before, after), sweep=None)
    current, *rest = sweep.waiting
    errors = {**sweep.errors, current: _CHANGED_DURING_DELETION, **dict.fromkeys(rest, CHANGED)}
    state = record_deletions(before, sweep.deleted, errors)
    if sweep.plan:
        state = msgspec.structs.replace(
            state, applied="the check was changed during the deletion; make a new plan", applied_plan=sweep.plan
        )
    return msgspec.structs.replace(record, state=state, sweep=None)


def without_other_lists(record: CheckRecord, inventory: str) -> CheckRecord:
    """Return the record without its lists if another document lists now: they prove nothing then."""
    if record.inventory == inventory:
        return record
    state = LeakState(number=record.state.number, left=record.state.left)
    return msgspec.structs.replace(record, state=state, hidden={}, inventory=inventory)


def limit_text(error: str, limit: int) -> str:
    """Return an error as it is stored: a script may have chosen its text."""
    return error.encode()[:limit].decode(errors="ignore")


def _with_success(deletions: tuple[LeakDeletion, ...], id_: str) -> tuple[LeakDeletion, ...]:
    """Return the deletions after the latest one, of this resource, has succeeded."""
    if not deletions or deletions[-1].id != id_:
        return deletions
    return (*deletions[:-1], msgspec.structs.replace(deletions[-1], done=True))
