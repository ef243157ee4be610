"""What a run of this machine answers: where its forks and previews are, and what its steps have recorded."""

from collections.abc import Callable

from dayfly.embedded.forks import HOST, BaselineProcesses
from dayfly.embedded.ledger import SqliteLedger
from dayfly.embedded.routes.route_executors import leads_nowhere
from dayfly.execute.turn import Scene
from dayfly.plan.world import Running
from dayfly.spec.run import State
from dayfly.spec.run_data import RunEndpoint, Value
from dayfly.spec.steps.webhook import DEFINITE


def answering(scene: Scene, baselines: BaselineProcesses, port: Callable[[str], int]) -> tuple[RunEndpoint, ...]:
    """Those that do now. `port` is that of a kept unit, by its name; 0 where none is known."""
    found = []
    for name, step in scene.plan.kept.items():
        record = scene.world.run.unit(name)
        fact = scene.world.facts.get((name, record.attempt))
        if step.unit.preview is not None and leads_nowhere(step.unit.preview, baselines):
            continue
        if not isinstance(fact, Running) or not (step.unit.preview is None or fact.ready):
            continue
        if record.state is State.CLAIMED and (known := port(name)):
            found.append(RunEndpoint(unit=name, host=HOST, port=known))
    return tuple(found)


def recorded(reader: SqliteLedger, uid: str) -> tuple[Value, ...]:
    """All recorded outputs of a live run."""
    stored = reader.load(uid)
    if stored is None:
        return ()
    return tuple(
        Value(unit=unit, output=name, value=value, sensitive=stored.run.unit(unit).outputs[name].sensitive)
        for (unit, name), value in reader.values(uid).items()
        if name in stored.run.unit(unit).outputs and name != DEFINITE
    )
