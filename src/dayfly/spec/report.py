"""The report of a run for people, in wire form. `plan.status` makes it.

A host of a newer release may send more fields. Unlike a document, a report is read without its unknown fields.
"""

import re
from collections.abc import Iterable
from typing import Final

from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.run import EndRequest, Phase

FAILED = frozenset({"ResourceFailed", "HookFailed", "ForkFailed"})
"""Reasons after which a run does not become ready without a change or a new object."""

_INNER_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
STATES: Final = {
    "waiting": "It has not started.",
    "running": "A step runs. A fork answers.",
    "succeeded": "It has ended, and its outputs are recorded.",
    "failed": "It has failed and is not retried.",
    "retrying": "An attempt has failed or never ran, and another one follows.",
    "unknown": "It may have run, and its outcome is not known yet.",
    "stopped": "It has ended because the sandbox closes.",
    "skipped": "It will not run, because the sandbox closed before it started.",
}
"""The reported states of a unit (a step or fork), and their meanings."""
_CREATING, _CLEANING = ("preStart", "start", "postStart"), ("preStop", "postStop")
_MOVING = ("running", "retrying", "unknown")


def expects_more(phase: str, reason: str, units: Iterable[tuple[str, str]]) -> bool:
    """Return whether one of these units, by state and event, runs or will run in the phase that the run is in."""
    if phase not in ("open", "closed"):
        return False
    due = _CREATING if phase == "open" else _CLEANING
    hopeless = reason in FAILED
    return any(state in _MOVING or (state == "waiting" and event in due and not hopeless) for state, event in units)


def with_reason(reason: str, message: str) -> str:
    """Return `Reason: message`; the reason is left out if the message begins with the same words, as `exit code 3`."""
    same = _INNER_WORD.sub(" ", reason).lower()
    return message if message.lower().startswith(same) else ": ".join(filter(None, (reason, message)))


class UnitReport(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The report of one unit. `state` is one of `STATES`; times are unix milliseconds, 0 for not yet.

    The state began at `since`; at `until` it changes by itself: a retry, or its certain end. A message with clocks also
    has its `template` (`plan.messages.ClockedText`), for a later display.
    """

    id: str
    resource: str = ""
    name: str
    event: str
    kind: str
    state: str
    attempt: int = 0
    reason: str = ""
    message: str = ""
    template: str = ""
    since: int = 0
    until: int = 0
    started_at: int = 0
    ended_at: int = 0
    reads: tuple[str, ...] = ()
    waits_on: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class RunReport(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The report of a run. `done` of `total` counts the units of its phase (creation or cleanup).

    If `message` is about a unit, `about` is its id, and `others` counts similar units.
    """

    uid: str
    phase: Phase
    ready: bool
    reason: str
    message: str
    about: str = ""
    others: int = 0
    done: int
    total: int
    units: tuple[UnitReport, ...]
    closed: EndRequest | None = None
    abandon: EndRequest | None = None
    born_at: int = 0
    # Parts of the spec without effect, each with the reason.
    unsupported: tuple[str, ...] = ()
