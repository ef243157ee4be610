"""The sentences about pools and the ends of their members."""

from __future__ import annotations

from dayfly.plan.reasons import Reason

_ENDS = {
    Reason.DRAINED: "the pool is drained",
    Reason.OUTDATED: "a newer member has replaced it",
    Reason.SURPLUS: "the pool needs fewer members",
    Reason.MEMBER_FAILED: "one of its create steps failed",
    Reason.WITHDRAWN: "the pool no longer has it in its ledger",
}


def why_member_ends(reason: Reason) -> str:
    return _ENDS[reason]


def pool_fails(failures: int) -> str:
    return f"{failures} members failed in a row"


def pool_ends() -> str:
    return "its unused members are being cleaned up"


def pool_is_full(target: int) -> str:
    return f"{target} of {target} members are ready"


def pool_fills(ready: int, target: int) -> str:
    return f"{ready} of {target} members are ready"


def pool_is_unschedulable(ready: int, target: int, unschedulable: int) -> str:
    return f"{pool_fills(ready, target)}; {unschedulable} cannot be scheduled"
