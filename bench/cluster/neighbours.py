"""(f) The effect of a busy namespace on the others: the duration of their sandboxes.

One operator, with KWOK nodes. A few users create one sandbox after another, first alone in the cluster and then beside
a namespace that always creates more sandboxes. That namespace has the default limit, so its steps wait for each other.
Its steps take some time, because steps that end immediately would use all of a small machine in spite of the limit.

Each sandbox alternates with a chain of bare pods of the same shape, unknown to the operator. They wait only for the
cluster, its scheduler and the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.cluster import manifests
from bench.cluster.place import HOME, client, operator, place
from bench.cluster.steps import recorded, succeeded
from bench.cluster.watches import Watched, watching
from bench.rows import Row
from dayfly.execute.pod.names import run_name
from dayfly.kube.objects import PODS
from dayfly.operator.cluster.objects import RUNS, SANDBOXES, RunObject

if TYPE_CHECKING:
    from bench.cluster.place import Place
    from dayfly.kube.client import KubeClient
    from dayfly.kube.objects import Pod

SANDBOXES_EACH, AT_ONCE = 200, 2
STEPS = 3
# The constant number of the neighbour's sandboxes, many times its limit of parallel steps.
NOISE = 200
NODES = 5
TAKES = "4s"
_SLOW = f"spec: {{containers: [{{name: main, env: [{{name: TAKES, value: {TAKES}}}]}}]}}"
AIM = 2.0
NEIGHBOUR = "neighbour"


def measure(sandboxes: int = SANDBOXES_EACH, noise: int = NOISE) -> list[Row]:
    """Measure alone and beside the neighbour, on one cluster."""
    with place(kwok_nodes=NODES) as where, operator(where):
        where.cluster.kubectl("create", "namespace", NEIGHBOUR)
        for name, overlay in (("bulk", ""), ("slow", _SLOW)):
            body = manifests.plugin(name, STEPS, chained=STEPS - 1, overlay=overlay)
            where.cluster.kubectl("create", "--filename=-", stdin=json.dumps(body))
        alone, beside, claimed = asyncio.run(_compare(where, sandboxes, noise))
    slowest, calm = percentile(beside.ours, 99), percentile(alone.ours, 99)
    apart, theirs = slowest / calm, percentile(beside.bare, 99) / percentile(alone.bare, 99)
    return [
        Row(
            f"(f) 99th percentile of {sandboxes} sandboxes of {STEPS} steps, while another namespace has {noise} "
            f"sandboxes with steps of {TAKES} (yardstick: without that namespace)",
            f"{slowest:.2f} s",
            f"{calm:.2f} s",
            f"{apart:.2f} x (medians {percentile(beside.ours, 50):.2f} and {percentile(alone.ours, 50):.2f} s; "
            f"bare pods {theirs:.2f} x, medians {percentile(beside.bare, 50):.2f} and "
            f"{percentile(alone.bare, 50):.2f} s; that namespace claimed {claimed} steps)",
            f"{AIM:g} x",
            apart < AIM,
        )
    ]


class Durations(NamedTuple):
    """Seconds from the creation of each sandbox to its last step, and of each chain of bare pods."""

    ours: list[float]
    bare: list[float]


def percentile(values: list[float], of: int) -> float:
    """Return the value that this percentage of values does not exceed."""
    return sorted(values)[math.ceil(len(values) * of / 100) - 1]


async def _compare(where: Place, sandboxes: int, noise: int) -> tuple[Durations, Durations, int]:
    async with (
        client(where.cluster.kubeconfig) as asking,
        watching(asking, RUNS) as runs,
        watching(asking, PODS, HOME) as pods,
    ):
        others = _Others(asking, runs, pods)
        await others.take("warm", 2 * AT_ONCE)
        alone = await others.take("alone", sandboxes)
        neighbour = asyncio.create_task(_noise(asking, runs, noise))
        try:
            await runs.until_many(_is_neighbours, noise)
            beside = await others.take("beside", sandboxes)
            assert not neighbour.done(), "the neighbour must still be running"
        finally:
            neighbour.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await neighbour
        ended = sum(_is_neighbours(run) and recorded(run, STEPS) for run in runs.cache)
    return alone, beside, ended


class _Others:
    """Users that need less than their share of the cluster."""

    def __init__(self, asking: KubeClient, runs: Watched[RunObject], pods: Watched[Pod]) -> None:
        self._asking = asking
        self._runs = runs
        self._pods = pods

    async def take(self, name: str, sandboxes: int) -> Durations:
        """Run this many sandboxes and chains of bare pods."""
        left = iter([f"{name}-{number}" for number in range(sandboxes)])
        took = Durations([], [])

        async def some() -> None:
            for each in left:
                began = time.perf_counter()
                run = await _make(self._asking, each, "bulk", HOME)
                took.ours.append(await self._runs.until(run, lambda seen: recorded(seen, STEPS)) - began)
                took.bare.append(await self._bare(each))

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        return took

    async def _bare(self, name: str) -> float:
        """Run two pods in parallel, and a third when the first has succeeded, like the plugin's steps."""
        began = time.perf_counter()
        first, beside, then = (f"{name}-s{number}" for number in (0, 2, 1))
        for each in (first, beside):
            await self._asking.create(PODS, manifests.pod(each), HOME)
        await self._pods.until(first, succeeded, HOME)
        await self._asking.create(PODS, manifests.pod(then), HOME)
        ended = [await self._pods.until(each, succeeded, HOME) for each in (then, beside)]
        for each in (first, beside, then):
            await self._asking.delete(PODS, each, HOME)
        return max(ended) - began


async def _noise(asking: KubeClient, runs: Watched[RunObject], noise: int) -> None:
    """Keep this many unfinished sandboxes."""

    async def one(place: int) -> None:
        number = 0
        while True:
            number += 1
            run = await _make(asking, f"noise-{place}-{number}", "slow", NEIGHBOUR)
            await runs.until(run, lambda seen: recorded(seen, STEPS), timeout_s=None)

    await asyncio.gather(*(one(place) for place in range(noise)))


async def _make(asking: KubeClient, name: str, plugin: str, namespace: str) -> str:
    body: dict[str, Any] = manifests.sandbox(name, plugin, namespace)
    made = await asking.create(SANDBOXES, body, namespace)
    return run_name(name, made.metadata.uid)


def _is_neighbours(run: RunObject) -> bool:
    return run.ledger.target.namespace == NEIGHBOUR
