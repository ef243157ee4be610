"""The embedded host as the control plane sees it: offers, wishes, reports, values and logs."""

import asyncio
import contextlib
import fcntl
import logging
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from dayfly.embedded.attempts import Attempts
from dayfly.embedded.clock import now_ms
from dayfly.embedded.engine import LEASE_GRACE_MS, Engine
from dayfly.embedded.executors import Executors, ForkExecutor, StepExecutor
from dayfly.embedded.forks import HOST, Baselines, Ports, unapplied
from dayfly.embedded.ledger import Hook, Ledger, LedgerError, Stored
from dayfly.embedded.runs import Runs
from dayfly.embedded.scene import Scenes
from dayfly.embedded.writer import Writer
from dayfly.execute.process.place import leave_place, open_place, sweep_places
from dayfly.execute.process.run import Folder, forget, logged
from dayfly.execute.process.start import Containers, Processes
from dayfly.plan.actions import Decision
from dayfly.plan.decide import decide
from dayfly.plan.sealed import seal
from dayfly.plan.status import Report, describe, limited
from dayfly.plan.world import Running, Wish, World
from dayfly.spec.lifecycle import Lifecycle, Unit, digest
from dayfly.spec.run import Request, Run, State
from dayfly.spec.wire import Endpoint, HistoryEntry, LogInfo, Offer, Value
from dayfly.spec.workload import Workload

log = logging.getLogger(__name__)

KEEP_ENDED_MS = 7 * 24 * 3_600_000
SWEEP_S = 3_600
LOOK_MOST_S = 5


class HomeBusyError(Exception):
    """Another server uses this home."""


class EmbeddedHost:
    """This machine as a host. Make it with `open`, end it with `close`."""

    def __init__(
        self,
        home: Path,
        lock: int,
        ledger: Ledger,
        writer: Writer,
        engine: Engine,
        baselines: Baselines,
    ) -> None:
        self.home = home
        self._lock = lock
        self._ledger = ledger
        self._writer = writer
        self._engine = engine
        self._baselines = baselines
        self._place = engine.attempts.place
        # Versions of reports go on rising over restarts: whoever waits for a newer one hears of ours at once.
        self._first = now_ms()
        self._versions: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._caught_up = asyncio.Event()
        self._sweeper = asyncio.create_task(self._sweep())
        engine.on_change = self._changed

    @classmethod
    async def open(
        cls,
        home: Path,
        *,
        runner: str,
        parallel: int = 16,
        engine: str = "",
        hook: Hook | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Self:
        """Take the home over.

        Args:
            home: The host's own folder, made if need be.
            runner: The program that runs a step.
            parallel: How many steps may run at once.
            engine: `podman` or `docker` (or a path to one) runs steps in containers of their images; empty runs them as
                processes of this machine.
            hook: Called with the name of each write of the ledger, before and after it.
            environment: The machine's, as steps are to find it.

        Raises:
            HomeBusyError: another server has it.
            LedgerError: the ledger cannot be used.
        """
        lock = _take(home)
        ledger = Ledger(home / "ledger.db", hook=hook)
        _renew_leases(ledger)
        reader = Ledger(home / "ledger.db")
        writer = Writer(ledger)
        place = open_place(home)
        await asyncio.to_thread(sweep_places)
        environment = dict(environment)
        processes = Processes(runner, _isolation(runner), environment)
        starter = Containers(engine, runner, processes) if engine else processes
        attempts, baselines, ports = Attempts(place, starter), Baselines(), Ports(place)
        runs = Runs(reader, baselines, ports)
        executors = Executors(
            StepExecutor(reader, attempts, starter, runs=runs, environment=environment, has_images=bool(engine)),
            ForkExecutor(reader, attempts, starter, runs=runs, baselines=baselines, ports=ports),
        )
        scenes = Scenes(executors, attempts, starter, parallel=parallel)
        wheel = Engine(ledger, reader, writer, attempts, runs, scenes, executors, ports)
        attempts.news = wheel.news
        return cls(home, lock, ledger, writer, wheel, baselines)

    def start(self) -> None:
        """Begin to take turns. Baselines that forks need have been given by now."""
        self._engine.start()

    async def close(self, *, stop_forks: bool = True) -> None:
        """End the server's part: forks stop, running steps go on and are adopted by the next server."""
        self._sweeper.cancel()
        await self._engine.stop()
        if stop_forks:
            await self._engine.stop_forks()
        self._engine.attempts.close()
        await self._writer.close()
        if not self._engine.reader.uids():
            with contextlib.suppress(OSError):
                leave_place(self._place)
        self._ledger.close()
        self._engine.reader.close()
        os.close(self._lock)

    # --- wishes -----------------------------------------------------------------------------------------------------

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        """Refuse what this host cannot run.

        Raises:
            RefusedError: the first thing it cannot run.
        """
        self._engine.executors.admit(documents, forks)

    async def baseline(self, workload: Workload) -> None:
        """Take over a baseline, or its new form."""
        self._baselines.take(workload)
        for uid in self._engine.runs.with_forks():
            self._engine.reload(uid)
        self._engine.unblock()

    async def offer(self, offer: Offer) -> None:
        """Seal the run if it is new; otherwise take over its forks and times."""
        now = now_ms()
        run = Run(uid=offer.uid, target=offer.target, plan=digest(offer.documents), born_at=now)
        wish = Wish(expires_at=offer.expires_at, lease_until=offer.lease_until)
        stored = Stored(run=run, name=offer.name, documents=offer.documents, forks=offer.forks, wish=wish)
        seal(offer.documents, offer.forks)  # what cannot be indexed must not be stored

        def seal_or_revise() -> None:
            if self._ledger.birth(stored):
                return
            before = self._ledger.load(offer.uid)
            if before is not None:
                if before.forks != offer.forks:
                    self._ledger.set_forks(offer.uid, offer.forks, now)
                self._ledger.set_wish(offer.uid, msgspec.structs.replace(before.wish, expires_at=offer.expires_at))

        await self._writer.run(seal_or_revise)
        self._engine.reload(offer.uid)

    async def stop(self, uid: str, request: Request) -> bool:
        """Wish the run's end; durable when this returns. False if there is no such run."""
        return await self._wish(uid, lambda wish: wish if wish.stop else msgspec.structs.replace(wish, stop=request))

    async def abandon(self, uid: str, request: Request) -> bool:
        """Wish the run's end without its cleanup. False if there is no such run."""
        return await self._wish(
            uid, lambda wish: wish if wish.abandon else msgspec.structs.replace(wish, abandon=request)
        )

    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> bool:
        """End the back-off after those attempts of units, and after no others. False if there is no such run."""
        now = now_ms()

        def note() -> None:
            for unit, attempt in attempts.items():
                self._ledger.note(uid, now, unit, attempt, "Retry", f"its back-off was ended (by {by})")

        return await self._wish(
            uid, lambda wish: msgspec.structs.replace(wish, retry={**wish.retry, **attempts}), also=note
        )

    async def lease(self, uid: str, until: int) -> bool:
        """Renew the lease. False if there is no such run or it is closed."""
        return await self._wish(uid, lambda wish: msgspec.structs.replace(wish, lease_until=until), only_open=True)

    async def _wish(
        self,
        uid: str,
        change: Callable[[Wish], Wish],
        *,
        only_open: bool = False,
        also: Callable[[], None] = lambda: None,
    ) -> bool:
        def write() -> bool:
            stored = self._ledger.load(uid)
            if stored is None or (only_open and stored.run.closed is not None):
                return False
            also()
            return self._ledger.set_wish(uid, change(stored.wish))

        found = await self._writer.run(write)
        if found:
            self._engine.reload(uid)
        return found

    # --- reports ----------------------------------------------------------------------------------------------------

    def report(self, uid: str) -> Report | None:
        """What the run is doing; of one that has ended, its last word; None if it was never heard of."""
        scene = self._engine.look(uid)
        if scene is not None:
            report = describe(scene.plan, scene.world, decide(scene.plan, scene.world, scene.now), scene.now)
            if self._writer.trouble and not report.ready:
                # What it says of its steps is true, and not why it stands still.
                report = msgspec.structs.replace(report, message=f"{report.message}; {self._writer.trouble}")
            return limited(report, tuple(text for fork in scene.plan.kept.values() if (text := unapplied(fork.unit))))
        last = self._engine.reader.last(uid)
        if last is None:
            return None
        return describe(seal(()), World(run=last), Decision(), last.ended_at)

    def has_ended(self, uid: str) -> bool:
        """Whether the run existed and is over."""
        return self._engine.reader.last(uid) is not None

    async def changed(self, uid: str, version: int, seconds: float) -> int:
        """Wait until the run's report is newer than `version`; returns its version."""
        if self._versions.get(uid, self._first) <= version:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(uid, set())
            waiting.add(future)
            try:
                await asyncio.wait({future}, timeout=seconds)
            finally:
                waiting.discard(future)
                if not waiting:
                    self._waiting.pop(uid, None)
        return self._versions.get(uid, self._first)

    def _changed(self, uid: str) -> None:
        self._versions[uid] = self._versions.get(uid, self._first) + 1
        for future in self._waiting.get(uid, ()):
            if not future.done():
                future.set_result(None)

    def caught_up(self) -> None:
        """Hear that whoever asks has taken note of every run that has ended: what is old of them may be forgotten."""
        self._caught_up.set()

    def endpoints(self, uid: str) -> tuple[Endpoint, ...]:
        """Where the run's forks answer."""
        scene = self._engine.look(uid)
        if scene is None:
            return ()
        found = []
        for name in scene.plan.kept:
            record = scene.world.run.unit(name)
            fact = scene.world.facts.get((name, record.attempt))
            port = self._engine.ports.known(uid, name) if isinstance(fact, Running) else 0
            if port and record.state is State.CLAIMED:
                found.append(Endpoint(unit=name, host=HOST, port=port))
        return tuple(found)

    def values(self, uid: str) -> tuple[Value, ...]:
        """All recorded outputs of a live run."""
        stored = self._engine.reader.load(uid)
        if stored is None:
            return ()
        return tuple(
            Value(unit=unit, output=name, value=value, sensitive=stored.run.unit(unit).outputs[name].sensitive)
            for (unit, name), value in self._engine.reader.values(uid).items()
            if name in stored.run.unit(unit).outputs
        )

    def history(self, uid: str) -> tuple[HistoryEntry, ...]:
        """What was written to the run's ledger, also after its end."""
        return tuple(HistoryEntry(**msgspec.structs.asdict(entry)) for entry in self._engine.reader.history(uid))

    def logs(self, uid: str) -> tuple[LogInfo, ...]:
        """The logs there are, also after the run's end, in the order of units and attempts."""
        alive = self._engine.attempts.facts(uid)
        found = []
        for unit, number in logged(self._place, uid):
            size = Folder(self._place, uid, unit, number).log_size()
            if size is not None:
                running = isinstance(alive.get((unit, number)), Running)
                found.append(LogInfo(unit=unit, attempt=number, size=size, sealed=not running))
        return tuple(found)

    def read_log(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        """Bytes of one log from `offset`; None if there is no such log."""
        return Folder(self._place, uid, unit, attempt).read_log(offset, limit)

    async def _sweep(self) -> None:
        """Forget runs that ended long ago, with their logs.

        Not before the store has taken note of them: to a server that was away for long, one that ended just before
        would be lost, or new.
        """
        await self._caught_up.wait()
        while True:
            before = now_ms() - KEEP_ENDED_MS
            try:
                ended = await self._writer.run(partial(self._ledger.forget, before))
            except LedgerError as error:
                log.warning("what ended long ago is kept until the next look: %s", error)
                ended = []
            for uid in ended:
                forget(self._place, uid)
                self._versions.pop(uid, None)
            await asyncio.sleep(SWEEP_S)


def _renew_leases(ledger: Ledger) -> None:
    until = now_ms() + LEASE_GRACE_MS
    if ledger.lapsing(until):
        with ledger.transaction("leases"):
            ledger.extend_leases(until)


def _take(home: Path) -> int:
    """The kernel's lock on the home; it is freed when the process ends, however it ends."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + LOOK_MOST_S
    while not _flocked(descriptor, fcntl.LOCK_EX):
        # Who only looks whether a server is there shares the lock, for microseconds; a server's cannot be shared.
        if not _flocked(descriptor, fcntl.LOCK_SH) or time.monotonic() > end:
            with contextlib.suppress(OSError):
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise HomeBusyError(
                f"another dayfly (process {holder}) uses {home}; stop it with `dayfly down`, or set DAYFLY_HOME"
            )
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(0.001)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _flocked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _isolation(runner: str) -> str:
    """What the kernel grants: `root`, `user` or `none`."""
    answer = subprocess.run([runner, "probe"], check=True, capture_output=True, text=True, timeout=10)
    for line in answer.stdout.split():
        if line.startswith("isolation="):
            return line.removeprefix("isolation=")
    raise AssertionError(f"the runner's probe says {answer.stdout!r}")
