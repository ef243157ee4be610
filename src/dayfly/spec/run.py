"""The ledger of one target object on one host: what was allowed to start, how it ended, and nothing that status says.

Times are unix milliseconds. Values of outputs are never here, only their digest and size.
"""

import enum
from typing import Final, Literal

import msgspec

from dayfly.spec.lifecycle import Target, WireStruct, kind_by_name

Outcome = Literal["", "succeeded", "failed"]
# Lines of a ledger in a cluster: four times as many as a run may have steps, for all that comes and goes beside them.
MOST_UNITS: Final = 1_024


class State(enum.StrEnum):
    """Of a unit's latest attempt. `unknown` is not final; a new attempt begins a new life at `claimed`."""

    NONE = "none"
    CLAIMED = "claimed"
    UNKNOWN = "unknown"
    DONE = "done"
    VOID = "void"


ALIVE: Final = (State.CLAIMED, State.UNKNOWN)
"""Of an attempt that was permitted, and of which the ledger does not hold yet how it ended."""


class Phase(enum.StrEnum):
    """Of a run. Closing is the moment after which no create unit can start."""

    OPEN = "open"
    CLOSED = "closed"
    CLEANED = "cleaned"
    ABANDONED = "abandoned"


class OutputRecord(WireStruct, frozen=True, kw_only=True):
    """That an output exists, which bytes it is, and which attempt told it."""

    digest: str
    size: int
    sensitive: bool = False
    attempt: int = 0
    # Whether a variable can hold it: it has no zero byte.
    text: bool = True


class UnitRecord(WireStruct, frozen=True, kw_only=True):
    """One unit's line in the ledger: its latest attempt and the count of those before."""

    attempt: int = 0
    state: State = State.NONE
    outcome: Outcome = ""
    reason: str = ""
    message: str = ""
    # The kind of its work; empty in ledgers that were begun before records had one.
    kind: str = ""
    # What was let go: a pod's UID, or the boot id of the machine. Identity is this, never a name.
    ref: str = ""
    # Of an object: the CustomResourceDefinition of its kind, as NAME/UID. Its absence proves that the object is gone.
    definition: str = ""
    # Of what is kept, and of nothing else: digest of the wish it was started from.
    generation: str = ""
    # Of what is kept: those that outlive it, also once nobody wishes for it any more.
    after: tuple[str, ...] = ()
    claimed_at: int = 0
    started_at: int = 0
    ended_at: int = 0
    failures: int = 0
    voids: int = 0
    outputs: dict[str, OutputRecord] = {}

    @property
    def may_have_run(self) -> bool:
        """Whether any attempt was let go of which it is not proven that it never started."""
        return self.attempt > self.voids

    @property
    def kept(self) -> bool:
        """Whether it is a desired state, and not work that is done once."""
        return bool(self.generation)

    @property
    def vain(self) -> int:
        """How many attempts have come to nothing, whether they ran or not."""
        return self.failures + self.voids


class Request(WireStruct, frozen=True, kw_only=True):
    """Who asked for something irrevocable, when, and why."""

    at: int
    reason: str
    message: str = ""
    by: str = ""


class Run(WireStruct, frozen=True, kw_only=True):
    """The ledger document. It changes only by compare-and-swap on `seq`, which rises by one with each commit."""

    uid: str
    target: Target
    plan: str
    seq: int = 0
    phase: Phase = Phase.OPEN
    born_at: int = 0
    # When its target, by itself, was seen to have started, and to have come to rest for good.
    started_at: int = 0
    stopped_at: int = 0
    units: dict[str, UnitRecord] = {}
    closed: Request | None = None
    abandon: Request | None = None
    ended_at: int = 0

    def unit(self, uid: str) -> UnitRecord:
        """The unit's record; one that was never claimed has an empty one."""
        return self.units.get(uid, NEVER)

    def kind(self, uid: str) -> str:
        """The kind of a unit that was claimed at some time, whether or not anybody wishes for it still."""
        return self.unit(uid).kind or kind_by_name(uid)

    @property
    def kept(self) -> list[str]:
        """Every kept unit that was ever claimed."""
        return [name for name, record in self.units.items() if record.kept]

    @property
    def has_started(self) -> bool:
        """Whether the target has: by itself, or with the first of its kept units."""
        return self.started_at > 0 or any(record.kept for record in self.units.values())


NEVER = UnitRecord()


class Result(WireStruct, frozen=True, kw_only=True):
    """How an attempt ended, as its receipt or its host tells. `reason` is empty for a plain success."""

    outcome: Outcome
    reason: str = ""
    message: str = ""
    started_at: int = 0
    ended_at: int = 0
    outputs: dict[str, OutputRecord] = {}


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Run).decode
