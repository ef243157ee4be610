"""(d) A thousand sandboxes of three steps on KWOK nodes, compared with a bare loop that makes the same writes.

KWOK's pods end immediately, with the receipt of a runner. They have no logs, so the status contains the whole receipt.
Operator and loop have separate clusters, and run wave after wave of sandboxes in turns.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bench.cluster import floor, manifests
from bench.cluster.audit import FIRST_REFUSAL, Audit, named
from bench.cluster.model import Model, model
from bench.cluster.place import HOME, OPERATOR, RUNNERS, client, cpu_seconds, operator, place
from bench.cluster.steps import recorded
from bench.cluster.watches import watching
from bench.rows import ROOT, Row
from dayfly.execute.pod.names import run_name
from dayfly.kube.objects import PODS
from dayfly.operator.cluster.objects import RUNS, SANDBOXES, SandboxObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster.place import Place
    from dayfly.kube.client import KubeClient

WAVES, OF = 4, 250
NODES = 5
STEPS = len(floor.STEPS)
POSTING = 16
ALONE = "the-one-and-only"
AIM_RATE, AIM_CPU = 0.9, 1.5
# Written once, or by the clock: not costs of a sandbox.
_NOT_OF_SANDBOXES = frozenset({"namespaces", "configmaps", "leases", "resourceplugins"})


class Side(NamedTuple):
    """Operator or loop: its cluster, and its process."""

    where: Place
    pid: int


class Cost(NamedTuple):
    """Seconds of a side from the first POST to the last record, and its CPU time until all pods were gone."""

    seconds: float
    cpu: float
    changes: Counter[str]

    @classmethod
    def of(cls, waves: list[Cost]) -> Cost:
        """Return the sum of all waves."""
        changes = sum((wave.changes for wave in waves), Counter[str]())
        return cls(sum(wave.seconds for wave in waves), sum(wave.cpu for wave in waves), changes)


def measure() -> list[Row]:
    """Run all waves, and compare operator and loop."""
    return rows(*compare(), WAVES * OF)


def compare(waves: int = WAVES, of: int = OF) -> tuple[Cost, Cost]:
    """Run each wave with the operator first. The loop then gets the operator's numbers of requests."""
    ours: list[Cost] = []
    bare: list[Cost] = []
    said = _model()
    with ExitStack() as stack:
        first = stack.enter_context(place(kwok_nodes=NODES))
        second = stack.enter_context(place(kwok_nodes=NODES))
        running = Side(first, stack.enter_context(operator(first)).pid)
        process = stack.enter_context(_floor(second))
        loop = Side(second, process.pid)
        for side in (running, loop):
            _publish(side.where)
        for number in range(waves):
            took = asyncio.run(_wave(running, number, of))
            _send(process, floor.Order(of, dict(took.changes), said))
            ours.append(took)
            bare.append(asyncio.run(_wave(loop, number, of)))
    return Cost.of(ours), Cost.of(bare)


def rows(ours: Cost, bare: Cost, sandboxes: int) -> list[Row]:
    """Return rows for steps per second, and for CPU time of a step."""
    steps = sandboxes * STEPS
    rate, cost = bare.seconds / ours.seconds, ours.cpu / bare.cpu
    asked = f"{ours.changes.total() / steps:.1f} and {bare.changes.total() / steps:.1f} requested changes a step"
    return [
        Row(
            f"(d) {sandboxes:,} sandboxes of {STEPS} steps on KWOK nodes (yardstick: a loop with the same requests)",
            f"{steps / ours.seconds:.0f} steps/s",
            f"{steps / bare.seconds:.0f} steps/s",
            f"{rate:.2f} x ({asked})",
            f"{AIM_RATE:g} x",
            rate >= AIM_RATE,
        ),
        Row(
            "(d) CPU time of the operator for each of these steps (yardstick: the same loop)",
            f"{ours.cpu / steps * 1e3:.1f} ms",
            f"{bare.cpu / steps * 1e3:.1f} ms",
            f"{cost:.2f} x",
            f"{AIM_CPU:g} x",
            cost <= AIM_CPU,
        ),
    ]


def _publish(where: Place) -> None:
    body = manifests.plugin("bulk", STEPS, chained=STEPS - 1)
    where.cluster.kubectl("create", "--filename=-", stdin=json.dumps(body))


def _model() -> Model:
    """Record the operator's requests for one sandbox, alone in a cluster."""
    with place(kwok_nodes=1, everything=True) as where, operator(where):
        _publish(where)
        uid = asyncio.run(_alone(where))
        events = Audit(where.cluster.audit_log).events()
        return model(
            ALONE, uid, (event for event in events if event["user"]["username"] == OPERATOR and _counts(event))
        )


async def _alone(where: Place) -> str:
    async with (
        client(where.cluster.kubeconfig) as asking,
        watching(asking, RUNS) as runs,
        watching(asking, PODS.metadata_only(), RUNNERS) as pods,
        watching(asking, SANDBOXES, HOME) as sandboxes,
    ):
        made = await asking.create(SANDBOXES, manifests.sandbox(ALONE, "bulk"), HOME)
        await runs.until(run_name(ALONE, made.metadata.uid), lambda seen: recorded(seen, STEPS))
        await sandboxes.until(
            ALONE, lambda seen: seen is not None and seen.status is not None and seen.status.ready, HOME
        )
        await pods.until_none()
    return made.metadata.uid


def _is_ready(seen: SandboxObject | None) -> bool:
    return seen is not None and seen.status is not None and seen.status.ready


@contextmanager
def _floor(where: Place) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", floor.__name__, str(where.kubeconfig)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def _send(process: subprocess.Popen[str], order: floor.Order) -> None:
    assert process.stdin, "asked for"
    assert process.stdout, "asked for"
    process.stdin.write(msgspec.json.encode(order).decode() + "\n")
    process.stdin.flush()
    if process.stdout.readline() != "ready\n":
        raise RuntimeError("the bare loop ended; see its standard error")


async def _wave(side: Side, number: int, of: int) -> Cost:
    async with AsyncExitStack() as stack:
        asking = await stack.enter_async_context(client(side.where.cluster.kubeconfig))
        runs = await stack.enter_async_context(watching(asking, RUNS))
        pods = await stack.enter_async_context(watching(asking, PODS.metadata_only(), RUNNERS))
        audit = Audit(side.where.cluster.audit_log)
        audit.events()  # skip those of earlier waves
        used, began = cpu_seconds(side.pid), time.perf_counter()
        for run in await _post(asking, [f"bulk-{number}-{each}" for each in range(of)]):
            await runs.until(run, lambda seen: recorded(seen, STEPS))
        ended = time.perf_counter()
        await pods.until_none()
        used = cpu_seconds(side.pid) - used
    changes = Counter(named(event) for event in audit.events() if _counts(event))
    return Cost(ended - began, used, changes)


def _counts(event: dict[str, Any]) -> bool:
    """Return whether a request of the audit log succeeded, and is a cost of a sandbox."""
    granted: bool = event["responseStatus"]["code"] < FIRST_REFUSAL
    return granted and event["objectRef"]["resource"] not in _NOT_OF_SANDBOXES


async def _post(asking: KubeClient, names: list[str]) -> list[str]:
    """Create all sandboxes, some in parallel. Return the names of their runs."""
    left = iter(names)
    runs: list[str] = []

    async def some() -> None:
        for name in left:
            made = await asking.create(SANDBOXES, manifests.sandbox(name, "bulk"), HOME)
            runs.append(run_name(name, made.metadata.uid))

    await asyncio.gather(*(some() for _ in range(POSTING)))
    return runs
