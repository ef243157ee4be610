"""The built-in check for Terraform states whose run is gone. It reports, and deletes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from dayfly.plan.leaks.sweep import LeakState, StoredList, begin_sweep, to_wire
from dayfly.plan.leaks.verdict import ItemFinding, LeakVerdict
from dayfly.spec.leak_check import STATE_CHECK, LeakCheckSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

STATE_CHECK_SPEC: Final = LeakCheckSpec(plugin=STATE_CHECK, every="1h", grace="1h")
_LEFT: Final = "its run has ended, but not its cleanup: compare `dayfly state list` with the account"
_YOUNG: Final = "it is not older than the grace period"


class LeftState(NamedTuple):
    """A state whose run is gone. Times are Unix milliseconds.

    Attributes:
        name: Its name, for people.
        changed_at: The time of its last change.
        id: The ID of its resource; empty if it is not known.
        plugin: The recorded plugin as `name@version`; empty without a record.
        ended_at: The recorded end of its run; 0 without a record.
        error: Why nothing is known of it; empty usually.
    """

    name: str
    changed_at: int
    id: str = ""
    plugin: str = ""
    ended_at: int = 0
    error: str = ""


def judge_state(left: LeftState, now: int) -> ItemFinding:
    """Return the verdict about a state."""
    if left.error:
        verdict, reason = LeakVerdict.UNKNOWN, left.error
    elif now - max(left.changed_at, left.ended_at) > STATE_CHECK_SPEC.grace_ms:
        verdict, reason = LeakVerdict.ORPHAN, _LEFT
    else:
        verdict, reason = LeakVerdict.UNKNOWN, _YOUNG
    return ItemFinding(verdict, left.id, left.name, reason, left.plugin, left.changed_at)


def sweep_states(before: LeakState, states: Iterable[LeftState], now: int) -> LeakState:
    """Return the state of the check after a list of all states whose runs are gone."""
    findings = tuple(to_wire(judge_state(each, now)) for each in states)
    listed = StoredList(now, (), {})
    return msgspec.structs.replace(begin_sweep(before, now, "", ""), findings=findings, lists=(listed,))
