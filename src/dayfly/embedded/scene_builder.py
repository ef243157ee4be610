"""Builds the scene of a turn: the run, the facts of its attempts, free slots, objections and remarks."""

from dayfly.embedded.attempts import Attempts
from dayfly.embedded.executors import Executors
from dayfly.embedded.runs import LiveRun, RunCache, current_fork_values
from dayfly.execute import route_group
from dayfly.execute.executor import SLOTLESS_KINDS
from dayfly.execute.inputs import unfit_messages
from dayfly.execute.process.launch import Starter
from dayfly.execute.turn import Scene, adjust_facts
from dayfly.lib.clock import now_ms
from dayfly.plan.reasons import Reason
from dayfly.plan.world import World
from dayfly.spec.run import Phase

# Reasons why this host does not claim a unit yet. They can end without any change of the run itself.
OBJECTIONS = frozenset({Reason.BASELINE_MISSING, Reason.PATH_IN_USE})


class SceneBuilder:
    """Builds the scene of a turn."""

    def __init__(self, executors: Executors, attempts: Attempts, starter: Starter, runs: RunCache) -> None:
        self._executors = executors
        self._attempts = attempts
        self._starter = starter
        self._runs = runs

    def build(self, live: LiveRun, slots: int) -> Scene:
        """Return what a turn of the run observes now, with this number of slots for new steps."""
        known, now = self._executors.observations(live, live.plan), now_ms()
        facts = adjust_facts(live.plan, live.run, known.facts, now)
        world = World(
            run=live.run,
            intent=live.stored.intent,
            target=route_group.state(live.run, live.plan.documents, facts),
            facts=facts,
            gated_kinds=self._executors.gated_kinds,
            slotless_kinds=SLOTLESS_KINDS,
            ref=self._attempts.storage.ref,
            # Without private paths, one step starts at a time, so that the next turn sees the paths in use.
            slots=slots if self._starter.isolates_paths else min(slots, 1),
            objections=dict(known.objections),
            remarks=self._remarks(live),
        )
        return Scene(plan=live.plan, world=world, now=now, outputs=known.outputs)

    def _remarks(self, live: LiveRun) -> dict[str, str]:
        if live.run.phase is Phase.OPEN:
            return {}  # there is no cleanup yet
        return unfit_messages(live.plan, live.run, current_fork_values(live, self._runs, self._attempts))
