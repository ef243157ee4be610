"""What may be known when deciding: the ledger, facts about attempts, what the target's owner and the host say."""

import msgspec

from dayfly.spec.run import EndRequest, Result, Run


class _Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class Held(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """Prepared behind a gate, not started; anyone may let it go once the ledger holds this very `ref`."""

    ref: str


class Stalled(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """Claimed, not started, and whoever was to start it is gone. Only a fence can tell whether it still may start."""

    since: int


class Waiting(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """Let go, not yet started: being `placed`, or, once it is, fetching its image; `since` when it does that.

    `recallable`: its container cannot be started, and the host can have proof made that it never began; `recalled` is
    when that was requested (0: it was not).
    """

    since: int
    reason: str
    message: str = ""
    placed: bool = True
    recallable: bool = False
    recalled: int = 0


class Running(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """Started and not ended. `ready` is meant for forks: it answers.

    `reason` and `message` say what it waits for, where that is known of what is not a program.
    """

    since: int
    ready: bool = True
    reason: str = ""
    message: str = ""


class Sealed(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """Its receipt is known; that every process of it is gone is not yet proven."""

    result: Result


class Ended(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """Every process of it is proven gone."""

    result: Result


class Unread(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """It has ended, and what it made lies where it cannot be read at this moment; nothing is recorded before it is."""

    since: int
    message: str


class NeverRan(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """Proof that it did not start and never will."""

    reason: str
    message: str = ""


class Unclear(_Fact, frozen=True, kw_only=True, gc=False, tag=True):
    """It may have started and cannot be seen. At `dead_by` its own deadline has ended it, whatever it was."""

    since: int
    reason: str
    message: str
    dead_by: int


Fact = Held | Stalled | Waiting | Running | Sealed | Ended | Unread | NeverRan | Unclear
AttemptKey = tuple[str, int]


class Objection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why the host cannot take a unit at this moment; it may later."""

    reason: str
    message: str
    since: int = 0


class TargetIntent(msgspec.Struct, frozen=True, kw_only=True):
    """What the target's owner wants now: `stop` once it is to go, `abandon` once nobody wants the cleanup any more.

    `expires_at` and `lease_until` are unix milliseconds; 0 means never. `retry` names, for a unit, the attempt after
    which nobody wants to wait for the back-off: that attempt alone, so it needs no clock and is spent by itself.
    `ignored` names requests that the host does not follow, each with the reason; it changes no decision.
    """

    stop: EndRequest | None = None
    abandon: EndRequest | None = None
    expires_at: int = 0
    lease_until: int = 0
    retry: dict[str, int] = {}
    ignored: tuple[str, ...] = ()


class TargetState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a target has come that starts and stops by itself, as its adapter tells. Of a closed run it is told no
    earlier than the ledger was read: what has started by then is told as started.

    `stopped`: nothing of it is at work, and nothing will be; not before that does what follows its stop begin.
    """

    started: bool = False
    stopped: bool = False
    message: str = ""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known in one turn, observed once. An attempt without a fact is one without news.

    News of living attempts may be late. Of an attempt that the ledger has recorded it may not: no fact means there that
    nothing of it is left, so a host looks these up no earlier than it read the ledger. But for `Held`, which says its
    own, a fact is about what the ledger claimed and about nothing else of the same name.

    `target` is None where the target starts and stops with its kept units, and nothing else of it is at work.

    `gated` are the kinds of which this host prepares an attempt behind a gate before it is claimed; otherwise the claim
    comes first and `ref` is what it binds (the boot id). `made` names what living attempts have made, where the claim
    could not name it. `definitions` names, for units that make objects, the definition of the kind that is to be made.
    `slots` is how many claims this run may make in this turn.
    `remarks` are sentences on units that change nothing of what is decided, and belong to what is said of them.
    """

    run: Run
    wish: TargetIntent = TargetIntent()
    facts: dict[AttemptKey, Fact] = {}
    target: TargetState | None = None
    gated: frozenset[str] = frozenset()
    ref: str = ""
    made: dict[AttemptKey, str] = {}
    definitions: dict[str, str] = {}
    slots: int = 1 << 30
    objections: dict[str, Objection] = {}
    remarks: dict[str, str] = {}
