"""Data that a host keeps about a run, beside its report."""

from typing import Annotated

from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import doc


class RunEndpoint(WireStruct, frozen=True, kw_only=True):
    """The address of a fork or an endpoint. `scheme` is its protocol; empty for that of the endpoint's target."""

    unit: str
    host: str
    port: int
    scheme: str = ""


class Value(WireStruct, frozen=True, kw_only=True):
    """One recorded output."""

    unit: str
    output: str
    value: bytes
    sensitive: bool = False


class LogInfo(WireStruct, frozen=True, kw_only=True):
    """The log of one attempt: its size, and whether it may grow."""

    unit: Annotated[str, doc("ID of the unit.")]
    attempt: Annotated[int, doc("Number of the attempt.")]
    size: Annotated[int, doc("Bytes of the log so far.")]
    sealed: Annotated[bool, doc("Whether the log is complete.")]


class HistoryEntry(WireStruct, frozen=True, kw_only=True):
    """One entry of a run's history."""

    seq: Annotated[int, doc("Number of the commit that made the move.")]
    at: Annotated[int, doc("Time of the move, in Unix milliseconds.")]
    unit: Annotated[str, doc("ID of the unit; empty for a move of the whole run.")]
    attempt: Annotated[int, doc("Number of the attempt; 0 for none.")]
    move: Annotated[str, doc("Kind of the move, such as `Claim` or `Record`.")]
    reason: Annotated[str, doc("Reason, in one word; empty if there is none.")]
    message: Annotated[str, doc("Explanation; for `Born`, the digest of the sealed documents.")]
