"""Entries of holders in the ledger of a pool member: whether the holder's own ledger confirms them.

A holder joins a member first, and its own ledger claims the member after that. A host that is interrupted between the
two writes leaves an entry that no ledger confirms. Such an entry is dropped only if the holder can no longer claim the
member.
"""

import enum

from dayfly.spec.lifecycle import Kind
from dayfly.spec.run import Holder, Phase, Run


class Entry(enum.Enum):
    """The state of a holder's entry in a member's ledger."""

    CONFIRMED = "confirmed"  # the holder's ledger claims this member
    PENDING = "pending"  # the holder may still claim it
    OBSOLETE = "obsolete"  # the holder never claimed it, and cannot


def acquired_ref(run: Run, resource: str) -> str:
    """Return the UID of the member that a run's ledger claims for a resource; empty if it claims none."""
    prefix = f"{resource}/"
    refs = (
        record.ref
        for name, record in run.units.items()
        if record.kind == Kind.ACQUIRE and record.ref and name.startswith(prefix)
    )
    return next(refs, "")


def entry_state(member: str, entry: Holder, holder: Run | None, *, target_exists: bool) -> Entry:
    """Return the state of an entry, from quorum reads of the holder.

    Args:
        member: The UID of the member.
        entry: The entry in its ledger.
        holder: The holder's run; None if there is none.
        target_exists: Whether the holder's target exists, read after its run was found missing. A target without a run
            has lost its ledger, and keeps its member. If the target is missing, too, the run must be read again.
    """
    if holder is None:
        return Entry.PENDING if target_exists else Entry.OBSOLETE
    ref = acquired_ref(holder, entry.resource)
    if ref == member:
        return Entry.CONFIRMED
    may_claim = holder.phase is Phase.OPEN and ref == entry.replaces
    return Entry.PENDING if may_claim else Entry.OBSOLETE
