"""The routes and previews of this machine: desired entries, what the proxy has confirmed, and draining entries.

The table is only in memory. A new server fills it from the claims in the ledgers before it changes anything, as each
claimed route may be in force. Routes to one baseline are ordered by the birth of their runs.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace

from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.forks import BaselineProcesses
from dayfly.embedded.routes.envoy import Envoy, EnvoyError
from dayfly.execute.route.envoy import EnvoyEntry, KeyRoute
from dayfly.lib.clock import now_ms
from dayfly.lib.tasks import cancel_and_wait
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Fact, Running
from dayfly.spec.lifecycle import Baseline
from dayfly.spec.run import Result
from dayfly.spec.workload import Workload

log = logging.getLogger(__name__)

# Delays between retries after an error: the first one, and the maximum.
MIN_RETRY_DELAY_S, MAX_RETRY_DELAY_S = 0.25, 5.0
MISSING = "this server does not route by routing key; start it with: dayfly up --routing"


@dataclass(frozen=True)
class DesiredRoute:
    """A desired route or, with `listen_port`, a preview. `port` is where the fork listens (0: no port yet)."""

    born: int
    baseline: Baseline | None
    keys: tuple[str, ...]
    port: int = 0
    listen_port: int = 0
    drain_ms: int = 0


@dataclass
class _RouteEntry:
    desired: DesiredRoute
    since: int
    # The number of the change that set this form, or removed the entry.
    change: int = 0
    removing: bool = False
    gone_at: int = 0
    ended: bool = False


class RouteTable:
    """The routes of this host: set `on_change`, `put` the entries of live attempts, then `start` updating the proxy."""

    def __init__(self, proxy: Envoy | None, baselines: BaselineProcesses) -> None:
        self.on_change: Callable[[str], None] = lambda _run: None
        self._proxy = proxy
        self._baselines = baselines
        self._entries: dict[UnitAttempt, _RouteEntry] = {}
        # The ports of starting forks, by run, to which routes will lead.
        self._starting_ports: dict[str, frozenset[int]] = {}
        # The number of changes, and the number of changes that the proxy has confirmed.
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
        """Whether this host can route."""
        return self._proxy is not None

    def start(self) -> None:
        """Start the proxy's updates. All entries of an earlier server must have been put before."""
        if self._proxy is not None:
            self._begin(self._follow(self._proxy))
            self.touch()

    async def close(self, *, stop: bool) -> None:
        """Stop the updates. With `stop` the proxy ends, otherwise it continues unchanged."""
        await cancel_and_wait(*self._tasks)
        if self._proxy is not None:
            if stop:
                await self._proxy.close()
            else:
                self._proxy.detach()

    # --- desired entries ----------------------------------------------------------------------------------------------

    def put(self, key: UnitAttempt, desired: DesiredRoute, *, removing: bool = False) -> None:
        """Set the entry of a live attempt; idempotent. An entry that is being removed is not changed."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _RouteEntry(desired, now_ms(), removing=removing)
        elif entry.removing or entry.desired == desired:
            return
        entry.desired = desired
        entry.change = self.touch()
        if self._proxy is None:
            self._settle()

    def can_route_to(self, of: Baseline) -> bool:
        """Return whether forks of the baseline have a port and there is a proxy that could route to it."""
        workload = self._baselines.get(of)
        return self.works and workload is not None and bool(workload.port)

    def expect(self, run: str, ports: frozenset[int]) -> None:
        """Announce the ports of starting forks to the proxy, so that their routes are ready sooner."""
        if self._starting_ports.get(run, frozenset()) != ports:
            self._starting_ports[run] = ports
            self.touch()

    def drop(self, key: UnitAttempt) -> None:
        """Remove the entry from the proxy and let it drain."""
        entry = self._entries.get(key)
        if entry is None or entry.removing:
            return
        if not any(lead.port == entry.desired.port for each in self.proxy_entries() for lead in each.key_routes):
            entry.desired = replace(entry.desired, drain_ms=0)  # no route has used the port
        entry.removing, entry.change = True, self.touch()
        if self._proxy is None:
            self._settle()

    def forget(self, key: UnitAttempt) -> None:
        """Forget an attempt whose end is in the ledger."""
        if (entry := self._entries.pop(key, None)) is not None and not entry.ended:
            self.touch()

    def forget_all(self, run: str) -> None:
        """Forget the attempts of a run that has ended."""
        if self._starting_ports.pop(run, None):
            self.touch()
        for key in [key for key in self._entries if key.run == run]:
            self.forget(key)

    def knows(self, key: UnitAttempt) -> bool:
        """Return whether the attempt was put and not forgotten."""
        return key in self._entries

    def touch(self) -> int:
        """Schedule an update of the proxy after a change, also of baselines; return the number of the change."""
        self._change += 1
        self._changed.set()
        return self._change

    # --- observed state -----------------------------------------------------------------------------------------------

    def facts(self, run: str, kind: str) -> dict[tuple[str, int], Fact]:
        """Return the facts of a run's attempts of this kind."""
        prefix = f"{kind}:"
        return {
            (key.unit, key.attempt): self._fact(key, entry)
            for key, entry in self._entries.items()
            if key.run == run and key.unit.startswith(prefix)
        }

    def _fact(self, key: UnitAttempt, entry: _RouteEntry) -> Fact:
        if entry.ended:
            return Ended(result=Result(outcome="failed", reason=Reason.CANCELLED, message="", ended_at=entry.gone_at))
        if entry.removing:
            return Running(since=entry.since, ready=False, reason=Reason.STOPPING, message=self._removal_message(entry))
        if self._proxy is None:
            return Running(since=entry.since, ready=False, reason=Reason.NOT_ROUTED, message=MISSING)
        if problem := self._problem(key, entry):
            return Running(since=entry.since, ready=False, reason=Reason.NOT_ROUTED, message=problem)
        if entry.change > self._applied:
            message = "the proxy is applying it"
            return Running(since=entry.since, ready=False, reason=Reason.ROUTE_PENDING, message=message)
        return Running(since=entry.since, ready=True)

    def _removal_message(self, entry: _RouteEntry) -> str:
        if not entry.gone_at:
            return "the proxy is removing it"
        return "the route is removed; earlier requests may still be in progress"

    def _problem(self, key: UnitAttempt, entry: _RouteEntry) -> str:
        of = entry.desired.baseline
        names = (_preview_entry_name(key),) if entry.desired.listen_port else (_baseline_entry_name(of),) if of else ()
        problem = next((self._troubles[name] for name in names if name in self._troubles), "")
        return problem or (self._trouble if entry.change > self._applied else "")

    # --- updates of the proxy -----------------------------------------------------------------------------------------

    def proxy_entries(self) -> list[EnvoyEntry]:
        """Return the desired entries of the proxy."""
        leads: dict[tuple[str, str], list[tuple[int, str, KeyRoute]]] = {}
        previews = []
        for key, entry in self._entries.items():
            desired = entry.desired
            if entry.removing or desired.baseline is None:
                continue
            if desired.listen_port:
                previews.append((key, desired, desired.baseline))
            elif desired.port:
                place = desired.baseline.namespace, desired.baseline.name
                leads.setdefault(place, []).append((desired.born, key.run, KeyRoute(desired.keys, desired.port)))

        def to(of: Workload | Baseline) -> tuple[KeyRoute, ...]:
            return tuple(lead for _, _, lead in sorted(leads.get((of.namespace, of.name), ())))

        found = [
            EnvoyEntry(_baseline_entry_name(each), each.routed_port, each.port, to(each))
            for each in self._baselines.list_all()
            if each.routed_port and each.port
        ]
        for key, desired, of in previews:
            workload = self._baselines.get(of)
            if workload is not None and workload.port:
                found.append(
                    EnvoyEntry(_preview_entry_name(key), desired.listen_port, workload.port, to(of), desired.keys[0])
                )
        return found

    async def _follow(self, proxy: Envoy) -> None:
        pause = MIN_RETRY_DELAY_S
        while True:
            await self._changed.wait()
            self._changed.clear()
            if await self._apply(proxy):
                pause = MIN_RETRY_DELAY_S
            else:
                # Changes until then are part of the next try.
                await asyncio.sleep(pause)
                pause = min(pause * 2, MAX_RETRY_DELAY_S)
                self._changed.set()

    async def _apply(self, proxy: Envoy) -> bool:
        """Apply all desired entries to the proxy; return whether it succeeded."""
        before = self._troubles, self._trouble, self._applied
        change = self._change
        try:
            self._troubles = await proxy.apply(self.proxy_entries(), self._unrouted_ports())
        except (EnvoyError, OSError) as fault:
            self._trouble = str(fault)
            log.warning("the proxy cannot be updated: %s", fault)
        except Exception:
            # A defect must not end the updates.
            self._trouble = "an internal error of Dayfly; see the log of the server"
            log.exception("the proxy cannot be updated")
        else:
            self._trouble, self._applied = "", change
            self._settle()
        if before != (self._troubles, self._trouble, self._applied):
            # Report recoveries as well as failures: the run itself has not changed, so no other event reports them.
            every = bool(before[0] or self._troubles)
            for run in {key.run for key, entry in self._entries.items() if every or entry.change > before[2]}:
                self.on_change(run)
        return not (self._trouble or self._troubles)

    def _unrouted_ports(self) -> Collection[int]:
        """Return the ports of forks that drain or start, to which no route leads."""
        lingering = {entry.desired.port for entry in self._entries.values() if entry.removing and entry.desired.port}
        return lingering.union(*self._starting_ports.values())

    def _settle(self) -> None:
        """Start draining the entries that are gone from the proxy."""
        for key, entry in self._entries.items():
            if entry.removing and not entry.gone_at and (entry.change <= self._applied or self._proxy is None):
                entry.gone_at = now_ms()
                self._begin(self._drain(key, entry))

    async def _drain(self, key: UnitAttempt, entry: _RouteEntry) -> None:
        await asyncio.sleep(entry.desired.drain_ms / 1000)
        entry.ended = True
        self.touch()
        self.on_change(key.run)

    def _proxy_ended(self) -> None:
        """Mark all entries as unconfirmed after the death of the proxy."""
        self._applied = 0
        for run in {key.run for key in self._entries}:
            self.on_change(run)
        self.touch()

    def _begin(self, what: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _baseline_entry_name(of: Workload | Baseline) -> str:
    return f"baseline/{of.namespace}/{of.name}"


def _preview_entry_name(key: UnitAttempt) -> str:
    return f"preview/{key.run}/{key.unit.partition(':')[2]}"
