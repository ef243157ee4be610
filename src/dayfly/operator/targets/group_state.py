"""How far a route group has come in a cluster, whichever object stands for it: a RouteGroup, or a server's."""

from dayfly.execute import route_group
from dayfly.execute.turn import Scene
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import DOCUMENTS, RunObject
from dayfly.plan.world import TargetState
from dayfly.spec.lifecycle import Lifecycle

AT_ONCE_S = 0.001


async def group_state(cluster: ClusterWatches, run: RunObject) -> TargetState:
    """As its documents and its ledger say."""
    documents: list[Lifecycle] = []
    for pin in run.spec.documents:
        found = cluster.documents.get(pin.name)
        if found is None:
            found = await cluster.client.find(DOCUMENTS, pin.name)
        if found is None:
            return TargetState(stopped=True, message=f"its document {pin.name} is gone")
        documents.append(found.spec)
    return route_group.progress(run.ledger, documents)


def group_begins(scene: Scene) -> bool:
    """Whether what this turn has recorded was the last before its start: nobody else has news of that.

    One that was closed before it started never will, and would be looked at again and again until its hooks have run.
    """
    run = scene.world.run
    if not scene.plan.documents or run.started_at or run.closed is not None:
        return False
    return route_group.progress(run, scene.plan.documents).started
