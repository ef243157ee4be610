"""The embedded host as its end of the link sees it: offers, wishes, reports, values and logs."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from dayfly.embedded.attempts import Attempts
from dayfly.embedded.engine import LEASE_GRACE_MS, Engine
from dayfly.embedded.executors import ProcessForkExecutor, ProcessStepExecutor, ProcessWebhookExecutor
from dayfly.embedded.forks import BaselineProcesses, Ports, unapplied
from dayfly.embedded.ledger import Hook, LedgerError, SqliteLedger, Stored
from dayfly.embedded.registry import Executors
from dayfly.embedded.routes.envoy import envoy_of
from dayfly.embedded.routes.route_executors import EnvoyPreviewExecutor, EnvoyRouteExecutor, nowhere, unrouted
from dayfly.embedded.routes.route_table import RouteTable
from dayfly.embedded.run_queries import answering, recorded
from dayfly.embedded.run_secrets import RunSecrets
from dayfly.embedded.run_tracing import Traces
from dayfly.embedded.runs import RunCache
from dayfly.embedded.startup import isolation, open_ledgers, take
from dayfly.embedded.state_door import Serve, StateDoor
from dayfly.embedded.step_logs import StepLogFiles
from dayfly.embedded.turn_view import Scenes
from dayfly.embedded.writer import Writer
from dayfly.execute.process.attempt_storage import open_storage, remove_storage, sweep_storage
from dayfly.execute.process.ci_marks import without_ci_marks
from dayfly.execute.process.launch import Containers, Processes
from dayfly.execute.tracing import Tracer
from dayfly.lib.clock import now_ms
from dayfly.lib.tasks import cancel
from dayfly.link import run_queries, wire
from dayfly.link.host_end import HostEnd
from dayfly.link.wire import Offer, Standing, Verdict
from dayfly.plan.actions import Decision
from dayfly.plan.decide import decide
from dayfly.plan.sealed import seal
from dayfly.plan.status import describe, with_unsupported
from dayfly.plan.world import Running, TargetIntent, World
from dayfly.spec.lifecycle import Lifecycle, Target, Unit, digest
from dayfly.spec.report import RunReport
from dayfly.spec.routing.routing_keys import Forms
from dayfly.spec.run import EndRequest, Phase, Run
from dayfly.spec.run_data import HistoryEntry, LogInfo, RunEndpoint, Value
from dayfly.spec.workload import Workload

log = logging.getLogger(__name__)

KEEP_ENDED_MS = 7 * 24 * 3_600_000
SWEEP_S = 3_600
VERSIONS_IN_A_LIFE = 1_000
# Whose run it was is not known where nobody knows the run.
NOBODY = Target(kind="Sandbox", name="", uid="")


class EmbeddedHost:
    """This machine as a host. Make it with `open`, end it with `close`."""

    is_remote = False

    def __init__(
        self,
        home: Path,
        lock: int,
        ledger: SqliteLedger,
        writer: Writer,
        engine: Engine,
        baselines: BaselineProcesses,
        states: StateDoor | None,
        routing: RouteTable,
        life: int,
    ) -> None:
        self.home = home
        self._lock = lock
        self._ledger = ledger
        self._writer = writer
        self._engine = engine
        self.secrets = RunSecrets(ledger, engine.reader, writer)
        self._baselines = baselines
        self._states = states
        self._routing = routing
        self.routes = routing.works
        self._place = engine.attempts.place
        self._logs = StepLogFiles(self._place, engine.reader)
        # Versions of reports go on rising over restarts: whoever waits for a newer one hears of ours at once.
        self._first = life * VERSIONS_IN_A_LIFE
        self._versions: dict[str, int] = {}
        self._session = life
        self.end = HostEnd(self)
        self._tasks = [asyncio.create_task(self._sweep()), asyncio.create_task(self.end.run())]
        engine.on_change = self._changed
        engine.on_end = self._ended

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
        webhooks: Collection[str] = (),
        serve: Serve | None = None,
        proxy: str = "",
        forms: Forms = Forms(),  # noqa: B008  -- frozen
        tracer: Tracer | None = None,
    ) -> Self:
        """Take the home over.

        Args:
            home: The host's own folder, made if need be.
            runner: The program that runs a step.
            parallel: How many steps may run at once.
            engine: `podman` or `docker` (or a path to one) runs steps in containers of their images; empty runs them as
                processes of this machine.
            hook: Called with the name of each write of the ledger, before and after it.
            environment: The machine's, as steps are to find it; the marks of a CI job are left out.
            webhooks: Servers (`host:port`) that webhooks may be sent to though they are not public.
            serve: Serves what steps ask of their states; without it no step may have one.
            proxy: The Envoy that leads requests to forks by their routing key; empty: nobody does.
            forms: Where else than in the usual headers requests carry keys.
            tracer: Who tells of runs as traces.

        Raises:
            HomeBusyError: another server has it.
            LedgerError: the ledger cannot be used.
        """
        lock = take(home)
        ledger, reader, life, owes_leases = open_ledgers(home, hook, now_ms(), LEASE_GRACE_MS)
        writer, place = Writer(ledger), open_storage(home)
        await asyncio.to_thread(sweep_storage)
        environment, allowed = without_ci_marks(environment), frozenset(webhooks)
        processes = Processes(runner, isolation(runner), environment)
        starter = Containers(engine, runner, processes) if engine else processes
        attempts, baselines, ports = Attempts(place, starter), BaselineProcesses(), Ports(place)
        runs, routing = RunCache(reader, baselines, ports), RouteTable(await envoy_of(proxy, home, forms), baselines)
        states = StateDoor(home, reader, serve) if serve is not None else None
        step: dict[str, Any] = {"environment": environment, "has_images": bool(engine), "states": states}
        executors = Executors(
            ProcessStepExecutor(reader, attempts, starter, runs=runs, traced=tracer is not None, **step),
            ProcessWebhookExecutor(reader, attempts, starter, runs=runs, environment=environment, allowed=allowed),
            ProcessForkExecutor(reader, attempts, starter, runs=runs, baselines=baselines, ports=ports),
            *(kind(routing, ports) for kind in (EnvoyRouteExecutor, EnvoyPreviewExecutor)),
            secrets=True,
        )
        scenes = Scenes(executors, attempts, starter, runs, parallel=parallel)
        wheel = Engine(ledger, reader, writer, attempts, runs, scenes, executors, ports)
        attempts.news, routing.news, wheel.owes_leases = wheel.news, wheel.news, owes_leases
        made = cls(home, lock, ledger, writer, wheel, baselines, states, routing, life)
        if tracer is not None:
            Traces(wheel, tracer, made.report, made.history)
        return made

    def start(self) -> None:
        """Begin to take turns. Baselines that forks need have been given by now."""
        if self._states is not None:
            self._states.resume()
        # The proxy may be at work still: it is to hear of all routes at once.
        self._engine.take_over_kept()
        self._routing.start()
        self._engine.start()

    async def close(self, *, stop_forks: bool = True) -> None:
        """End the server's part: forks stop, running steps go on and are adopted by the next server."""
        await cancel(*self._tasks)
        await self.end.close()
        await self._engine.stop()
        if stop_forks:
            await self._engine.stop_forks()
        await self._routing.close(stop=stop_forks)
        if self._states is not None:
            await self._states.close()
        await self._engine.attempts.cleared()
        self._engine.attempts.close()
        await self._writer.close()
        if not self._engine.reader.uids():
            with contextlib.suppress(OSError):
                remove_storage(self._place)
        self._ledger.close()
        self._engine.reader.close()
        os.close(self._lock)

    # --- what a link asks of it (`link.host_interface.Host`) ----------------------------------------------------------

    def begin_session(self) -> int:
        """A number higher than of all sessions before."""
        self._session = max(now_ms(), self._session + 1)
        return self._session

    def living(self) -> Iterable[str]:
        """All runs that have not ended."""
        return self._engine.reader.uids()

    def unacknowledged(self) -> Iterable[str]:
        """All that have ended, and nobody has said that he knows."""
        return self._engine.reader.unacknowledged()

    # --- wishes -----------------------------------------------------------------------------------------------------

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        """Refuse what this host cannot run.

        Raises:
            RefusedError: the first thing it cannot run.
        """
        self._engine.executors.admit(documents, forks)
        self.secrets.refuse_missing(documents)

    async def baseline(self, workload: Workload) -> None:
        """Take over a baseline, or its new form."""
        self._baselines.take(workload)
        self._follow_baselines()

    async def forget_baseline(self, workload: Workload) -> None:
        """Nobody declares it any more: its requests are taken in no more, and its port may be another's."""
        self._baselines.drop(workload)
        self._follow_baselines()

    def _follow_baselines(self) -> None:
        self._routing.touch()
        for uid in self._engine.runs.with_forks():
            self._engine.reload(uid)
        self._engine.unblock()

    async def offer(self, offer: Offer) -> Verdict:
        """Seal the run if it is new and may be born; otherwise take over its forks and times, if they are no older."""
        now = now_ms()
        run = Run(uid=offer.uid, target=offer.target, plan=digest(offer.documents), born_at=now)
        wish = TargetIntent(expires_at=offer.expires_at, lease_until=offer.lease_until)
        stored = Stored(
            run=run,
            name=offer.name,
            documents=offer.documents,
            forks=offer.forks,
            wish=wish,
            generation=offer.generation,
        )

        def seal_or_revise() -> bool:
            if offer.birth and self._ledger.birth(stored):
                return True
            before = self._ledger.load(offer.uid)
            if before is None:
                return False
            if offer.generation >= before.generation:
                if before.forks != offer.forks:
                    self._ledger.set_forks(offer.uid, offer.forks, now)
                self._ledger.set_wish(offer.uid, msgspec.structs.replace(before.wish, expires_at=offer.expires_at))
                self._ledger.set_generation(offer.uid, offer.generation)
            return True

        if not await self._writer.run(seal_or_revise):
            return self._absent(offer.uid)
        self._engine.reload(offer.uid)
        return Verdict.TAKEN

    async def stop(self, uid: str, request: EndRequest, *, known: bool = True) -> Verdict:
        """Wish the run's end; durable when this returns. One that nobody knows never begins, unless it is `known`."""
        never = Run(uid=uid, target=NOBODY, plan="", phase=Phase.CLEANED, closed=request, ended_at=now_ms())
        return await self._wish(
            uid,
            lambda wish: wish if wish.stop else msgspec.structs.replace(wish, stop=request),
            never=None if known else never,
        )

    async def abandon(self, uid: str, request: EndRequest) -> Verdict:
        """Wish the run's end without its cleanup. One that nobody knows never begins."""
        return await self._wish(
            uid,
            lambda wish: wish if wish.abandon else msgspec.structs.replace(wish, abandon=request),
            never=Run(uid=uid, target=NOBODY, plan="", phase=Phase.ABANDONED, abandon=request, ended_at=now_ms()),
        )

    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> Verdict:
        """End the back-off after those attempts of units, and after no others."""
        now = now_ms()

        def newest(wish: TargetIntent) -> TargetIntent:
            later = {unit: attempt for unit, attempt in attempts.items() if attempt > wish.retry.get(unit, 0)}
            for unit, attempt in later.items():
                self._ledger.note(uid, now, unit, attempt, "Retry", f"its back-off was ended (by {by})")
            return msgspec.structs.replace(wish, retry={**wish.retry, **later})

        return await self._wish(uid, newest)

    async def lease(self, uid: str, until: int) -> Verdict:
        """Renew the lease of a run that is open."""
        return await self._wish(uid, lambda wish: msgspec.structs.replace(wish, lease_until=until), only_open=True)

    async def _wish(
        self,
        uid: str,
        change: Callable[[TargetIntent], TargetIntent],
        *,
        only_open: bool = False,
        never: Run | None = None,
    ) -> Verdict:
        """Write what is wished of a run. One that nobody knows has ended with `never`, if that is given."""

        def write() -> bool:
            stored = self._ledger.load(uid)
            if stored is None and never is not None:
                self._ledger.bar(never)
            if stored is None or (only_open and stored.run.closed is not None):
                return False
            return self._ledger.set_wish(uid, change(stored.wish))

        if not await self._writer.run(write):
            return self._absent(uid)
        self._engine.reload(uid)
        return Verdict.TAKEN

    def _absent(self, uid: str) -> Verdict:
        """Why something could not be wished of a run."""
        if self.has_ended(uid):
            return Verdict.OVER
        return Verdict.UNKNOWN if self._engine.reader.load(uid) is None else Verdict.CLOSED

    async def acknowledge(self, uids: tuple[str, ...]) -> None:
        """The ends of these runs are noted: after their week they are forgotten."""
        await self._writer.run(lambda: self._ledger.acknowledge(uids))

    # --- reports ----------------------------------------------------------------------------------------------------

    def report(self, uid: str) -> RunReport | None:
        """What the run is doing; of one that has ended, its last word; None if it was never heard of."""
        scene = self._engine.look(uid)
        if scene is not None:
            report = describe(scene.plan, scene.world, decide(scene.plan, scene.world, scene.now), scene.now)
            if self._writer.trouble and not report.ready:
                # What it says of its steps is true, and not why it stands still.
                report = msgspec.structs.replace(report, message=f"{report.message}; {self._writer.trouble}")
            kept = [step.unit for step in scene.plan.kept.values()]
            more = nowhere if self.routes else unrouted
            told = (text for unit in kept for text in (unapplied(unit), more(unit, self._baselines)))
            return with_unsupported(report, tuple(filter(None, told)))
        last = self._engine.reader.last(uid)
        if last is None:
            return None
        return describe(seal(()), World(run=last), Decision(), last.ended_at)

    def has_ended(self, uid: str) -> bool:
        """Whether the run existed and is over."""
        return self._engine.reader.last(uid) is not None

    def standing(self, uid: str) -> Standing | None:
        """What the run is doing and where its forks answer; of one that has ended, its last word."""
        if (report := self.report(uid)) is None:
            return None
        return Standing(uid=uid, seq=self.version(uid), report=report, endpoints=self.endpoints(uid))

    def version(self, uid: str) -> int:
        """The number of the run's report."""
        return self._versions.get(uid, self._first)

    def _changed(self, uid: str) -> None:
        self._versions[uid] = self.version(uid) + 1
        self.end.changed(uid)

    def _ended(self, uid: str) -> None:
        self._versions[uid] = self.version(uid) + 1
        self.end.ended(uid)

    def endpoints(self, uid: str) -> tuple[RunEndpoint, ...]:
        """Where the run's forks and previews answer."""
        scene = self._engine.look(uid)
        return answering(scene, self._baselines, partial(self._engine.ports.known, uid)) if scene is not None else ()

    async def look_up(self, question: wire.RunQuestion) -> wire.Answer:
        """Answer a question about a run's outputs, history or logs."""
        return run_queries.found(self, question)

    def values(self, uid: str) -> tuple[Value, ...]:
        """All recorded outputs of a live run."""
        return recorded(self._engine.reader, uid)

    def history(self, uid: str) -> tuple[HistoryEntry, ...]:
        """What was written to the run's ledger, also after its end."""
        return tuple(self._engine.reader.history(uid))

    def logs(self, uid: str) -> tuple[LogInfo, ...]:
        """The logs there are, also after the run's end, in the order of units and attempts."""
        alive = self._engine.attempts.facts(uid)
        return self._logs.listed(uid, {key for key, fact in alive.items() if isinstance(fact, Running)})

    def read_log(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        """Bytes of one log from `offset`; None if there is no such log."""
        return self._logs.read(uid, unit, attempt, offset=offset, limit=limit)

    def log_times(self, uid: str, unit: str, attempt: int) -> Sequence[tuple[int, int]]:
        """When one log was printed; empty where nobody knows."""
        return self._logs.times(uid, unit, attempt)

    async def forget_old(self) -> None:
        """Forget runs that ended long ago, with their logs."""
        before = now_ms() - KEEP_ENDED_MS
        self.end.forgets()
        try:
            ended = await self._writer.run(partial(self._ledger.forget, before))
        except LedgerError as error:
            log.warning("what ended long ago is kept until the next look: %s", error)
            return
        self._logs.forget(ended, before)
        for uid in ended:
            self._versions.pop(uid, None)

    async def _sweep(self) -> None:
        while True:
            await self.forget_old()
            await asyncio.sleep(SWEEP_S)
