"""What a turn sees on this machine: the run, the facts of its attempts, free places, and what stands in the way."""

from dayfly.embedded.attempts import Attempts, Key
from dayfly.embedded.clock import now_ms
from dayfly.embedded.forks import Baselines, check_addresses
from dayfly.embedded.runs import Live, Runs
from dayfly.execute.inputs import remarks, resolve
from dayfly.execute.order import CannotRenderError
from dayfly.execute.outputs import within_limit
from dayfly.execute.process.run import declared_paths
from dayfly.execute.turn import Scene
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep
from dayfly.plan.world import Objection, World
from dayfly.spec.lifecycle import Unit

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
            facts=within_limit(live.run, self._attempts.facts(live.run.uid)),
            ref=self._attempts.place.ref,
            # One at a time where paths may meet: what is started now, the next look objects to.
            slots=slots if self._apart else min(slots, 1),
            objections=self._objections(live),
            remarks=remarks(live.plan, live.run),
        )
        return Scene(plan=live.plan, world=world, now=now_ms())

    def _objections(self, live: Live) -> dict[str, Objection]:
        found: dict[str, Objection] = {}
        for name, fork in live.plan.kept.items():
            if objection := self._fork_objection(live, fork):
                found[name] = objection
        if not self._apart:
            found |= self._path_objections(live)
        return found

    def _fork_objection(self, live: Live, fork: KeptStep) -> Objection | None:
        """What a fork lacks before it can be started: it is a wish that holds, so nothing is tried in vain."""
        assert fork.unit.fork is not None, "a fork says what it derives from"
        baseline = fork.unit.fork.baseline
        if self._baselines.get(baseline) is None:
            name_of = f"{baseline.namespace}/{baseline.name}"
            message = f"its baseline {name_of} is not declared; apply a file of kind Deployment"
            return Objection(reason=BASELINE_MISSING, message=message)
        try:
            resolve(live.run, fork.unit, "", cleans=False)
            check_addresses(fork.unit, self._baselines.with_ports(live.plan))
        except CannotRenderError as error:
            return Objection(reason=error.reason, message=str(error))
        return None

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
