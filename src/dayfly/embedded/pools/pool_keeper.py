"""Keeps the pools of this machine at their size: takes a turn for a pool whenever one of its members has changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from dayfly.embedded.ledger import LedgerError, SqliteLedger
from dayfly.embedded.pool_tables import PoolIntent, StoredPool
from dayfly.embedded.pools.observed_members import member_birth, member_reports, observed_members
from dayfly.lib.clock import now_ms
from dayfly.link.wire import PoolAction, Verdict
from dayfly.plan.pools.refill import CloseMember, PoolDecision, decide_pool
from dayfly.plan.pools.status import describe_pool
from dayfly.plan.reasons import Reason
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.identity import member_id
from dayfly.spec.lifecycle import digest
from dayfly.spec.pool_ledger import PoolLedger, PoolRequest
from dayfly.spec.report import RunReport
from dayfly.spec.run import EndRequest, Phase, Run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dayfly.embedded.engine import Engine
    from dayfly.embedded.ledger import RunChange
    from dayfly.embedded.pools.member_index import MemberIndex
    from dayfly.link.wire import Offer

log = logging.getLogger(__name__)

RETRY_S = 1.0
CONFLICT_RETRY_S = 0.1
# Time for which changes of members are collected before the pool has a turn. For a large pool it is this many times as
# long as its last turn.
MEMBER_DELAY_S = 0.05
MEMBER_DELAY_TURNS = 10
DEFECT_RETRY_S = 5.0
# Schedules and ages count by the wall clock, which may jump, so each pool has a turn at least this often.
TICK_S = 60.0


class PoolKeeper:
    """The pools of this host. `on_change(uid)` and `on_end(uid)` are called like those of the engine.

    `abandon_member(uid, request)` gives up the cleanup of a member. It may be called again for the same member.
    """

    def __init__(self, engine: Engine, index: MemberIndex, report: Callable[[str], RunReport | None]) -> None:
        self.on_change: Callable[[str], None] = _ignore
        self.on_end: Callable[[str], None] = _ignore
        self.abandon_member: Callable[[str, EndRequest], Awaitable[object]] = _ignore_abandon
        self._engine = engine
        self._reader = engine.reader
        self._index = index
        self._report = report  # of a living run
        # Requests that found no member and are not in the ledger of a pool yet, by the digest of the template.
        self._misses: dict[str, int] = {}
        self._due: dict[str, float] = {}  # when a pool has its next turn, by the clock of the event loop
        self._woken = asyncio.Event()
        self._durations: dict[str, float] = {}  # of the decision in the last turn of each pool, in seconds
        self._errors: dict[str, str] = {}
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        index.on_change = self._on_member_change

    # --- the loop ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take turns from now on."""
        for uid in self.uids():
            self.wake(uid)
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Finish the turn in progress and take no other."""
        self._closed.set()
        self._woken.set()
        if self._task is not None:
            await self._task

    def wake(self, uid: str) -> None:
        """Take a turn for this pool soon."""
        self._wake_in(uid, 0)

    def count_miss(self, template: str) -> None:
        """Count a request that no pool had a member for."""
        self._misses[template] = self._misses.get(template, 0) + 1
        for uid in list(self._due):
            self.wake(uid)

    def _on_member_change(self, pool: str) -> None:
        if pool:
            self._wake_in(pool, max(MEMBER_DELAY_S, MEMBER_DELAY_TURNS * self._durations.get(pool, 0.0)))

    def _wake_in(self, uid: str, seconds: float) -> None:
        at = asyncio.get_running_loop().time() + seconds
        if at < self._due.get(uid, float("inf")):
            self._due[uid] = at
            self._woken.set()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        await self._try(self._close_orphans, "")
        while not self._closed.is_set():
            self._woken.clear()
            for uid in [uid for uid, at in self._due.items() if at <= loop.time()]:
                if self._closed.is_set():
                    return
                self._due[uid] = loop.time() + TICK_S
                await self._try(partial(self._take_turn, uid), uid)
            delay = min(self._due.values(), default=loop.time() + TICK_S) - loop.time()
            if delay > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._woken.wait()

    async def _try(self, work: Callable[[], Awaitable[None]], uid: str) -> None:
        try:
            await work()
            self._errors.pop(uid, None)
        except (LedgerError, RunDamagedError) as error:
            self._log_failure(uid, f"pool {uid} waits: {error}", logging.WARNING)
            self._wake_in(uid, RETRY_S if isinstance(error, LedgerError) else DEFECT_RETRY_S)
        except Exception as error:  # noqa: BLE001 - a defect in one pool must not stop the others
            self._log_failure(uid, f"turn of pool {uid} failed: {error!r}", logging.ERROR)
            self._wake_in(uid, DEFECT_RETRY_S)

    def _log_failure(self, uid: str, said: str, level: int) -> None:
        if self._errors.get(uid) != said:  # log each error once, not at every retry
            self._errors[uid] = said
            log.log(level, said, exc_info=level == logging.ERROR)

    async def _close_orphans(self) -> None:
        """Close the unused members of pools whose rows are lost: nothing else would ever close them."""
        ledger, pools = self._engine.ledger, self.uids()
        unused = (each for each in self._index.all() if not each.run.joins and not each.is_stopping)
        orphans = [each.run.uid for each in unused if each.pool not in pools]
        request = EndRequest(at=now_ms(), reason=Reason.WITHDRAWN, message="the record of its pool is lost")

        def write() -> None:
            for uid in orphans:
                _request_end(ledger, uid, request)

        if orphans:
            await self._engine.writer.run(write)
        for uid in orphans:
            self._reload(uid)

    async def _take_turn(self, uid: str) -> None:
        pool = self._reader.pools.load(uid)
        if pool is None:
            self._due.pop(uid, None)
            return
        template = digest(pool.documents)
        misses, now = self._misses.get(template, 0), now_ms()
        began = time.monotonic()
        decision = self._decide(pool, template, misses, now)
        self._durations[uid] = time.monotonic() - began
        secrets = self._index.secrets.read(pool.documents)
        births = tuple(member_birth(pool, number, now, secrets) for number in decision.create)
        closing = [each for each in decision.close if not self._is_stopping(each)]
        if decision.changes or births or closing or decision.has_ended:
            if not await self._engine.writer.run(lambda: self._write(pool, decision, births, closing, now)):
                self._wake_in(uid, CONFLICT_RETRY_S)
                return
            self._misses[template] = self._misses.get(template, misses) - misses
            self._engine.apply_changes(births)
            for each in closing:
                self._reload(each.uid)
        if decision.has_ended:
            self._due.pop(uid, None)
            self._durations.pop(uid, None)
            self.on_end(uid)
            return
        if decision.wake_at:
            self._wake_in(uid, (decision.wake_at - now) / 1000 + 0.001)
        if pool.intent.abandon is not None:
            await self._abandon_members(pool.uid, pool.intent.abandon)
        self.on_change(uid)

    async def _abandon_members(self, pool: str, request: EndRequest) -> None:
        """Give up the cleanup of all members without a holder, also of those whose runs are lost."""
        living = [each.run.uid for each in self._index.of_pool(pool) if not each.run.holders]
        for uid in (*living, *(row.uid for row in self._index.unreadable_of(pool))):
            try:
                stored = self._reader.load(uid)
                if stored is None or stored.intent.abandon is None:
                    await self.abandon_member(uid, request)
            except RunDamagedError as error:
                self._log_failure(uid, f"member {uid} keeps its pool {pool}: {error}", logging.WARNING)
                self._wake_in(pool, DEFECT_RETRY_S)

    def _reload(self, uid: str) -> None:
        """Read a member again whose end was requested. The report of its pool names a member that cannot be read."""
        try:
            self._engine.reload(uid)
        except RunDamagedError as error:
            self._log_failure(uid, f"the end of member {uid} cannot be requested: {error}", logging.WARNING)

    def _decide(self, pool: StoredPool, template: str, misses: int, now: int) -> PoolDecision:
        intent, members = pool.intent, observed_members(pool, self._index, self._reader)
        return decide_pool(
            pool.spec,
            template,
            pool.ledger,
            list(members),
            now,
            misses=misses,
            request=intent.request,
            end=intent.stop,
        )

    def _is_stopping(self, member: CloseMember) -> bool:
        found = self._index.find(member.uid)
        return found is None or found.is_stopping

    def _write(
        self,
        pool: StoredPool,
        decision: PoolDecision,
        births: tuple[RunChange, ...],
        closing: list[CloseMember],
        now: int,
    ) -> bool:
        """Write a decision in one transaction; return False and change nothing if the pool or a member has changed."""
        ledger: SqliteLedger = self._engine.ledger

        def commit_pool() -> bool:
            after = decision.ledger if decision.changes else pool.ledger
            return ledger.pools.commit(pool.ledger, after)

        if not ledger.change(births, now, commit_pool):
            return False
        for each in closing:
            _request_end(ledger, each.uid, each.request)
        if decision.has_ended:
            ledger.pools.drop(pool.uid)
            ledger.block_creation(
                Run(
                    uid=pool.uid,
                    target=pool.target,
                    plan="",
                    phase=Phase.CLEANED if pool.intent.abandon is None else Phase.ABANDONED,
                    closed=pool.intent.stop,
                    abandon=pool.intent.abandon,
                    ended_at=now,
                )
            )
        return True

    def kept_records(self) -> set[str]:
        """Return the UIDs of ended members whose records and logs are kept: those that failed last in their pools."""
        pools = filter(None, map(self._reader.pools.load, self.uids()))
        return {member_id(pool.uid, str(pool.ledger.failed)) for pool in pools if pool.ledger.failed}

    # --- orders -----------------------------------------------------------------------------------------------------

    def uids(self) -> list[str]:
        """Return the UIDs of all pools."""
        return self._reader.pools.uids()

    async def offer(self, offer: Offer) -> bool:
        """Create the pool if it is new, or accept its spec and template if they are not older.

        Return False if it does not exist and may not be created.
        """
        assert offer.pool is not None, "an offer of a pool has its spec"
        ledger, spec = self._engine.ledger, offer.pool
        made = StoredPool(
            target=offer.target,
            spec=spec,
            documents=offer.documents,
            ledger=PoolLedger(uid=offer.uid),
            generation=offer.generation,
        )

        def write() -> bool:
            before = ledger.pools.load(offer.uid)
            if before is None:
                is_new = offer.birth and ledger.ended_run(offer.uid) is None
                if is_new:
                    ledger.pools.add(made)
                return is_new
            if offer.generation >= before.generation:
                ledger.pools.revise(msgspec.structs.replace(made, ledger=before.ledger, intent=before.intent))
            return True

        if not await self._engine.writer.run(write):
            return False
        self.wake(offer.uid)
        return True

    async def end(self, uid: str, request: EndRequest) -> Verdict:
        """Store the request to end a pool. Its unused members are removed, and used ones outlive it."""
        return await self._change_intent(
            uid, lambda intent: intent if intent.stop else msgspec.structs.replace(intent, stop=request)
        )

    async def abandon(self, uid: str, request: EndRequest) -> Verdict:
        """Store the request to end a pool without the cleanup of its unused members."""
        return await self._change_intent(
            uid,
            lambda intent: msgspec.structs.replace(
                intent, stop=intent.stop or request, abandon=intent.abandon or request
            ),
        )

    async def control(self, uid: str, action: PoolAction, by: str) -> Verdict:
        """Store the request to pause, resume or drain a pool."""
        request = PoolRequest(action=action.value, request=EndRequest(at=now_ms(), reason="", by=by))
        return await self._change_intent(
            uid, lambda intent: msgspec.structs.replace(intent, request=request), only_open=True
        )

    async def _change_intent(
        self, uid: str, change: Callable[[PoolIntent], PoolIntent], *, only_open: bool = False
    ) -> Verdict:
        ledger = self._engine.ledger

        def write() -> Verdict:
            pool = ledger.pools.load(uid)
            if pool is None:
                return Verdict.OVER if ledger.ended_run(uid) is not None else Verdict.UNKNOWN
            if only_open and pool.intent.stop is not None:
                return Verdict.CLOSED
            ledger.pools.revise(msgspec.structs.replace(pool, intent=change(pool.intent)))
            return Verdict.TAKEN

        verdict = await self._engine.writer.run(write)
        self.wake(uid)
        return verdict

    # --- reports ----------------------------------------------------------------------------------------------------

    def report(self, uid: str) -> RunReport | None:
        """Return the report of a pool, with a unit for each member; None if there is no such pool.

        Raises:
            RunDamagedError: the row of the pool cannot be read.
        """
        pool = self._reader.pools.load(uid)
        if pool is None:
            return None
        template, now = digest(pool.documents), now_ms()
        decision = self._decide(pool, template, self._misses.get(template, 0), now)
        seen, stop = decision.summary, pool.intent.stop
        return RunReport(
            uid=uid,
            phase=Phase.CLOSED if stop is not None else Phase.OPEN,
            ready=stop is None and seen.ready >= seen.target,
            reason=seen.reason,
            message=seen.message,
            done=min(seen.ready, seen.target),
            total=seen.target,
            units=member_reports(pool, self._index, self._reader, self._report),
            closed=stop,
            pool=describe_pool(
                decision, observed_members(pool, self._index, self._reader), now, generation=pool.generation
            ),
        )


def _request_end(ledger: SqliteLedger, uid: str, request: EndRequest) -> None:
    """Store the request to end a member, unless it has a holder by now or is damaged. Called inside a transaction."""
    try:
        stored = ledger.load(uid)
    except RunDamagedError:
        return  # the other members must end without it
    if stored is not None and not stored.run.holders and stored.intent.stop is None:
        ledger.set_intent(uid, msgspec.structs.replace(stored.intent, stop=request))


async def _ignore_abandon(_uid: str, _request: EndRequest) -> None:
    """Ignore a request: the host is not complete yet."""


def _ignore(_uid: str) -> None:
    """Ignore a change: no subscriber is set yet."""
