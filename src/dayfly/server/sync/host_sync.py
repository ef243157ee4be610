"""Give hosts the orders that follow from the store, until they have confirmed them.

The store is written first, then the host gets its order. Orders that a host has not confirmed in its session are
pending, in a new session all of them, and each round resends them. So a start, a crash at any point, lost messages and
a host that was away are one case. If a host gains or loses routing, orders have another meaning and are resent, too.
A sandbox whose run is over leaves the store here.

If several servers share a host's session, what the host has confirmed is in the store (`confirmations`). Otherwise it
ends with this process, as the session does. Other servers do not know what else this process remembers: when leases
began, why a host does not know a spec, and what the host has reported. Each server finds that out by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from dayfly.link.server_end import HostFailedError
from dayfly.link.wire import Abandon, Ended, Lease, Offer, Stop, Verdict
from dayfly.plan.reasons import Reason
from dayfly.plan.why import subject
from dayfly.server.catalog import run_specs
from dayfly.server.cpu_timer import CpuTimer
from dayfly.server.db.store import StoreError, WriteConflictError
from dayfly.server.records import confirmations, run_records, tombstones
from dayfly.server.records.confirmations import NO_CONFIRMATION, Confirmation, Confirmations
from dayfly.server.records.unreadable_rows import UnreadableError
from dayfly.spec.errors import SpecError
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError
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

SWEEP_S = 2.0
# Rounds over many sandboxes come less often, so that they take about a hundredth of the time; while pending orders
# succeed, `HASTE` times as often.
PAUSE_PER_WORK, HASTE = 99, 11
LONGEST_PAUSE_S = 30.0
# The longest wait of a caller for a host that dials in. The order goes on, and is resent if it fails.
CALLER_WAIT_S = 0.05
MOST_AT_ONCE = 128
# Records checked before other tasks run.
AT_A_TIME = 500
LOST = (
    "the cluster's ledger no longer knows this sandbox, so nobody knows what was created: nothing is started or "
    "cleaned up. Restore the ledger, or delete it and give the cleanup up with dayfly abandon"
)
DEFECT = "the cluster could not be told because of an internal error of Dayfly; the server's log has the details"
EXPIRED = "its time to live was over before any host took it up"

log = logging.getLogger(__name__)


class _Owed(NamedTuple):
    entry: RunEntry
    link: Link | None
    told: Confirmation


class HostSync:
    """The pending orders of one server. Callers hold `lock(org, key)` while they change a record or give its order.

    An order may be under way when the lock is free again: two orders of one run may come in either order.
    """

    def __init__(self, store: Store, links: Links) -> None:
        self._store = store
        self._links = links
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._confirmations = Confirmations(store)
        self._archived: set[str] = set()
        # CPU seconds that rounds took in other tasks.
        self._worked_beside = 0.0
        # Whether an order of this round succeeded.
        self._paid = False
        self._leases: dict[str, int] = {}
        # For a sandbox, by organisation and UID: the keys of route groups that lead to its forks, by baseline.
        self.routed: Callable[[str, str], dict[str, tuple[str, ...]]] = lambda _org, _uid: {}
        # Called before that, with the organisation: a missing key would remove its routes.
        self.grouped: Callable[[str], Awaitable[None]] = _nobody
        # By UID the order that is under way for a caller.
        self._telling: dict[str, asyncio.Task[None]] = {}
        # Set with each order, for tasks that follow all sandboxes.
        self.told = asyncio.Event()
        self._troubles: dict[str, str] = {}
        # The runs whose newest spec the host refuses.
        self._refused: set[str] = set()

    def lock(self, org: str, name: str) -> asyncio.Lock:
        """Return the lock of the run with that name, or that `RunRecord.key`; it is for this process alone."""
        return self._locks.setdefault((org, name), asyncio.Lock())

    def trouble(self, uid: str) -> str:
        """Return why the host does not know the newest spec of this run; empty if it does."""
        return self._troubles.get(uid, "")

    def refuses(self, uid: str) -> bool:
        """Return whether the host refuses the spec, so that resending it changes nothing."""
        return uid in self._refused

    def link(self, record: RunRecord[Any]) -> Link | None:
        """Return the link to the host that serves its cluster now."""
        return self._links.of(record.org, record.cluster)

    async def tell_soon(self, record: RunRecord[Any], meant: CompiledRun | None = None) -> None:
        """Do the same as `tell`, but wait only `CALLER_WAIT_S` for a host that dials in; the order goes on alone."""
        telling = self._telling[record.uid] = asyncio.create_task(self.tell(record, meant))
        telling.add_done_callback(lambda ended: self._told(record.uid, ended))
        link = self.link(record)
        await asyncio.wait({telling}, timeout=CALLER_WAIT_S if link is not None and link.shared else None)

    def _told(self, uid: str, ended: asyncio.Task[None]) -> None:
        if self._telling.get(uid) is ended:
            del self._telling[uid]

    def awaits_first_answer(self, record: RunRecord[Any]) -> bool:
        """Return whether the first offer is under way to its host, which cannot know the run yet."""
        return record.uid in self._telling and not self._confirmations.has_run(record)

    async def tell(self, record: RunRecord[Any], meant: CompiledRun | None = None) -> None:
        """Give the host the order that follows from a record; an order that fails is pending and resent.

        Args:
            record: As it is stored.
            meant: The compiled order, if the caller has it. Place and keys may have changed since.
        """
        self._confirmations.discard(record.uid)
        self.told.set()
        try:
            link = self.link(record)
            if link is None:
                self._note(record, f"no host serves the cluster {record.cluster} now; it waits until one does")
            else:
                await self._give(record, link, meant)
        except (HostUnavailableError, StoreError, UnreadableError) as fault:
            self._note(record, f"the cluster cannot be told at the moment, and will be as soon as it can: {fault}")
        except DocumentsRefusedError as fault:
            self._note(record, f"the cluster cannot run this: {fault}", refused=True)
        except SpecError as fault:
            # Stored by a Dayfly with other rules. Its run, if it exists, goes on.
            self._note(record, f"it no longer compiles: {fault}", refused=True)
        except HostFailedError:
            self._note(record, DEFECT)  # whose details are in the log of the host
        except Exception:
            # The order stays pending; a faulty sandbox must not block the others.
            if self.trouble(record.uid) != DEFECT:
                log.exception("%s (%s) failed", subject(record.key), record.uid)
            self._note(record, DEFECT)

    async def renew(self, record: RunRecord[Any], seconds: int) -> int | None:
        """Renew a lease from now on; return its end in unix milliseconds, or None if the run is closing."""
        link = self.link(record)
        until = _now() + seconds * 1000
        if link is None:
            return None
        answer = await link.order(Lease(uid=record.uid, until=until))
        if isinstance(answer, Ended) or answer.verdict is not Verdict.TAKEN:
            return None
        self._leases[record.uid] = until
        return until

    async def is_over(self, record: RunRecord[Any]) -> bool:
        """Return whether the run has ended. If so, the record has left the store."""
        link = self.link(record)
        if link is None or not link.state.has_ended(record.uid):
            return False
        await self._archive(record)
        return True

    async def run(self) -> None:
        """Resend pending orders and archive ended runs, until cancelled."""
        marking = asyncio.create_task(self._confirmations.run())
        try:
            await self._rounds()
        finally:
            tasks = [marking, *self._telling.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rounds(self) -> None:
        while True:
            # Its CPU time and not its duration: a slow disk or a busy machine must not delay pending orders.
            round_ = CpuTimer(self.sweep())
            try:
                await round_
            except StoreError as fault:
                log.warning("the store cannot be used now: %s", fault)
            except Exception:
                # A faulty round must not end all others; its orders are still pending.
                log.exception("a round of the sync failed")
            worked, self._worked_beside = round_.seconds + self._worked_beside, 0.0
            haste, self._paid = HASTE if self._paid else 1, False
            await asyncio.sleep(max(SWEEP_S, min(LONGEST_PAUSE_S, PAUSE_PER_WORK * worked / haste)))

    async def sweep(self) -> None:
        """Run one round."""
        links = self._links.each()
        for each in links:
            each.mend()
        # Read before the store, so that a run which the store lacks has left it.
        mine = self._confirmations.uids | self._leases.keys() | self._troubles.keys()
        pictures = {each: (each.state.ended, each.state.known) for each in links}
        roll, told = await self._store.all_orgs().read(
            lambda rows: (run_records.read_entries(rows), confirmations.read(rows))
        )
        await self._pay(await self._owed(roll, told))
        await self._confirmations.write()
        for uid in mine - {entry.uid for entry in roll}:
            self._forget(uid)  # another server has archived it
        living = {entry.uid for entry in roll} - self._archived
        self._archived.clear()
        for each, (ended, known) in pictures.items():
            each.acknowledge(ended - living)
            each.state.forget_runs(known - living)  # a host may report any run

    async def _owed(self, roll: list[RunEntry], told: Mapping[str, Confirmation]) -> list[_Owed]:
        """Return the runs with pending orders, and those that have ended."""
        found: list[_Owed] = []
        for start in range(0, len(roll), AT_A_TIME):
            part = [
                _Owed(entry, self._links.of(entry.org, entry.cluster), told.get(entry.uid, NO_CONFIRMATION))
                for entry in roll[start : start + AT_A_TIME]
            ]
            found += [each for each in part if not self._settles(each)]
            await asyncio.sleep(0)
        return found

    def _settles(self, owed: _Owed) -> bool:
        """Return whether no order is pending. If so, an earlier problem is over, perhaps by another server."""
        entry, link, told = owed
        over = link is not None and link.state.has_ended(entry.uid)
        if over or not self._is_confirmed(entry, link, told):
            return False
        if self.trouble(entry.uid):
            self._no_trouble(entry.uid)
            self.told.set()
        return True

    async def _pay(self, owed: list[_Owed]) -> None:
        """Give pending orders, several at once, because a distant host answers late.

        First what its host may never have heard of. The rest in any order: a server that does not live long enough for
        all of it must not leave the same ones to the next, which would not either.
        """
        random.shuffle(owed)
        left = iter(sorted(owed, key=lambda each: not each.entry.waits))
        works = [CpuTimer(self._pay_each(left)) for _ in range(min(MOST_AT_ONCE, len(owed)))]
        try:
            ended = await asyncio.gather(*(work.done() for work in works), return_exceptions=True)
        finally:
            self._worked_beside += sum(work.seconds for work in works)
            for work in works:
                work.close()
        for fault in ended:
            if fault is not None:
                raise fault

    async def _pay_each(self, left: Iterator[_Owed]) -> None:
        for each in left:
            entry = each.entry
            try:
                await self._see_to(each)
            except (StoreError, WriteConflictError):
                raise
            except UnreadableError as fault:
                # An unreadable record must not block the others.
                fault.log_once()
                self._troubles[entry.uid] = fault.text
            except Exception:
                if self.trouble(entry.uid) != DEFECT:
                    log.exception("%s (%s) failed", subject(entry.name), entry.uid)
                    self._troubles[entry.uid] = DEFECT
            await self._confirmations.write_if_many()

    async def _see_to(self, owed: _Owed) -> None:
        entry, link, _ = owed
        if entry.uid in self._telling:
            await asyncio.wait({self._telling[entry.uid]})
        async with self.lock(entry.org, entry.name):
            if link is not None:
                # Confirmations are of a session, which is unknown before the inventory.
                with contextlib.suppress(HostUnavailableError):
                    await self._meet(entry.org, link)
            if self._settles(owed):
                return
            record, told = await self._find(entry)
            if record is None:
                return
            if not await self.is_over(record) and not self._is_confirmed(record, link, told):
                await self.tell(record)
            self._paid = self._paid or not self.trouble(record.uid)

    async def _meet(self, org: str, link: Link) -> tuple[int, CompileTarget]:
        """Return the host's session and place, after the keys of route groups are known if it routes requests."""
        session, place = await link.meet()
        if place.routes:
            await self.grouped(org)
        return session, place

    async def _find(self, entry: RunEntry) -> tuple[RunRecord[Any] | None, Confirmation]:
        """Return the record as it is stored now, and its confirmation, which another server may have received."""

        def read(rows: Rows) -> tuple[RunRecord[Any] | None, Confirmation]:
            return run_records.find_by_key(rows, entry.name), confirmations.read(rows, [entry.uid]).get(
                entry.uid, NO_CONFIRMATION
            )

        record, told = await self._store.for_org(entry.org).read(read)
        return (record if record is not None and record.uid == entry.uid else None), told

    async def _give(self, record: RunRecord[Any], link: Link, meant: CompiledRun | None) -> None:
        """Give the whole order of a record.

        First it is heard what the host leads: of one that does and has not said so yet all routes would be taken away.
        """
        session, place = await self._meet(record.org, link)
        keys = self.routed(record.org, record.uid)
        same = meant is not None and (meant.place, meant.keys) == (place, keys)
        answer = await link.order(await self._order(record, place, keys, meant.compiled if meant and same else None))
        if isinstance(answer, Ended):
            await self._archive(record)
        elif answer.verdict is Verdict.TAKEN:
            form = confirmations.compute_form(record.revision, place, keys)
            self._confirmations.record(record, link, Confirmation(session, answer.number, form))
            self._no_trouble(record.uid)
        else:
            self._note(record, LOST)

    async def _order(
        self, record: RunRecord[Any], place: CompileTarget, keys: Mapping[str, Sequence[str]], compiled: Compiled | None
    ) -> Order:
        known = self._confirmations.has_run(record)
        if record.abandon is not None:
            return Abandon(uid=record.uid, request=record.abandon)
        if record.stop is not None:
            return Stop(uid=record.uid, request=record.stop, known=known)
        if 0 < record.expires_at <= _now() and not known:
            # No host is known to have received it. If one has, the run ends; otherwise it never begins.
            request = EndRequest(at=_now(), reason=Reason.EXPIRED, message=EXPIRED)
            return Stop(uid=record.uid, request=request)
        if compiled is None:
            compiled = await self._store.for_org(record.org).read(
                lambda rows: run_specs.compiled(rows, record, place, keys)
            )
        if record.lease_seconds and (record.uid not in self._leases or not known):
            # It could not be renewed without a server or a run, so it begins with this process, or with the run.
            self._leases[record.uid] = _now() + record.lease_seconds * 1000
        return Offer(
            uid=record.uid,
            generation=record.updated_at,
            birth=not known,
            name=record.name,
            routing_key=record.routing_key,
            target=compiled.documents[-1].target,
            documents=compiled.documents,
            forks=compiled.forks,
            expires_at=record.expires_at,
            lease_until=self._leases.get(record.uid, 0),
        )

    def _is_confirmed(self, record: RunEntry | RunRecord[Any], link: Link | None, told: Confirmation) -> bool:
        return self._confirmations.is_confirmed(record, link, told, self.routed(record.org, record.uid))

    async def _archive(self, record: RunRecord[Any]) -> None:
        link = self.link(record)
        last = link.state.last_report(record.uid) if link is not None else None
        report = last.report if last is not None else None
        # The administrator of its host may have abandoned it, too.
        given_up = record.abandon is not None or (report.abandon is not None if report is not None else None)
        await self._store.for_org(record.org).write(
            lambda rows: tombstones.archive(rows, record, _now(), given_up=given_up)
        )
        self._archived.add(record.uid)
        self._forget(record.uid)

    def _forget(self, uid: str) -> None:
        self._confirmations.forget(uid)
        self._leases.pop(uid, None)
        self._no_trouble(uid)

    def _no_trouble(self, uid: str) -> None:
        self._troubles.pop(uid, None)
        self._refused.discard(uid)

    def _note(self, record: RunRecord[Any], trouble: str, *, refused: bool = False) -> None:
        (self._refused.add if refused else self._refused.discard)(record.uid)
        if self._troubles.get(record.uid) != trouble:
            log.warning("%s (%s): %s", subject(record.key), record.uid, trouble)
            self._troubles[record.uid] = trouble


async def _nobody(_org: str) -> None:
    """Do nothing: there are no groups."""


def _now() -> int:
    return time.time_ns() // 1_000_000
