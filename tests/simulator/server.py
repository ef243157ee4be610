"""One simulated server process: the real turn, on a host that is made of the simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.oracle import Violation
from tests.simulator.scenario import value

from dayfly.execute.turn import Scene
from dayfly.plan.actions import (
    Cancel,
    Decision,
    Dissolve,
    Effect,
    Fence,
    Launch,
    Move,
    Prepare,
    Recall,
    Record,
    Release,
)
from dayfly.plan.world import AttemptKey, Fact, World
from dayfly.spec.run import Phase, Run, State

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Generator

    from tests.simulator.world import Simulation

    from dayfly.embedded.ledger import StoredRun

GATED = frozenset({"exec", "fork"})
ALIVE = (State.CLAIMED, State.UNKNOWN)


class Crash(BaseException):
    """The server process ends here, whatever it was doing."""


class _Pause:
    """A point at which any other part of the simulation may take a step."""

    def __await__(self) -> Generator[None, None, None]:
        yield


PAUSE = _Pause()


class Server:
    """One server process: it lives from crash to crash, and remembers nothing across."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.coroutine: Coroutine[None, None, Decision | None] | None = None
        self.skew = 0
        self.stored: StoredRun | None = None
        self.old: dict[AttemptKey, Fact] = {}
        self.scene: Scene | None = None
        self.run: Run | None = None  # the ledger as it last read or wrote it
        self.restart()

    def restart(self) -> None:
        """A fresh process: it looks at everything at once."""
        self.coroutine = None
        self.dirty = True
        self.wake = 0
        self.old = {}
        self.children: set[object] = set()

    @property
    def now(self) -> int:
        return self.simulation.now + self.skew

    def due(self) -> bool:
        """Return whether there is a change, a turn in progress, or an expired timer."""
        return self.dirty or self.coroutine is not None or 0 < self.wake <= self.now

    # --- the port of a turn -----------------------------------------------------------------------------------------

    async def observe(self, run: str) -> Scene | None:
        sim = self.simulation
        if sim.rng.random() < sim.interleaving:
            await PAUSE
        self.dirty = False
        stored = sim.load(self)
        if stored is None:
            self.scene = None
            return None
        self.run = stored.run
        facts = sim.read(self, stored.run)
        if sim.faulty:
            self._blur(stored.run, facts)
        world = World(
            run=stored.run,
            intent=stored.intent,
            facts=facts,
            target=sim.target_told(stored.run),
            gated_kinds=GATED if sim.gated else frozenset(),
            ref=sim.ref(),
            slots=sim.free_slots(stored.run),
            objections=sim.objections,
        )
        self.scene = Scene(plan=sim.plan_of(stored), world=world, now=self.now)
        return self.scene

    def _blur(self, run: Run, facts: dict[AttemptKey, Fact]) -> None:
        """Make facts of living attempts late or missing. Facts of recorded attempts are always current: see `World`."""
        rng = self.simulation.rng
        for key in list(facts):
            if run.unit(key[0]).attempt == key[1] and run.unit(key[0]).state in ALIVE:
                chance = rng.random()
                if chance < 0.06:
                    del facts[key]
                    self.dirty = True
                elif chance < 0.15 and key in self.old:
                    facts[key] = self.old[key]
                    self.dirty = True
                else:
                    self.old[key] = facts[key]

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        sim = self.simulation
        if sim.rng.random() < sim.interleaving:
            await PAUSE
        sim.oracle.asked(scene, moves, sim.known_refs)
        values = {
            (move.unit, output): value(move.unit, move.attempt, output)
            for move in moves
            if isinstance(move, Record)
            for output in move.result.outputs
        }
        with sim.ledger.transaction("commit"):
            after = sim.ledger.commit(scene.world.run, scene.plan, moves, values, scene.now)
            sim.pending = (after, moves) if after is not None else None
        sim.say(f"{self.name} {'writes' if after is not None else 'is refused'}", moves)
        self.run = after or self.run
        if after is None and not (sim.faulty or sim.gated):
            raise Violation(13, "a commit is refused without another writer")
        if after is not None and sim.news_of_writes:
            sim.news()
        return after is not None and not (sim.gated and sim.faulty and sim.rng.random() < 0.03)

    async def perform(self, scene: Scene, effect: Effect) -> None:
        sim = self.simulation
        if sim.rng.random() < sim.interleaving:
            await PAUSE
        sim.boundary(f"before {type(effect).__name__}")
        sim.say(self.name, (effect,))
        match effect:
            case Prepare(unit=unit, attempt=attempt):
                sim.prepare(self, unit, attempt)
            case Launch(unit=unit, attempt=attempt):
                if scene.world.run.phase is not Phase.OPEN and sim.scenario.shapes[unit].creates:
                    raise Violation(3, f"{unit}#{attempt} is launched in a run that is known to be closed")
                if sim.scenario.shapes[unit].reads and not sim.oracle.gone:
                    sim.oracle.launched(unit, attempt, sim.ledger.values(sim.uid))
                sim.launch(self, scene, unit, attempt)
            case Fence(unit=unit, attempt=attempt):
                self._stopping(effect, scene.plan.kept)
                sim.fence(self, scene, unit, attempt)
            case Recall(unit=unit, attempt=attempt):
                sim.recall(self, scene, unit, attempt)
            case Cancel(unit=unit, attempt=attempt):
                self._stopping(effect, scene.plan.kept)
                sim.cancel(self, scene, unit, attempt)
            case Release(unit=unit, attempt=attempt):
                sim.release(self, scene, unit, attempt)
            case Dissolve():
                with sim.ledger.transaction("dissolve"):
                    sim.ledger.dissolve(scene.world.run, "box")
        sim.boundary(f"after {type(effect).__name__}")

    def _stopping(self, effect: Fence | Cancel, wished: Collection[str]) -> None:
        if self.simulation.scenario.shapes[effect.unit].event is not None:
            return
        if effect.reason == "Cancelled":
            self.simulation.oracle.stopping(effect.unit)
        elif effect.unit not in wished:
            self.simulation.oracle.dismissing(effect.unit, wished)
