"""(c) Stored writes of a step: counted at the API server, for the whole life of a sandbox, by object and writer.

Chains of two lengths run one at a time, from the POST of the Sandbox until all its objects are gone. The difference
between the lengths, divided by the steps, is the cost of a further step. The rest of the shorter one is the fixed cost
of a run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from bench.cluster import manifests
from bench.cluster.audit import Audit
from bench.cluster.place import HOME, OPERATOR, RUNNERS, client
from bench.cluster.steps import recorded
from bench.cluster.watches import watching
from bench.rows import Row
from dayfly.execute.pod.names import run_name
from dayfly.kube.objects import PODS, SECRETS, PartialObjectMetadata
from dayfly.operator.cluster.objects import PLUGINS, RUNS, SANDBOXES, RunObject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.cluster.audit import Write
    from bench.cluster.place import Place
    from bench.cluster.watches import Watched
    from dayfly.kube.client import KubeClient

SHORT, LONG = 2, 8
ROUNDS = 3
IDLE_S = 60.0
AIM = 6.0
# Events arrive later than the change they report, and labels of used objects go two sweeps after the last use.
SETTLE_S, SWEPT_S = 3.0, 8.0
# The holder of a Lease renews it at fixed intervals.
BY_THE_CLOCK = "leases"
WRITERS = {
    OPERATOR: "operator",
    "system:kube-scheduler": "scheduler",
    "system:node:node": "kubelet",
    "system:serviceaccount:kube-system:generic-garbage-collector": "garbage collector",
}
# How often each (request, writer) was stored. A request is its verb and object.
Tally = Counter[tuple[str, str]]


class Counted(NamedTuple):
    """Sums over `rounds` chains of each length, and over `idle` seconds without any request of a user.

    `leases` is how often the operator renewed its Lease in that time. No tally contains it.
    """

    rounds: int
    lengths: tuple[int, int]
    lives: tuple[Tally, Tally]
    idle: float
    quiet: Tally
    leases: int

    def a_step(self, key: tuple[str, str]) -> float:
        """Return the cost of a further step."""
        short, long = (life[key] / self.rounds for life in self.lives)
        return (long - short) / (self.lengths[1] - self.lengths[0])

    def fixed(self, key: tuple[str, str]) -> float:
        """Return the cost of a run without its steps."""
        return self.lives[0][key] / self.rounds - self.lengths[0] * self.a_step(key)

    def stored(self) -> list[tuple[str, str]]:
        """Return all stored requests, by writer, the most frequent first."""
        order = [*WRITERS.values(), "others"]
        return sorted(self.lives[1], key=lambda key: (order.index(key[1]), -self.lives[1][key], key))


def count(
    where: Place, rounds: int = ROUNDS, lengths: tuple[int, int] = (SHORT, LONG), idle: float = IDLE_S
) -> Counted:
    """Run chains of both lengths in turns, then observe a ready one for `idle` seconds."""
    return asyncio.run(_count(where, rounds, lengths, idle))


def rows(counted: Counted) -> list[Row]:
    """Return the rows about the operator's own writes."""
    ours = [key for key in counted.stored() if key[1] == "operator"]
    step, fixed = sum(map(counted.a_step, ours)), sum(map(counted.fixed, ours))
    all_of_it = sum(map(counted.a_step, counted.stored()))
    idle = sum(times for key, times in counted.quiet.items() if key[1] == "operator")
    return [
        Row(
            "(c) stored writes of the operator for each further step with cleanup, Secret and Events (yardstick: all)",
            f"{step:.1f}",
            f"{all_of_it:.1f}",
            f"{step:.1f}, and {fixed:.1f} for each run",
            f"{AIM:g}",
            step <= AIM,
        ),
        Row(
            f"(c) stored writes of the operator in {counted.idle:.0f} s with one ready sandbox",
            f"{idle}",
            "-",
            f"{idle} (and {counted.leases} renewals of its Lease)",
            "0",
            idle == 0,
        ),
    ]


def table(counted: Counted) -> str:
    """Return a table by writer and object: the cost of a further step, and of a run without its steps."""
    lines = ["| writer | stored request | for each further step | for each run |\n|---|---|---|---|\n"]
    for key in counted.stored():
        step, fixed = counted.a_step(key), counted.fixed(key)
        if abs(step) >= 0.05 or abs(fixed) >= 0.05:
            lines.append(f"| {key[1]} | {key[0]} | {step:.1f} | {fixed:.1f} |\n")
    return "".join(lines)


class View(NamedTuple):
    """The client, and its watches: runs, and the objects in the runners' namespace."""

    client: KubeClient
    runs: Watched[RunObject]
    pods: Watched[PartialObjectMetadata]
    secrets: Watched[PartialObjectMetadata]


async def _count(where: Place, rounds: int, lengths: tuple[int, int], idle: float) -> Counted:
    audit = Audit(where.cluster.audit_log)
    lives = Tally(), Tally()
    async with AsyncExitStack() as stack:
        asking = await stack.enter_async_context(client(where.cluster.kubeconfig))
        view = View(
            asking,
            runs=await stack.enter_async_context(watching(asking, RUNS)),
            pods=await stack.enter_async_context(watching(asking, PODS.metadata_only(), RUNNERS)),
            secrets=await stack.enter_async_context(watching(asking, SECRETS.metadata_only(), RUNNERS)),
        )
        for length in lengths:
            await asking.create(PLUGINS, manifests.plugin(f"count-{length}", length))
        # Excluded: the cost of plugins and of the operator's start, and objects that it creates only for the first
        # sandbox.
        await _end(view, "first", await _begin(view, "first", lengths[0]))
        for number in range(rounds):
            for length, life in zip(lengths, lives, strict=True):
                audit.new_writes()
                run = await _begin(view, f"count-{length}-{number}", length)
                await _end(view, f"count-{length}-{number}", run)
                life.update(_keys(audit.new_writes()))
        run = await _begin(view, "idle", lengths[0])
        audit.new_writes()
        await asyncio.sleep(idle)
        quiet = audit.new_writes()
        await _end(view, "idle", run)
    leases = sum(write.writer == OPERATOR and write.what.endswith(BY_THE_CLOCK) for write in quiet)
    return Counted(rounds, lengths, lives, idle, Tally(_keys(quiet)), leases)


def _keys(writes: Iterable[Write]) -> Iterable[tuple[str, str]]:
    """Return writer and request of each write, without those of the client and periodic ones."""
    for write in writes:
        if write.writer != "admin" and not write.what.endswith(BY_THE_CLOCK):
            yield write.what, WRITERS.get(write.writer, "others")


async def _begin(view: View, name: str, length: int) -> str:
    """Run a sandbox until it is ready and all is reported. Return the name of its run."""
    made = await view.client.create(SANDBOXES, manifests.sandbox(name, f"count-{length}"), HOME)
    run = run_name(name, made.metadata.uid)
    await view.runs.until(run, lambda seen: recorded(seen, length))
    await view.pods.until_none()  # a result may be recorded before the kubelet reports the pod's end
    await asyncio.sleep(SETTLE_S)
    return run


async def _end(view: View, name: str, run: str) -> None:
    """Wait until all objects are gone: the kubelet ends its pods, the garbage collector deletes its Secrets."""
    await view.client.delete(SANDBOXES, name, HOME)
    await view.runs.until(run, lambda seen: seen is None)
    for left in (view.pods, view.secrets):
        await left.until_none()
    await asyncio.sleep(SWEPT_S)
