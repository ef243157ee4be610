"""What a turn sees on this machine: the run, the facts of its attempts, free places, and what stands in the way."""

from collections.abc import Mapping

import msgspec

from dayfly.embedded.attempts import Attempts, Key
from dayfly.embedded.clock import now_ms
from dayfly.embedded.forks import Baselines
from dayfly.embedded.runs import Live, Runs
from dayfly.execute.process.run import declared_paths
from dayfly.execute.turn import Scene
from dayfly.plan.reasons import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, Objection, World
from dayfly.spec.lifecycle import Unit
from dayfly.spec.run import OutputRecord, State

RUN_OUTPUT_LIMIT = 1 << 20
BASELINE_MISSING = Reason.BASELINE_MISSING
PATH_BUSY = Reason.PATH_BUSY
# Why this host does not take a unit yet; each can end without any news of the run itself.
OBJECTIONS = frozenset({BASELINE_MISSING, PATH_BUSY})


class Scenes:
    """Gathers scenes. `apart` says whether steps that use one path are kept apart while they run."""

    def __init__(self, runs: Runs, attempts: Attempts, baselines: Baselines, *, parallel: int, apart: bool) -> None:
        self._runs = runs
        self._attempts = attempts
        self._baselines = baselines
        self._parallel = parallel
        self._apart = apart

    def free(self) -> int:
        """How many more steps may run now."""
        return max(self._parallel - len(self._attempts.busy), 0)

    def of(self, live: Live, slots: int) -> Scene:
        """What a turn of the run would see now, if it may start so many steps."""
        world = World(
            run=live.run,
            wish=live.stored.wish,
            facts=self._within_limit(live),
            ref=self._attempts.place.ref,
            # One at a time where paths may meet: what is started now, the next look objects to.
            slots=slots if self._apart else min(slots, 1),
            objections=self._objections(live),
        )
        return Scene(plan=live.plan, world=world, now=now_ms())

    def _within_limit(self, live: Live) -> dict[AttemptKey, Fact]:
        """All outputs of a run together have a limit: a result beyond it is a failure, and is not kept."""
        facts = dict(self._attempts.facts(live.run.uid))
        kept = sum(_size(record.outputs) for record in live.run.units.values())
        for (name, attempt), fact in facts.items():
            record = live.run.unit(name)
            if not isinstance(fact, Ended) or attempt != record.attempt or record.state is State.DONE:
                continue
            told = fact.result.outputs
            # What a former attempt told is replaced: all of it by a success, by name after another failure.
            then = told if fact.result.outcome == "succeeded" else record.outputs | told
            total = kept - _size(record.outputs) + _size(then)
            if total > RUN_OUTPUT_LIMIT:
                message = (
                    f"its {_size(told)} bytes of outputs would make {total} for the run, {RUN_OUTPUT_LIMIT} is the most"
                )
                facts[name, attempt] = Ended(
                    result=msgspec.structs.replace(
                        fact.result, outcome="failed", reason=Reason.OUTPUT_TOO_LARGE, message=message, outputs={}
                    )
                )
            else:
                kept = total
        return facts

    def _objections(self, live: Live) -> dict[str, Objection]:
        found: dict[str, Objection] = {}
        for name, fork in live.plan.forks.items():
            if fork.unit.fork and self._baselines.get(fork.unit.fork.baseline) is None:
                baseline = fork.unit.fork.baseline
                name_of = f"{baseline.namespace}/{baseline.name}"
                message = f"its baseline {name_of} is not declared; apply a file of kind Deployment"
                found[name] = Objection(reason=BASELINE_MISSING, message=message)
        if not self._apart:
            found |= self._path_objections(live)
        return found

    def _path_objections(self, live: Live) -> dict[str, Objection]:
        """Without private folders two steps that use one absolute path must not run at once."""
        taken = {path: key for key in self._attempts.busy for path in declared_paths(self._busy_unit(key))}
        found = {}
        for name, step in live.plan.steps.items():
            shared = sorted(path for path in declared_paths(step.unit) if path in taken)
            if shared and taken[shared[0]][:2] != (live.run.uid, name):
                other = taken[shared[0]]
                message = (
                    f"uses {shared[0]} as the running {other.unit} does, and this machine cannot keep them apart "
                    "(no mount namespaces): they run one after the other"
                )
                found[name] = Objection(reason=PATH_BUSY, message=message)
        return found

    def _busy_unit(self, key: Key) -> Unit:
        live = self._runs.look(key.run)
        return live.unit(key.unit) if live else Unit(name=key.unit, kind="exec")


def _size(outputs: Mapping[str, OutputRecord]) -> int:
    return sum(output.size for output in outputs.values())
