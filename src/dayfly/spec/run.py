"""The ledger of one target object on one host: the permitted attempts and their outcomes.

Times are unix milliseconds. A ledger has digests and sizes of outputs, never their values.
"""

import enum
from typing import Annotated, Final, Literal

import msgspec

from dayfly.spec.lifecycle import MEMBER_KIND, PARENT_KIND, Target, WireStruct, kind_by_name
from dayfly.spec.meta import LONG, MANY, MILLISECONDS, doc, list_of

Outcome = Literal["", "succeeded", "failed"]
# The maximum number of units in a cluster's ledger: four times the number of steps, for units that come and go.
MAX_UNITS: Final = 1_024


class State(enum.StrEnum):
    """The state of a unit's latest attempt. `unknown` is not final; the next attempt starts again at `claimed`."""

    NONE = "none"
    CLAIMED = "claimed"
    UNKNOWN = "unknown"
    DONE = "done"
    VOID = "void"


ALIVE: Final = (State.CLAIMED, State.UNKNOWN)
"""The states of an attempt that was permitted and whose end is not in the ledger yet."""


class Phase(enum.StrEnum):
    """The phase of a run. In a closed run no create unit can start."""

    OPEN = "open"
    CLOSED = "closed"
    CLEANED = "cleaned"
    ABANDONED = "abandoned"


class OutputRecord(WireStruct, frozen=True, kw_only=True):
    """An output: its digest, its size, and the attempt that produced it."""

    digest: Annotated[str, doc("SHA-256 of the value.")]
    size: Annotated[int, doc("Size of the value in bytes.")]
    sensitive: Annotated[bool, doc("Whether the value is never displayed.")] = False
    attempt: Annotated[int, doc("Number of the attempt that produced the value.")] = 0
    text: Annotated[bool, doc("Whether an environment variable can hold the value (it has no zero byte).")] = True


class UnitRecord(WireStruct, frozen=True, kw_only=True):
    """The record of one unit: its latest attempt, and counts of earlier attempts."""

    attempt: Annotated[int, doc("Number of the latest attempt, from 1.")] = 0
    state: Annotated[State, doc("State of the latest attempt. unknown is not final.")] = State.NONE
    outcome: Annotated[Outcome, doc("Outcome of the latest attempt.")] = ""
    reason: Annotated[str, doc("The reason for the outcome, in one word.")] = ""
    message: Annotated[str, doc("The outcome, in one sentence.", LONG)] = ""
    # Empty in ledgers that are older than this field.
    kind: Annotated[str, doc("The kind of the unit.")] = ""
    # The attempt's identity, which is never a name: a pod's UID, or the boot id of the machine.
    ref: Annotated[str, doc("UID of the pod, fork or object of the attempt.")] = ""
    # If this definition is gone, the object is proven gone.
    definition: Annotated[str, doc("For an object: the CustomResourceDefinition of its kind, as NAME/UID.")] = ""
    # Set only for kept units.
    generation: Annotated[str, doc("For a kept unit: the digest of the spec from which it was started.")] = ""
    # These outlive it even if the spec no longer has them.
    after: Annotated[tuple[str, ...], list_of("For a kept unit: the units that outlive it.")] = ()
    claimed_at: Annotated[int, doc("Time of the claim, " + MILLISECONDS)] = 0
    started_at: Annotated[int, doc("Start of the latest attempt, " + MILLISECONDS)] = 0
    ended_at: Annotated[int, doc("End of the latest attempt, " + MILLISECONDS)] = 0
    failures: Annotated[int, doc("Number of failed attempts.")] = 0
    voids: Annotated[int, doc("Number of attempts that never ran.")] = 0
    outputs: Annotated[dict[str, OutputRecord], doc("Its outputs: digests, never values.", maxProperties=MANY)] = {}

    @property
    def may_have_run(self) -> bool:
        """Return whether any attempt may have started."""
        return self.attempt > self.voids

    @property
    def is_kept(self) -> bool:
        """Return whether the unit is a desired state rather than work that is done once."""
        return bool(self.generation)

    @property
    def unsuccessful(self) -> int:
        """The number of attempts without success, whether they ran or not."""
        return self.failures + self.voids


class EndRequest(WireStruct, frozen=True, kw_only=True):
    """An irrevocable request: its author, time and reason."""

    at: Annotated[int, doc("Time of the request, in unix milliseconds.")]
    reason: Annotated[str, doc("The reason, in one word.")]
    message: Annotated[str, doc("The reason, in one sentence.", LONG)] = ""
    by: Annotated[str, doc("Author of the request.")] = ""


class Holder(WireStruct, frozen=True, kw_only=True):
    """A run that uses this run's outputs for one of its resources, and blocks this run's end until it leaves."""

    run: Annotated[str, doc("UID of the holder's run.", 128)]
    resource: Annotated[str, doc("Name of the resource in the holder's run.", 253)]
    target: Annotated[Target, doc("The target of the holder's run.")]
    at: Annotated[int, doc("Time at which it joined, " + MILLISECONDS)] = 0
    replaces: Annotated[str, doc("UID of the pool member that the resource used before; empty for none.", 128)] = ""

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the holder: the UID of its run, and the resource."""
        return self.run, self.resource

    def name_in(self, namespace: str) -> str:
        """Return the name of its target for users of a namespace: from another one it is `<namespace>/<name>`."""
        target = self.target
        return target.name if target.namespace == namespace else f"{target.namespace}/{target.name}"


class Run(WireStruct, frozen=True, kw_only=True):
    """The ledger of a run. It changes only by compare-and-swap on `seq`, which increases by one with each commit."""

    uid: Annotated[str, doc("Identity of the ledger: the target's UID.")]
    target: Annotated[Target, doc("The object whose life the run follows.")]
    plan: Annotated[str, doc("Digest of the sealed documents.")]
    seq: Annotated[int, doc("Number of commits.", minimum=0)] = 0
    phase: Annotated[Phase, doc("Phase of the run. In a closed run no create unit can start.", default="open")] = (
        Phase.OPEN
    )
    born_at: Annotated[int, doc("Creation of the ledger, " + MILLISECONDS)] = 0
    # For a target that starts and stops by itself.
    started_at: Annotated[
        int, doc("Time at which the target was observed to have started by itself, " + MILLISECONDS)
    ] = 0
    stopped_at: Annotated[
        int, doc("Time at which the target was observed to have stopped for good, " + MILLISECONDS)
    ] = 0
    units: Annotated[
        dict[str, UnitRecord], doc("A record for each unit that was ever claimed.", maxProperties=MAX_UNITS)
    ] = {}
    closed: Annotated[EndRequest | None, doc("The request that closed the run.")] = None
    abandon: Annotated[EndRequest | None, doc("The request that abandoned the cleanup.")] = None
    ended_at: Annotated[int, doc("Time at which the cleanup was complete, " + MILLISECONDS)] = 0
    holders: Annotated[tuple[Holder, ...], list_of("Runs that use its outputs, and block its end.")] = ()
    joins: Annotated[int, doc("Number of holders that ever joined. A pool member accepts only one.", minimum=0)] = 0
    idle_since: Annotated[int, doc("For a shared parent: time at which its last holder left, " + MILLISECONDS)] = 0

    def unit(self, uid: str) -> UnitRecord:
        """Return the unit's record, which is empty if it was never claimed."""
        return self.units.get(uid, NEVER)

    def kind(self, uid: str) -> str:
        """Return the kind of a unit that was claimed, even if the spec no longer has it."""
        return self.unit(uid).kind or kind_by_name(uid)

    @property
    def kept_units(self) -> list[str]:
        """Return every kept unit that was ever claimed."""
        return [name for name, record in self.units.items() if record.is_kept]

    @property
    def has_started(self) -> bool:
        """Return whether the target has started: by itself, or with its first kept unit."""
        return self.started_at > 0 or any(record.is_kept for record in self.units.values())

    @property
    def is_member(self) -> bool:
        """Return whether it is the run of a pool member."""
        return self.target.kind == MEMBER_KIND

    @property
    def is_parent(self) -> bool:
        """Return whether it is the run of a shared parent."""
        return self.target.kind == PARENT_KIND


NEVER = UnitRecord()


class Result(WireStruct, frozen=True, kw_only=True):
    """The outcome of an attempt, from its receipt or its host. `reason` is empty for a plain success."""

    outcome: Outcome
    reason: str = ""
    message: str = ""
    started_at: int = 0
    ended_at: int = 0
    outputs: dict[str, OutputRecord] = {}


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Run).decode
