"""The wheel of the embedded host: which run takes a turn when, and what a turn commits and performs here."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from itertools import chain, islice

import msgspec

from dayfly.embedded.alarms import Alarms
from dayfly.embedded.attempt_executor import AttemptExecutor
from dayfly.embedded.attempts import Attempts, UnitAttempt
from dayfly.embedded.clock import Gaps
from dayfly.embedded.forks import Ports
from dayfly.embedded.ledger import LedgerError, SqliteLedger, Values
from dayfly.embedded.registry import Executors
from dayfly.embedded.routes.route_executors import KeptExecutor
from dayfly.embedded.runs import Live, RunCache
from dayfly.embedded.turn_view import OBJECTIONS, Scenes
from dayfly.embedded.writer import Writer
from dayfly.execute.process.run import list_attempts
from dayfly.execute.turn import Scene, turn
from dayfly.lib.clock import now_ms
from dayfly.lib.queue import QueueClosedError, WorkQueue
from dayfly.lib.tasks import cancel
from dayfly.plan.actions import Claim, Decision, Dissolve, Effect, Move, Record, Void
from dayfly.plan.reasons import Reason
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.lifecycle import Kind
from dayfly.spec.run import ALIVE, Phase

log = logging.getLogger(__name__)

WORKERS = 64
LEDGER_AGAIN_S = 1.0
DEFECT_AGAIN_S = 5.0
# So long after the machine has slept its alarms are looked at, should nothing else happen.
CLOCK_LOOK_S = 5.0
# Nobody could renew a lease while there was no server, while it was stopped, or while the machine slept.
LEASE_GRACE_MS = 30_000
# How long the server's end waits for steps that are just being started.
START_S = 5.0


class Engine:
    """Takes turns over all runs of this host.

    `on_change(uid)` is called when a run's report may have changed, `on_end(uid)` when it is over.
    """

    def __init__(
        self,
        ledger: SqliteLedger,
        reader: SqliteLedger,
        writer: Writer,
        attempts: Attempts,
        runs: RunCache,
        scenes: Scenes,
        executors: Executors,
        ports: Ports,
    ) -> None:
        self.ledger = ledger  # only inside the writer's jobs
        self.reader = reader
        self.writer = writer
        self.attempts = attempts
        self.runs = runs
        self.scenes = scenes
        self.executors = executors
        self.ports = ports
        self.on_change: Callable[[str], None] = _nobody
        self.on_end: Callable[[str], None] = _nobody
        # Whether they could not be renewed as the server began.
        self.owes_leases = False
        self._queue: WorkQueue[str] = WorkQueue()
        # Those that wait for a free place, in the order in which they came, and those that this host objects to.
        self._deletes: dict[str, None] = {}
        self._creates: dict[str, None] = {}
        self._blocked: set[str] = set()
        # How often that may have changed: a turn that began before the last time has seen what was before.
        self._freed = 0
        self._complaints: dict[str, str] = {}  # of runs whose turns fail: what was said last
        self._alarms = Alarms(self.wake)
        self._gaps = Gaps()
        self._waking = asyncio.Lock()
        self._workers: list[asyncio.Task[None]] = []
        self._lookers: list[asyncio.Task[None]] = []

    # --- when -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take turns; every run that has not ended gets one."""
        known = self.reader.uids()
        self._take_over(set(known))
        self._workers = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        self._lookers = [asyncio.create_task(self._look_at_clock())]
        for uid in known:
            self.wake(uid)

    def take_over_kept(self) -> None:
        """Have what is kept and is no process taken over, of all runs, before any of them takes a turn."""
        for uid in self.reader.uids():
            with _said(uid):
                if (live := self.runs.look(uid)) is not None:
                    self._take_over_kept_of(live)

    def _take_over_kept_of(self, live: Live) -> None:
        for kind in (Kind.ROUTE, Kind.PREVIEW):
            executor = self.executors.find(kind)
            if isinstance(executor, KeptExecutor):
                try:
                    executor.take_over(live)
                except OSError as error:
                    log.warning("each %s of run %s is taken over later: %s", kind, live.run.uid, error)

    def _take_over(self, known: set[str]) -> None:
        """Adopt what runs, before the first turn: its places and paths are taken. And remove what a server that was
        killed had recorded and not yet removed.
        """
        for key in (UnitAttempt(*found) for found in list_attempts(self.attempts.place)):
            with _said(key.run):
                self._take_over_attempt(key)
        self.ports.keep_only(known)

    def _take_over_attempt(self, key: UnitAttempt) -> None:
        live = self.runs.look(key.run)
        if live is None or not _is_in_flight(live, key):
            self.attempts.tidy(key)
            return
        executor = self.executors.find(live.kind(key.unit))
        try:
            if isinstance(executor, AttemptExecutor):
                executor.adopt(live, key.unit)
        except OSError as error:
            log.warning("%s is adopted later: %s", key, error)

    async def stop(self) -> None:
        """Take no more turns, and finish those begun: whatever they start is watched. What runs goes on."""
        self._queue.close()
        if self._workers:
            await asyncio.wait(self._workers, timeout=START_S)
        # Should a start still hang, it comes to nothing now, or the next server adopts it.
        self.attempts.start_no_more()
        await asyncio.gather(*self._workers, return_exceptions=True)
        # Not before: what was started last is looked at by one that was not there yet.
        await self.executors.close()
        await cancel(*self._lookers)
        self._alarms.stop()

    async def stop_forks(self) -> None:
        """End every fork's process, and wait for it. The next server starts those that are still wished for."""
        for key in self.attempts.running_forks():
            self.attempts.cancel(key)
        await self.attempts.no_forks()

    def wake(self, uid: str) -> None:
        """Let the run take a turn soon. Asking twice is asking once."""
        self._queue.add(uid)

    def news(self, uid: str) -> None:
        """An attempt of the run has a new fact; it may also end what others of this machine wait for."""
        self.wake(uid)
        self.unblock()

    def unblock(self) -> None:
        """What this host objects to may have changed: let those look that wait for it."""
        self._freed += 1
        blocked, self._blocked = self._blocked, set()
        for uid in blocked:
            self.wake(uid)

    def reload(self, uid: str) -> None:
        """Its row was changed beside the turns (wish, forks): read it again."""
        self.runs.refresh(uid)
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
            self._feed()

    async def _take_turn(self, uid: str) -> None:
        freed = self._freed
        try:
            await self._heed_clock()
            decision = await turn(uid, self)
            self._rest(uid, decision, freed)
            self._complaints.pop(uid, None)
        except LedgerError as error:
            self._complain(uid, logging.WARNING, f"{uid} waits: {error}")
            self._retry(uid, LEDGER_AGAIN_S)
        except RunDamagedError as error:
            self._complain(uid, logging.WARNING, str(error))
            self._retry(uid, DEFECT_AGAIN_S)
        except Exception as error:  # noqa: BLE001 - a defect of ours in one run must not stop the others
            # It stays visible and is tried again.
            self._complain(uid, logging.ERROR, f"turn of {uid} failed: {error!r}")
            self._retry(uid, DEFECT_AGAIN_S)

    def _complain(self, uid: str, level: int, said: str) -> None:
        if self._complaints.get(uid) != said:  # it will come again, and nobody shortens a server's log
            self._complaints[uid] = said
            log.log(level, said, exc_info=level == logging.ERROR)

    def _retry(self, uid: str, seconds: float) -> None:
        self.runs.drop(uid)
        self._deletes.pop(uid, None)
        self._creates.pop(uid, None)
        self._alarms.set(uid, now_ms() + int(seconds * 1000))

    def _rest(self, uid: str, decision: Decision | None, freed: int) -> None:
        """After a turn: set the clock, queue for a free place, and forget what only news can change.

        `freed` is from the turn's beginning.
        """
        self._alarms.set(uid, decision.wake_at if decision else 0)
        self.on_change(uid)
        self._deletes.pop(uid, None)
        self._blocked.discard(uid)
        live = self.runs.kept(uid)
        if decision is None or live is None:
            self._creates.pop(uid, None)
            self.runs.drop(uid)
            return
        reasons = {wait.reason for wait in decision.waits}
        if reasons & OBJECTIONS:
            # While it wrote, nobody knew that it would wait.
            if self._freed == freed:
                self._blocked.add(uid)
            else:
                self.wake(uid)
        if Reason.WAITING_FOR_SLOT not in reasons:
            self._creates.pop(uid, None)
            if not self.attempts.facts(uid):
                self.runs.drop(uid)
        elif live.run.phase is Phase.OPEN:
            self._creates.setdefault(uid)
        else:
            self._creates.pop(uid, None)
            self._deletes[uid] = None

    async def _look_at_clock(self) -> None:
        while True:
            await asyncio.sleep(CLOCK_LOOK_S)
            try:
                await self._heed_clock()
            except LedgerError as error:
                log.warning("leases wait to begin anew: %s", error)
            except Exception:
                log.exception("the clock could not be looked at")

    async def _heed_clock(self) -> None:
        """If the machine has slept, or this process was stopped or has just begun on a full disk: let leases begin anew
        before a turn judges them, and set the alarms anew. A time to live goes on meanwhile.

        Raises:
            LedgerError: the disk refused; it is still to be heeded.
        """
        if self._gaps.seen() is None and not self.owes_leases:
            return
        async with self._waking:
            gap = self._gaps.seen()
            if gap is None and not self.owes_leases:
                return
            until = now_ms() + LEASE_GRACE_MS
            lasted = self.owes_leases or (gap is not None and gap.ms > 0)
            if lasted and self.reader.lapsing(until):
                await self.writer.run(lambda: self.ledger.extend_leases(until))
                self.runs.refresh_all()
            self.owes_leases = False
            if gap is not None:
                self._gaps.heed(gap)
            self._alarms.set_anew()

    def _feed(self) -> None:
        """Let as many of those that wait for a free place look as there are places: deletes first.

        One that is just taking a turn looks already; should it get no place after all, its turn's end feeds again.
        """
        for uid in list(islice(chain(self._deletes, self._creates), self.scenes.free())):
            if not self._queue.is_working_on(uid):
                self.wake(uid)

    def _slots(self, live: Live) -> int:
        """How many steps the run may start now; what waits in order to delete comes before whatever creates."""
        ahead = len(self._deletes) if live.run.phase is Phase.OPEN else 0
        return max(self.scenes.free() - ahead, 0)

    # --- what a turn asks of its host -------------------------------------------------------------------------------

    async def observe(self, run: str) -> Scene | None:
        live = self.runs.keep(run)
        if live is None:
            return None
        await self.executors.observe(live)
        return self.scenes.of(live, self._slots(live))

    def look(self, uid: str) -> Scene | None:
        """What a turn would see now, without keeping the run in memory; None if there is no such run."""
        live = self.runs.look(uid)
        return self.scenes.of(live, self._slots(live)) if live else None

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        run = scene.world.run
        values = _values(scene, moves)
        claims = {
            UnitAttempt(run.uid, move.unit, move.attempt)
            for move in moves
            if isinstance(move, Claim) and move.unit in scene.plan.steps
        }
        self.attempts.busy |= claims
        try:
            written = self.writer.run(lambda: self.ledger.commit(run, scene.plan, moves, values, scene.now))
            # Whoever waits for a place that this run has left need not wait for the disk as well.
            self._feed()
            after = await written
        except BaseException:
            self._unclaim(claims)
            raise
        live = self.runs.kept(run.uid)
        if after is None or live is None:
            self._unclaim(claims)
            self.runs.drop(run.uid)
            return False
        live.stored = msgspec.structs.replace(live.stored, run=after)
        self.attempts.busy -= {
            UnitAttempt(run.uid, move.unit, move.attempt) for move in moves if isinstance(move, (Record, Void))
        }
        return True

    def _unclaim(self, claims: set[UnitAttempt]) -> None:
        """Give places and paths back that were taken for what was not written."""
        self.attempts.busy -= claims
        if claims:
            self.unblock()

    async def perform(self, scene: Scene, effect: Effect) -> None:
        uid = scene.world.run.uid
        live = self.runs.keep(uid)
        if live is None:
            return
        if isinstance(effect, Dissolve):
            await self._dissolve(live)
        else:
            await self.executors.perform(live, live.kind(effect.unit), effect)

    async def _dissolve(self, live: Live) -> None:
        run, name = live.run, live.stored.name
        await self.executors.clear(live)
        await self.writer.run(lambda: self.ledger.dissolve(run, name))
        self.runs.drop(run.uid)
        self.on_end(run.uid)


def _nobody(_uid: str) -> None:
    """Nobody has asked to be told of changes yet."""


def _values(scene: Scene, moves: tuple[Move, ...]) -> Values:
    """The values of all outputs that the moves speak of."""
    return {
        (move.unit, name): value
        for move in moves
        if isinstance(move, Record) and move.result.outputs
        for name, value in scene.outputs.get((move.unit, move.attempt), {}).items()
    }


@contextlib.contextmanager
def _said(uid: str) -> Iterator[None]:
    """A run that cannot be read must not keep the server from its beginning; its turns say the same."""
    try:
        yield
    except RunDamagedError as error:
        log.warning("run %s cannot be taken over: %s", uid, error)
    except Exception:
        log.exception("run %s cannot be taken over", uid)


def _is_in_flight(live: Live, key: UnitAttempt) -> bool:
    record = live.run.unit(key.unit)
    return record.attempt == key.attempt and record.state in ALIVE
