"""Routes and previews as the engine meets them: no process is theirs, so an attempt is what the proxy does for it."""

import abc

from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.forks import BaselineProcesses, Ports
from dayfly.embedded.routes.route_table import MISSING, DesiredRoute, RouteTable
from dayfly.embedded.runs import Live
from dayfly.execute.executor import Known
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Objection
from dayfly.spec.errors import SpecError
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Baseline, Kind, PreviewUnit, Unit, fork_id
from dayfly.spec.routing import routing_keys as meaning
from dayfly.spec.run import ALIVE, Phase


class KeptExecutor(abc.ABC):
    """What both have in common."""

    kind: str
    gated = False

    def __init__(self, routing: RouteTable, ports: Ports) -> None:
        self._routing = routing
        self._ports = ports

    @abc.abstractmethod
    def wished(self, live: Live, key: UnitAttempt, unit: Unit) -> DesiredRoute:
        """What is to be there. Of a unit that nobody wishes for any more only its name is left.

        Raises:
            OSError: no port can be noted for it.
        """

    def admit(self, name: str, unit: Unit) -> None:
        preview = (unit.preview.key,) if unit.preview is not None else ()
        try:
            for key in unit.route.keys if unit.route is not None else preview:
                meaning.check_key(key)
        except SpecError as fault:
            raise DocumentsRefusedError(f"{name}: {fault}") from None

    async def observe(self, live: Live) -> None:
        self.take_over(live)

    def take_over(self, live: Live) -> None:
        """Let the proxy have what the ledger says is there, in the form that is wished for now."""
        for name, record in live.run.units.items():
            if record.state not in ALIVE or live.kind(name) != self.kind:
                continue
            key, goes = UnitAttempt(live.run.uid, name, record.attempt), self._goes(live, name)
            if not goes or not self._routing.knows(key):
                self._routing.put(key, self.wished(live, key, live.unit(name)), going=goes)

    def _goes(self, live: Live, name: str) -> bool:
        return live.run.phase is not Phase.OPEN or name not in live.plan.kept

    def known(self, live: Live) -> Known:
        missing = Objection(reason=Reason.NOT_ROUTED, message=MISSING)
        own = [name for name, step in live.plan.kept.items() if step.unit.kind == self.kind]
        objections = {} if self._routing.works else dict.fromkeys(own, missing)
        misplaced = Objection(reason=Reason.UNSUPPORTED_KIND, message=f"a {self.kind} is kept: it cannot be a step")
        objections |= {name: misplaced for name, step in live.plan.steps.items() if step.unit.kind == self.kind}
        return Known(facts=self._routing.facts(live.run.uid, self.kind), objections=objections)

    async def prepare(self, _live: Live, _effect: Prepare) -> None:
        raise AssertionError("this host has no gate before the claim")

    async def launch(self, live: Live, effect: Launch) -> None:
        key = UnitAttempt(live.run.uid, effect.unit, effect.attempt)
        self._routing.put(key, self.wished(live, key, live.unit(effect.unit)))

    async def fence(self, live: Live, effect: Fence) -> None:
        self._routing.drop(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def recall(self, _live: Live, _effect: Recall) -> None:  # noqa: B027 - nothing is what there is to do
        """It is no step that might begin in vain: it is never asked for."""

    async def cancel(self, live: Live, effect: Cancel) -> None:
        self._routing.drop(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def release(self, live: Live, effect: Release) -> None:
        self._routing.forget(UnitAttempt(live.run.uid, effect.unit, effect.attempt))

    async def keep(self, live: Live) -> None:  # noqa: B027 - likewise
        """What is wished for is put whenever a turn looks."""

    async def clear(self, live: Live) -> None:
        self._routing.forget_all(live.run.uid)

    async def close(self) -> None:  # noqa: B027 - likewise
        """The proxy is its host's to end."""


class EnvoyRouteExecutor(KeptExecutor):
    """Routes to forks: there once each request that comes is led by them."""

    kind: str = Kind.ROUTE

    async def observe(self, live: Live) -> None:
        await super().observe(live)
        self._routing.expect(live.run.uid, self._coming(live))

    def _coming(self, live: Live) -> frozenset[int]:
        """Where forks will answer whose routes are still to be claimed."""
        if live.run.phase is not Phase.OPEN:
            return frozenset()
        wished = [step.unit for name, step in live.plan.kept.items() if live.run.unit(name).state not in ALIVE]
        of = (unit.route.baseline for unit in wished if unit.route is not None and not unit.route.local_port)
        return frozenset(self._ports.of(live.run.uid, fork_id(each)) for each in of if self._routing.may_lead(each))

    def wished(self, live: Live, key: UnitAttempt, unit: Unit) -> DesiredRoute:
        route = unit.route
        if route is None:
            return DesiredRoute(born=live.run.born_at, baseline=None, keys=())
        port = route.local_port or self._ports.known(key.run, fork_id(route.baseline))
        return DesiredRoute(live.run.born_at, route.baseline, route.keys, port=port, drain_ms=route.drain_ms)


class EnvoyPreviewExecutor(KeptExecutor):
    """Addresses of endpoints: a port of the loopback interface each, kept as long as the machine runs."""

    kind: str = Kind.PREVIEW

    def wished(self, live: Live, key: UnitAttempt, unit: Unit) -> DesiredRoute:
        preview = unit.preview
        if preview is None:
            return DesiredRoute(born=live.run.born_at, baseline=None, keys=())
        port = self._ports.of(key.run, key.unit)
        return DesiredRoute(live.run.born_at, workload_at(preview.host), (preview.key,), listens=port)


def workload_at(host: str) -> Baseline:
    """The workload that `<workload>.<namespace>.svc` or `.deploy` names here, where Services are none."""
    name, _, rest = host.partition(".")
    return Baseline(kind="Deployment", namespace=rest.partition(".")[0] or "default", name=name)


def nowhere(unit: Unit, baselines: BaselineProcesses) -> str:
    """What is wished for in vain with a route or preview, in words; or nothing."""
    if unit.route is not None and unit.route.local_port and baselines.get(unit.route.baseline) is None:
        of = unit.route.baseline
        return f"local {unit.name} (no baseline {of.namespace}/{of.name} is declared)"
    if unit.preview is None or not leads_nowhere(unit.preview, baselines):
        return ""
    of = workload_at(unit.preview.host)
    return f"the endpoint {unit.name} (no baseline {of.namespace}/{of.name} with a port is declared)"


def unrouted(unit: Unit, baselines: BaselineProcesses) -> str:
    """What of a fork's baseline is wished for in vain where nothing routes, in words; or nothing."""
    workload = baselines.get(unit.fork.baseline) if unit.fork is not None else None
    if workload is None or not workload.routed_port:
        return ""
    return f"the route from {workload.namespace}/{workload.name} ({MISSING})"


def leads_nowhere(preview: PreviewUnit, baselines: BaselineProcesses) -> bool:
    """Whether nobody has declared where the requests of a preview are to go."""
    workload = baselines.get(workload_at(preview.host))
    return workload is None or not workload.port
