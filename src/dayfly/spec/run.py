"""The ledger of one target object on one host: what was allowed to start, how it ended, and nothing that status says.

Times are unix milliseconds. Values of outputs are never here, only their digest and size.
"""

import enum
from typing import Annotated, Final, Literal

import msgspec

from dayfly.spec.lifecycle import Target, WireStruct, kind_by_name
from dayfly.spec.meta import LONG, MANY, MILLISECONDS, doc, list_of

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

    digest: Annotated[str, doc("SHA-256 of the value.")]
    size: Annotated[int, doc("Its bytes.")]
    sensitive: Annotated[bool, doc("Never shown.")] = False
    attempt: Annotated[int, doc("The attempt that made it.")] = 0
    # Whether a variable can hold it: it has no zero byte.
    text: Annotated[bool, doc("Whether a variable can hold it: it has no zero byte.")] = True


class UnitRecord(WireStruct, frozen=True, kw_only=True):
    """One unit's line in the ledger: its latest attempt and the count of those before."""

    attempt: Annotated[int, doc("Number of the latest attempt, from 1.")] = 0
    state: Annotated[State, doc("Of the latest attempt. unknown is not final.")] = State.NONE
    outcome: Annotated[Outcome, doc("How it ended.")] = ""
    reason: Annotated[str, doc("The reason for that end, in one word.")] = ""
    message: Annotated[str, doc("What there is to say of that end, in one sentence.", LONG)] = ""
    # The kind of its work; empty in ledgers that were begun before records had one.
    kind: Annotated[str, doc("The kind of its work.")] = ""
    # What was let go: a pod's UID, or the boot id of the machine. Identity is this, never a name.
    ref: Annotated[str, doc("What was allowed to start: UID of a pod, a fork or an object.")] = ""
    # Of an object: the CustomResourceDefinition of its kind, as NAME/UID. Its absence proves that the object is gone.
    definition: Annotated[str, doc("Of an object: the CustomResourceDefinition of its kind, as NAME/UID.")] = ""
    # Of what is kept, and of nothing else: digest of the wish it was started from.
    generation: Annotated[str, doc("Of a kept unit: digest of the wish it was started from.")] = ""
    # Of what is kept: those that outlive it, also once nobody wishes for it any more.
    after: Annotated[tuple[str, ...], list_of("Of a kept unit: those that outlive it.")] = ()
    claimed_at: Annotated[int, doc("When it was allowed to start, " + MILLISECONDS)] = 0
    started_at: Annotated[int, doc("When it began, " + MILLISECONDS)] = 0
    ended_at: Annotated[int, doc("When it ended, " + MILLISECONDS)] = 0
    failures: Annotated[int, doc("Failed attempts.")] = 0
    voids: Annotated[int, doc("Attempts that never ran.")] = 0
    outputs: Annotated[dict[str, OutputRecord], doc("What it made: digests, never values.", maxProperties=MANY)] = {}

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


class EndRequest(WireStruct, frozen=True, kw_only=True):
    """Who asked for something irrevocable, when, and why."""

    at: Annotated[int, doc("When, in unix milliseconds.")]
    reason: Annotated[str, doc("One word.")]
    message: Annotated[str, doc("One sentence.", LONG)] = ""
    by: Annotated[str, doc("Who asked.")] = ""


class Run(WireStruct, frozen=True, kw_only=True):
    """The ledger document. It changes only by compare-and-swap on `seq`, which rises by one with each commit."""

    uid: Annotated[str, doc("Identity of this ledger: the target's UID.")]
    target: Annotated[Target, doc("The object whose life it records.")]
    plan: Annotated[str, doc("Digest of the sealed documents.")]
    seq: Annotated[int, doc("Rises by one with each commit.", minimum=0)] = 0
    phase: Annotated[Phase, doc("Closing is the moment after which no create unit can start.", default="open")] = (
        Phase.OPEN
    )
    born_at: Annotated[int, doc("When it was made, " + MILLISECONDS)] = 0
    # When its target, by itself, was seen to have started, and to have come to rest for good.
    started_at: Annotated[int, doc("When its target was seen to have started by itself, " + MILLISECONDS)] = 0
    stopped_at: Annotated[int, doc("When its target was seen to have stopped for good, " + MILLISECONDS)] = 0
    units: Annotated[
        dict[str, UnitRecord], doc("A line for each unit that was ever allowed to start.", maxProperties=MOST_UNITS)
    ] = {}
    closed: Annotated[EndRequest | None, doc("Who closed it, when and why.")] = None
    abandon: Annotated[EndRequest | None, doc("Who abandoned the cleanup, when and why.")] = None
    ended_at: Annotated[int, doc("When all was cleaned up, " + MILLISECONDS)] = 0

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
