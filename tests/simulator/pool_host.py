"""The simulated server of `pool_house`: the real embedded host with simulated processes, disk and writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulator.server import Crash

from dayfly.embedded import engine, writer
from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.executors import Executors
from dayfly.embedded.forks import BaselineProcesses
from dayfly.embedded.host import EmbeddedHost
from dayfly.embedded.pools.acquire_executor import AcquireExecutor
from dayfly.embedded.pools.member_index import MemberIndex
from dayfly.embedded.pools.secret_digests import SecretDigests
from dayfly.embedded.routes.route_table import RouteTable
from dayfly.embedded.runs import LiveRun, RunCache
from dayfly.embedded.scene_builder import SceneBuilder
from dayfly.embedded.slot_queue import SlotQueue
from dayfly.execute.executor import Observations
from dayfly.plan.actions import Cancel, Launch, Release
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Running
from dayfly.spec.report import RunReport
from dayfly.spec.run import ALIVE, OutputRecord

if TYPE_CHECKING:
    from tests.simulator.pool_house import PoolHouse

END_S = 60.0
VALUES = {"url": b"db://1", "name": b"db"}


def _output(name: str) -> OutputRecord:
    return msgspec.convert({"digest": f"sha256:{name}", "size": len(VALUES[name])}, OutputRecord)


OUTPUTS = {"make": {"url": _output("url")}, "start": {"url": _output("url")}, "clone": {"name": _output("name")}}


class VirtualCommit:
    """Group commit in the event loop: the jobs that arrive within some milliseconds share a transaction."""

    def __init__(self, house: PoolHouse, commit: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._house = house
        self._commit = commit
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._is_dead = False

    def submit(self, job: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if not self._waiting and not self._is_dead:
            loop.call_later(self._house.rng.choice((0, 0.001, 0.004)), self._commit_all)
        self._waiting.append((job, future))
        return future

    def close(self) -> None:
        """Write nothing any longer."""
        self._is_dead = True

    def _commit_all(self) -> None:
        if self._is_dead:
            return
        group, self._waiting = [each for each in self._waiting if not each[1].cancelled()], []
        try:
            outcomes = self._commit([job for job, _ in group]) if group else ()
        except Crash:
            self._is_dead = True
            if self._house.server is not None:
                self._house.server.killed.set_result(None)
            return
        except Exception as error:  # noqa: BLE001 - each caller gets it
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        finally:
            self._house.connection.set_progress_handler(None, 0)
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if future.done():
                continue
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.result)


class SimulatedSteps:
    """The executor of steps: it starts simulated processes, and observes those of former servers."""

    kind = "exec"
    is_gated = False

    def __init__(self, house: PoolHouse) -> None:
        self._house = house

    def admit(self, _name: str, _unit: object) -> None:
        """Accept each unit."""

    async def observe(self, _live: LiveRun) -> None:
        """Do nothing: processes are known."""

    def observations(self, live: LiveRun) -> Observations:
        facts: dict[AttemptKey, Fact] = {}
        outputs: dict[AttemptKey, dict[str, bytes]] = {}
        for name, record in live.run.units.items():
            if live.kind(name) != self.kind:
                continue
            key = UnitAttempt(live.run.uid, name, record.attempt)
            process = self._house.processes.get(key)
            if process is None:
                if record.state in ALIVE:
                    facts[name, record.attempt] = NeverRan(reason="NeverRan", message="its server was killed")
                continue
            result = process.result
            facts[name, record.attempt] = Running(since=process.since) if result is None else Ended(result=result)
            if result is not None:
                outputs[name, record.attempt] = {output: VALUES[output] for output in result.outputs}
        return Observations(facts=facts, outputs=outputs)

    async def prepare(self, _live: LiveRun, _effect: object) -> None:
        raise AssertionError("this host has no gate before the claim")

    async def launch(self, live: LiveRun, effect: Launch) -> None:
        step = live.plan.steps[effect.unit]
        self._house.launch(UnitAttempt(live.run.uid, effect.unit, effect.attempt), creates=step.creates)

    async def fence(self, _live: LiveRun, _effect: object) -> None:
        """Do nothing: a claimed attempt without a process never starts."""

    async def recall(self, _live: LiveRun, _effect: object) -> None:
        raise AssertionError("this host offers no attempt for recall")

    async def cancel(self, live: LiveRun, effect: Cancel) -> None:
        key = UnitAttempt(live.run.uid, effect.unit, live.run.unit(effect.unit).attempt)
        if key in self._house.processes:
            self._house.end_process(key, "Cancelled")

    async def release(self, live: LiveRun, effect: Release) -> None:
        self._house.processes.pop(UnitAttempt(live.run.uid, effect.unit, effect.attempt), None)

    async def keep(self, _live: LiveRun) -> None:
        """Do nothing: there are no kept units."""

    async def clear(self, _live: LiveRun) -> None:
        """Do nothing: evidence is released one by one."""

    async def close(self) -> None:
        """Do nothing: processes outlive the server."""


class NoPorts:
    """The ports of a host without forks."""

    def keep_only(self, _known: set[str]) -> None:
        """Do nothing: no port is in use."""

    def follow(self, _run: str, plan: Any, _forks: object) -> Any:
        return plan


class SimulatedAttempts:
    """The attempts in flight, as the engine and the queue of slots know them."""

    def __init__(self, house: PoolHouse) -> None:
        empty = house.folder
        self.storage = SimpleNamespace(ref="boot-1", work=empty, steps=empty, existence_marks=empty, logs=empty)
        self._house = house
        self.slot_holders = {key for key, process in house.processes.items() if process.result is None}

    def facts(self, uid: str) -> dict[AttemptKey, object]:
        return {(key.unit, key.attempt): each for key, each in self._house.processes.items() if key.run == uid}


class PoolServer:
    """One life of the server, from its start to its kill."""

    def __init__(self, house: PoolHouse) -> None:
        self._house, self._before = house, asyncio.all_tasks()
        self.killed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ledger, baselines, ports = house.ledger, BaselineProcesses(), NoPorts()
        attempts: Any = SimulatedAttempts(house)
        runs = RunCache(ledger, baselines, ports)  # type: ignore[arg-type]
        members = MemberIndex(SecretDigests(house.folder, {}))
        members.load(ledger)
        acquiring = AcquireExecutor(ledger, members)
        executors = Executors(SimulatedSteps(house), acquiring, secrets=True)
        isolating: Any = SimpleNamespace(isolates_paths=True)
        scenes = SceneBuilder(executors, attempts, isolating, runs)
        slots = SlotQueue(attempts, runs, parallel=house.slots)
        self._writer = writer.Writer(ledger)
        self.engine = engine.Engine(ledger, ledger, self._writer, attempts, runs, scenes, executors, ports, slots)  # type: ignore[arg-type]
        acquiring.change, acquiring.wake, acquiring.is_in_turn = (
            self.engine.change,
            self.engine.wake,
            self.engine.is_in_turn,
        )
        parts: Any = (house.folder, -1, ledger, self._writer, self.engine, baselines, None, RouteTable(None, baselines))
        self.host = EmbeddedHost(*parts, members, acquiring, 1)
        self.host.start()

    def is_settled(self, uid: str, *, may_wait: bool) -> bool:
        """Return whether a sandbox is ready, has failed or ended, or waits for a parent, if it may."""
        report: RunReport | None = self.host.report(uid)
        if report is None:
            return False
        waits = may_wait and any(unit.reason == "WaitingForParent" for unit in report.units)
        return report.ready or bool(report.closed) or report.reason == "ResourceFailed" or waits

    async def end(self) -> None:
        """Cancel everything that the server does. Its writer writes nothing any longer."""
        self._house.commit.close()
        tasks = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_S)
