"""Data that a host keeps about a run, beside its report."""

from dayfly.spec.lifecycle import WireStruct


class RunEndpoint(WireStruct, frozen=True, kw_only=True):
    """Where a fork or an endpoint answers. `scheme` is how to ask there; empty for that of the endpoint's target."""

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
    """One attempt's log: how much of it there is, and whether more can come."""

    unit: str
    attempt: int
    size: int
    sealed: bool


class HistoryEntry(WireStruct, frozen=True, kw_only=True):
    """One line of a run's history."""

    seq: int
    at: int
    unit: str
    attempt: int
    move: str
    reason: str
    message: str
