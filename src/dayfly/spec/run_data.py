"""Data that a host keeps about a run, beside its report."""

from dayfly.spec.lifecycle import WireStruct


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

    unit: str
    attempt: int
    size: int
    sealed: bool


class HistoryEntry(WireStruct, frozen=True, kw_only=True):
    """One entry of a run's history."""

    seq: int
    at: int
    unit: str
    attempt: int
    move: str
    reason: str
    message: str
