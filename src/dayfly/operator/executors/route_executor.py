"""Routes by key in a cluster, as the engine meets them; what is done to them is in `operator.routes`."""

from dayfly.execute.executor import Known
from dayfly.operator.routes.route_reconciler import RouteReconciler, namespaces_of
from dayfly.operator.run_memory import Sight
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.spec.lifecycle import Kind, Unit


class GatewayRouteExecutor:
    """Routes are claimed first, made after the turn that claims them, and changed where they are."""

    kind: str = Kind.ROUTE
    gated = False

    def __init__(self, routes: RouteReconciler) -> None:
        self._routes = routes

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Whatever has been sealed can be tried here."""

    async def observe(self, sight: Sight) -> None:
        sight.routes = await self._routes.observe(sight.run, sight.plan, sight.now, sight.memory.routes)
        sight.unrouted += sight.routes.lacking or self._routes.unrouted(sight.run, sight.plan)
        sight.known[self.kind] = Known(facts=sight.routes.facts, made=sight.routes.made)

    def known(self, sight: Sight) -> Known:
        return sight.known[self.kind]

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        """Nothing of a route is made before it is claimed."""

    async def launch(self, sight: Sight, effect: Launch) -> None:
        """What leads to the fork is made, and made again, by `keep`, of which this is the first time."""

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._routes.remove(sight.run, effect.unit, sight.memory.routes)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._routes.remove(sight.run, effect.unit, sight.memory.routes)

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """A route is no step that might begin in vain: it is never asked for."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """What a route tells lies in nothing that would have to be released."""

    async def keep(self, sight: Sight) -> None:
        await self._routes.keep(sight.run, sight.plan, sight.memory.routes)

    async def clear(self, sight: Sight) -> None:
        await self._routes.clear(sight.run.metadata.name, namespaces_of(sight.run))

    async def close(self) -> None:
        """Nothing of routes is under way between turns."""
