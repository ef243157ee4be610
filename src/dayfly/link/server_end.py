"""A server's end of the link to one host: it numbers messages, waits for answers and keeps the host's state.

Any message may be lost. An order without an answer may have been executed or not, so its sender sends it again.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dayfly.lib.tasks import ChangeNotifier
from dayfly.link import wire
from dayfly.link.host_state import HostState
from dayfly.link.transport import LOCAL_TARGET
from dayfly.link.wire import Verdict
from dayfly.plan.status import with_current_clocks
from dayfly.spec.host_errors import DocumentsRefusedError, HostSilentError, HostUnavailableError
from dayfly.spec.run_data import HistoryEntry, LogInfo, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dayfly.link.transport import CompileTarget, HostTransport
    from dayfly.spec.lifecycle import Lifecycle, Unit

# The longest wait for an answer in seconds. A host in this process answers as soon as its ledger is on disk.
ANSWER_TIMEOUT_S = 20.0
# The longest wait in seconds for an answer that the caller does not depend on.
OPTIONAL_ANSWER_TIMEOUT_S = 3.0
# The most runs in one question. Its answer is one message, and the size of a message over the network is limited.
QUERY_BATCH_SIZE = 100


class HostFailedError(Exception):
    """The host has a defect. The log of the host has the details."""


NO_ANSWER = (HostUnavailableError, HostFailedError, DocumentsRefusedError)
"""The errors of a query. Callers that do not depend on the answer catch them."""

A = TypeVar(
    "A",
    wire.RunStatuses,
    wire.Values,
    wire.History,
    wire.Logs,
    wire.Leaks,
    wire.ResourceStates,
    wire.LogBytes,
    wire.Reply,
)

log = logging.getLogger(__name__)


class Link:
    """The link to one host, which may serve several clusters of one organisation."""

    def __init__(
        self,
        host: HostTransport,
        org: str = "local",
        compile_target: Callable[[], CompileTarget] = lambda: LOCAL_TARGET,
        *,
        shared: bool = False,
    ) -> None:
        self.org = org
        self.shared = shared
        """Whether all replicas of the server share the session with the host. It then outlives this process."""
        self._compile_target = compile_target
        self.state = HostState()
        self._routes = self._pools = False
        self._parents = True
        self._host = host
        self._process = uuid.uuid4().hex
        self._number = 0
        self._inventory_requested = False
        self._send_error: HostUnavailableError | None = None
        self._inventory_received = asyncio.Event()
        self._silent = False
        self._waiting: dict[str, asyncio.Future[wire.Answer | wire.RunEnded]] = {}
        host.attach(self.receive)

    def compile_target(self) -> CompileTarget:
        """Return the target for which sandboxes of this host are compiled.

        Before the inventory has arrived, the abilities of the host are unknown, so `routes` and `pools` are false.
        `parents` is true, because a plugin with a parent is refused otherwise.
        """
        return self._compile_target()._replace(routes=self._routes, pools=self._pools, parents=self._parents)

    @property
    def has_inventory(self) -> bool:
        """Whether the inventory of the host has arrived."""
        return self._inventory_received.is_set()

    async def wait_for_session(self) -> tuple[int, CompileTarget]:
        """Wait for the inventory. Return the session, and the target for which sandboxes are compiled.

        Raises:
            HostUnavailableError: the inventory has not arrived in time.
        """
        await self._await_inventory(ANSWER_TIMEOUT_S)
        return self.session, self.compile_target()

    # --- messages of the host -----------------------------------------------------------------------------------------

    def receive(self, message: wire.AnyToServer) -> None:
        """Apply a message of the host; messages may come in any order."""
        self._silent = False
        if isinstance(message, wire.Inventory):
            self._apply_inventory(message)
        elif message.session != self.state.session:
            # The message is of an earlier session, or of a later one whose inventory was lost.
            if message.session > self.state.session:
                self._request_inventory()
        else:
            self._apply(message)

    def _apply_inventory(self, inventory: wire.Inventory) -> None:
        if inventory.session < self.state.session:
            return
        self._inventory_requested = False
        self._routes, self._pools, self._parents = inventory.routes, inventory.pools, inventory.parents
        begins = self.state.apply_inventory(inventory)
        self._inventory_received.set()
        if begins:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(HostSilentError("it has begun another session"))

    def _apply(self, message: wire.RunChanged | wire.RunEnded | wire.Heartbeat | wire.Answer) -> None:
        match message:
            case wire.RunChanged():
                self.state.record_status(message.run)
            case wire.RunEnded():
                self.state.record_end(message.run)
            case wire.Heartbeat():
                self.state.record_total(message.count)
                self._routes = self._routes if message.routes is None else message.routes
                return
        if message.count:
            self.state.record_count(message.count)
        if not isinstance(message, wire.RunChanged):
            future = self._waiting.get(message.id)
            if future is not None and not future.done():
                future.set_result(message)

    # --- messages to the host -----------------------------------------------------------------------------------------

    @property
    def session(self) -> int:
        """The host's session. Orders of an earlier session must be sent again."""
        return self.state.session

    def resync(self) -> None:
        """Request the inventory again if a report or the requested inventory is missing. Call it periodically."""
        if self._inventory_requested or self.state.has_gap:
            self._inventory_requested = False
            self._request_inventory()

    def _request_inventory(self) -> None:
        if self._inventory_requested:
            return
        self._inventory_requested = True
        self._send_error = None
        try:
            self._host.send(wire.Hello(number=self._next()))
        except HostUnavailableError as fault:
            self._inventory_requested, self._send_error = False, fault
            log.debug("the host is disconnected: %s", fault)

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def order(self, order: wire.Order) -> wire.Reply | wire.RunEnded:
        """Send an order and return the host's answer. With `Verdict.TAKEN`, the order is durable at the host.

        The `number` of a reply is the number of the order in the session.

        Raises:
            DocumentsRefusedError: the host can never execute the order.
            HostUnavailableError: the host cannot execute it now, or does not answer (`HostSilentError`).
            HostFailedError: the host has a defect.
        """
        answer = await self._exchange(order, ANSWER_TIMEOUT_S)
        if isinstance(answer, wire.RunEnded):
            return answer
        reply = _reply(answer)
        if reply.verdict is Verdict.TAKEN and reply.seq:
            self.state.record_status(wire.RunStatus(uid=order.uid, seq=reply.seq))
        return reply

    async def query(self, query: wire.Query, kind: type[A], seconds: float = ANSWER_TIMEOUT_S) -> A:
        """Send a query and return its answer of type `kind`. Wait for at most `seconds` and at most `ANSWER_TIMEOUT_S`.

        Raises:
            DocumentsRefusedError: the host refuses what the query is about, or does not know the query.
            HostUnavailableError: there is no answer now.
            HostFailedError: the host has a defect.
        """
        answer = await self._exchange(query, min(seconds, ANSWER_TIMEOUT_S))
        found = _reply(answer) if isinstance(answer, wire.Reply) else answer
        if isinstance(found, kind):
            return found
        raise HostFailedError(f"{type(query).__name__} was answered by {type(answer).__name__}")

    async def _exchange(self, message: wire.Order | wire.Query, seconds: float) -> wire.Answer | wire.RunEnded:
        await self._await_inventory(seconds)
        number = self._next()
        id_ = f"{self._process}.{number}"
        future: asyncio.Future[wire.Answer | wire.RunEnded] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = future
        try:
            self._host.send(msgspec.structs.replace(message, session=self.state.session, number=number, id=id_))
            if not future.done():
                await self._await_answer(future, seconds)
            return future.result()
        finally:
            del self._waiting[id_]

    async def _await_inventory(self, seconds: float) -> None:
        if self._inventory_received.is_set():
            return
        self._request_inventory()
        if self._send_error is not None:
            raise self._send_error
        if not self._inventory_received.is_set():
            waiting = asyncio.ensure_future(self._inventory_received.wait())
            try:
                await self._await_answer(waiting, seconds)
            finally:
                waiting.cancel()

    async def _await_answer(self, future: asyncio.Future[Any], seconds: float) -> None:
        # A host that did not answer in time is not awaited again until it has sent a message.
        if not self._silent:
            await asyncio.wait({future}, timeout=seconds)
        if not future.done():
            self._silent = True
            raise HostSilentError("it does not answer")

    def acknowledge(self, uids: Collection[str]) -> None:
        """Inform the host that these ends are recorded, so that it may forget them.

        If the message is lost, the host resends the ends.
        """
        if not uids:
            return
        self.state.forget_ends(uids)
        try:
            self._host.send(wire.Acknowledge(session=self.state.session, number=self._next(), uids=tuple(sorted(uids))))
        except HostUnavailableError as fault:
            log.debug("the host is disconnected: %s", fault)

    # --- queries ------------------------------------------------------------------------------------------------------

    async def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        """Refuse documents and forks that the host cannot run. Without an answer of the host, accept them.

        The host checks them again when it receives the offer.

        Raises:
            DocumentsRefusedError: the first thing that the host cannot run.
            HostFailedError: the host has a defect.
        """
        try:
            await self.query(
                wire.AdmissionQuery(documents=documents, forks=forks), wire.Reply, OPTIONAL_ANSWER_TIMEOUT_S
            )
        except HostUnavailableError as fault:
            log.info("stored without a check by the host: %s", fault)

    async def query_statuses(self, uids: Sequence[str]) -> tuple[dict[str, wire.RunStatus], str]:
        """Return the states of those runs that the host knows, and why they may be out of date (empty: they are not).

        Runs whose newest status has come with a report are not queried.
        """
        now = time.time_ns() // 1_000_000
        found = {uid: _advance_clocks(last, now) for uid in uids if (last := self.state.last_report(uid)) is not None}
        stale = tuple(uid for uid in uids if uid not in found or not self.state.is_fresh(found[uid]))
        if len(stale) <= QUERY_BATCH_SIZE:
            answers = [await self._query_batch(stale)] if stale else []
        else:
            parts = (stale[start : start + QUERY_BATCH_SIZE] for start in range(0, len(stale), QUERY_BATCH_SIZE))
            answers = await asyncio.gather(*map(self._query_batch, parts))
        queried = {run.uid: run for runs, _ in answers for run in runs}
        return found | queried, next((why for _, why in answers if why), "")

    async def _query_batch(self, uids: tuple[str, ...]) -> tuple[tuple[wire.RunStatus, ...], str]:
        """Query the states of these runs. Return them, or none and the reason why they are unknown."""
        try:
            runs = (await self.query(wire.StatusQuery(uids=uids), wire.RunStatuses, OPTIONAL_ANSWER_TIMEOUT_S)).runs
            for run in runs:
                self.state.record_failure(run)
            return runs, ""
        except HostUnavailableError as fault:
            return (), str(fault)
        except (HostFailedError, DocumentsRefusedError) as fault:
            # A defect of the host, or an unknown query, must not hide the runs of other clusters.
            log.warning("a host does not report the state of its runs: %s", fault)
            return (), str(fault)

    async def values(self, uid: str) -> tuple[Value, ...]:
        """Return all recorded outputs of a run that has not ended."""
        return (await self.query(wire.ValuesQuery(uid=uid), wire.Values)).values

    async def history(self, uid: str) -> tuple[HistoryEntry, ...]:
        """Return the history of the run's ledger, also after its end."""
        return (await self.query(wire.HistoryQuery(uid=uid), wire.History)).entries

    async def logs(self, uid: str) -> tuple[LogInfo, ...]:
        """Return which logs exist, also after the run's end."""
        return (await self.query(wire.LogsQuery(uid=uid), wire.Logs)).logs

    async def read_log(
        self, uid: str, unit: str, attempt: int, *, offset: int, limit: int, times: bool = False, since: int = 0
    ) -> wire.LogBytes:
        """Return bytes of one log from `offset`. If the log is missing, the answer lists the existing logs instead.

        Args:
            uid: The run.
            unit: The unit.
            attempt: The number of the attempt; 0 for the newest.
            offset: The offset of the first byte.
            limit: The maximum number of bytes.
            times: Whether to return when the bytes were printed.
            since: Unix milliseconds. Lines printed earlier are left out; 0 for all lines.
        """
        where = wire.LogQuery(uid=uid, unit=unit, attempt=attempt, offset=offset, limit=limit, times=times, since=since)
        return await self.query(where, wire.LogBytes)


def _advance_clocks(status: wire.RunStatus, now: int) -> wire.RunStatus:
    """Return a status in which the times in messages of its report are those of `now`."""
    return msgspec.structs.replace(status, report=status.report and with_current_clocks(status.report, now))


def _reply(answer: wire.Answer | wire.RunEnded) -> wire.Reply:
    if not isinstance(answer, wire.Reply):
        raise HostFailedError(f"an order was answered by {type(answer).__name__}")
    match answer.verdict:
        case Verdict.REFUSED:
            raise DocumentsRefusedError(answer.message)
        case Verdict.UNAVAILABLE:
            raise HostUnavailableError(answer.message)
        case Verdict.FAILED:
            raise HostFailedError(answer.message)
    return answer


class Links:
    """Links by organisation and cluster. Clusters with agents are added and removed while the server runs.

    Args:
        notifier: Notified whenever a host has reported anything about its runs.
    """

    def __init__(self, notifier: ChangeNotifier | None = None) -> None:
        self._notifier = notifier or ChangeNotifier()
        self._links: dict[tuple[str, str], Link] = {}

    def add(self, org: str, hosts: Mapping[str, HostTransport]) -> None:
        """Add links to the hosts of an organisation, by cluster. A host that serves several clusters has one link."""
        links = {id(host): Link(host, org) for host in {id(host): host for host in hosts.values()}.values()}
        for name, host in hosts.items():
            self._join(name, links[id(host)])

    def add_link(self, cluster: str, link: Link) -> None:
        """Add the link to the host of a cluster, unless the cluster has one."""
        if (link.org, cluster) not in self._links:
            self._join(cluster, link)

    def _join(self, cluster: str, link: Link) -> None:
        self._links[link.org, cluster] = link
        link.state.on_change = self._notifier.notify
        self._notifier.notify()

    def remove(self, org: str, cluster: str) -> None:
        """Remove the link of a cluster."""
        self._links.pop((org, cluster), None)
        self._notifier.notify()

    def get(self, org: str, cluster: str) -> Link | None:
        """Return the link to the host that serves a cluster now; None if there is none."""
        return self._links.get((org, cluster))

    def clusters(self, org: str) -> set[str]:
        """Return the clusters of an organisation that have a host now."""
        return {cluster for owner, cluster in self._links if owner == org}

    async def query_statuses(
        self, uids: Mapping[tuple[str, str], Collection[str]]
    ) -> dict[tuple[str, str], tuple[dict[str, wire.RunStatus], str]]:
        """Return the result of `Link.query_statuses` for each cluster. Clusters are queried concurrently."""

        async def query(where: tuple[str, str]) -> tuple[dict[str, wire.RunStatus], str]:
            link = self._links.get(where)
            return await link.query_statuses(sorted(uids[where])) if link else ({}, "")

        return dict(zip(uids, await asyncio.gather(*map(query, uids)), strict=True))

    def each(self, org: str = "") -> set[Link]:
        """Return all links, or those of one organisation. A link for several clusters appears once."""
        return {link for link in self._links.values() if org in ("", link.org)}
