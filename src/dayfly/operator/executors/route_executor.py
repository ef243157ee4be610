"""The executor of routes by routing key; `operator.routes` does the work."""

from dayfly.execute.executor import Observations
from dayfly.operator.routes.route_reconciler import RouteReconciler, namespaces_of
from dayfly.operator.run_memory import Sight
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.spec.lifecycle import Kind, Unit


class GatewayRouteExecutor:
    """Routes to forks: claimed first, created by `keep` after that turn, and changed in place."""

    kind: str = Kind.ROUTE
    is_gated = False

    def __init__(self, routes: RouteReconciler) -> None:
        self._routes = routes

    def admit(self, _name: str, _unit: Unit, /) -> None:
        """Accept every sealed route."""

    async def observe(self, sight: Sight) -> None:
        sight.routes = await self._routes.observe(sight.run, sight.plan, sight.now, sight.memory.routes)
        sight.ineffective += sight.routes.lacking or self._routes.unrouted(sight.run, sight.plan)
        sight.known[self.kind] = Observations(facts=sight.routes.facts, object_refs=sight.routes.object_refs)

    def observations(self, sight: Sight) -> Observations:
        return sight.known[self.kind]

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        """Do nothing: a route is created after its claim."""

    async def launch(self, sight: Sight, effect: Launch) -> None:
        """Do nothing: `keep` creates the routes at the end of the turn."""

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._routes.remove(sight.run, effect.unit, sight.memory.routes)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._routes.remove(sight.run, effect.unit, sight.memory.routes)

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """Do nothing: only steps that may never have begun are recalled."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """Do nothing: a route has no stored outputs."""

    async def keep(self, sight: Sight) -> None:
        await self._routes.keep(sight.run, sight.plan, sight.memory.routes)

    async def clear(self, sight: Sight) -> None:
        await self._routes.clear(sight.run.metadata.name, namespaces_of(sight.run))

    async def close(self) -> None:
        """Do nothing: no task runs between turns."""
