"""What a turn sees on this machine: the run, the facts of its attempts, free places, and what stands in the way."""

from dayfly.embedded.attempts import Attempts
from dayfly.embedded.registry import Executors
from dayfly.embedded.runs import Live, RunCache, telling
from dayfly.execute import route_group
from dayfly.execute.inputs import unfit_messages
from dayfly.execute.process.launch import Starter
from dayfly.execute.turn import Scene, adjust_facts
from dayfly.lib.clock import now_ms
from dayfly.plan.reasons import Reason
from dayfly.plan.world import World
from dayfly.spec.run import Phase

# Why this host does not take a unit yet; each can end without any news of the run itself.
OBJECTIONS = frozenset({Reason.BASELINE_MISSING, Reason.PATH_IN_USE})


class Scenes:
    """Gathers scenes."""

    def __init__(
        self, executors: Executors, attempts: Attempts, starter: Starter, runs: RunCache, *, parallel: int
    ) -> None:
        self._executors = executors
        self._attempts = attempts
        self._starter = starter
        self._runs = runs
        self._parallel = parallel

    def free(self) -> int:
        """How many more steps may run now."""
        return max(self._parallel - len(self._attempts.busy), 0)

    def of(self, live: Live, slots: int) -> Scene:
        """What a turn of the run would see now, if it may start so many steps."""
        known, now = self._executors.known(live, live.plan), now_ms()
        facts = adjust_facts(live.plan, live.run, known.facts, now)
        world = World(
            run=live.run,
            wish=live.stored.wish,
            target=route_group.state(live.run, live.plan.documents, facts),
            facts=facts,
            gated=self._executors.gated,
            ref=self._attempts.place.ref,
            # One at a time where paths may meet: what is started now, the next look objects to.
            slots=slots if self._starter.isolates_paths else min(slots, 1),
            objections=dict(known.objections),
            remarks=self._remarks(live),
        )
        return Scene(plan=live.plan, world=world, now=now, outputs=known.outputs)

    def _remarks(self, live: Live) -> dict[str, str]:
        if live.run.phase is Phase.OPEN:
            return {}  # nothing is cleaned up yet
        return unfit_messages(live.plan, live.run, telling(live, self._runs, self._attempts))
