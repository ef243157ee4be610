"""Forks on this machine: the process of the baseline with its own port and the changed environment."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from dayfly.execute.fork import addresses
from dayfly.execute.inputs import ForkAddressUnknownError, Forks
from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.render import OrderContext, service_order
from dayfly.execute.process.run import slug
from dayfly.execute.work_order import CannotRenderError
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import KeptStep, Plan
from dayfly.spec.lifecycle import Baseline, EnvChange, ForkValue, Unit, digest, fork_id
from dayfly.spec.run import ALIVE, Run
from dayfly.spec.steps import value_from
from dayfly.spec.workload import Workload

HOST = "127.0.0.1"
_MAX_PORT = 65_535
# Probes are repeated after a twentieth of the time waited so far, so readiness is at most 5 % late.
MIN_PROBE_INTERVAL_S, MAX_PROBE_INTERVAL_S, PROBE_DIVISOR = 0.005, 1.0, 20
CONNECT_TIMEOUT_S = 1.0


class BaselineProcesses:
    """The declared process workloads that forks may derive from."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Workload] = {}

    def put(self, workload: Workload) -> None:
        self._known[workload.namespace, workload.name] = workload

    def drop(self, workload: Workload) -> None:
        """Remove the workload with this name."""
        self._known.pop((workload.namespace, workload.name), None)

    def get(self, baseline: Baseline) -> Workload | None:
        return self._known.get((baseline.namespace, baseline.name))

    def list_all(self) -> list[Workload]:
        """Return all declared workloads."""
        return list(self._known.values())

    def follow_baselines(self, plan: Plan) -> Plan:
        """Return the plan with forks whose generation also depends on their baseline."""
        return msgspec.structs.replace(plan, kept={name: self._follow(fork) for name, fork in plan.kept.items()})

    def with_ports(self, plan: Plan) -> frozenset[str]:
        """Return the forks of a plan whose baselines have a port."""
        of = ((name, fork.unit.fork) for name, fork in plan.kept.items())
        return frozenset(
            name for name, fork in of if fork and (workload := self.get(fork.baseline)) is not None and workload.port
        )

    def _follow(self, fork: KeptStep) -> KeptStep:
        workload = self.get(fork.unit.fork.baseline) if fork.unit.fork else None
        if workload is None:
            return fork
        # Forks do not depend on the port where requests to their baseline arrive.
        form = digest(msgspec.structs.replace(workload, routed_port=None))
        return msgspec.structs.replace(fork, generation=f"{fork.generation} {form}")


class Ports:
    """One loopback port for each fork, kept over its restarts as long as the machine runs.

    So other forks can learn its address before it starts, and need not restart afterwards. The notes in files are for
    the next server; they may be removed while the fork runs.
    """

    def __init__(self, storage: AttemptStorage, free_port: Callable[[], int] | None = None) -> None:
        self._storage = storage
        self._free_port = free_port or _any_free_port
        self._ports: dict[str, int] = {}

    def assign(self, run: str, fork: str) -> int:
        """Return the port of the fork; choose it at the first call."""
        return self.find(run, fork) or self._choose(run, fork)

    def renew(self, run: str, fork: str) -> int:
        """Return the port for the fork's next process: the same port unless another process listens on it."""
        port = self.find(run, fork)
        return port if port and _is_free(port) else self._choose(run, fork)

    def find(self, run: str, fork: str) -> int:
        """Return the port of the fork; 0 if none is chosen."""
        name = _port_file(run, fork)
        port = self._ports.get(name) or self._storage.read_number(name)
        if not 0 < port <= _MAX_PORT:
            return 0  # the file does not hold a port number
        self._ports[name] = port
        return port

    def forget(self, run: str) -> None:
        """Forget the ports of a run's forks, which have ended."""
        for name in [name for name in self._ports if name.startswith(f"{run}.")]:
            del self._ports[name]
        for note in Path(self._storage.work).glob(f"{run}.*.port"):
            note.unlink(missing_ok=True)

    def keep_only(self, runs: set[str]) -> None:
        """Forget the ports of all other runs."""
        for note in Path(self._storage.work).glob("*.port"):
            if note.name.split(".", 1)[0] not in runs:
                note.unlink(missing_ok=True)

    def follow(self, run: str, plan: Plan, there: Collection[str]) -> Plan:
        """Return the plan with forks whose generation also depends on the addresses of the forks that they reference.

        `there` are the forks that have a port.
        """
        kept = {}
        for name, fork in plan.kept.items():
            # Ports are chosen now if necessary: a port chosen later would change the generation.
            peers = map(fork_id, addresses.peer_baselines(fork.unit))
            ports = [self.assign(run, peer) for peer in peers if peer in there]
            kept[name] = msgspec.structs.replace(fork, generation=f"{fork.generation} {ports}") if ports else fork
        return msgspec.structs.replace(plan, kept=kept)

    def _choose(self, run: str, fork: str) -> int:
        # No process may listen yet on a port that is chosen, so the kernel may return it again.
        promised = set(self._ports.values())
        port = next(port for port in iter(self._free_port, None) if port not in promised)
        name = _port_file(run, fork)
        self._storage.write_number(name, port)
        self._ports[name] = port
        return port


def fork_values(
    run: Run, plan: Plan, baselines: BaselineProcesses, ports: Ports, answers: Callable[[str], bool]
) -> Forks:
    """Return the function that resolves values of the run's forks; `answers` returns whether a fork is ready.

    A process has no other name than the one in its sandbox.
    """

    def resolve_value(value: ForkValue) -> str:
        of, name = value.fork_of, fork_id(value.fork_of)
        if name not in plan.kept or run.unit(name).state not in ALIVE:
            raise ForkAddressUnknownError(Reason.WAITING_FOR_FORKS, f"{name} does not run")
        workload, port = baselines.get(of), ports.find(run.uid, name)
        port = port if workload is not None and workload.port else 0
        known = {value_from.NAME: plan.kept[name].unit.name, value_from.READY: "true" if answers(name) else "false"}
        known |= {value_from.HOST: HOST if port else "", value_from.PORT: str(port or "")}
        if missing := [word for word in value_from.placeholders(value.expression) if not known[word]]:
            raise ForkAddressUnknownError(Reason.FORK_WITHOUT_PORT, f"{{{{.{missing[0]}}}}}: {_portless(of)}")
        return value_from.fill_expression(value.expression, known)

    return resolve_value


def fork_order(unit: Unit, workload: Workload, attempt: OrderContext, port: int, elsewhere: Mapping[str, int]) -> bytes:
    """Return the work order of a fork: the command and environment of its baseline, with the fork's changes.

    `elsewhere` maps the forks of the run that have a port to it.

    Raises:
        CannotRenderError: the fork uses the address of a fork without a port.
    """
    check_addresses(unit, elsewhere)
    assert unit.fork is not None, "a fork has a baseline"
    env = {name: value.encode() for name, value in workload.env.items()}
    if port:
        env["PORT"] = str(port).encode()
    for change in unit.fork.env:
        if change.delete:
            env.pop(change.name, None)
        else:
            env[change.name] = _value(change, attempt, elsewhere)
    return service_order(
        attempt, command=workload.command, workdir=workload.workdir, env=env, grace_ms=unit.timeouts.grace_ms
    )


def ignored_options(unit: Unit) -> str:
    """Return the options of a fork that this host cannot apply to a process, in words; or an empty string."""
    fork = unit.fork
    if fork is None or not (fork.images or fork.patch):
        return ""
    what = " and ".join(word for word, given in (("images", fork.images), ("patch", fork.patch)) if given)
    of = fork.baseline
    return f"{what} of the fork of {of.namespace}/{of.name} (this host runs the process of its baseline)"


def check_addresses(unit: Unit, with_ports: Collection[str]) -> None:
    """Check that all forks whose address this one uses have a port.

    Raises:
        CannotRenderError: a fork has none.
    """
    for of in addresses.peer_baselines(unit):
        if fork_id(of) not in with_ports:
            raise CannotRenderError(Reason.FORK_WITHOUT_PORT, _portless(of))


def _portless(of: Baseline) -> str:
    return f"the baseline {of.name} has no port for its fork to listen on"


def unavailable(change: EnvChange) -> str:
    """Return the kind of cluster object that a change takes its value from, as this host has none; else empty."""
    return next((kind for kind in ("configMap", "secret") if (change.source or {}).get(kind)), "")


def _value(change: EnvChange, attempt: OrderContext, elsewhere: Mapping[str, int]) -> bytes:
    if change.source:
        return _address(change, elsewhere)
    if not change.input:
        return change.value.encode()
    return attempt.inputs[change.input] or b""


def _address(change: EnvChange, elsewhere: Mapping[str, int]) -> bytes:
    of = addresses.peer_baseline(change)
    assert of is not None, "the value comes from another fork"
    return addresses.fill_address(change, HOST, elsewhere[fork_id(of)]).encode()


def _port_file(run: str, fork: str) -> str:
    return f"{run}.{slug(fork)}.port"


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Closing connections of the former process do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


async def wait_answering(port: int, is_there: Callable[[], bool]) -> bool:
    """Wait until a process accepts connections on the port; return False if `is_there` becomes false before."""
    began = time.monotonic()
    while is_there():
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(HOST, port)
            writer.close()
            return True
        await asyncio.sleep(
            min(MAX_PROBE_INTERVAL_S, max(MIN_PROBE_INTERVAL_S, (time.monotonic() - began) / PROBE_DIVISOR))
        )
    return False
