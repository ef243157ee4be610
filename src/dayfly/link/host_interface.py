"""The interface of a host for its end of the link (`host_end`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dayfly.link import wire
    from dayfly.link.wire import Verdict
    from dayfly.spec.leak_report import LeakReport
    from dayfly.spec.lifecycle import Lifecycle, Unit
    from dayfly.spec.log_times import TimeEntry
    from dayfly.spec.resource_token import ResourceToken
    from dayfly.spec.run import EndRequest
    from dayfly.spec.run_data import HistoryEntry, LogInfo, Value


class Host(Protocol):
    """A host. An order that returns `TAKEN` is durable.

    All methods that write may raise `HostUnavailableError`: nothing was changed. Their verdicts are `TAKEN`, `UNKNOWN`
    (there is no such run), `OVER` (it has ended) and `CLOSED`.
    """

    is_remote: bool
    """Whether it connects to the server. Then it sends a changed report without being queried."""

    @property
    def leak_checks(self) -> LeakHost | None:
        """Its leak checks; None if it has none."""

    @property
    def routes(self) -> bool:
        """Whether it routes requests to forks by their routing key."""

    @property
    def pools(self) -> bool:
        """Whether it has resource pools, and executes units of kind acquire."""

    @property
    def parents(self) -> bool:
        """Whether it has shared parents, which runs with a plugin that names one need."""

    def begin_session(self) -> int:
        """Return a number higher than those of all sessions before."""

    def living_runs(self) -> Iterable[str]:
        """Return all runs that have not ended."""

    def unacknowledged_ends(self) -> Iterable[str]:
        """Return all runs whose end the server has not acknowledged."""

    def version(self, uid: str) -> int:
        """Return the number of the run's report, which rises with each change, over restarts too."""

    def run_status(self, uid: str) -> wire.RunStatus | None:
        """Return the state of a run, or its last report after its end; None for an unknown run."""

    def has_ended(self, uid: str) -> bool:
        """Return whether the run existed and has ended: cleaned or abandoned, and dissolved."""

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        """Refuse what this host cannot run.

        Raises:
            DocumentsRefusedError: the first thing it cannot run.
        """

    async def offer(self, offer: wire.Offer) -> Verdict:
        """Seal the run if it is new and may be born; otherwise apply its forks and times, if they are not older."""

    async def stop(self, uid: str, request: EndRequest, *, known: bool) -> Verdict:
        """Request the run's end. An unknown run ends by that, unless it is `known` to have begun."""

    async def abandon(self, uid: str, request: EndRequest) -> Verdict:
        """Request the run's end without its cleanup. An unknown run ends by that."""

    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> Verdict:
        """End the back-off after these attempts of units, and after no others."""

    async def lease(self, uid: str, until: int) -> Verdict:
        """Renew the lease to `until` (unix milliseconds)."""

    async def reset(self, uid: str, resource: str, member: str, by: str) -> Verdict:
        """Give a resource another pool member in place of the one with this name. `CLOSED`: the run is ending.

        It has no effect if the resource has another member by now, or if something depends on its outputs.
        """

    async def control_pool(self, uid: str, action: wire.PoolAction, by: str) -> Verdict:
        """Pause, resume or drain a pool, until the next action. `CLOSED`: the pool is being deleted."""

    async def acknowledge(self, uids: tuple[str, ...]) -> None:
        """Record that the server knows these ends; they may be forgotten later."""

    async def answer_query(self, query: wire.RunQuery) -> wire.Answer:
        """Answer a query for a run's outputs, history or logs. An unknown run has none."""


class LeakHost(Protocol):
    """The leak checks of a host."""

    async def execute(self, order: wire.LeakOrder) -> Verdict:
        """Create, change or delete a check, or list soon. `UNKNOWN`: there is no such check.

        Raises:
            DocumentsRefusedError: this host cannot run the steps of the check.
        """

    def reports(self) -> tuple[LeakReport, ...]:
        """Return the state of all checks, by name."""

    async def resource_states(self, tokens: Sequence[ResourceToken]) -> dict[str, str]:
        """Return the states of the runs of those resources that this host has made according to their tokens, by ID."""


class RunDataHost(Protocol):
    """A host that can answer queries for runs at once (`run_queries.answer`)."""

    def values(self, uid: str) -> tuple[Value, ...]:
        """Return all recorded outputs of a living run."""

    def history(self, uid: str) -> tuple[HistoryEntry, ...]:
        """Return the history of the run's ledger, also after its end."""

    def logs(self, uid: str) -> tuple[LogInfo, ...]:
        """Return which logs exist, also after the run's end, the attempts of a unit in order."""

    def read_log(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        """Return bytes of one log from `offset`; None if there is no such log."""

    def log_times(self, uid: str, unit: str, attempt: int) -> Sequence[TimeEntry]:
        """Return when the parts of one log were printed; empty if that is unknown."""
