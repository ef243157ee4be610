"""Sandboxes that hold members of a pool and shared parents: the real embedded host, with simulated processes and time.

`machine` and `world` drive single turns of one run. Holds are transactions over several runs, so here the real engine,
pool keeper, executor and ledger work together in an event loop with virtual time. A server is killed at any write, and
the next one continues with the same ledger. Processes of steps outlive their server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import msgspec
from tests.embedded import documents as doc
from tests.embedded.parent_documents import database, server
from tests.embedded.parent_documents import member as child_member
from tests.embedded.pool_documents import pool, pooled, sandbox, template
from tests.kube.fake.clock import VirtualLoop
from tests.simulator.ledgers import open_ledger
from tests.simulator.oracle import Violation
from tests.simulator.pool_host import OUTPUTS, PoolServer, VirtualCommit
from tests.simulator.pool_oracle import DEFECT, LEFT, MAX_PARENTS, NOT_OVER, PARENT_CAPACITY, PoolOracle, Start
from tests.simulator.server import Crash

from dayfly.embedded import engine, writer
from dayfly.embedded.attempts import UnitAttempt
from dayfly.link.wire import Offer, PoolAction, Verdict
from dayfly.spec.host_errors import HostUnavailableError
from dayfly.spec.lifecycle import Lifecycle
from dayfly.spec.run import EndRequest, Result

BEGIN_S = 1_700_000_000.0
PATIENCE_S = 600.0
WORKERS = 8
# The maximum number of writes in a schedule. Most have some hundred, so more are an endless loop.
MAX_WRITES = 20_000
STOP = EndRequest(at=1, reason="Deleted", by="ada")
DELETE = {"backoff_ms": 50, "idempotent": True, "limit": 0}


def _member() -> tuple[Lifecycle, ...]:
    create = [doc.step("make", outputs=[("url", "/tmp/url")]), doc.step("seed", inputs=["url=make.url"])]
    return template(create, [doc.step("drop", inputs=["url=make.url"], **DELETE)], name="pg")


PARENT = server(capacity=PARENT_CAPACITY, max_parents=MAX_PARENTS, linger_ms=3_000)
MEMBERS = {"plain": _member(), "child": child_member(PARENT)}
CLAIM = [doc.step("grant", inputs=["url=make.url"])], [doc.step("revoke", **DELETE)]


class Process:
    """A step that runs, or has run. It outlives the server that started it."""

    def __init__(self, start: Start, since: int, *, fails: bool) -> None:
        self.start = start
        self.since = since
        self.fails = fails
        self.result: Result | None = None
        self.timer: asyncio.TimerHandle | None = None


class PoolHouse:
    """One schedule. Everything random comes from the seed."""

    def __init__(self, seed: int, *, story: list[str] | None = None) -> None:
        self.rng = Random(seed)
        self.ledger, self.connection = open_ledger(hook=self._at_write)
        self.oracle = PoolOracle(self.connection)
        self.story = story
        self.processes: dict[UnitAttempt, Process] = {}
        self.server: PoolServer | None = None
        self.failure: Violation | None = None
        self.fail_rate = self.rng.choice((0.0, 0.0, 0.1, 0.3))
        self.slots = self.rng.choice((1, 2, 4, 16))
        self.member = self.rng.choice(sorted(MEMBERS))
        self.writes = 0
        self.kill_in = 0  # writes until the server is killed; 0 for never
        self.full_for = 0  # writes for which the disk is full
        self._jump_ms = 0
        # All sandboxes that the owner ever wanted, the confirmed orders, and the runs that the owner stopped or abandoned.
        self.wanted: dict[str, Offer] = {}
        self.confirmed: set[str] = set()
        self.stopped: set[str] = set()
        self.abandoned: set[str] = set()
        self.pool_offer: Offer | None = None
        self.pools = 0

    # --- time -------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return int((BEGIN_S + self._loop.now) * 1000) + self._jump_ms

    def _wall_ns(self) -> int:
        return self.now_ms() * 1_000_000

    def _monotonic_ns(self) -> int:
        return int(self._loop.now * 1e9)

    @contextlib.contextmanager
    def _clocks(self) -> Iterator[None]:
        with (
            mock.patch.object(time, "time_ns", self._wall_ns),
            mock.patch.object(time, "monotonic_ns", self._monotonic_ns),
            mock.patch.object(time, "monotonic", self._loop.time),
            mock.patch.object(writer, "GroupCommit", self._open_commit),
            mock.patch.object(engine, "WORKERS", WORKERS),
        ):
            yield

    @contextlib.contextmanager
    def _defects(self) -> Iterator[None]:
        """Treat each logged error of the host, such as a turn that failed, as a violation."""
        handler = _Defects(self)
        logger = logging.getLogger("dayfly.embedded")
        logger.addHandler(handler)
        was_propagating, logger.propagate = logger.propagate, False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = was_propagating

    def _open_commit(self, commit: Callable[[Sequence[Any]], Sequence[Any]], *_: object) -> VirtualCommit:
        self.commit = VirtualCommit(self, commit)
        return self.commit

    def say(self, who: str, what: object) -> None:
        """Add one line to the story, if it is recorded."""
        if self.story is not None:
            self.story.append(f"{self._loop.now:>9.3f} s  {who}: {what}")

    # --- the schedule -----------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Chaos, then calm: then everything that was wanted exists, and nothing is left after its end.

        Raises:
            Violation: A rule was broken.
        """
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop), "the loop of this simulation"
            self._loop = loop
            with self._clocks(), self._defects(), tempfile.TemporaryDirectory() as folder:
                self.folder = Path(folder)
                runner.run(self._play())

    async def _play(self) -> None:
        try:
            await self._chaos()
            await self._calm()
        finally:
            await self.kill()
            for process in self.processes.values():
                if process.timer is not None:
                    process.timer.cancel()

    async def _chaos(self) -> None:
        for _ in range(self.rng.randrange(8, 40)):
            await self._act()
            await asyncio.sleep(self.rng.choice((0, 0, 0.002, 0.05, 0.4, 2, 9)))
            await self._restart()
            self._raise()

    async def _calm(self) -> None:
        """Stop all faults. Each sandbox becomes ready or fails, and all ends are completed."""
        self.kill_in = self.full_for = 0
        self.fail_rate = 0.0
        await self._restart()
        await self._until(self._is_settled, "a sandbox is neither ready nor failed")
        # Their parents have room for others then.
        self.stopped.update(name for name in sorted(self.wanted) if self.rng.random() < 0.5)
        await self._until(self._is_settled, "a sandbox is neither ready nor failed after the end of others")
        self.stopped |= self.wanted.keys()
        if self.pool_offer is not None:
            self.stopped.add(self.pool_offer.uid)
        await self._until(lambda: not self.oracle.runs(), "runs do not end")
        left = list(self.oracle.leftovers())
        if left:
            raise Violation(LEFT, f"left behind: {', '.join(left)}")

    async def _until(self, condition: Callable[[], bool], problem: str) -> None:
        end = self._loop.now + PATIENCE_S
        while not condition():
            self._raise()
            await self._restart()
            await self._resend()
            if self._loop.now > end:
                every = ", ".join(f"{uid} ({run.phase})" for uid, run in sorted(self.oracle.runs().items()))
                raise Violation(NOT_OVER, f"{problem}: {every}")
            await asyncio.sleep(1)
        self._raise()

    def _raise(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _is_settled(self) -> bool:
        """Return whether each open sandbox is ready or has failed."""
        server, are_full = self.server, self.oracle.are_parents_full()
        return server is not None and all(
            server.is_settled(uid, may_wait=are_full) for uid in self.wanted if uid not in self.stopped | self.abandoned
        )

    # --- the owner --------------------------------------------------------------------------------------------------

    async def _act(self) -> None:
        action, rng = self.rng.random(), self.rng
        living = sorted(self.wanted.keys() - self.stopped)
        if action < 0.3:
            self._want(f"s{len(self.wanted)}")
        elif action < 0.45 and living:
            self.stopped.add(rng.choice(living))
        elif action < 0.48 and living:
            self.abandoned.add(rng.choice(living))
        elif action < 0.56 and living:
            await self._order("reset", self._reset(rng.choice(living)))
        elif action < 0.72:
            self._change_pool()
        elif action < 0.78 and self.pool_offer is not None:
            await self._order("control", self._control(self.pool_offer.uid))
        elif action < 0.9:
            self.kill_in = rng.choice((1, 2, 3, 5, 8, 13, 30))
        elif action < 0.95:
            self.full_for = rng.choice((1, 2, 4))
        else:
            self._jump_ms += rng.choice((-5_000, 5_000, 400_000))
            self.say("the clock", f"is set by {self._jump_ms} ms")
        await self._resend()

    def _want(self, name: str) -> None:
        resources = [self._resource("db"), *([self._resource("more")] if self.rng.random() < 0.3 else [])]
        self.wanted[name] = sandbox(name, *resources)
        self.say("the owner", f"wants {name}: {[each.template[0]['resource'] for each in resources]}")

    def _resource(self, name: str) -> Lifecycle:
        """Return a resource that comes from the pool, or one with a shared parent."""
        if self.rng.random() < 0.25:
            return database(PARENT, name=name)
        claim = CLAIM if self.member == "plain" and self.rng.random() < 0.4 else ((), ())
        return pooled(name, MEMBERS[self.member], *claim)

    def _change_pool(self) -> None:
        if self.pool_offer is None or self.pool_offer.uid in self.stopped:
            self.pools += 1
            self.pool_offer = pool(f"p{self.pools}", MEMBERS[self.member], self.rng.choice((1, 2, 3)), birth=True)
        elif self.rng.random() < 0.3:
            self.stopped.add(self.pool_offer.uid)
            if self.rng.random() < 0.2:
                self.abandoned.add(self.pool_offer.uid)
        else:
            spec = msgspec.structs.replace(self.pool_offer.pool, ready=self.rng.choice((0, 1, 4)))
            generation = self.pool_offer.generation + 1
            self.pool_offer = msgspec.structs.replace(self.pool_offer, pool=spec, generation=generation)
        self.confirmed.discard(self.pool_offer.uid)
        self.say("the owner", f"changes the pool {self.pool_offer.uid}: {self.pool_offer.pool}")

    async def _reset(self, uid: str) -> None:
        assert self.server is not None, "orders need a server"
        report = self.server.host.report(uid)
        member = (
            next((unit.member for unit in report.units if unit.member and unit.resource == "db"), "") if report else ""
        )
        if member:
            await self.server.host.reset(uid, "db", member, "ada")

    async def _control(self, uid: str) -> None:
        assert self.server is not None, "orders need a server"
        await self.server.host.control_pool(uid, self.rng.choice(list(PoolAction)), "ada")

    async def _resend(self) -> None:
        """Send the orders that were not confirmed, as a control plane does."""
        for offer in (*self.wanted.values(), *([self.pool_offer] if self.pool_offer is not None else [])):
            if offer.uid not in self.confirmed:
                await self._order(offer.uid, self._offer(offer))
        for uid in sorted(self.stopped):
            if f"stop {uid}" not in self.confirmed:
                await self._order(uid, self._end(uid, "stop"))
        for uid in sorted(self.abandoned):
            if f"abandon {uid}" not in self.confirmed:
                await self._order(uid, self._end(uid, "abandon"))

    async def _offer(self, offer: Offer) -> None:
        assert self.server is not None, "orders need a server"
        verdict = await self.server.host.offer(msgspec.structs.replace(offer, birth=True))
        self.say("the host", f"{offer.uid}: {verdict.name}")
        self.confirmed.add(offer.uid)

    async def _end(self, uid: str, how: str) -> None:
        assert self.server is not None, "orders need a server"
        host = self.server.host
        verdict = await (host.stop(uid, STOP) if how == "stop" else host.abandon(uid, STOP))
        self.say("the host", f"{how} {uid}: {verdict.name}")
        if verdict is not Verdict.UNKNOWN or uid in self.confirmed:
            self.confirmed.add(f"{how} {uid}")

    async def _order(self, what: str, order: Any) -> None:
        """Send an order to the server. It is lost if the server is killed before it answers."""
        current = self.server
        if current is None:
            order.close()
            return
        task = asyncio.ensure_future(order)
        await asyncio.wait([task, current.killed], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        try:
            await task
        except (asyncio.CancelledError, HostUnavailableError) as error:
            self.say("the owner", f"gets no answer about {what}: {error!r}")

    # --- servers ----------------------------------------------------------------------------------------------------

    async def _restart(self) -> None:
        """Start a server if none runs. A killed one is cleared away first."""
        if self.server is not None and self.server.killed.done():
            await self.kill()
        if self.server is None:
            self.say("the server", "starts")
            self.server = PoolServer(self)

    async def kill(self) -> None:
        """End the server at once. Nothing of it is written any longer."""
        if self.server is not None:
            dead, self.server = self.server, None
            await dead.end()

    def _at_write(self, name: str) -> None:
        """The hook of the ledger: check the rules after each write, and kill the server at the chosen one."""
        if name.startswith("after"):
            self.connection.set_progress_handler(None, 0)
            self._check(self.oracle.check)
            self.writes += 1
            if self.writes > MAX_WRITES:
                self.failure = self.failure or Violation(NOT_OVER, f"still busy after {MAX_WRITES} writes")
        elif self.full_for:
            self.full_for -= 1
            self._fill_disk()
        if self.kill_in:
            self.kill_in -= 1
            if not self.kill_in:
                self.say("the server", f"is killed {name}")
                raise Crash

    def _fill_disk(self) -> None:
        """Let SQLite itself fail at a random point of a write."""
        left = [1]

        def refuse() -> int:
            left[0] -= 1
            return left[0] == 0

        self.connection.set_progress_handler(refuse, self.rng.randrange(1, 120))

    def _check(self, rule: Callable[[], None]) -> None:
        """Check a rule. The first violation ends the schedule."""
        try:
            rule()
        except Violation as violation:
            self.failure = self.failure or violation

    # --- processes --------------------------------------------------------------------------------------------------

    def launch(self, key: UnitAttempt, *, creates: bool) -> None:
        """Start the process of a step. It ends after a while, whatever happens to the server."""
        start = Start(key.run, key.unit, creates)
        self._check(lambda: self.oracle.started(start))
        process = self.processes[key] = Process(start, self.now_ms(), fails=self.rng.random() < self.fail_rate)
        delay = self.rng.choice((0.001, 0.02, 0.3, 3))
        process.timer = self._loop.call_later(delay, self.end_process, key)
        self.say("a process", f"{key} starts")

    def end_process(self, key: UnitAttempt, reason: str = "") -> None:
        process = self.processes.get(key)
        if process is None or process.result is not None:
            return
        is_failed = process.fails or bool(reason)
        outputs = {} if is_failed or not process.start.creates else OUTPUTS.get(key.unit.rpartition("/")[2], {})
        process.result = Result(
            outcome="failed" if is_failed else "succeeded",
            reason=reason or ("Failed" if is_failed else ""),
            started_at=process.since,
            ended_at=self.now_ms(),
            outputs=outputs,
        )
        self.oracle.ended_step(process.start, succeeded=not is_failed)
        self.say("a process", f"{key} {process.result.outcome}")
        if self.server is not None:
            self.server.engine.attempt_changed(key.run)


class _Defects(logging.Handler):
    """Turns logged errors into violations."""

    def __init__(self, house: PoolHouse) -> None:
        super().__init__(logging.ERROR)
        self._house = house

    def emit(self, record: logging.LogRecord) -> None:
        self._house.failure = self._house.failure or Violation(DEFECT, record.getMessage())
