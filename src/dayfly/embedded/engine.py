"""The wheel of the embedded host: which run takes a turn when, and what a turn gathers, commits and performs here."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec

from dayfly.embedded import forks
from dayfly.embedded.attempts import Attempts, Key
from dayfly.embedded.clock import now_ms
from dayfly.embedded.ledger import Ledger, LedgerError, Stored
from dayfly.embedded.writer import Writer
from dayfly.execute.order import CannotRenderError
from dayfly.execute.process.render import Attempt, step_order
from dayfly.execute.process.run import declared_paths, private_directories
from dayfly.execute.turn import Scene, turn
from dayfly.plan.actions import Cancel, Claim, Decision, Dissolve, Effect, Fence, Launch, Move, Prepare, Record, Release
from dayfly.plan.sealed import Plan
from dayfly.plan.words import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Objection, Running, World
from dayfly.spec.lifecycle import CREATING, Unit
from dayfly.spec.run import Result, Run, State

log = logging.getLogger(__name__)

WORKERS = 64
RUN_OUTPUT_LIMIT = 1 << 20
LEDGER_AGAIN_S = 1.0


class Live:
    """A run in memory. Everything here can be dropped and read again; the ledger and the folders are the truth."""

    def __init__(self, stored: Stored, plan: Plan) -> None:
        self.stored = stored
        self.plan = plan

    @property
    def run(self) -> Run:
        return self.stored.run


class Engine:
    """Takes turns over all runs of this host. `changed(uid)` is called when a run's report may have changed."""

    def __init__(
        self,
        ledger: Ledger,
        reader: Ledger,
        writer: Writer,
        attempts: Attempts,
        baselines: forks.Baselines,
        *,
        parallel: int,
    ) -> None:
        self.ledger = ledger  # only inside the writer's jobs
        self.reader = reader
        self.writer = writer
        self.attempts = attempts
        self.baselines = baselines
        self.parallel = parallel
        self.isolation = "root"
        self.environment: Mapping[str, str] = dict(os.environ)
        self.on_change: Callable[[str], None] = _nobody
        self._live: dict[str, Live] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._turning: set[str] = set()
        self._again: set[str] = set()
        self._hungry: tuple[deque[str], deque[str]] = (deque(), deque())  # deletes first
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._probes: dict[Key, asyncio.Task[None]] = {}
        self._workers: list[asyncio.Task[None]] = []

    # --- when -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take turns; every run that has not ended gets one."""
        self._workers = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        for uid in self.reader.uids():
            self.wake(uid)

    async def stop(self) -> None:
        """Take no more turns. What runs goes on."""
        for task in (*self._workers, *self._probes.values()):
            task.cancel()
        await asyncio.gather(*self._workers, *self._probes.values(), return_exceptions=True)
        for timer in self._timers.values():
            timer.cancel()

    async def stop_forks(self) -> None:
        """End every fork's process, and wait for it. The next server starts those that are still wished for."""
        for key in self.attempts.running_forks():
            self.attempts.cancel(key)
        await self.attempts.no_forks()

    def wake(self, uid: str) -> None:
        """Let the run take a turn soon. Asking twice is asking once."""
        if uid in self._turning:
            self._again.add(uid)
        elif uid not in self._queued:
            self._queued.add(uid)
            self._queue.put_nowait(uid)

    def reload(self, uid: str) -> None:
        """Its row was changed beside the turns (wish, forks): read it again."""
        live = self._live.get(uid)
        if live is not None:
            stored = self.reader.load(uid)
            if stored is None:
                del self._live[uid]
            else:
                live.stored, live.plan = stored, self._plan(stored)
        self.wake(uid)

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            self._queued.discard(uid)
            self._turning.add(uid)
            try:
                decision = await turn(uid, self)
                self._rest(uid, decision)
            except LedgerError as error:
                log.warning("%s waits: %s", uid, error)
                self._live.pop(uid, None)
                self._later(uid, now_ms() + int(LEDGER_AGAIN_S * 1000))
            except Exception:
                # A defect of ours in one run must not stop the others; it stays visible and is tried again.
                log.exception("turn of %s failed", uid)
                self._live.pop(uid, None)
                self._later(uid, now_ms() + 5_000)
            finally:
                self._turning.discard(uid)
            if uid in self._again:
                self._again.discard(uid)
                self.wake(uid)
            self._feed()

    def _rest(self, uid: str, decision: Decision | None) -> None:
        """After a turn: set the clock, queue for a free place, and forget what only news can change."""
        timer = self._timers.pop(uid, None)
        if timer:
            timer.cancel()
        self.on_change(uid)
        if decision is None:
            self._live.pop(uid, None)
            return
        if decision.wake_at:
            self._later(uid, decision.wake_at)
        live = self._live.get(uid)
        if any(wait.reason == Reason.WAITING_FOR_SLOT for wait in decision.waits):
            deleting = live is not None and live.run.closed is not None
            self._hungry[0 if deleting else 1].append(uid)
        elif live is not None and not self.attempts.facts(uid):
            del self._live[uid]

    def _later(self, uid: str, at: int) -> None:
        delay = max(at - now_ms(), 0) / 1000 + 0.001
        self._timers[uid] = asyncio.get_running_loop().call_later(delay, self._due, uid)

    def _due(self, uid: str) -> None:
        self._timers.pop(uid, None)
        self.wake(uid)

    def _feed(self) -> None:
        """Wake as many of those that wait for a free place as there are places, less those already on their way."""
        for _ in range(self._free() - self._queue.qsize()):
            line = self._hungry[0] or self._hungry[1]
            if not line:
                break
            self.wake(line.popleft())

    def _free(self) -> int:
        return max(self.parallel - len(self.attempts.busy), 0)

    # --- gather -----------------------------------------------------------------------------------------------------

    def live(self, uid: str) -> Live | None:
        """The run, from memory or from the ledger."""
        live = self._live.get(uid)
        if live is None:
            stored = self.reader.load(uid)
            if stored is None:
                return None
            live = self._live[uid] = Live(stored, self._plan(stored))
        return live

    def _plan(self, stored: Stored) -> Plan:
        return self.baselines.follow(stored.plan())

    def look(self, uid: str) -> Scene | None:
        """What a turn would see now, without keeping the run in memory; None if there is no such run."""
        live = self._live.get(uid)
        if live is None:
            stored = self.reader.load(uid)
            if stored is None:
                return None
            live = Live(stored, self._plan(stored))
        return self.scene(live)

    def with_forks(self) -> list[str]:
        """Runs in memory that have forks; a run with a living fork is always in memory."""
        return [uid for uid, live in self._live.items() if live.plan.forks]

    async def gather(self, run: str) -> Scene | None:
        live = self.live(run)
        if live is None:
            return None
        facts = self.attempts.facts(run)
        for name, record in live.run.units.items():
            alive = record.state is State.CLAIMED or record.state is State.UNKNOWN
            if alive and (name, record.attempt) not in facts:
                self.attempts.adopt(Key(run, name, record.attempt), self._unit(live, name), record)
                self._probe(live, name)
        return self.scene(live)

    def scene(self, live: Live) -> Scene:
        """What a turn would see now."""
        world = World(
            run=live.run,
            wish=live.stored.wish,
            facts=self._within_limit(live),
            ref=self.attempts.place.ref,
            slots=self._free(),
            objections=self._objections(live),
        )
        return Scene(plan=live.plan, world=world, now=now_ms())

    def _unit(self, live: Live, name: str) -> Unit:
        step = live.plan.steps.get(name) or live.plan.forks.get(name)
        return step.unit if step else Unit(name=name, kind="fork")

    def _within_limit(self, live: Live) -> dict[AttemptKey, Fact]:
        """All outputs of a run together have a limit: a result beyond it is a failure, and is not kept."""
        facts = dict(self.attempts.facts(live.run.uid))
        kept = sum(output.size for record in live.run.units.values() for output in record.outputs.values())
        for (name, attempt), fact in facts.items():
            record = live.run.unit(name)
            if not isinstance(fact, Ended) or attempt != record.attempt or record.state is State.DONE:
                continue
            size = sum(output.size for output in fact.result.outputs.values())
            if kept + size > RUN_OUTPUT_LIMIT:
                message = (
                    f"its {size} bytes of outputs would make {kept + size} for the run, {RUN_OUTPUT_LIMIT} is the most"
                )
                facts[name, attempt] = Ended(
                    result=msgspec.structs.replace(
                        fact.result, outcome="failed", reason="OutputTooLarge", message=message, outputs={}
                    )
                )
            else:
                kept += size
        return facts

    def _objections(self, live: Live) -> dict[str, Objection]:
        found: dict[str, Objection] = {}
        for name, fork in live.plan.forks.items():
            if fork.unit.fork and self.baselines.get(fork.unit.fork.baseline) is None:
                baseline = fork.unit.fork.baseline
                name_of = f"{baseline.namespace}/{baseline.name}"
                message = f"its baseline {name_of} is not declared; apply a file of kind Deployment"
                found[name] = Objection(reason="BaselineMissing", message=message)
        if self.isolation == "none":
            found |= self._path_objections(live)
        return found

    def _path_objections(self, live: Live) -> dict[str, Objection]:
        """Without private folders two steps that use one absolute path must not run at once."""
        taken = {path: key for key in self.attempts.busy for path in declared_paths(self._busy_unit(key))}
        found = {}
        for name, step in live.plan.steps.items():
            shared = sorted(path for path in declared_paths(step.unit) if path in taken)
            if shared and taken[shared[0]][:2] != (live.run.uid, name):
                other = taken[shared[0]]
                message = (
                    f"uses {shared[0]} as the running {other.unit} does, and this machine cannot keep them apart "
                    "(no mount namespaces): they run one after the other"
                )
                found[name] = Objection(reason="PathBusy", message=message)
        return found

    def _busy_unit(self, key: Key) -> Unit:
        live = self.live(key.run)
        return self._unit(live, key.unit) if live else Unit(name=key.unit, kind="exec")

    # --- commit -----------------------------------------------------------------------------------------------------

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        run = scene.world.run
        values = {
            (move.unit, name): value
            for move in moves
            if isinstance(move, Record) and move.result.outputs
            for name, value in self.attempts.values.get(Key(run.uid, move.unit, move.attempt), {}).items()
        }
        claims = {
            Key(run.uid, move.unit, move.attempt)
            for move in moves
            if isinstance(move, Claim) and move.unit in scene.plan.steps
        }
        self.attempts.busy |= claims
        try:
            after = await self.writer.run(lambda: self.ledger.commit(run, scene.plan, moves, values, scene.now))
        except BaseException:
            self.attempts.busy -= claims
            raise
        live = self._live.get(run.uid)
        if after is None or live is None:
            self.attempts.busy -= claims
            self._live.pop(run.uid, None)
            return False
        live.stored = msgspec.structs.replace(live.stored, run=after)
        return True

    # --- perform ----------------------------------------------------------------------------------------------------

    async def perform(self, scene: Scene, effect: Effect) -> None:
        uid = scene.world.run.uid
        live = self.live(uid)
        if live is None:
            return
        match effect:
            case Launch(unit=unit, attempt=attempt):
                self._launch(live, Key(uid, unit, attempt))
            case Fence(unit=unit, attempt=attempt, reason=reason, message=message):
                record = live.run.unit(unit)
                self.attempts.fence(Key(uid, unit, attempt), self._unit(live, unit), record, reason, message)
            case Cancel(unit=unit, attempt=attempt):
                self.attempts.cancel(Key(uid, unit, attempt))
            case Release(unit=unit, attempt=attempt):
                self.attempts.release(Key(uid, unit, attempt))
            case Dissolve():
                await self._dissolve(live)
            case Prepare():
                raise AssertionError("this host has no gate before the claim")
            case _:
                assert_never(effect)

    async def _dissolve(self, live: Live) -> None:
        run, name = live.run, live.stored.name
        await self.writer.run(lambda: self.ledger.dissolve(run, name))
        self.attempts.drop(run.uid)
        self._live.pop(run.uid, None)

    def _launch(self, live: Live, key: Key) -> None:
        unit = self._unit(live, key.unit)
        try:
            order = self._fork_order(live, key, unit) if unit.fork else step_order(unit, self._attempt(live, key, unit))
        except CannotRenderError as error:
            self.attempts.busy.discard(key)
            now = now_ms()
            result = Result(outcome="failed", reason=error.reason, message=str(error), started_at=now, ended_at=now)
            self.attempts.tell(key, Ended(result=result))
            return
        except OSError as error:
            self.attempts.busy.discard(key)
            self.attempts.tell(key, NeverRan(reason="CannotStart", message=str(error)))
            return
        self.attempts.launch(key, unit, live.run.unit(key.unit), order, ready=unit.fork is None)
        self._probe(live, key.unit)

    def _attempt(self, live: Live, key: Key, unit: Unit) -> Attempt:
        step = live.plan.steps.get(key.unit)
        resource = step.resource if step else ""
        values = self.reader.values(key.run) if any(item.from_ for item in unit.inputs) else {}
        inputs: dict[str, bytes | None] = {}
        for item in unit.inputs:
            if item.from_ is None:
                inputs[item.name] = None if item.value is None else item.value.encode()
            else:
                producer = f"{item.from_.resource or resource}/{item.from_.unit}".removeprefix("/")
                inputs[item.name] = values.get((producer, item.from_.output))
        limits = unit.timeouts
        return Attempt(
            run=key.run,
            resource=resource,
            unit=key.unit,
            number=key.attempt,
            inputs=inputs,
            complete=all(
                live.run.unit(other.id).outcome == "succeeded"
                for other in live.plan.steps.values()
                if other.resource == resource and other.event in CREATING
            ),
            environment=self.environment,
            isolation=self.isolation,
            private=private_directories(unit) if self.isolation != "none" and unit.fork is None else (),
            log=self.attempts.at(key).log,
            start_before=now_ms() + limits.schedule_ms + limits.pull_ms,
        )

    def _fork_order(self, live: Live, key: Key, unit: Unit) -> bytes:
        assert unit.fork is not None, "only forks have a baseline"
        workload = self.baselines.get(unit.fork.baseline)
        if workload is None:
            raise CannotRenderError("BaselineMissing", f"its baseline {unit.fork.baseline.name} is not declared")
        port = forks.free_port() if workload.port else 0
        self.attempts.at(key).note("port", str(port))
        return forks.fork_order(unit, workload, self._attempt(live, key, unit), port)

    # --- forks ------------------------------------------------------------------------------------------------------

    def port(self, key: Key) -> int:
        """Where a fork's process listens; 0 if it has no port."""
        return int(self.attempts.at(key).noted("port") or 0)

    def _probe(self, live: Live, name: str) -> None:
        """Watch for a fork to answer."""
        if name not in live.plan.forks:
            return
        key = Key(live.run.uid, name, live.run.unit(name).attempt)
        if key not in self._probes:
            task = asyncio.create_task(self._answer(key))
            self._probes[key] = task
            task.add_done_callback(lambda _: self._probes.pop(key, None))

    async def _answer(self, key: Key) -> None:
        port = self.port(key)
        if port:
            probe = asyncio.ensure_future(forks.answers(port))
            while not probe.done():
                await asyncio.wait({probe}, timeout=1)
                if not isinstance(self.attempts.facts(key.run).get((key.unit, key.attempt)), Running):
                    probe.cancel()
                    return
        fact = self.attempts.facts(key.run).get((key.unit, key.attempt))
        if isinstance(fact, Running):
            self.attempts.tell(key, Running(since=fact.since, ready=True))


def _nobody(_uid: str) -> None:
    """Nobody has asked to be told of changes yet."""
