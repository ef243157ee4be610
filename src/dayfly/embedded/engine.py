"""The engine of the embedded host: schedules the turns of all runs, commits their moves and performs their effects."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from dayfly.embedded.alarms import Alarms, ClockGaps
from dayfly.embedded.attempt_executor import AttemptExecutor
from dayfly.embedded.attempts import Attempts, UnitAttempt
from dayfly.embedded.executors import Executors
from dayfly.embedded.forks import Ports
from dayfly.embedded.ledger import LedgerError, RunChange, SqliteLedger, StoredRun, Values
from dayfly.embedded.routes.route_executors import RouteTableExecutor
from dayfly.embedded.runs import LiveRun, RunCache
from dayfly.embedded.scene_builder import OBJECTIONS, SceneBuilder
from dayfly.embedded.slot_queue import SlotQueue
from dayfly.embedded.writer import Writer
from dayfly.execute.executor import SLOTLESS_KINDS
from dayfly.execute.process.run import list_attempts
from dayfly.execute.turn import Scene, turn
from dayfly.lib.clock import now_ms
from dayfly.lib.queue import QueueClosedError, WorkQueue
from dayfly.lib.tasks import cancel_and_wait
from dayfly.plan.actions import Claim, Decision, Dissolve, Effect, Move, Record, Void
from dayfly.plan.reasons import Reason
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.lifecycle import Kind
from dayfly.spec.run import ALIVE, Run

log = logging.getLogger(__name__)

WORKERS = 64
LEDGER_RETRY_S = 1.0
DEFECT_RETRY_S = 5.0
# Interval of the checks for clock gaps while no run takes a turn.
CLOCK_CHECK_INTERVAL_S = 5.0
# No client could renew a lease while the server was down or stopped, or while the machine was asleep.
LEASE_GRACE_MS = 30_000
# Time that `stop` waits for steps that are just being started.
STOP_TIMEOUT_S = 5.0


class Engine:
    """Takes turns for all runs of this host.

    `on_change(uid)` is called when a run's report may have changed, `on_end(uid)` when the run has ended.
    """

    def __init__(
        self,
        ledger: SqliteLedger,
        reader: SqliteLedger,
        writer: Writer,
        attempts: Attempts,
        runs: RunCache,
        scenes: SceneBuilder,
        executors: Executors,
        ports: Ports,
        slots: SlotQueue,
    ) -> None:
        self.ledger = ledger  # used only inside jobs of the writer
        self.reader = reader
        self.writer = writer
        self.attempts = attempts
        self.runs = runs
        self.scenes = scenes
        self.executors = executors
        self.ports = ports
        self._slots = slots
        self.on_change: Callable[[str], None] = _ignore
        self.on_end: Callable[[str], None] = _ignore
        # Whether leases could not be extended when the server started.
        self.leases_unextended = False
        self._queue: WorkQueue[str] = WorkQueue()
        # Runs that wait until an objection of this host is gone.
        self._blocked: set[str] = set()
        # Counts calls of `unblock`: a turn that began before the last call has seen an older state.
        self._unblock_count = 0
        self._births: dict[str, _Birth] = {}  # runs that are created with the moves of their first turn
        self._last_errors: dict[str, str] = {}  # the last logged error of each run whose turns fail
        self._alarms = Alarms(self.wake)
        self._gaps = ClockGaps()
        self._waking = asyncio.Lock()
        self._workers: list[asyncio.Task[None]] = []
        self._background_tasks: list[asyncio.Task[None]] = []

    # --- scheduling -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; every run that has not ended gets a turn."""
        known = self.reader.live_uids()
        self._adopt_attempts(set(known))
        self._workers = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        self._background_tasks = [asyncio.create_task(self._watch_clock())]
        for uid in known:
            self.wake(uid)

    def adopt_routes(self) -> None:
        """Adopt the routes and previews of all runs, before any run takes a turn."""
        for uid in self.reader.live_uids():
            with _log_errors(uid):
                if (live := self.runs.peek(uid)) is not None:
                    self._adopt_routes_of(live)

    def _adopt_routes_of(self, live: LiveRun) -> None:
        for kind in (Kind.ROUTE, Kind.PREVIEW):
            executor = self.executors.find(kind)
            if isinstance(executor, RouteTableExecutor):
                try:
                    executor.adopt_all(live)
                except OSError as error:
                    log.warning("cannot adopt the units of kind %s of run %s yet: %s", kind, live.run.uid, error)

    def _adopt_attempts(self, known: set[str]) -> None:
        """Adopt the attempts that a former server left, before the first turn: they use slots and paths.

        Also remove the folders whose results a killed server had recorded but not yet removed.
        """
        for key in (UnitAttempt(*found) for found in list_attempts(self.attempts.storage)):
            with _log_errors(key.run):
                self._adopt_attempt(key)
        self.ports.keep_only(known)

    def _adopt_attempt(self, key: UnitAttempt) -> None:
        live = self.runs.peek(key.run)
        if live is None or not _is_in_flight(live, key):
            self.attempts.remove_recorded(key)
            return
        executor = self.executors.find(live.kind(key.unit))
        try:
            if isinstance(executor, AttemptExecutor):
                executor.adopt(live, key.unit)
        except OSError as error:
            log.warning("cannot adopt %s yet: %s", key, error)

    async def stop(self) -> None:
        """Finish the turns in progress and start no others. Running steps continue."""
        self._queue.close()
        if self._workers:
            await asyncio.wait(self._workers, timeout=STOP_TIMEOUT_S)
        # A start that still hangs fails now, or the next server adopts its attempt.
        self.attempts.stop_starting()
        await asyncio.gather(*self._workers, return_exceptions=True)
        # The last turns may have created probes, so the executors close after the workers.
        await self.executors.close()
        await cancel_and_wait(*self._background_tasks)
        self._alarms.stop()

    async def stop_forks(self) -> None:
        """End the process of every fork, and wait for it. The next server starts the forks that are still desired."""
        for key in self.attempts.live_forks():
            self.attempts.cancel(key)
        await self.attempts.wait_forks_ended()

    def wake(self, uid: str) -> None:
        """Queue the run for a turn; a run is queued at most once."""
        self._queue.add(uid)

    def attempt_changed(self, uid: str) -> None:
        """Queue the run because a fact of its attempts has changed, and the runs that may wait for that change."""
        self.wake(uid)
        self.unblock()

    def unblock(self) -> None:
        """Queue the runs that wait for an objection of this host: it may be gone."""
        self._unblock_count += 1
        blocked, self._blocked = self._blocked, set()
        for uid in blocked:
            self.wake(uid)

    def reload(self, uid: str) -> None:
        """Read the run again and queue it: its intent or its forks were changed outside of a turn."""
        self.runs.refresh(uid)
        self.executors.handle_intent_change(uid)
        self.wake(uid)

    async def _work(self) -> None:
        while True:
            try:
                uid = await self._queue.take()
            except QueueClosedError:
                return
            try:
                await self._take_turn(uid)
            finally:
                self._queue.done(uid)
            self._wake_waiting()

    async def create(self, stored: StoredRun) -> bool:
        """Create a run together with the moves of its first turn; return False if it exists or has existed.

        Raises:
            LedgerError: the disk refused; nothing was changed.
        """
        uid = stored.run.uid
        if not self._workers:
            return await self.writer.run(lambda: self.ledger.create(stored))
        birth = self._births.get(uid)
        if birth is not None:
            await birth.written
            return False
        birth = self._births[uid] = _Birth(stored, asyncio.get_running_loop().create_future())
        self.wake(uid)
        return await birth.written

    async def _write_birth(self, uid: str) -> None:
        """Create a run whose first turn has written nothing."""
        if (birth := self._births.get(uid)) is not None:
            stored = birth.stored
            self._end_birth(uid, await self.writer.run(lambda: self.ledger.create(stored)))

    def _end_birth(self, uid: str, result: bool | LedgerError) -> None:
        birth = self._births.pop(uid, None)
        if birth is None or birth.written.done():
            return
        if isinstance(result, LedgerError):
            birth.written.set_exception(result)
        else:
            birth.written.set_result(result)

    async def _take_turn(self, uid: str) -> None:
        freed = self._unblock_count
        try:
            await self._handle_clock_gap()
            decision = await turn(uid, self)
            await self._write_birth(uid)
            self._finish_turn(uid, decision, freed)
            self._last_errors.pop(uid, None)
        except LedgerError as error:
            self._end_birth(uid, error)
            self._log_failure(uid, logging.WARNING, f"{uid} waits: {error}")
            self._retry(uid, LEDGER_RETRY_S)
        except RunDamagedError as error:
            self._log_failure(uid, logging.WARNING, str(error))
            self._retry(uid, DEFECT_RETRY_S)
        except Exception as error:  # noqa: BLE001 - a defect in one run must not stop the others
            # The error is logged and the turn is repeated.
            self._log_failure(uid, logging.ERROR, f"turn of {uid} failed: {error!r}")
            self._retry(uid, DEFECT_RETRY_S)
            try:
                await self._write_birth(uid)
            except LedgerError as refused:
                self._end_birth(uid, refused)

    def _log_failure(self, uid: str, level: int, said: str) -> None:
        if self._last_errors.get(uid) != said:  # log each error once, not at every retry
            self._last_errors[uid] = said
            log.log(level, said, exc_info=level == logging.ERROR)

    def _retry(self, uid: str, seconds: float) -> None:
        self.runs.drop(uid)
        self._slots.drop(uid)
        self._alarms.set(uid, now_ms() + int(seconds * 1000))

    def _finish_turn(self, uid: str, decision: Decision | None, freed: int) -> None:
        """Set the alarm after a turn, queue the run for a slot, and drop it from memory if it only waits for events.

        `freed` is the value of `_unblock_count` when the turn began.
        """
        self._alarms.set(uid, decision.wake_at if decision else 0)
        self.on_change(uid)
        self._blocked.discard(uid)
        live = self.runs.cached(uid)
        if decision is None or live is None:
            self._slots.drop(uid)
            self.runs.drop(uid)
            return
        reasons = {wait.reason for wait in decision.waits}
        if reasons & OBJECTIONS:
            # The objection may have gone during the turn, when the run was not yet in `_blocked`.
            if self._unblock_count == freed:
                self._blocked.add(uid)
            else:
                self.wake(uid)
        if Reason.WAITING_FOR_SLOT in reasons:
            self._slots.put(live)
            return
        self._slots.drop(uid)
        if not self.attempts.facts(uid):
            self.runs.drop(uid)

    async def _watch_clock(self) -> None:
        while True:
            await asyncio.sleep(CLOCK_CHECK_INTERVAL_S)
            try:
                await self._handle_clock_gap()
            except LedgerError as error:
                log.warning("leases cannot be extended yet: %s", error)
            except Exception:
                log.exception("cannot check for clock gaps")

    async def _handle_clock_gap(self) -> None:
        """Extend leases before a turn judges them, and reset the alarms, after a gap in the clock.

        A gap means that the machine was asleep or this process was stopped. Leases that could not be extended when
        the server started count as a gap. Times to live are not extended.

        Raises:
            LedgerError: the disk refused the write; the gap stays pending.
        """
        if self._gaps.find() is None and not self.leases_unextended:
            return
        async with self._waking:
            gap = self._gaps.find()
            if gap is None and not self.leases_unextended:
                return
            until = now_ms() + LEASE_GRACE_MS
            lasted = self.leases_unextended or (gap is not None and gap.ms > 0)
            if lasted and self.reader.has_lease_before(until):
                await self.writer.run(lambda: self.ledger.extend_leases(until))
                self.runs.refresh_all()
            self.leases_unextended = False
            if gap is not None:
                self._gaps.resolve(gap)
            self._alarms.reset()

    def _wake_waiting(self) -> None:
        """Queue as many waiting runs as there are free slots, those with delete steps first.

        Runs that are taking a turn are skipped. If they get no slot, the end of their turn calls this method again.
        """
        for uid in self._slots.next():
            if not self._queue.is_working_on(uid):
                self.wake(uid)

    def is_in_turn(self, uid: str) -> bool:
        """Return whether the run is taking a turn."""
        return self._queue.is_working_on(uid)

    # --- host interface of `execute.turn` ---------------------------------------------------------------------------

    async def observe(self, run: str) -> Scene | None:
        live = self.runs.load(run)
        if live is None and (birth := self._births.get(run)) is not None:
            live = self.runs.begin(birth.stored)
        if live is None:
            return None
        await self.executors.observe(live)
        return self.scenes.build(live, self._slots.slots_for(live.run))

    def scene(self, uid: str) -> Scene | None:
        """Return what a turn would see now, without keeping the run in memory; None if there is no such run."""
        live = self.runs.peek(uid)
        return self.scenes.build(live, self._slots.slots_for(live.run)) if live else None

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        run, live = scene.world.run, self.runs.cached(scene.world.run.uid)
        values = _recorded_values(scene, moves)
        others = self.executors.dependent_changes(live, moves) if live is not None else ()
        claims = {
            UnitAttempt(run.uid, move.unit, move.attempt)
            for move in moves
            if isinstance(move, Claim) and move.unit in scene.plan.steps and move.kind not in SLOTLESS_KINDS
        }
        self.attempts.slot_holders |= claims
        try:
            birth = self._births.get(run.uid)

            def write() -> tuple[bool, Run | None]:
                if birth is not None and not self.ledger.create(birth.stored):
                    return False, None
                return True, self.ledger.commit(run, scene.plan, moves, values, scene.now, others)

            written = self.writer.run(write)
            # Runs that wait for a slot of this run need not wait for the disk.
            self._wake_waiting()
            is_born, after = await written
            if birth is not None:
                self._end_birth(run.uid, is_born)
        except BaseException:
            self._unclaim(claims)
            raise
        live = self.runs.cached(run.uid)
        if after is None or live is None:
            self._unclaim(claims)
            self.runs.drop(run.uid)
            return False
        live.stored = msgspec.structs.replace(live.stored, run=after)
        self._follow(RunChange(before=run, after=after, moves=moves))
        self.apply_changes(others, by=run.uid)
        self.attempts.slot_holders -= {
            UnitAttempt(run.uid, move.unit, move.attempt) for move in moves if isinstance(move, (Record, Void))
        }
        return True

    async def change(self, changes: tuple[RunChange, ...]) -> bool:
        """Write changes of runs outside of their turns; return false if one is out of date. Nothing is changed then."""
        if not await self.writer.run(lambda: self.ledger.change(changes, now_ms())):
            return False
        self.apply_changes(changes)
        return True

    def apply_changes(self, changes: tuple[RunChange, ...], by: str = "") -> None:
        """Queue runs whose ledgers were changed outside of their turns. `by` is the run whose turn did that."""
        for change in changes:
            self.runs.replace(change.after)
            self._follow(change, by)
            self.wake(change.after.uid)

    def _follow(self, change: RunChange, by: str = "") -> None:
        for uid in self.executors.handle_change(change) - {by}:
            self.wake(uid)

    def _unclaim(self, claims: set[UnitAttempt]) -> None:
        """Release the slots and paths of claims that were not written."""
        self.attempts.slot_holders -= claims
        if claims:
            self.unblock()

    async def perform(self, scene: Scene, effect: Effect) -> None:
        uid = scene.world.run.uid
        live = self.runs.load(uid)
        if live is None:
            return
        if isinstance(effect, Dissolve):
            await self._dissolve(live)
        else:
            await self.executors.perform(live, live.kind(effect.unit), effect)

    async def _dissolve(self, live: LiveRun) -> None:
        run, name = live.run, live.stored.name
        await self.executors.clear(live)
        await self.writer.run(lambda: self.ledger.dissolve(run, name))
        self.runs.drop(run.uid)
        for uid in self.executors.handle_end(run.uid):
            self.wake(uid)
        self.on_end(run.uid)


class _Birth(NamedTuple):
    """A run to create, and the result."""

    stored: StoredRun
    written: asyncio.Future[bool]


def _ignore(_uid: str) -> None:
    """Ignore a change: no subscriber is set yet."""


def _recorded_values(scene: Scene, moves: tuple[Move, ...]) -> Values:
    """Return the values of all outputs that the moves record."""
    return {
        (move.unit, name): value
        for move in moves
        if isinstance(move, Record) and move.result.outputs
        for name, value in scene.outputs.get((move.unit, move.attempt), {}).items()
    }


@contextlib.contextmanager
def _log_errors(uid: str) -> Iterator[None]:
    """Log errors of a run instead of failing the server's start; the run's turns report them."""
    try:
        yield
    except RunDamagedError as error:
        log.warning("cannot adopt run %s: %s", uid, error)
    except Exception:
        log.exception("cannot adopt run %s", uid)


def _is_in_flight(live: LiveRun, key: UnitAttempt) -> bool:
    record = live.run.unit(key.unit)
    return record.attempt == key.attempt and record.state in ALIVE
