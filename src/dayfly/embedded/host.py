"""The embedded host behind its end of the link: it accepts offers and orders, and returns reports, values and logs."""

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
from dayfly.embedded.executors import Executors, ProcessForkExecutor, ProcessStepExecutor, ProcessWebhookExecutor
from dayfly.embedded.forks import BaselineProcesses, Ports
from dayfly.embedded.leaks.leak_check_scheduler import LeakCheckScheduler
from dayfly.embedded.leaks.leak_runs import LeakRuns, is_leak_run
from dayfly.embedded.leaks.state_leaks import StateLeaks
from dayfly.embedded.ledger import Hook, SqliteLedger, StoredRun
from dayfly.embedded.pools.acquire_executor import AcquireExecutor
from dayfly.embedded.pools.member_index import MemberIndex
from dayfly.embedded.pools.pool_keeper import PoolKeeper
from dayfly.embedded.pools.secret_digests import SecretDigests
from dayfly.embedded.routes.envoy import open_envoy
from dayfly.embedded.routes.route_executors import (
    EnvoyPreviewExecutor,
    EnvoyRouteExecutor,
)
from dayfly.embedded.routes.route_table import RouteTable
from dayfly.embedded.run_logs import RunLogs
from dayfly.embedded.run_reports import last_report, live_endpoints, live_report, recorded_values
from dayfly.embedded.run_secrets import RunSecrets
from dayfly.embedded.run_tracing import TraceExporter
from dayfly.embedded.runs import RunCache
from dayfly.embedded.scene_builder import SceneBuilder
from dayfly.embedded.slot_queue import SlotQueue
from dayfly.embedded.startup import isolation, lock_home, open_ledgers
from dayfly.embedded.state_server import Serve, StateServer
from dayfly.embedded.step_logs import StepLogFiles
from dayfly.embedded.writer import Writer
from dayfly.execute.acquire.holder_report import HeldMember, with_members
from dayfly.execute.process.attempt_storage import open_storage, remove_storage, sweep_storage
from dayfly.execute.process.ci_marks import without_ci_marks
from dayfly.execute.process.launch import ContainerStarter, ProcessStarter
from dayfly.execute.tracing import Tracer
from dayfly.execute.turn import Scene
from dayfly.lib.clock import clock_offset_ms, now_ms
from dayfly.lib.tasks import cancel_and_wait
from dayfly.link import run_queries, wire
from dayfly.link.host_end import HostEnd
from dayfly.link.wire import Offer, PoolAction, RunStatus, Verdict
from dayfly.plan.leaks.records import KEEP_RECORDS_MS
from dayfly.plan.world import TargetIntent
from dayfly.spec.host_errors import HostUnavailableError
from dayfly.spec.lifecycle import Lifecycle, Target, Unit, digest
from dayfly.spec.report import RunReport
from dayfly.spec.routing.routing_keys import Forms
from dayfly.spec.run import EndRequest, Phase, Run
from dayfly.spec.run_data import HistoryEntry, LogInfo, Value
from dayfly.spec.workload import Workload

log = logging.getLogger(__name__)

KEEP_ENDED_MS = 7 * 24 * 3_600_000
MAX_CLOCK_JUMP_MS = 24 * 3_600_000
SWEEP_INTERVAL_S = 3_600
VERSIONS_PER_LIFE = 1_000
# The target of a run whose record does not exist, as nothing else is known of it.
UNKNOWN_TARGET = Target(kind="Sandbox", name="", uid="")


class EmbeddedHost:
    """The host on this machine. Create it with `open`, end it with `close`."""

    is_remote = False
    pools = parents = True

    def __init__(
        self,
        home: Path,
        lock: int,
        ledger: SqliteLedger,
        writer: Writer,
        engine: Engine,
        baselines: BaselineProcesses,
        states: StateServer | None,
        routing: RouteTable,
        members: MemberIndex,
        acquiring: AcquireExecutor,
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
        self._storage = engine.attempts.storage
        self._log_files = StepLogFiles(self._storage, engine.reader)
        self._logs = RunLogs(self._log_files, engine.reader, engine.attempts, members)
        self._members, self._acquiring = members, acquiring
        self.keeper = PoolKeeper(engine, members, self.report)
        self._leak_runs = LeakRuns(engine, self.report)
        self.leak_checks = LeakCheckScheduler(engine, self._leak_runs, StateLeaks(home, engine.reader))
        # Versions of reports rise over restarts, so a client that waits for a newer version gets ours at once.
        self._first = life * VERSIONS_PER_LIFE
        self._clock_offset = clock_offset_ms()
        self._versions: dict[str, int] = {}
        self._session = life
        self.end = HostEnd(self)
        self._tasks = [asyncio.create_task(self._sweep()), asyncio.create_task(self.end.run())]
        engine.on_change = self._on_change
        engine.on_end = self._on_end
        self.keeper.on_change, self.keeper.on_end = self._on_change, self._on_end
        self.keeper.abandon_member = self.abandon
        acquiring.report = acquiring.parents.report = self.report
        acquiring.on_miss = self.keeper.count_miss

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
        """Take over the home.

        Args:
            home: The host's own directory; created if it does not exist.
            runner: The program that runs a step.
            parallel: The maximum number of steps that run at once.
            engine: `podman` or `docker` (or a path to one) runs steps in containers of their images; empty runs them as
                processes of this machine.
            hook: Called with the name of each write of the ledger, before and after the write.
            environment: The environment of the machine for steps; variables that mark a CI job are left out.
            webhooks: Servers (`host:port`) to which webhooks may be sent although their addresses are not public.
            serve: Serves the states of steps over HTTP; without it, the host refuses steps with a state.
            proxy: The path of the Envoy that routes requests to forks by routing key; empty for no routing.
            forms: Forms of the routing key in requests, in addition to the usual headers.
            tracer: Exports runs as traces.

        Raises:
            HomeBusyError: another server uses the home.
            LedgerError: the ledger cannot be used.
        """
        lock = lock_home(home)
        ledger, reader, life, leases_unextended = open_ledgers(home, hook, now_ms(), LEASE_GRACE_MS)
        writer, place = Writer(ledger), open_storage(home)
        await asyncio.to_thread(sweep_storage)
        environment, allowed = without_ci_marks(environment), frozenset(webhooks)
        processes = ProcessStarter(runner, isolation(runner), environment)
        starter = ContainerStarter(engine, runner, processes) if engine else processes
        attempts, baselines, ports = Attempts(place, starter), BaselineProcesses(), Ports(place)
        runs, routing = RunCache(reader, baselines, ports), RouteTable(await open_envoy(proxy, home, forms), baselines)
        states = StateServer(home, reader, serve) if serve is not None else None
        step: dict[str, Any] = {"environment": environment, "has_images": bool(engine), "states": states}
        members = MemberIndex(SecretDigests(home, environment))
        members.load(reader)
        acquiring = AcquireExecutor(reader, members)
        executors = Executors(
            ProcessStepExecutor(reader, attempts, starter, runs=runs, traced=tracer is not None, **step),
            ProcessWebhookExecutor(reader, attempts, starter, runs=runs, environment=environment, allowed=allowed),
            ProcessForkExecutor(reader, attempts, starter, runs=runs, baselines=baselines, ports=ports),
            *(kind(routing, ports) for kind in (EnvoyRouteExecutor, EnvoyPreviewExecutor)),
            acquiring,
            secrets=True,
        )
        scenes = SceneBuilder(executors, attempts, starter, runs)
        slots = SlotQueue(attempts, runs, parallel=parallel)
        loop = Engine(ledger, reader, writer, attempts, runs, scenes, executors, ports, slots)
        acquiring.change, acquiring.wake, acquiring.is_in_turn = loop.change, loop.wake, loop.is_in_turn
        attempts.on_change = routing.on_change = loop.attempt_changed
        loop.leases_unextended = leases_unextended
        made = cls(home, lock, ledger, writer, loop, baselines, states, routing, members, acquiring, life)
        if tracer is not None:
            TraceExporter(loop, tracer, made.report, made.history)
        return made

    def start(self) -> None:
        """Start taking turns. The baselines of forks must have been passed to `baseline` before."""
        if self._states is not None:
            self._states.resume()
        # The proxy may still be running: it must receive all routes at once.
        self._engine.adopt_routes()
        self._routing.start()
        self._engine.start()
        self.keeper.start()
        self.leak_checks.start()

    async def close(self, *, stop_forks: bool = True) -> None:
        """Stop the server's part: forks stop, and running steps continue until the next server adopts them."""
        await cancel_and_wait(*self._tasks)
        await self.end.close()
        await self.leak_checks.stop()
        await self.keeper.stop()
        await self._engine.stop()
        if stop_forks:
            await self._engine.stop_forks()
        await self._routing.close(stop=stop_forks)
        if self._states is not None:
            await self._states.close()
        await self._engine.attempts.finish_removals()
        self._engine.attempts.close()
        await self._writer.close()
        if not self._engine.reader.live_uids():
            with contextlib.suppress(OSError):
                remove_storage(self._storage)
        self._ledger.close()
        self._engine.reader.close()
        os.close(self._lock)

    # --- the interface for the link (`link.host_interface.Host`) ------------------------------------------------------

    def begin_session(self) -> int:
        """Return a number higher than that of every earlier session."""
        self._session = max(now_ms(), self._session + 1)
        return self._session

    def living_runs(self) -> Iterable[str]:
        """Return the UIDs of all runs and pools that have not ended. Members and parents are part of these."""
        members = {row.uid for row in self._engine.reader.pools.living_members()}
        live = self._engine.reader.live_uids()
        return [*(uid for uid in live if uid not in members and not is_leak_run(uid)), *self.keeper.uids()]

    def unacknowledged_ends(self) -> Iterable[str]:
        """Return the UIDs of ended runs whose end the server has not acknowledged."""
        return self._engine.reader.unacknowledged()

    # --- orders -----------------------------------------------------------------------------------------------------

    def admit(self, documents: tuple[Lifecycle, ...], forks: tuple[Unit, ...]) -> None:
        """Refuse documents and forks that this host cannot run.

        Raises:
            DocumentsRefusedError: the first unit that cannot run here.
        """
        self._engine.executors.admit(documents, forks)
        self.secrets.admit(documents)

    async def baseline(self, workload: Workload) -> None:
        """Declare a baseline, or replace it."""
        self._baselines.put(workload)
        self._follow_baselines()

    async def forget_baseline(self, workload: Workload) -> None:
        """Remove a baseline: the proxy no longer accepts its requests, and its port is free."""
        self._baselines.drop(workload)
        self._follow_baselines()

    def _follow_baselines(self) -> None:
        self._routing.touch()
        for uid in self._engine.runs.with_forks():
            self._engine.reload(uid)
        self._engine.unblock()

    async def offer(self, offer: Offer) -> Verdict:
        """Create the run if it is new and may be born; otherwise accept its forks and expiry if they are not older.

        An offer with a pool creates or changes that pool.

        Raises:
            DocumentsRefusedError: this host cannot run the members of the pool.
        """
        if offer.pool is not None:
            self.admit(offer.documents, ())
            return Verdict.TAKEN if await self.keeper.offer(offer) else self._refusal(offer.uid)
        now = now_ms()
        run = Run(uid=offer.uid, target=offer.target, plan=digest(offer.documents), born_at=now)
        intent = TargetIntent(expires_at=offer.expires_at, lease_until=offer.lease_until)
        stored = StoredRun(
            run=run,
            name=offer.name,
            documents=offer.documents,
            forks=offer.forks,
            intent=intent,
            generation=offer.generation,
        )

        if offer.birth and not self._engine.reader.is_known(offer.uid) and await self._engine.create(stored):
            return Verdict.TAKEN

        def revise() -> bool:
            before = self._ledger.load(offer.uid)
            if before is None:
                return False
            if offer.generation >= before.generation:
                if before.forks != offer.forks:
                    self._ledger.set_forks(offer.uid, offer.forks, now)
                self._ledger.set_intent(offer.uid, msgspec.structs.replace(before.intent, expires_at=offer.expires_at))
                self._ledger.set_generation(offer.uid, offer.generation)
            return True

        if not await self._writer.run(revise):
            return self._refusal(offer.uid)
        self._engine.reload(offer.uid)
        return Verdict.TAKEN

    async def stop(self, uid: str, request: EndRequest, *, known: bool = True) -> Verdict:
        """Store the request to end the run; durable on return. An unknown run never begins, unless it is `known`.

        The used members of a pool outlive it.
        """
        if uid in self.keeper.uids():
            return await self.keeper.end(uid, request)
        never = Run(uid=uid, target=UNKNOWN_TARGET, plan="", phase=Phase.CLEANED, closed=request, ended_at=now_ms())
        return await self._change_intent(
            uid,
            lambda intent: intent if intent.stop else msgspec.structs.replace(intent, stop=request),
            never=None if known else never,
        )

    async def abandon(self, uid: str, request: EndRequest) -> Verdict:
        """Store the request to end the run without cleanup. An unknown run never begins.

        The members of a pool that have no holder are abandoned with it.
        """
        if uid in self.keeper.uids():
            return await self.keeper.abandon(uid, request)
        verdict = await self._change_intent(
            uid,
            lambda intent: intent if intent.abandon else msgspec.structs.replace(intent, abandon=request),
            never=Run(
                uid=uid, target=UNKNOWN_TARGET, plan="", phase=Phase.ABANDONED, abandon=request, ended_at=now_ms()
            ),
        )
        if verdict is Verdict.OVER:
            await self._acquiring.leave_all(uid)
        return verdict

    async def retry(self, uid: str, attempts: Mapping[str, int], by: str) -> Verdict:
        """End the back-off after exactly these attempts of units, and of the members' steps that they stand for."""
        for member, members_attempts in self._acquiring.retries(uid, attempts).items():
            await self._retry(member, members_attempts, by)
        return await self._retry(uid, attempts, by)

    async def _retry(self, uid: str, attempts: Mapping[str, int], by: str) -> Verdict:
        now = now_ms()

        def newest(intent: TargetIntent) -> TargetIntent:
            later = {unit: attempt for unit, attempt in attempts.items() if attempt > intent.retry.get(unit, 0)}
            for unit, attempt in later.items():
                self._ledger.add_note(uid, now, unit, attempt, "Retry", f"back-off ended by {by}")
            return msgspec.structs.replace(intent, retry={**intent.retry, **later})

        return await self._change_intent(uid, newest)

    async def lease(self, uid: str, until: int) -> Verdict:
        """Renew the lease of an open run."""
        return await self._change_intent(
            uid, lambda intent: msgspec.structs.replace(intent, lease_until=until), only_open=True
        )

    async def reset(self, uid: str, resource: str, member: str, by: str) -> Verdict:
        """Give a resource another pool member in place of the one with this name."""
        ref = self._acquiring.member_named(uid, resource, member)

        def replace(intent: TargetIntent) -> TargetIntent:
            if ref and intent.reset.get(resource) != ref:
                self._ledger.add_note(uid, now_ms(), resource, 0, "Reset", f"pool member {member} replaced by {by}")
            return msgspec.structs.replace(intent, reset={**intent.reset, resource: ref}) if ref else intent

        return await self._change_intent(uid, replace, only_open=True)

    async def control_pool(self, uid: str, action: PoolAction, by: str) -> Verdict:
        """Pause, resume or drain a pool; durable on return."""
        return await self.keeper.control(uid, action, by)

    async def _change_intent(
        self,
        uid: str,
        change: Callable[[TargetIntent], TargetIntent],
        *,
        only_open: bool = False,
        never: Run | None = None,
    ) -> Verdict:
        """Store a change of the run's intent. If the run is unknown, record `never` (if given) as its end."""

        def write() -> bool:
            stored = self._ledger.load(uid)
            if stored is None and never is not None:
                self._ledger.block_creation(never)
            if stored is None or (only_open and stored.run.closed is not None):
                return False
            return self._ledger.set_intent(uid, change(stored.intent))

        if not await self._writer.run(write):
            return self._refusal(uid)
        self._engine.reload(uid)
        return Verdict.TAKEN

    def _refusal(self, uid: str) -> Verdict:
        """Return why the intent of a run could not be stored."""
        if self.has_ended(uid):
            return Verdict.OVER
        return Verdict.UNKNOWN if self._engine.reader.load(uid) is None else Verdict.CLOSED

    async def acknowledge(self, uids: tuple[str, ...]) -> None:
        """Record that the server knows the end of these runs; they are deleted a week after their end."""
        await self._writer.run(lambda: self._ledger.acknowledge(uids))

    # --- reports ----------------------------------------------------------------------------------------------------

    def report(self, uid: str) -> RunReport | None:
        """Return the report of a run, or its last report if it has ended; None if the run is unknown."""
        return self._report(uid, self._engine.scene(uid))

    def _report(self, uid: str, scene: Scene | None) -> RunReport | None:
        """Return the report of a run; `scene` is its scene now, None if it has none."""
        if scene is not None:
            error = self._writer.write_error
            report = live_report(scene, self._baselines, routes=self.routes, write_error=error)
            return with_members(report, scene.world.run, scene.plan.documents, self._find_member)
        if (pool := self.keeper.report(uid)) is not None:
            return pool
        last = self._engine.reader.ended_run(uid)
        return None if last is None else last_report(last, self.report)

    def _find_member(self, uid: str) -> HeldMember | None:
        if (found := self._members.find(uid)) is not None:
            return HeldMember(found.run.target.name, found.pool_name, found.run, partial(self.report, uid))
        last = self._engine.reader.ended_run(uid)
        return HeldMember(last.target.name, run=last) if last is not None else None

    def has_ended(self, uid: str) -> bool:
        """Return whether the run existed and has ended."""
        return self._engine.reader.ended_run(uid) is not None

    def run_status(self, uid: str) -> RunStatus | None:
        """Return the state and endpoints of a run, or its last state if it has ended; None if the run is unknown."""
        scene = self._engine.scene(uid)
        if (report := self._report(uid, scene)) is None:
            return None
        port = partial(self._engine.ports.find, uid)
        endpoints = live_endpoints(scene, self._baselines, port) if scene is not None else ()
        return RunStatus(uid=uid, seq=self.version(uid), report=report, endpoints=endpoints)

    def version(self, uid: str) -> int:
        """Return the version of the run's report; it rises with each change."""
        return self._versions.get(uid, self._first)

    def _on_change(self, uid: str) -> None:
        if self._leak_runs.on_change(uid):
            return
        if self._members.was_known(uid):
            # The server knows a member only as a part of its pool.
            if (found := self._members.find(uid)) is not None and found.pool:
                self._on_change(found.pool)
            return
        self._versions[uid] = self.version(uid) + 1
        self.end.report_change(uid)

    def _on_end(self, uid: str) -> None:
        if self._leak_runs.on_change(uid):
            return
        if self._members.was_known(uid):
            return
        self._versions[uid] = self.version(uid) + 1
        self.end.report_end(uid)

    async def answer_query(self, query: wire.RunQuery) -> wire.Answer:
        """Return a run's outputs, history or logs."""
        return run_queries.answer(self, query)

    def values(self, uid: str) -> tuple[Value, ...]:
        """Return all recorded outputs of a live run."""
        return recorded_values(self._engine.reader, uid)

    def history(self, uid: str) -> tuple[HistoryEntry, ...]:
        """Return all changes of the run's ledger, also after its end."""
        return tuple(self._engine.reader.history(uid))

    def logs(self, uid: str) -> tuple[LogInfo, ...]:
        """Return the run's logs by unit and attempt, also after its end."""
        return self._logs.list_logs(uid)

    def read_log(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        """Return bytes of one log from `offset`; None if there is no such log."""
        return self._logs.read(uid, unit, attempt, offset=offset, limit=limit)

    def log_times(self, uid: str, unit: str, attempt: int) -> Sequence[tuple[int, int]]:
        """Return the times of the log's lines (see `spec.log_times`); empty if they are unknown."""
        return self._logs.times(uid, unit, attempt)

    async def forget_old(self) -> None:
        """Delete the records and logs of runs that ended more than a week ago, and old records of their resources.

        Records of resources are kept if the clock was set forward by more than a day since the start of this process.
        Without them, a leak check would no longer recognise the resources.
        """
        before = now_ms() - KEEP_ENDED_MS
        self.end.reject_older_births()
        try:
            kept = self.keeper.kept_records()
            ended = await self._writer.run(lambda: self._ledger.forget(before, kept))
            if clock_offset_ms() - self._clock_offset < MAX_CLOCK_JUMP_MS:
                await self._writer.run(lambda: self._ledger.records.forget(now_ms() - KEEP_RECORDS_MS))
        except HostUnavailableError as error:
            log.warning("records of runs that ended long ago are kept until the next sweep: %s", error)
            return
        self._log_files.forget(ended, before)
        for uid in ended:
            self._versions.pop(uid, None)

    async def _sweep(self) -> None:
        while True:
            await self.forget_old()
            await asyncio.sleep(SWEEP_INTERVAL_S)
