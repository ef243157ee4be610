"""The executors of routes and previews. They start no process: an attempt is an entry in the route table."""

import abc

from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.forks import BaselineProcesses, Ports
from dayfly.embedded.routes.route_table import MISSING, DesiredRoute, RouteTable
from dayfly.embedded.runs import LiveRun
from dayfly.execute.executor import Observations
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.world import UnitRefusal
from dayfly.spec.errors import SpecError
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Baseline, Kind, PreviewUnit, Unit, fork_id
from dayfly.spec.routing import routing_keys as meaning
from dayfly.spec.run import ALIVE, Phase


class RouteTableExecutor(abc.ABC):
    """Base class of the executors of routes and previews."""

    kind: str
    is_gated = False

    def __init__(self, routing: RouteTable, ports: Ports) -> None:
        self._routing = routing
        self._ports = ports

    @abc.abstractmethod
    def desired(self, live: LiveRun, key: UnitAttempt, unit: Unit) -> DesiredRoute:
        """Return the desired entry. A unit that is no longer desired has only its name left.

        Raises:
            OSError: its port cannot be noted on disk.
        """

    def admit(self, name: str, unit: Unit) -> None:
        preview = (unit.preview.key,) if unit.preview is not None else ()
        try:
            for key in unit.route.keys if unit.route is not None else preview:
                meaning.check_key(key)
        except SpecError as fault:
            raise DocumentsRefusedError(f"{name}: {fault}") from None

    async def observe(self, live: LiveRun) -> None:
        self.adopt_all(live)

    def adopt_all(self, live: LiveRun) -> None:
        """Add the entries of live attempts to the route table, in the form that is desired now."""
        for name, record in live.run.units.items():
            if record.state not in ALIVE or live.kind(name) != self.kind:
                continue
            key, ending = UnitAttempt(live.run.uid, name, record.attempt), self._is_ending(live, name)
            if not ending or not self._routing.knows(key):
                self._routing.put(key, self.desired(live, key, live.unit(name)), removing=ending)

    def _is_ending(self, live: LiveRun, name: str) -> bool:
        return live.run.phase is not Phase.OPEN or name not in live.plan.kept

    def observations(self, live: LiveRun) -> Observations:
        missing = UnitRefusal(reason=Reason.NOT_ROUTED, message=MISSING)
        own = [name for name, step in live.plan.kept.items() if step.unit.kind == self.kind]
        objections = {} if self._routing.works else dict.fromkeys(own, missing)
        misplaced = UnitRefusal(reason=Reason.UNSUPPORTED_KIND, message=f"a {self.kind} cannot be a step")
        objections |= {name: misplaced for name, step in live.plan.steps.items() if step.unit.kind == self.kind}
        return Observations(facts=self._routing.facts(live.run.uid, self.kind), objections=objections)

    async def prepare(self, _live: LiveRun, _effect: Prepare) -> None:
        raise AssertionError("this host has no gate before the claim")

    async def launch(self, live: LiveRun, effect: Launch) -> None:
        key = UnitAttempt(live.run.uid, effect.unit, effect.attempt)
        self._routing.put(key, self.desired(live, key, live.unit(effect.unit)))

    async def fence(self, live: LiveRun, effect: Fence) -> None:
        self._routing.drop(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def recall(self, _live: LiveRun, _effect: Recall) -> None:  # noqa: B027 - there is nothing to do
        """Do nothing: this host offers no attempt for recall."""

    async def cancel(self, live: LiveRun, effect: Cancel) -> None:
        self._routing.drop(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def release(self, live: LiveRun, effect: Release) -> None:
        self._routing.forget(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def keep(self, live: LiveRun) -> None:  # noqa: B027 - there is nothing to do
        """Do nothing: `observe` updates the entries in each turn."""

    async def clear(self, live: LiveRun) -> None:
        self._routing.forget_all(live.run.uid)

    async def close(self) -> None:  # noqa: B027 - there is nothing to do
        """Do nothing: the host closes the route table."""


class EnvoyRouteExecutor(RouteTableExecutor):
    """Routes to forks; ready once the proxy applies them to each new request."""

    kind: str = Kind.ROUTE

    async def observe(self, live: LiveRun) -> None:
        await super().observe(live)
        self._routing.expect(live.run.uid, self._starting_ports(live))

    def _starting_ports(self, live: LiveRun) -> frozenset[int]:
        """Return the ports of forks whose routes are not claimed yet."""
        if live.run.phase is not Phase.OPEN:
            return frozenset()
        desired = [step.unit for name, step in live.plan.kept.items() if live.run.unit(name).state not in ALIVE]
        of = (unit.route.baseline for unit in desired if unit.route is not None and not unit.route.local_port)
        return frozenset(
            self._ports.assign(live.run.uid, fork_id(each)) for each in of if self._routing.can_route_to(each)
        )

    def desired(self, live: LiveRun, key: UnitAttempt, unit: Unit) -> DesiredRoute:
        route = unit.route
        if route is None:
            return DesiredRoute(born=live.run.born_at, baseline=None, keys=())
        port = route.local_port or self._ports.find(key.run, fork_id(route.baseline))
        return DesiredRoute(live.run.born_at, route.baseline, route.keys, port=port, drain_ms=route.drain_ms)


class EnvoyPreviewExecutor(RouteTableExecutor):
    """Previews: each has its own loopback port, kept as long as the machine runs."""

    kind: str = Kind.PREVIEW

    def desired(self, live: LiveRun, key: UnitAttempt, unit: Unit) -> DesiredRoute:
        preview = unit.preview
        if preview is None:
            return DesiredRoute(born=live.run.born_at, baseline=None, keys=())
        port = self._ports.assign(key.run, key.unit)
        return DesiredRoute(live.run.born_at, preview_baseline(preview.host), (preview.key,), listen_port=port)


def preview_baseline(host: str) -> Baseline:
    """Return the workload that `<workload>.<namespace>.svc` or `.deploy` names on this host, which has no Services."""
    name, _, rest = host.partition(".")
    return Baseline(kind="Deployment", namespace=rest.partition(".")[0] or "default", name=name)


def missing_baseline(unit: Unit, baselines: BaselineProcesses) -> str:
    """Return what of a route or preview has no effect as no baseline is declared, in words; or an empty string."""
    if unit.route is not None and unit.route.local_port and baselines.get(unit.route.baseline) is None:
        of = unit.route.baseline
        return f"local {unit.name} (no baseline {of.namespace}/{of.name} is declared)"
    if unit.preview is None or not has_no_target(unit.preview, baselines):
        return ""
    of = preview_baseline(unit.preview.host)
    return f"the endpoint {unit.name} (no baseline {of.namespace}/{of.name} with a port is declared)"


def missing_proxy(unit: Unit, baselines: BaselineProcesses) -> str:
    """Return the route of a fork's baseline that has no effect without a proxy, in words; or an empty string."""
    workload = baselines.get(unit.fork.baseline) if unit.fork is not None else None
    if workload is None or not workload.routed_port:
        return ""
    return f"the route from {workload.namespace}/{workload.name} ({MISSING})"


def has_no_target(preview: PreviewUnit, baselines: BaselineProcesses) -> bool:
    """Return whether no workload is declared for the requests of a preview."""
    workload = baselines.get(preview_baseline(preview.host))
    return workload is None or not workload.port
