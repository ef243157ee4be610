"""Sees to it that the hosts do what the store says, whatever was lost between the two.

The store is written first, then the host is told. Whatever a host has not confirmed to this process is owed to it: a
fresh process owes everything, and the sweep pays. So a start, a crash at any point and a host that was away are one
case. A sandbox whose run is over leaves the store here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from dayfly.control import baselines, records, wishes
from dayfly.control.port import HostUnavailableError
from dayfly.control.store import StoreError
from dayfly.spec.errors import SpecError
from dayfly.spec.wire import Offer

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Mapping

    from dayfly.compile import Compiled
    from dayfly.control.port import Host
    from dayfly.control.records import Record
    from dayfly.control.store import Store
    from dayfly.spec.workload import Workload

SWEEP_S = 2.0
# Rounds over very many sandboxes come less often, so that they take about a hundredth of the time.
PAUSE_PER_WORK = 99
LONGEST_PAUSE_S = 30.0
LOST = (
    "the cluster's ledger no longer knows this sandbox, so nobody knows what was created: nothing is started or "
    "cleaned up. Restore the ledger, or give the cleanup up with dayfly abandon"
)

log = logging.getLogger(__name__)


class HostSync:
    """One for each server. Callers hold `lock(name)` while they change or tell about the sandbox of that name."""

    def __init__(self, store: Store, hosts: Mapping[str, Host], org: str) -> None:
        self._store = store
        self._hosts = hosts
        self._org = org
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._confirmed: set[str] = set()
        self._unmarked: set[str] = set()
        # Namespace and name of baselines owed to the hosts; None for all.
        self._baselines: set[tuple[str, str]] | None = None
        self._paying = asyncio.Lock()
        self._leases: dict[str, int] = {}
        self._troubles: dict[str, str] = {}

    def lock(self, name: str) -> asyncio.Lock:
        """Whoever holds it is alone with the sandbox of that name."""
        return self._locks.setdefault(name, asyncio.Lock())

    def trouble(self, uid: str) -> str:
        """Why the host does not know the newest wish for this sandbox; empty if it does."""
        return self._troubles.get(uid, "")

    def host(self, record: Record) -> Host | None:
        """The host that serves its cluster now."""
        return self._hosts.get(record.cluster)

    async def tell(self, record: Record, compiled: Compiled | None = None) -> None:
        """Let the host know what the store says of a sandbox; what fails is owed and tried again.

        Args:
            record: As it is stored.
            compiled: What it means, if the caller has it.
        """
        self._confirmed.discard(record.uid)
        try:
            host = self.host(record)
            if host is None:
                self._note(record, f"no host serves the cluster {record.cluster} now")
            elif self._is_lost(record, host):
                self._note(record, LOST)
            elif record.stop is not None:
                await self._end(record, host)
            else:
                await self._offer(record, host, compiled)
        except (HostUnavailableError, StoreError) as fault:
            self._note(record, f"the cluster cannot be told at the moment, and will be as soon as it can: {fault}")
        except SpecError as fault:
            # Stored by a Dayfly with other rules. Its run, if there is one, goes on.
            self._note(record, f"it no longer compiles: {fault}")
        except Exception:
            # The wish is stored and stays owed; one faulty sandbox must not keep the others from being told.
            trouble = (
                "the cluster could not be told because of an internal error of Dayfly; the server's log has the details"
            )
            if self.trouble(record.uid) != trouble:
                log.exception("sandbox %s (%s) failed", record.name, record.uid)
            self._note(record, trouble)

    async def renew(self, record: Record, seconds: int) -> int | None:
        """Give a sandbox so many seconds from now; returns until when (unix milliseconds), or None if it is closing."""
        host = self.host(record)
        until = _now() + seconds * 1000
        if host is None or not await host.lease(record.uid, until):
            return None
        self._leases[record.uid] = until
        return until

    async def is_over(self, record: Record) -> bool:
        """Whether the sandbox's run has ended. If so it has left the store."""
        host = self.host(record)
        if host is None or not host.has_ended(record.uid):
            return False
        await self._bury(record)
        return True

    async def hand_over_baseline(self, namespace: str, name: str) -> None:
        """Let all hosts know a baseline's stored form; what fails is owed and tried again."""
        if self._baselines is not None:
            self._baselines.add((namespace, name))
        try:
            await self.hand_over_baselines()
        except StoreError as fault:
            log.warning("the store cannot be used now: %s", fault)

    async def hand_over_baselines(self) -> None:
        """Give the hosts those baselines that they are owed: all at the first call.

        Raises:
            StoreError: the store cannot be read; they stay owed.
        """
        async with self._paying:
            # Taken before the store is read: whoever adds one later has committed what this reading may have missed.
            owed, self._baselines = self._baselines, set()
            if owed is not None and not owed:
                return
            unpaid = owed
            try:
                known = await self._store.read(lambda connection: baselines.known(connection, self._org))
                unpaid = set(known) if owed is None else owed & set(known)
                for key in sorted(unpaid):
                    if await self._hand_over(known[key]):
                        unpaid.discard(key)
            finally:
                self._baselines = None if unpaid is None else self._baselines | unpaid

    async def run(self) -> None:
        """Pay what is owed and archive what has ended, until cancelled."""
        while True:
            # Its own work, not its waiting: a disk that stalls, or others who are busy, must not put off what is owed.
            round_ = _Worked(self.sweep())
            try:
                await round_
            except StoreError as fault:
                log.warning("the store cannot be used now: %s", fault)
            except Exception:
                # One faulty round must not end all others; what it left undone is still owed.
                log.exception("a round of the sync failed")
            await asyncio.sleep(max(SWEEP_S, min(LONGEST_PAUSE_S, PAUSE_PER_WORK * round_.seconds)))

    async def sweep(self) -> None:
        """One round."""
        await self.hand_over_baselines()
        for uid, name, cluster in await self._store.read(lambda connection: records.roll(connection, self._org)):
            host = self._hosts.get(cluster)
            if uid in self._confirmed and not (host is not None and host.has_ended(uid)):
                continue
            async with self.lock(name):
                record = await self._find(uid, name)
                if record is not None and not await self.is_over(record) and record.uid not in self._confirmed:
                    await self.tell(record)
        if uids := sorted(self._unmarked):
            await self._store.write(lambda connection: records.mark_taken_over(connection, uids))
            self._unmarked.difference_update(uids)
        for host in self._hosts.values():
            host.caught_up()

    async def _hand_over(self, workload: Workload) -> bool:
        try:
            for host in self._hosts.values():
                await host.baseline(workload)
        except HostUnavailableError as fault:
            log.warning("baseline %s/%s cannot be handed over now: %s", workload.namespace, workload.name, fault)
            return False
        except Exception:
            # Trying again would not help; sandboxes must not wait for it.
            log.exception("baseline %s/%s failed; apply it again", workload.namespace, workload.name)
        return True

    async def _find(self, uid: str, name: str) -> Record | None:
        record = await self._store.read(lambda connection: records.find(connection, self._org, name))
        return record if record is not None and record.uid == uid else None

    async def _offer(self, record: Record, host: Host, compiled: Compiled | None) -> None:
        if 0 < record.expires_at <= _now() and host.report(record.uid) is None:
            # Its time was over before any host heard of it.
            await self._bury(record)
            return
        if compiled is None:
            compiled = await self._store.read(lambda connection: wishes.compiled(connection, self._org, record))
        if record.lease_seconds and (record.uid not in self._leases or host.report(record.uid) is None):
            # Nobody could renew it while there was no server, or no run: it begins with this process, or with the run.
            self._leases[record.uid] = _now() + record.lease_seconds * 1000
        offer = Offer(
            uid=record.uid,
            name=record.name,
            target=compiled.documents[-1].target,
            documents=compiled.documents,
            forks=compiled.forks,
            expires_at=record.expires_at,
            lease_until=self._leases.get(record.uid, 0),
        )
        await host.offer(offer)
        self._confirm(record)
        if not record.taken_over:
            self._unmarked.add(record.uid)

    async def _end(self, record: Record, host: Host) -> None:
        if record.abandon is not None:
            known = await host.abandon(record.uid, record.abandon)
        else:
            assert record.stop is not None, "told only of those that are to end"
            known = await host.stop(record.uid, record.stop)
        if known:
            self._confirm(record)
        else:
            await self._bury(record)

    def _is_lost(self, record: Record, host: Host) -> bool:
        """Whether the host once knew the run and now does not, though nobody gave its cleanup up."""
        gone = record.taken_over and record.abandon is None
        return gone and host.report(record.uid) is None and not host.has_ended(record.uid)

    def _confirm(self, record: Record) -> None:
        self._confirmed.add(record.uid)
        self._troubles.pop(record.uid, None)

    async def _bury(self, record: Record) -> None:
        await self._store.write(lambda connection: records.archive(connection, self._org, record, _now()))
        self._confirmed.discard(record.uid)
        self._unmarked.discard(record.uid)
        self._leases.pop(record.uid, None)
        self._troubles.pop(record.uid, None)

    def _note(self, record: Record, trouble: str) -> None:
        if self._troubles.get(record.uid) != trouble:
            log.warning("sandbox %s (%s): %s", record.name, record.uid, trouble)
            self._troubles[record.uid] = trouble


class _Worked:
    """Awaits something, and knows how many seconds of this thread its own steps took, whoever else had it between them.

    Whoever looks only at a clock before and after counts what all others do while this one waits.
    """

    def __init__(self, what: Coroutine[Any, Any, None]) -> None:
        self.seconds = 0.0
        self._what = what

    def __await__(self) -> Generator[Any, Any, None]:
        steps, thrown = self._what.__await__(), None
        while True:
            began = time.thread_time()
            try:
                waits_for = steps.throw(thrown) if thrown else next(steps)
            except StopIteration:
                return
            finally:
                self.seconds += time.thread_time() - began
            thrown = None
            try:
                yield waits_for
            except BaseException as fault:  # noqa: BLE001  -- handed on to whom it is meant for, a cancellation above all
                thrown = fault


def _now() -> int:
    return time.time_ns() // 1_000_000
