"""Forks on this machine: a process like its baseline's, with a port of its own and the changed environment."""

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
_MOST = 65_535
# Asked again after a twentieth of the time that it has taken until then: so late at most it is heard that it answers.
PROBE_S, PROBE_MOST_S, PROBES = 0.005, 1.0, 20
STILL_THERE_S = 1.0


class BaselineProcesses:
    """The process workloads that forks may derive from."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Workload] = {}

    def take(self, workload: Workload) -> None:
        self._known[workload.namespace, workload.name] = workload

    def drop(self, workload: Workload) -> None:
        """Nobody declares one of that name any more."""
        self._known.pop((workload.namespace, workload.name), None)

    def get(self, baseline: Baseline) -> Workload | None:
        return self._known.get((baseline.namespace, baseline.name))

    def every(self) -> list[Workload]:
        """All that are known."""
        return list(self._known.values())

    def follow(self, plan: Plan) -> Plan:
        """The plan with forks whose generation changes with their baseline too."""
        return msgspec.structs.replace(plan, kept={name: self._follow(fork) for name, fork in plan.kept.items()})

    def with_ports(self, plan: Plan) -> frozenset[str]:
        """The forks of a plan whose baselines have a port."""
        of = ((name, fork.unit.fork) for name, fork in plan.kept.items())
        return frozenset(
            name for name, fork in of if fork and (workload := self.get(fork.baseline)) is not None and workload.port
        )

    def _follow(self, fork: KeptStep) -> KeptStep:
        workload = self.get(fork.unit.fork.baseline) if fork.unit.fork else None
        if workload is None:
            return fork
        # Where its own requests are taken in is nothing to its forks.
        form = digest(msgspec.structs.replace(workload, routed_port=None))
        return msgspec.structs.replace(fork, generation=f"{fork.generation} {form}")


class Ports:
    """One port of the loopback interface for each fork, kept over its restarts as long as the machine runs.

    So another fork can be told where it answers before it has started, and need not start anew when it has. The notes
    are for the next server: they may be removed under a fork that runs.
    """

    def __init__(self, place: AttemptStorage, free_port: Callable[[], int] | None = None) -> None:
        self._place = place
        self._free_port = free_port or _any_free
        self._ports: dict[str, int] = {}

    def of(self, run: str, fork: str) -> int:
        """The fork's port, chosen at the first call."""
        return self.known(run, fork) or self._choose(run, fork)

    def renew(self, run: str, fork: str) -> int:
        """The port for the fork's next process: the same again, unless somebody else listens there by now."""
        port = self.known(run, fork)
        return port if port and _is_free(port) else self._choose(run, fork)

    def known(self, run: str, fork: str) -> int:
        """The fork's port; 0 if none was chosen."""
        name = _note(run, fork)
        port = self._ports.get(name) or self._place.read_number(name)
        if not 0 < port <= _MOST:
            return 0  # nor is it what was noted: no port has that number
        self._ports[name] = port
        return port

    def forget(self, run: str) -> None:
        """The run's forks are gone for good."""
        for name in [name for name in self._ports if name.startswith(f"{run}.")]:
            del self._ports[name]
        for note in Path(self._place.work).glob(f"{run}.*.port"):
            note.unlink(missing_ok=True)

    def keep_only(self, runs: set[str]) -> None:
        """Forget those of all other runs."""
        for note in Path(self._place.work).glob("*.port"):
            if note.name.split(".", 1)[0] not in runs:
                note.unlink(missing_ok=True)

    def follow(self, run: str, plan: Plan, there: Collection[str]) -> Plan:
        """The plan with forks whose generation changes with the addresses of those that they name.

        `there` are the forks that have a port.
        """
        kept = {}
        for name, fork in plan.kept.items():
            # Chosen now, if need be: an address that is promised later would look like another one.
            ports = [self.of(run, peer) for peer in map(fork_id, addresses.peer_baselines(fork.unit)) if peer in there]
            kept[name] = msgspec.structs.replace(fork, generation=f"{fork.generation} {ports}") if ports else fork
        return msgspec.structs.replace(plan, kept=kept)

    def _choose(self, run: str, fork: str) -> int:
        # One that is promised need not be listened at yet, so the kernel may name it again.
        promised = set(self._ports.values())
        port = next(port for port in iter(self._free_port, None) if port not in promised)
        name = _note(run, fork)
        self._place.write_number(name, port)
        self._ports[name] = port
        return port


def teller(run: Run, plan: Plan, baselines: BaselineProcesses, ports: Ports, answers: Callable[[str], bool]) -> Forks:
    """What each fork of a run tells its steps at this moment; `answers` says whether one does.

    Its name is the one that it has in its sandbox: a process has no other.
    """

    def told(value: ForkValue) -> str:
        of, name = value.fork_of, fork_id(value.fork_of)
        if name not in plan.kept or run.unit(name).state not in ALIVE:
            raise ForkAddressUnknownError(Reason.WAITING_FOR_FORKS, f"{name} is not there to be asked")
        workload, port = baselines.get(of), ports.known(run.uid, name)
        port = port if workload is not None and workload.port else 0
        known = {value_from.NAME: plan.kept[name].unit.name, value_from.READY: "true" if answers(name) else "false"}
        known |= {value_from.HOST: HOST if port else "", value_from.PORT: str(port or "")}
        if missing := [word for word in value_from.placeholders(value.expression) if not known[word]]:
            raise ForkAddressUnknownError(Reason.FORK_WITHOUT_PORT, f"{{{{.{missing[0]}}}}}: {_portless(of)}")
        return value_from.fill_expression(value.expression, known)

    return told


def fork_order(unit: Unit, workload: Workload, attempt: OrderContext, port: int, elsewhere: Mapping[str, int]) -> bytes:
    """The work order of a fork: the baseline's command and environment, then the changes in their order.

    `elsewhere` has the port of each fork of the run that has one.

    Raises:
        CannotRenderError: it asks for the address of a fork that has none.
    """
    check_addresses(unit, elsewhere)
    assert unit.fork is not None, "a fork says what it derives from"
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


def unapplied(unit: Unit) -> str:
    """What of a fork's wish has no meaning for a process, in words; or nothing."""
    fork = unit.fork
    if fork is None or not (fork.images or fork.patch):
        return ""
    what = " and ".join(word for word, given in (("images", fork.images), ("patch", fork.patch)) if given)
    of = fork.baseline
    return f"{what} of the fork of {of.namespace}/{of.name} (this host runs the process of its baseline)"


def check_addresses(unit: Unit, with_ports: Collection[str]) -> None:
    """Whether each fork that this one asks the address of has one.

    Raises:
        CannotRenderError: one has none.
    """
    for of in addresses.peer_baselines(unit):
        if fork_id(of) not in with_ports:
            raise CannotRenderError(Reason.FORK_WITHOUT_PORT, _portless(of))


def _portless(of: Baseline) -> str:
    return f"the baseline {of.name} has no port where its fork could answer"


def unavailable(change: EnvChange) -> str:
    """The kind of cluster object that a change takes its value from, which this machine has none of; or nothing."""
    return next((kind for kind in ("configMap", "secret") if (change.source or {}).get(kind)), "")


def _value(change: EnvChange, attempt: OrderContext, elsewhere: Mapping[str, int]) -> bytes:
    if change.source:
        return _address(change, elsewhere)
    if not change.input:
        return change.value.encode()
    return attempt.inputs[change.input] or b""


def _address(change: EnvChange, elsewhere: Mapping[str, int]) -> bytes:
    of = addresses.peer_baseline(change)
    assert of is not None, "asked for a value from another fork"
    return addresses.fill_address(change, HOST, elsewhere[fork_id(of)]).encode()


def _note(run: str, fork: str) -> str:
    return f"{run}.{slug(fork)}.port"


def _any_free() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Connections of the former process that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


async def answered(port: int, is_there: Callable[[], bool]) -> bool:
    """Wait until something accepts connections on the port; false if the process is gone before."""
    began = time.monotonic()
    while is_there():
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(STILL_THERE_S):
                _, writer = await asyncio.open_connection(HOST, port)
            writer.close()
            return True
        await asyncio.sleep(min(PROBE_MOST_S, max(PROBE_S, (time.monotonic() - began) / PROBES)))
    return False
