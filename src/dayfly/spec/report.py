"""The report of a run for people, in wire form. `plan.status` makes it.

A host of a newer release may send more fields. Unlike a document, a report is read without its unknown fields.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Final

from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import doc
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

    id: Annotated[str, doc("ID: `db/provision` for a step, `fork:shop/web` for a fork.")]
    resource: Annotated[str, doc("Name of the resource; empty for a hook or a fork.")] = ""
    name: Annotated[str, doc("Name of the step, or of the baseline of a fork.")]
    event: Annotated[str, doc("`preStart`, `start` (forks and routes), `postStart`, `preStop` or `postStop`.")]
    kind: Annotated[str, doc("`exec`, `webhook`, `object`, `fork`, `route` or `preview`.")]
    state: Annotated[str, doc(f"One of {', '.join(f'`{each}`' for each in STATES)}.")]
    attempt: Annotated[int, doc("Number of the current or last attempt; 0 for none yet.")] = 0
    reason: Annotated[str, doc("Reason of the state, as in `/meta/reasons`.")] = ""
    message: Annotated[str, doc("Explanation of the state.")] = ""
    template: Annotated[str, doc("The message with placeholders for its times, for a later display.")] = ""
    since: Annotated[int, doc("Beginning of the state, in Unix milliseconds; 0 for not yet.")] = 0
    until: Annotated[int, doc("Time at which the state changes by itself, in Unix milliseconds; 0 if unknown.")] = 0
    started_at: Annotated[int, doc("Start of the attempt, in Unix milliseconds; 0 for not yet.")] = 0
    ended_at: Annotated[int, doc("End of the attempt, in Unix milliseconds; 0 for not yet.")] = 0
    reads: Annotated[tuple[str, ...], doc("IDs of the units whose outputs it reads.")] = ()
    waits_on: Annotated[tuple[str, ...], doc("IDs of the units that it waits for.")] = ()
    outputs: Annotated[tuple[str, ...], doc("Names of its outputs so far.")] = ()
    pool: Annotated[str, doc("For a step of a pool member: the name of the pool; empty without one.")] = ""
    member: Annotated[str, doc("For a step that ran in a pool member: the name of the member.")] = ""
    hit: Annotated[bool, doc("For a step of a pool member: whether it was complete when the run took the member.")] = (
        False
    )
    parent: Annotated[str, doc("For a step of a shared parent: the name of the parent.")] = ""
    holder: Annotated[str, doc("For a pool member: the resource that uses it, as `sandbox/resource`.")] = ""


class PoolReport(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The state of a pool on its host. In its report, each member is a unit of kind `member`.

    A member that is being created is `waiting` or `running`. A complete one is `succeeded`, and used if it has a
    `holder`. A member that is being removed is `stopped`.
    """

    wanted: Annotated[int, doc("Number of ready members that the pool keeps now.")] = 0
    ready: Annotated[int, doc("Number of ready members that no sandbox uses.")] = 0
    creating: Annotated[int, doc("Number of members that are being created.")] = 0
    held: Annotated[int, doc("Number of members that sandboxes use.")] = 0
    failed: Annotated[int, doc("Number of members that failed in a row.")] = 0
    paused: Annotated[str, doc("Why no members are created; empty if they are.")] = ""
    paused_at: Annotated[int, doc("Beginning of the pause, in Unix milliseconds; 0 for none.")] = 0
    hits: Annotated[int, doc("Number of resources that found a ready member.")] = 0
    misses: Annotated[int, doc("Number of resources that found none.")] = 0
    rate: Annotated[float, doc("Recent number of resources per hour that needed a member.")] = 0.0
    refill_ms: Annotated[int, doc("Usual time to create a member, in milliseconds; 0 if unknown.")] = 0
    batch: Annotated[float, doc("Mean number of such resources that arrive together.")] = 1.0
    spread: Annotated[float, doc("Standard deviation of the time to create a member, as a part of that time.")] = 0.0
    generation: Annotated[int, doc("Generation of the spec and template that the host has accepted.")] = 0
    idle_ms: Annotated[int, doc("Time for which the existing members were ready and unused, in milliseconds.")] = 0


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
    # Only for a pool.
    pool: PoolReport | None = None
