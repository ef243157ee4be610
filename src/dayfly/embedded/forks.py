"""Forks on this machine: a process like its baseline's, with a port of its own and the changed environment."""

import asyncio
import contextlib
import socket

import msgspec

from dayfly.execute.order import CannotRenderError
from dayfly.execute.process.render import Attempt, service_order
from dayfly.plan.sealed import ForkStep, Plan
from dayfly.spec.lifecycle import Baseline, EnvChange, Unit, digest
from dayfly.spec.workload import Workload

PROBE_S = 0.05
PROBE_MOST_S = 1.0


class Baselines:
    """The process workloads that forks may derive from."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Workload] = {}

    def take(self, workload: Workload) -> None:
        self._known[workload.namespace, workload.name] = workload

    def get(self, baseline: Baseline) -> Workload | None:
        return self._known.get((baseline.namespace, baseline.name))

    def follow(self, plan: Plan) -> Plan:
        """The plan with forks whose generation changes with their baseline too."""
        return msgspec.structs.replace(plan, forks={name: self._follow(fork) for name, fork in plan.forks.items()})

    def _follow(self, fork: ForkStep) -> ForkStep:
        assert fork.unit.fork is not None, "a fork says what it derives from"
        workload = self.get(fork.unit.fork.baseline)
        if workload is None:
            return fork
        return msgspec.structs.replace(fork, generation=f"{fork.generation} {digest(workload)}")


def fork_order(unit: Unit, workload: Workload, attempt: Attempt, port: int) -> bytes:
    """The work order of a fork: the baseline's command and environment, then the changes in their order.

    Raises:
        CannotRenderError: a value that no environment variable can hold.
    """
    assert unit.fork is not None, "a fork says what it derives from"
    env = {name: value.encode() for name, value in workload.env.items()}
    if port:
        env["PORT"] = str(port).encode()
    for change in unit.fork.env:
        if change.delete:
            env.pop(change.name, None)
        else:
            env[change.name] = _value(change, attempt)
    return service_order(
        attempt, command=workload.command, workdir=workload.workdir, env=env, grace_ms=unit.timeouts.grace_ms
    )


def _value(change: EnvChange, attempt: Attempt) -> bytes:
    if not change.input:
        return change.value.encode()
    value = attempt.inputs[change.input] or b""
    if b"\0" in value:
        raise CannotRenderError("InputNotText", f"the value for {change.name} contains a zero byte")
    return value


def free_port() -> int:
    """A port of the loopback interface that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def answers(port: int) -> None:
    """Return once something accepts connections on the port."""
    pause = PROBE_S
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, PROBE_MOST_S)
