"""The routes and previews of this machine: what is wished for, what the proxy has taken up, and what still drains.

Nothing here is remembered but in memory: a claim in a ledger says that a route may be there, so a new server begins
with all of those, before it changes anything. Routes to one baseline stand in the order in which their runs were born.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace

from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.forks import BaselineProcesses
from dayfly.embedded.routes.envoy import Envoy, EnvoyError
from dayfly.execute.route.envoy import EnvoyEntry, Lead
from dayfly.lib.clock import now_ms
from dayfly.lib.tasks import cancel
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Fact, Running
from dayfly.spec.lifecycle import Baseline
from dayfly.spec.run import Result
from dayfly.spec.workload import Workload

log = logging.getLogger(__name__)

# After trouble it is tried again, less and less often.
AGAIN_S, AGAIN_MOST_S = 0.25, 5.0
MISSING = "this server routes nothing by keys; start it with: dayfly up --routing"


@dataclass(frozen=True)
class DesiredRoute:
    """A route, or with `listens` a preview, as it is to be; `port` is where the fork answers (0: nowhere yet)."""

    born: int
    baseline: Baseline | None
    keys: tuple[str, ...]
    port: int = 0
    listens: int = 0
    drain_ms: int = 0


@dataclass
class _RouteEntry:
    wished: DesiredRoute
    since: int
    # Of the changes after which it has this form, or is gone.
    change: int = 0
    going: bool = False
    gone_at: int = 0
    ended: bool = False


class RouteTable:
    """Set `news`, put what living attempts wish for, `start`; from then on the proxy follows each change."""

    def __init__(self, proxy: Envoy | None, baselines: BaselineProcesses) -> None:
        self.news: Callable[[str], None] = lambda _run: None
        self._proxy = proxy
        self._baselines = baselines
        self._entries: dict[UnitAttempt, _RouteEntry] = {}
        # By run the ports of forks that begin, to which routes will lead.
        self._coming: dict[str, frozenset[int]] = {}
        # How often something changed; after how many changes the proxy was asked last, and has done all of it.
        self._change = 0
        self._applied = 0
        self._troubles: dict[str, str] = {}
        self._trouble = ""
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        if proxy is not None:
            proxy.on_end = self._proxy_ended

    @property
    def works(self) -> bool:
        """Whether it can route at all."""
        return self._proxy is not None

    def start(self) -> None:
        """Begin to follow. By now all is put that a former server has left."""
        if self._proxy is not None:
            self._begin(self._follow(self._proxy))
            self.touch()

    async def close(self, *, stop: bool) -> None:
        """Follow no more. With `stop` the proxy ends, else it goes on as it is."""
        await cancel(*self._tasks)
        if self._proxy is not None:
            if stop:
                await self._proxy.close()
            else:
                self._proxy.leave()

    # --- what is wished for -------------------------------------------------------------------------------------------

    def put(self, key: UnitAttempt, wished: DesiredRoute, *, going: bool = False) -> None:
        """What a living attempt is to be, or was. Putting it twice is putting it once; what goes does not come back."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _RouteEntry(wished, now_ms(), going=going)
        elif entry.going or entry.wished == wished:
            return
        entry.wished = wished
        entry.change = self.touch()
        if self._proxy is None:
            self._settle()

    def may_lead(self, of: Baseline) -> bool:
        """Whether forks of that have a port, and there is a proxy that could lead to it."""
        workload = self._baselines.get(of)
        return self.works and workload is not None and bool(workload.port)

    def expect(self, run: str, ports: frozenset[int]) -> None:
        """Let the proxy know these ports while their forks begin: half of the work is done when they answer."""
        if self._coming.get(run, frozenset()) != ports:
            self._coming[run] = ports
            self.touch()

    def drop(self, key: UnitAttempt) -> None:
        """It is to go, and to drain."""
        entry = self._entries.get(key)
        if entry is None or entry.going:
            return
        if not any(lead.port == entry.wished.port for way in self.ways() for lead in way.leads):
            entry.wished = replace(entry.wished, drain_ms=0)  # nothing ever led there
        entry.going, entry.change = True, self.touch()
        if self._proxy is None:
            self._settle()

    def forget(self, key: UnitAttempt) -> None:
        """The ledger has its end."""
        if (entry := self._entries.pop(key, None)) is not None and not entry.ended:
            self.touch()

    def forget_all(self, run: str) -> None:
        """The run is over."""
        if self._coming.pop(run, None):
            self.touch()
        for key in [key for key in self._entries if key.run == run]:
            self.forget(key)

    def knows(self, key: UnitAttempt) -> bool:
        """Whether it was put, and not forgotten since."""
        return key in self._entries

    def touch(self) -> int:
        """Something has changed, baselines perhaps; which change it is."""
        self._change += 1
        self._changed.set()
        return self._change

    # --- what is known ------------------------------------------------------------------------------------------------

    def facts(self, run: str, kind: str) -> dict[tuple[str, int], Fact]:
        """How the attempts of a run stand."""
        prefix = f"{kind}:"
        return {
            (key.unit, key.attempt): self._fact(key, entry)
            for key, entry in self._entries.items()
            if key.run == run and key.unit.startswith(prefix)
        }

    def _fact(self, key: UnitAttempt, entry: _RouteEntry) -> Fact:
        if entry.ended:
            return Ended(result=Result(outcome="failed", reason=Reason.CANCELLED, message="", ended_at=entry.gone_at))
        if entry.going:
            return Running(since=entry.since, ready=False, reason=Reason.STOPPING, message=self._farewell(entry))
        if self._proxy is None:
            return Running(since=entry.since, ready=False, reason=Reason.NOT_ROUTED, message=MISSING)
        if problem := self._problem(key, entry):
            return Running(since=entry.since, ready=False, reason=Reason.NOT_ROUTED, message=problem)
        if entry.change > self._applied:
            message = "the proxy is taking it up"
            return Running(since=entry.since, ready=False, reason=Reason.ROUTE_PENDING, message=message)
        return Running(since=entry.since, ready=True)

    def _farewell(self, entry: _RouteEntry) -> str:
        if not entry.gone_at:
            return "the proxy is taking it away"
        return "it is gone; requests that came by it may still be answered"

    def _problem(self, key: UnitAttempt, entry: _RouteEntry) -> str:
        of = entry.wished.baseline
        names = (_preview(key),) if entry.wished.listens else (_entrance(of),) if of else ()
        problem = next((self._troubles[name] for name in names if name in self._troubles), "")
        return problem or (self._trouble if entry.change > self._applied else "")

    # --- what is done -------------------------------------------------------------------------------------------------

    def ways(self) -> list[EnvoyEntry]:
        """Where requests come in and go, as it is wished for now."""
        leads: dict[tuple[str, str], list[tuple[int, str, Lead]]] = {}
        previews = []
        for key, entry in self._entries.items():
            wished = entry.wished
            if entry.going or wished.baseline is None:
                continue
            if wished.listens:
                previews.append((key, wished, wished.baseline))
            elif wished.port:
                place = wished.baseline.namespace, wished.baseline.name
                leads.setdefault(place, []).append((wished.born, key.run, Lead(wished.keys, wished.port)))

        def to(of: Workload | Baseline) -> tuple[Lead, ...]:
            return tuple(lead for _, _, lead in sorted(leads.get((of.namespace, of.name), ())))

        found = [
            EnvoyEntry(_entrance(each), each.routed_port, each.port, to(each))
            for each in self._baselines.every()
            if each.routed_port and each.port
        ]
        for key, wished, of in previews:
            workload = self._baselines.get(of)
            if workload is not None and workload.port:
                found.append(EnvoyEntry(_preview(key), wished.listens, workload.port, to(of), wished.keys[0]))
        return found

    async def _follow(self, proxy: Envoy) -> None:
        pause = AGAIN_S
        while True:
            await self._changed.wait()
            self._changed.clear()
            if await self._apply(proxy):
                pause = AGAIN_S
            else:
                # Whatever changes meanwhile is tried with the rest.
                await asyncio.sleep(pause)
                pause = min(pause * 2, AGAIN_MOST_S)
                self._changed.set()

    async def _apply(self, proxy: Envoy) -> bool:
        """Have the proxy do all that is wished for at this moment; whether it does."""
        before = self._troubles, self._trouble, self._applied
        change = self._change
        try:
            self._troubles = await proxy.apply(self.ways(), self._unled())
        except (EnvoyError, OSError) as fault:
            self._trouble = str(fault)
            log.warning("routes wait: %s", fault)
        except Exception:
            # One defect must not end all that follows.
            self._trouble = "an internal error of Dayfly; the server's log has the details"
            log.exception("routes could not be brought to the proxy")
        else:
            self._trouble, self._applied = "", change
            self._settle()
        if before != (self._troubles, self._trouble, self._applied):
            # What works again is told as what does not: nothing of its wish has changed, so nobody else looks.
            every = bool(before[0] or self._troubles)
            for run in {key.run for key, entry in self._entries.items() if every or entry.change > before[2]}:
                self.news(run)
        return not (self._trouble or self._troubles)

    def _unled(self) -> Collection[int]:
        """Ports to which nothing leads yet, or any more."""
        lingering = {entry.wished.port for entry in self._entries.values() if entry.going and entry.wished.port}
        return lingering.union(*self._coming.values())

    def _settle(self) -> None:
        """What is gone from the proxy drains from now on."""
        for key, entry in self._entries.items():
            if entry.going and not entry.gone_at and (entry.change <= self._applied or self._proxy is None):
                entry.gone_at = now_ms()
                self._begin(self._drain(key, entry))

    async def _drain(self, key: UnitAttempt, entry: _RouteEntry) -> None:
        await asyncio.sleep(entry.wished.drain_ms / 1000)
        entry.ended = True
        self.touch()
        self.news(key.run)

    def _proxy_ended(self) -> None:
        """Nothing of it is in force until it is there again."""
        self._applied = 0
        for run in {key.run for key in self._entries}:
            self.news(run)
        self.touch()

    def _begin(self, what: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _entrance(of: Workload | Baseline) -> str:
    return f"baseline/{of.namespace}/{of.name}"


def _preview(key: UnitAttempt) -> str:
    return f"preview/{key.run}/{key.unit.partition(':')[2]}"
