"""Send orders to hosts until they are confirmed.

A request writes the store first and then sends the order to the host. An order is pending until the host has confirmed
it in its current session, so in a new session all orders are pending. Each round resends pending orders. Therefore a
start, a crash at any point, lost messages and an unreachable host need no other handling. If a host gains or loses
routing, its orders have another meaning and are resent, too. Records of ended runs leave the store here.

If several servers share a host's session, its confirmations are in the store (`records.confirmations`). Otherwise they
end with this process, as the session does. Each server separately keeps the starts of leases, the problems of orders
and the reports of hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from dayfly.lib.clock import now_ms
from dayfly.link.server_end import HostFailedError
from dayfly.link.wire import Abandon, Lease, Offer, RunEnded, Stop, Verdict
from dayfly.plan.reasons import Reason
from dayfly.plan.why import obstacle_subject
from dayfly.server.catalog import run_specs
from dayfly.server.cpu_timer import CpuTimer, run_round
from dayfly.server.db.store import StoreError, WriteConflictError
from dayfly.server.records import confirmations, run_records, tombstones
from dayfly.server.records.confirmations import NO_CONFIRMATION, Confirmation, Confirmations
from dayfly.server.records.run_records import POOLS
from dayfly.server.records.unreadable_rows import UnreadableError
from dayfly.spec.errors import SpecError
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError
from dayfly.spec.lifecycle import API_VERSION, Target
from dayfly.spec.resource_pool import KIND as POOL_KIND
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from dayfly.compile import Compiled
    from dayfly.link.server_end import Link, Links
    from dayfly.link.transport import CompileTarget
    from dayfly.link.wire import Order
    from dayfly.server.catalog.run_specs import CompiledRun
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunEntry, RunRecord

ROUND_INTERVAL_S = 2.0
# The pause after a round is a multiple of its CPU time, so that rounds use about one percent of a core. While pending
# orders succeed, the pause is shorter by `PROGRESS_FACTOR`.
PAUSE_PER_WORK, PROGRESS_FACTOR = 99, 11
MAX_PAUSE_S = 30.0
# The longest wait of a request for a host with an agent. The order continues, and is resent if it fails.
CALLER_WAIT_S = 0.05
MAX_CONCURRENT_ORDERS = 128
# Records that are checked before other tasks run.
CHECK_BATCH_SIZE = 500
LEDGER_LOST = (
    "the cluster's ledger no longer knows this {noun}, so it is unknown what was created: nothing is started or "
    "cleaned up. Restore the ledger, or delete the {noun} and skip its cleanup with dayfly abandon"
)
INTERNAL_ERROR = (
    "the order to the cluster failed because of an internal error of Dayfly; the server's log has the details"
)
NO_POOLS = "it has no resource pools; upgrade its operator"
EXPIRED = "its time to live was over before a host received it"

log = logging.getLogger(__name__)


class _Candidate(NamedTuple):
    """A run whose order may be pending; `confirmation` is the one in the store."""

    entry: RunEntry
    link: Link | None
    confirmation: Confirmation


class HostSync:
    """The pending orders of one server. Callers hold `lock(org, key)` while they change a record or send its order.

    An order may still be under way when its sender releases the lock, so a host may receive two orders of a run in
    either sequence. It applies the later one by number.
    """

    def __init__(self, store: Store, links: Links) -> None:
        self._store = store
        self._links = links
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._confirmations = Confirmations(store)
        # Runs archived since the current round has read the store.
        self._archived: set[str] = set()
        # CPU seconds of the tasks of a round.
        self._task_seconds = 0.0
        # Whether an order of this round succeeded.
        self._has_progress = False
        # By UID: the end of its lease, in Unix milliseconds.
        self._leases: dict[str, int] = {}
        # For a sandbox, by organisation and UID: by baseline, the keys of route groups that route to its forks.
        self.routing_keys: Callable[[str, str], dict[str, tuple[str, ...]]] = lambda _org, _uid: {}
        # Must be awaited first, with the organisation: an order without a key would remove the key's routes.
        self.load_routing_keys: Callable[[str], Awaitable[None]] = _load_nothing
        # By UID: the order that a request is sending.
        self._sending: dict[str, asyncio.Task[None]] = {}
        # Set by each order.
        self.order_sent = asyncio.Event()
        self._problems: dict[str, str] = {}
        # The runs whose newest spec the host rejects.
        self._refused: set[str] = set()

    def lock(self, org: str, name: str) -> asyncio.Lock:
        """Return the lock of the run with that `RunRecord.key`. It only locks within this process."""
        return self._locks.setdefault((org, name), asyncio.Lock())

    def problem(self, uid: str) -> str:
        """Return why the host has not received the newest spec of this run; empty if it has."""
        return self._problems.get(uid, "")

    def is_refused(self, uid: str) -> bool:
        """Return whether the host rejects the spec, so that resending it would not help."""
        return uid in self._refused

    def link(self, record: RunRecord[Any]) -> Link | None:
        """Return the link to the host that serves its cluster now."""
        return self._links.get(record.org, record.cluster)

    async def send_order_soon(self, record: RunRecord[Any], compiled: CompiledRun | None = None) -> None:
        """Send the order as `send_order`, in a task. For a host with an agent, wait at most `CALLER_WAIT_S` for it."""
        sending = self._sending[record.uid] = asyncio.create_task(self.send_order(record, compiled))
        sending.add_done_callback(lambda ended: self._forget_task(record.uid, ended))
        link = self.link(record)
        await asyncio.wait({sending}, timeout=CALLER_WAIT_S if link is not None and link.shared else None)

    def _forget_task(self, uid: str, ended: asyncio.Task[None]) -> None:
        if self._sending.get(uid) is ended:
            del self._sending[uid]

    def awaits_first_answer(self, record: RunRecord[Any]) -> bool:
        """Return whether the first offer is under way to its host, which cannot know the run yet."""
        return record.uid in self._sending and not self._confirmations.has_run(record)

    async def send_order(self, record: RunRecord[Any], compiled: CompiledRun | None = None) -> None:
        """Send the host the order that follows from a record. A failed order is pending and will be resent.

        Args:
            record: As it is stored.
            compiled: The compiled run, if the caller has it. It is compiled again if target or keys have changed.
        """
        self._confirmations.discard(record.uid)
        self.order_sent.set()
        try:
            link = self.link(record)
            if link is None:
                self._set_problem(record, f"no host serves the cluster {record.cluster} now; it waits until one does")
            else:
                await self._send(record, link, compiled)
        except (HostUnavailableError, StoreError, UnreadableError) as fault:
            self._set_problem(record, f"the cluster cannot receive the order now; it will be resent: {fault}")
        except DocumentsRefusedError as fault:
            self._set_problem(record, f"the cluster cannot run this: {fault}", refused=True)
        except SpecError as fault:
            # Another version of Dayfly has stored it. Its run, if it exists, continues.
            self._set_problem(record, f"it no longer compiles: {fault}", refused=True)
        except HostFailedError:
            self._set_problem(record, INTERNAL_ERROR)  # the host has logged the details
        except Exception:
            # The order stays pending; a faulty sandbox must not block the others.
            if self.problem(record.uid) != INTERNAL_ERROR:
                log.exception("the order for %s (%s) failed", obstacle_subject(record.key), record.uid)
            self._set_problem(record, INTERNAL_ERROR)

    async def renew_lease(self, record: RunRecord[Any], seconds: int) -> int | None:
        """Renew a lease from now on; return its end in Unix milliseconds, or None if the run is closing.

        If no host has the run yet, its lease begins with the run.
        """
        link = self.link(record)
        until = now_ms() + seconds * 1000
        if link is None:
            return None
        answer = await link.order(Lease(uid=record.uid, until=until))
        if isinstance(answer, RunEnded):
            return None
        if answer.verdict is Verdict.TAKEN:
            self._leases[record.uid] = until
            return until
        return until if answer.verdict is Verdict.UNKNOWN and not self._confirmations.has_run(record) else None

    async def is_over(self, record: RunRecord[Any]) -> bool:
        """Return whether the run has ended; if so, archive its record."""
        link = self.link(record)
        if link is None or not link.state.has_ended(record.uid):
            return False
        await self._archive(record)
        return True

    async def run(self) -> None:
        """Resend pending orders and archive ended runs, until cancelled."""
        storing = asyncio.create_task(self._confirmations.run())
        try:
            await self._run_rounds()
        finally:
            tasks = [storing, *self._sending.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_rounds(self) -> None:
        while True:
            # The pause depends on CPU time: a slow disk or a busy machine must not delay pending orders.
            seconds = await run_round(self.sweep(), "a round of the sync", log) + self._task_seconds
            self._task_seconds = 0.0
            speed, self._has_progress = PROGRESS_FACTOR if self._has_progress else 1, False
            await asyncio.sleep(max(ROUND_INTERVAL_S, min(MAX_PAUSE_S, PAUSE_PER_WORK * seconds / speed)))

    async def sweep(self) -> None:
        """Run one round."""
        links = self._links.each()
        for each in links:
            each.resync()
        # Read before the store, so that a run which is missing in the store has left it.
        remembered = self._confirmations.uids | self._leases.keys() | self._problems.keys()
        host_states = {each: (each.state.ended_uids, each.state.known_uids) for each in links}
        entries, stored = await self._store.all_orgs().read(
            lambda rows: (run_records.read_entries(rows), confirmations.read(rows))
        )
        await self._send_pending(await self._find_pending(entries, stored))
        await self._confirmations.write()
        for uid in remembered - {entry.uid for entry in entries}:
            self._forget(uid)  # another server has archived it
        current = {entry.uid for entry in entries} - self._archived
        self._archived.clear()
        for each, (ended, known) in host_states.items():
            each.acknowledge(ended - current)
            each.state.forget_runs(known - current)  # a host may report any run

    async def _find_pending(self, entries: list[RunEntry], stored: Mapping[str, Confirmation]) -> list[_Candidate]:
        """Return the runs with pending orders, and runs that have ended."""
        found: list[_Candidate] = []
        for start in range(0, len(entries), CHECK_BATCH_SIZE):
            batch = [
                _Candidate(entry, self._links.get(entry.org, entry.cluster), stored.get(entry.uid, NO_CONFIRMATION))
                for entry in entries[start : start + CHECK_BATCH_SIZE]
            ]
            found += [each for each in batch if not self._is_settled(each)]
            await asyncio.sleep(0)
        return found

    def _is_settled(self, candidate: _Candidate) -> bool:
        """Return whether no order is pending. If so, clear its problem, which another server may have resolved."""
        entry, link, stored = candidate
        over = link is not None and link.state.has_ended(entry.uid)
        if over or not self._is_confirmed(entry, link, stored):
            return False
        if self.problem(entry.uid):
            self._clear_problem(entry.uid)
            self.order_sent.set()
        return True

    async def _send_pending(self, pending: list[_Candidate]) -> None:
        """Send pending orders concurrently, because a distant host answers late.

        Orders that may be new to their host come first. The rest is shuffled: if servers keep crashing before they
        finish, no run must be the last one each time.
        """
        random.shuffle(pending)
        queue = iter(sorted(pending, key=lambda each: not each.entry.needs_order))
        works = [CpuTimer(self._send_each(queue)) for _ in range(min(MAX_CONCURRENT_ORDERS, len(pending)))]
        try:
            ended = await asyncio.gather(*(work.wait() for work in works), return_exceptions=True)
        finally:
            self._task_seconds += sum(work.seconds for work in works)
            for work in works:
                work.close()
        for fault in ended:
            if fault is not None:
                raise fault

    async def _send_each(self, queue: Iterator[_Candidate]) -> None:
        for each in queue:
            entry = each.entry
            try:
                await self._settle(each)
            except (StoreError, WriteConflictError):
                raise
            except UnreadableError as fault:
                # An unreadable record must not block the others.
                fault.log_once()
                self._problems[entry.uid] = fault.text
            except Exception:
                if self.problem(entry.uid) != INTERNAL_ERROR:
                    log.exception("the order for %s (%s) failed", obstacle_subject(entry.name), entry.uid)
                    self._problems[entry.uid] = INTERNAL_ERROR
            await self._confirmations.write_if_many()

    async def _settle(self, candidate: _Candidate) -> None:
        """Send the run's order, or archive the run if it has ended."""
        entry, link, _ = candidate
        if entry.uid in self._sending:
            await asyncio.wait({self._sending[entry.uid]})
        async with self.lock(entry.org, entry.name):
            if link is not None:
                # Confirmations count in a session, which is unknown before the host has sent its inventory.
                with contextlib.suppress(HostUnavailableError):
                    await self._wait_for_session(entry.org, link)
            if self._is_settled(candidate):
                return
            record, stored = await self._read(entry)
            if record is None:
                return
            if not await self.is_over(record) and not self._is_confirmed(record, link, stored):
                await self.send_order(record)
            self._has_progress = self._has_progress or not self.problem(record.uid)

    async def _wait_for_session(self, org: str, link: Link) -> tuple[int, CompileTarget]:
        """Return the host's session and compile target; if it routes requests, load routing keys first."""
        session, target = await link.wait_for_session()
        if target.routes:
            await self.load_routing_keys(org)
        return session, target

    async def _read(self, entry: RunEntry) -> tuple[RunRecord[Any] | None, Confirmation]:
        """Read the current record and its confirmation, which another server may have received."""

        def read(rows: Rows) -> tuple[RunRecord[Any] | None, Confirmation]:
            return run_records.find_by_key(rows, entry.name), confirmations.read(rows, [entry.uid]).get(
                entry.uid, NO_CONFIRMATION
            )

        record, stored = await self._store.for_org(entry.org).read(read)
        return (record if record is not None and record.uid == entry.uid else None), stored

    async def _send(self, record: RunRecord[Any], link: Link, given: CompiledRun | None) -> None:
        """Send the order of a record and handle the answer.

        The order needs the target that the host reports when it connects. Without this report an order would be
        compiled without routing, and would remove the host's routes.
        """
        session, target = await self._wait_for_session(record.org, link)
        keys = self.routing_keys(record.org, record.uid)
        compiled = given.compiled if given is not None and (given.target, given.keys) == (target, keys) else None
        answer = await link.order(await self._create_order(record, target, keys, compiled))
        if isinstance(answer, RunEnded):
            await self._archive(record)
        elif answer.verdict is Verdict.TAKEN:
            fingerprint = confirmations.compute_fingerprint(record.revision, target, keys)
            self._confirmations.record(record, link, Confirmation(session, answer.number, fingerprint))
            self._clear_problem(record.uid)
        else:
            self._set_problem(record, LEDGER_LOST.format(noun=record.kind.noun))

    async def _create_order(
        self,
        record: RunRecord[Any],
        target: CompileTarget,
        keys: Mapping[str, Sequence[str]],
        compiled: Compiled | None,
    ) -> Order:
        known = self._confirmations.has_run(record)
        if record.abandon is not None:
            return Abandon(uid=record.uid, request=record.abandon)
        if record.stop is not None:
            return Stop(uid=record.uid, request=record.stop, known=known)
        if 0 < record.expires_at <= now_ms() and not known:
            # If a host has received it without our knowledge, the run ends; otherwise it never starts.
            request = EndRequest(at=now_ms(), reason=Reason.EXPIRED, message=EXPIRED)
            return Stop(uid=record.uid, request=request)
        if record.kind is POOLS and not target.pools:
            raise DocumentsRefusedError(NO_POOLS)
        if compiled is None:
            compiled = await self._store.for_org(record.org).read(
                lambda rows: run_specs.compile_run(rows, record, target, keys)
            )
        if record.lease_seconds and (record.uid not in self._leases or not known):
            # Clients could not renew it without a server or a run, so it starts with this process or with the run.
            self._leases[record.uid] = now_ms() + record.lease_seconds * 1000
        return Offer(
            uid=record.uid,
            generation=record.updated_at,
            birth=not known,
            name=record.name,
            routing_key=record.routing_key,
            target=_find_target(record, compiled, target),
            documents=compiled.documents,
            forks=compiled.forks,
            expires_at=record.expires_at,
            lease_until=self._leases.get(record.uid, 0),
            pool=record.spec if isinstance(record.spec, ResourcePoolSpec) else None,
        )

    def _is_confirmed(self, record: RunEntry | RunRecord[Any], link: Link | None, stored: Confirmation) -> bool:
        return self._confirmations.is_confirmed(record, link, stored, self.routing_keys(record.org, record.uid))

    async def _archive(self, record: RunRecord[Any]) -> None:
        link = self.link(record)
        last = link.state.last_report(record.uid) if link is not None else None
        report = last.report if last is not None else None
        # An administrator of its host may also have abandoned it.
        abandoned = record.abandon is not None or (report.abandon is not None if report is not None else None)
        stop = (report.abandon or report.closed) if report is not None else None
        if stop is None and 0 < record.expires_at <= now_ms():
            stop = EndRequest(at=record.expires_at, reason=Reason.EXPIRED)
        failed = link is not None and link.state.had_failed(record.uid)
        await self._store.for_org(record.org).write(
            lambda rows: tombstones.archive(rows, record, now_ms(), abandoned=abandoned, stop=stop, failed=failed)
        )
        self._archived.add(record.uid)
        self._forget(record.uid)

    def _forget(self, uid: str) -> None:
        self._confirmations.forget(uid)
        self._leases.pop(uid, None)
        self._clear_problem(uid)

    def _clear_problem(self, uid: str) -> None:
        self._problems.pop(uid, None)
        self._refused.discard(uid)

    def _set_problem(self, record: RunRecord[Any], problem: str, *, refused: bool = False) -> None:
        (self._refused.add if refused else self._refused.discard)(record.uid)
        if self._problems.get(record.uid) != problem:
            log.warning("%s (%s): %s", obstacle_subject(record.key), record.uid, problem)
            self._problems[record.uid] = problem


def _find_target(record: RunRecord[Any], compiled: Compiled, target: CompileTarget) -> Target:
    """Return the target of an order. The documents of a pool are a template, whose target has no name."""
    if record.kind is not POOLS:
        return compiled.documents[-1].target
    return Target(
        api_version=API_VERSION,
        kind=POOL_KIND,
        namespace=target.namespace,
        name=record.name,
        uid=record.uid,
    )


async def _load_nothing(_org: str) -> None:
    """Do nothing: the server has no route groups."""
