"""What the control plane needs of a host. The embedded host is one; a cluster's agent will be another."""

from collections.abc import Mapping
from typing import Protocol

from dayfly.plan.status import Report
from dayfly.spec.lifecycle import Lifecycle, Unit
from dayfly.spec.run import Request
from dayfly.spec.wire import Endpoint, HistoryEntry, HostUnavailableError, LogInfo, Offer, RefusedError, Value
from dayfly.spec.workload import Workload

__all__ = ["Host", "HostUnavailableError", "RefusedError"]


class Host(Protocol):
    """A host, by the name of its cluster. Methods return quickly; work goes on behind them.

    All may raise `HostUnavailableError` when the host's ledger cannot be written: nothing was changed.
    """

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        """Refuse what this host cannot run, before anything is stored.

        Raises:
            RefusedError: the first thing it cannot run.
        """

    async def baseline(self, workload: Workload) -> None:
        """Take over a baseline that forks derive from, or its new form; forks of it follow."""

    async def offer(self, offer: Offer) -> None:
        """Seal the run if it is new; otherwise take over its forks and times."""

    async def stop(self, uid: str, request: Request) -> bool:
        """Wish the run's end; it is durable when this returns. False if there is no such run (any more)."""

    async def abandon(self, uid: str, request: Request) -> bool:
        """Wish the run's end without its cleanup. False if there is no such run."""

    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> bool:
        """End the back-off after those attempts of units, and after no others. False if there is no such run."""

    async def lease(self, uid: str, until: int) -> bool:
        """Renew the lease to `until` (unix milliseconds). False if there is no such run or it is closed."""

    def report(self, uid: str) -> Report | None:
        """What the run is doing; of one that has ended, its last word; None if it was never heard of."""

    def has_ended(self, uid: str) -> bool:
        """Whether the run existed and is over: cleaned or abandoned, and dissolved."""

    def caught_up(self) -> None:
        """Hear that whoever asks has taken note of every run that has ended: what is old of them may be forgotten."""

    def endpoints(self, uid: str) -> tuple[Endpoint, ...]:
        """Where the run's forks answer."""

    def values(self, uid: str) -> tuple[Value, ...]:
        """All recorded outputs of a live run."""

    def history(self, uid: str) -> tuple[HistoryEntry, ...]:
        """What was written to the run's ledger, also after its end."""

    def logs(self, uid: str) -> tuple[LogInfo, ...]:
        """The logs there are, also after the run's end."""

    def read_log(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        """Bytes of one log from `offset`; None if there is no such log."""

    async def changed(self, uid: str, version: int, seconds: float) -> int:
        """Wait until the run's report is newer than `version`, at most so long; returns its version."""
