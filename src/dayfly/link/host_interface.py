"""What the link to a control plane (`host_end`) needs of a host, whichever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dayfly.link import wire
    from dayfly.link.wire import Verdict
    from dayfly.spec.lifecycle import Lifecycle, Unit
    from dayfly.spec.log_times import Entry
    from dayfly.spec.run import Request
    from dayfly.spec.run_data import HistoryEntry, LogInfo, Value


class Host(Protocol):
    """What any link needs. What is `taken` is durable when the method returns.

    All that write may raise `HostUnavailableError`: nothing was changed. Their verdicts are `TAKEN`, `UNKNOWN` (there
    is no such run), `OVER` (it has ended) and `CLOSED`.
    """

    is_remote: bool
    """Whether it dials in. Then a changed report is sent unasked."""

    @property
    def routes(self) -> bool:
        """Whether it leads requests to forks by their routing key."""

    def begin_session(self) -> int:
        """A number higher than of all sessions before."""

    def living(self) -> Iterable[str]:
        """All runs that have not ended."""

    def unacknowledged(self) -> Iterable[str]:
        """All that have ended, and nobody has said that he knows."""

    def version(self, uid: str) -> int:
        """The number of the run's report; it rises with each change, over restarts too."""

    def standing(self, uid: str) -> wire.Standing | None:
        """What the run is doing; of one that has ended, its last word; None if it was never heard of."""

    def has_ended(self, uid: str) -> bool:
        """Whether the run existed and is over: cleaned or abandoned, and dissolved."""

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        """Refuse what this host cannot run.

        Raises:
            RefusedError: the first thing it cannot run.
        """

    async def offer(self, offer: wire.Offer) -> Verdict:
        """Seal the run if it is new and may be born; otherwise take over its forks and times, if they are no older."""

    async def stop(self, uid: str, request: Request, *, known: bool) -> Verdict:
        """Wish the run's end. One that nobody knows has ended by that, unless it is `known` to have begun."""

    async def abandon(self, uid: str, request: Request) -> Verdict:
        """Wish the run's end without its cleanup. One that nobody knows has ended by that."""

    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> Verdict:
        """End the back-off after those attempts of units, and after no others."""

    async def lease(self, uid: str, until: int) -> Verdict:
        """Renew the lease to `until` (unix milliseconds)."""

    async def acknowledge(self, uids: tuple[str, ...]) -> None:
        """Their ends are noted; in time they may be forgotten."""

    async def look_up(self, question: wire.RunQuestion) -> wire.Answer:
        """Answer a question about a run's outputs, history or logs. An unknown run has none."""


class KeepingHost(Protocol):
    """One that has all that is asked of it within reach."""

    def values(self, uid: str) -> tuple[Value, ...]:
        """All recorded outputs of a live run."""

    def history(self, uid: str) -> tuple[HistoryEntry, ...]:
        """What was written to the run's ledger, also after its end."""

    def logs(self, uid: str) -> tuple[LogInfo, ...]:
        """The logs there are, also after the run's end, a unit's attempts in their order."""

    def read_log(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        """Bytes of one log from `offset`; None if there is no such log."""

    def log_times(self, uid: str, unit: str, attempt: int) -> Sequence[Entry]:
        """When one log was printed; empty where nobody knows."""
