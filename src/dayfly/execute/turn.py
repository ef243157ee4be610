"""One turn of the wheel, the same on every host: observe once, decide, commit the moves, perform the effects."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from dayfly.execute.outputs import within_limit
from dayfly.execute.webhook.read import mark_doubtful
from dayfly.plan.actions import Decision, Effect, Finish, Move, Wait
from dayfly.plan.decide import decide
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, Fact, World
from dayfly.spec.run import Run

# A commit is refused when somebody else moved the ledger first. Each refusal is somebody's progress, so few suffice.
ROUNDS = 8
AGAIN_MS = 100


def judged(plan: Plan, run: Run, facts: Mapping[AttemptKey, Fact], now: int) -> dict[AttemptKey, Fact]:
    """What a host has seen as every host's scene has it: held to the whole run. `now` is unix milliseconds."""
    return within_limit(run, mark_doubtful(plan, run, facts, now), plan.creates)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn sees. `now` is read once, here, in unix milliseconds.

    `outputs` has the values that belong to ends among the facts, where the host keeps them with its ledger.
    """

    plan: Plan
    world: World
    now: int
    outputs: Mapping[AttemptKey, Mapping[str, bytes]] = {}

    def kind(self, name: str) -> str:
        """Of a unit of the plan, or of one that only the ledger knows any more."""
        unit = self.plan.unit(name)
        return unit.kind if unit else self.world.run.kind(name)


class TurnHost(Protocol):
    """What a turn needs of the host it runs on."""

    async def observe(self, run: str) -> Scene | None:
        """The world of one run, or nothing if there is no such run."""

    async def commit(self, scene: Scene, moves: tuple[Move, ...]) -> bool:
        """Write the moves as one compare-and-swap; false if the ledger has moved since the scene was observed."""

    async def perform(self, scene: Scene, effect: Effect) -> None:
        """Bring one effect about, or begin to. What comes of it, failure too, is a fact of a later turn."""


async def turn(run: str, host: TurnHost) -> Decision | None:
    """Take one run a step further; the decision says what it waits for. None if there is no such run.

    Effects come only after the moves they rest on are durable. When the run has just finished, the turn goes on at once
    to dissolve it.
    """
    now = 0
    for _ in range(ROUNDS):
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
    # Others keep moving this ledger, or it has only just finished: look again soon, even without news.
    return Decision(waits=(Wait(unit="", reason="", message="", until=now + AGAIN_MS),))
