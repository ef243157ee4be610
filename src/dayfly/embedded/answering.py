"""Where the forks and previews of a run answer on this machine."""

from collections.abc import Callable

from dayfly.embedded.forks import HOST, Baselines
from dayfly.embedded.route_executors import leads_nowhere
from dayfly.execute.turn import Scene
from dayfly.plan.world import Running
from dayfly.spec.run import State
from dayfly.spec.wire import Endpoint


def answering(scene: Scene, baselines: Baselines, port: Callable[[str], int]) -> tuple[Endpoint, ...]:
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
            found.append(Endpoint(unit=name, host=HOST, port=known))
    return tuple(found)
