"""One turn of a run, the same on every host: observe once, decide, commit the moves, perform the effects."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

import msgspec

from dayfly.execute.outputs import enforce_limit
from dayfly.execute.webhook.read import mark_doubtful
from dayfly.plan.actions import Decision, Effect, Finish, Move, Wait
from dayfly.plan.decide import decide
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, Fact, World
from dayfly.spec.run import ALIVE, Run

# A commit fails if another replica changed the ledger first. Each failure means progress of the run, so few rounds are
# enough.
MAX_ROUNDS = 8
RETRY_AFTER_MS = 100


def adjust_facts(plan: Plan, run: Run, facts: Mapping[AttemptKey, Fact], now: int) -> dict[AttemptKey, Fact]:
    """Apply the rules for facts that are the same on every host. `now` is unix milliseconds."""
    return enforce_limit(run, mark_doubtful(plan, run, facts, now), plan.creates)


def pin_generations(plan: Plan, run: Run, kinds: AbstractSet[str]) -> Plan:
    """Return the plan in which running units of these kinds have the generation from the ledger.

    The host updates these kinds in place, so the decision must not replace units whose spec has changed. The host
    reports with `Running.ready` whether a unit has its current spec.
    """
    kept = {
        name: msgspec.structs.replace(step, generation=run.unit(name).generation or step.generation)
        for name, step in plan.kept.items()
        if step.unit.kind in kinds and run.unit(name).state in ALIVE
    }
    return msgspec.structs.replace(plan, kept=plan.kept | kept) if kept else plan


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one turn. `now` is read once, in unix milliseconds.

    `outputs` has the values of attempts that have ended, on hosts that store them with the ledger.
    """

    plan: Plan
    world: World
    now: int
    outputs: Mapping[AttemptKey, Mapping[str, bytes]] = {}

    def kind(self, name: str) -> str:
        """Return the kind of a unit, from the plan, or from the ledger if the plan no longer has the unit."""
        unit = self.plan.unit(name)
        return unit.kind if unit else self.world.run.kind(name)


class TurnHost(Protocol):
    """The host functions that a turn calls."""

    async def observe(self, run: str) -> Scene | None:
        """Observe one run; None if it does not exist."""

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        """Write the moves by one compare-and-swap; return false if the ledger has changed since the observation."""

    async def perform(self, scene: Scene, effect: Effect) -> None:
        """Perform one effect, or begin to. Its result, also a failure, is a fact of a later turn."""


async def turn(run: str, host: TurnHost) -> Decision | None:
    """Run one turn and return its decision with what the run waits for; None if the run does not exist.

    Effects are performed only after the moves that permit them are durable. After the move that finishes a run, the
    next round starts at once to remove it.
    """
    now = 0
    for _ in range(MAX_ROUNDS):
        scene = await host.observe(run)
        if scene is None:
            return None
        now = scene.now
        decision = decide(scene.plan, scene.world, scene.now)
        if decision.moves and not await host.commit(scene, decision.moves):
            continue
        for effect in decision.effects:
            await host.perform(scene, effect)
        if any(isinstance(move, Finish) for move in decision.moves):
            continue
        return decision
    # Another replica keeps changing this ledger, or the run has just finished: retry soon, even without an event.
    return Decision(waits=(Wait(unit="", reason="", message="", until=now + RETRY_AFTER_MS),))
