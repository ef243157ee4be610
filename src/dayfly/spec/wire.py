"""What a control plane and a host say to each other about a run."""

from dayfly.spec.lifecycle import Lifecycle, Struct, Target, Unit


class RefusedError(Exception):
    """The host cannot run these documents; the sentence says which unit, why, and what to do."""


class HostUnavailableError(Exception):
    """The host's ledger cannot be used now; nothing was changed."""


class Offer(Struct, frozen=True, kw_only=True):
    """A run to be sealed, or, for a run that exists, its newest forks and times. Offering twice is offering once.

    `uid` is the run's identity; `expires_at` and `lease_until` are unix milliseconds, 0 for never.
    """

    uid: str
    name: str
    target: Target
    documents: tuple[Lifecycle, ...]
    forks: tuple[Unit, ...] = ()
    expires_at: int = 0
    lease_until: int = 0


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where a fork answers."""

    unit: str
    host: str
    port: int


class Value(Struct, frozen=True, kw_only=True):
    """One recorded output."""

    unit: str
    output: str
    value: bytes
    sensitive: bool = False


class LogInfo(Struct, frozen=True, kw_only=True):
    """One attempt's log: how much of it there is, and whether more can come."""

    unit: str
    attempt: int
    size: int
    sealed: bool


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """One line of a run's history."""

    seq: int
    at: int
    unit: str
    attempt: int
    move: str
    reason: str
    message: str
