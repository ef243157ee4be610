"""The input of a decision: the ledger, facts about attempts, the target's intent and the host's objections."""

import msgspec

from dayfly.spec.run import EndRequest, Result, Run


class _Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class Prepared(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt is prepared behind a gate and has not started. It may start once the ledger holds this `ref`.

    `result` is set if the work was done before: one commit then claims the attempt and records its result.
    """

    ref: str
    result: Result | None = None


class Stalled(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt is claimed and has not started, and the process that should start it is gone.

    Only a fence can determine whether it may still start.
    """

    since: int


class Waiting(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt is released and has not started. Since `since` it is being scheduled or, if
    `is_scheduled`, pulls its image.

    `recallable`: its container cannot start, and the host can obtain proof that it never began. `recalled` is the time
    at which the host requested that proof (0: it has not).
    """

    since: int
    reason: str
    message: str = ""
    is_scheduled: bool = True
    recallable: bool = False
    recalled: int = 0


class Running(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt has started and has not ended. `ready` applies to forks: the fork answers.

    `reason` and `message` describe what a unit that is not a program waits for, if that is known.
    """

    since: int
    ready: bool = True
    reason: str = ""
    message: str = ""


class Sealed(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """The receipt of the attempt is known, but it is not proven that all of its processes are gone."""

    result: Result


class Ended(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """Proof that all processes of the attempt are gone, with its result."""

    result: Result


class Unread(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt has ended, but its outputs cannot be read or stored now. Nothing is recorded before they are."""

    since: int
    message: str


class NeverRan(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """Proof that the attempt did not start and never will."""

    reason: str
    message: str = ""


class Unclear(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt may have started and cannot be observed.

    At `dead_by` its own deadline has ended it, whatever its state was.
    """

    since: int
    reason: str
    message: str
    dead_by: int


Fact = Prepared | Stalled | Waiting | Running | Sealed | Ended | Unread | NeverRan | Unclear
AttemptKey = tuple[str, int]


class UnitRefusal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why the host cannot accept a unit now. It may accept it later."""

    reason: str
    message: str
    since: int = 0


class TargetIntent(msgspec.Struct, frozen=True, kw_only=True):
    """The intent of the target's owner: `stop` to end the run, `abandon` to end it without the remaining cleanup.

    `expires_at` and `lease_until` are unix milliseconds; 0 means never. `retry` names, for a unit, the attempt whose
    back-off is skipped, and `reset`, for a resource, the UID of the pool member that another one replaces. Both apply
    to that attempt or member only, so they need no clock and expire by themselves. `ignored` names requests that the
    host does not support, each with the reason; it changes no decision.
    """

    stop: EndRequest | None = None
    abandon: EndRequest | None = None
    expires_at: int = 0
    lease_until: int = 0
    retry: dict[str, int] = {}
    reset: dict[str, str] = {}
    ignored: tuple[str, ...] = ()


class TargetState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of a target that starts and stops by itself, as its adapter reports it.

    For a closed run it is observed after the ledger was read, so that a target that had started by then is reported as
    started.

    `stopped`: no part of the target is active, and none will be. The units after the target's stop wait for this.
    """

    started: bool = False
    stopped: bool = False
    message: str = ""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The observations of one turn. An attempt without a fact has no report.

    Facts about live attempts may be late. Facts about attempts that the ledger has recorded must not be: there, no fact
    means that nothing of the attempt is left. So a host observes these after it has read the ledger. A fact concerns
    the attempt that the ledger claimed and nothing else with the same name. Only `Prepared` names its own `ref`.

    `target` is None if the target starts and stops with its kept units and has no other active parts.

    `gated_kinds` are the kinds whose attempts this host prepares behind a gate before they are claimed. For other kinds
    the claim comes first, and `ref` is the value that it binds (the boot id). Attempts of `slotless_kinds` use no slot.
    `object_refs` names the objects that live
    attempts have created, if the claim could not name them. `definitions` names, for units that create objects, the
    definition of the object's kind. `slots` is the number of claims that this run may make in this turn. `remarks` are
    sentences that are added to the reports of units and change no decision.
    """

    run: Run
    intent: TargetIntent = TargetIntent()
    facts: dict[AttemptKey, Fact] = {}
    target: TargetState | None = None
    gated_kinds: frozenset[str] = frozenset()
    slotless_kinds: frozenset[str] = frozenset()
    ref: str = ""
    object_refs: dict[AttemptKey, str] = {}
    definitions: dict[str, str] = {}
    slots: int = 1 << 30
    objections: dict[str, UnitRefusal] = {}
    remarks: dict[str, str] = {}
