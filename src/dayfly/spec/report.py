"""What a host says of a run: what people see of it, in a form that travels. `plan.status` speaks it.

A host of another release may say more than we know: unlike a document, a report is read without its unknown fields.
"""

import re
from collections.abc import Iterable
from typing import Final

from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.run import EndRequest, Phase

FAILED = frozenset({"ResourceFailed", "HookFailed", "ForkFailed"})
"""Reasons after which a run does not become ready without a change or a new object."""

_INNER_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
# waiting: not yet its turn; running; succeeded; failed: for good; retrying: will be tried again; unknown: may have run;
# stopped: ended because the run closes; skipped: will not be run
STATES = ("waiting", "running", "succeeded", "failed", "retrying", "unknown", "stopped", "skipped")
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
    """One unit as people see it. `state` is a word of `STATES`; times are unix milliseconds, 0 for not yet.

    `since` it stands so; at `until` time alone changes that: it is tried again, or is certain to have ended. A message
    with clocks has its `template` beside it (`plan.messages.ClockedText`), for whoever shows it later.
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
    """A run as people see it. `done` of `total` counts the units of the phase it is in (creating, or cleaning up).

    Where `message` is that of a unit, `about` is its id, and `others` counts those of which the same could be said.
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
    # What is wished for and nobody does anything about, each with its reason.
    unsupported: tuple[str, ...] = ()
