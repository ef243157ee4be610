"""(f) What others feel of a namespace that asks for more than its share: how long their own sandboxes take.

One operator, on KWOK's nodes. A few others take sandbox after sandbox, first with the cluster to themselves and then
beside a namespace whose sandboxes never end coming: it has the usual bound, so its steps wait for each other. They take
their time, as steps do: those that end at once would have all of a small machine, whoever is bounded.

In turns with each sandbox goes a chain of bare pods of the same shape, of which no operator knows. What these wait for
is the cluster, its scheduler and the machine alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.cluster import wishes
from bench.cluster.place import HOME, client, operator, place
from bench.cluster.seen import Seen, watching
from bench.cluster.steps import recorded, succeeded
from bench.rows import Row
from dayfly.execute.pod.names import run_name
from dayfly.kube.objects import PODS
from dayfly.operator.cluster.objects import RUNS, SANDBOXES, RunObject

if TYPE_CHECKING:
    from bench.cluster.place import Place
    from dayfly.kube.client import Client
    from dayfly.kube.objects import Pod

SANDBOXES_EACH, AT_ONCE = 200, 2
STEPS = 3
# So many sandboxes of the neighbour are there at any moment: many times what its bound lets run.
NOISE = 200
NODES = 5
TAKES = "4s"
_SLOW = f"spec: {{containers: [{{name: main, env: [{{name: TAKES, value: {TAKES}}}]}}]}}"
AIM = 2.0
NEIGHBOUR = "neighbour"


def measure(sandboxes: int = SANDBOXES_EACH, noise: int = NOISE) -> list[Row]:
    """Alone and beside the neighbour, on one cluster, one after the other."""
    with place(kwok_nodes=NODES) as where, operator(where):
        where.cluster.kubectl("create", "namespace", NEIGHBOUR)
        for name, overlay in (("bulk", ""), ("slow", _SLOW)):
            body = wishes.plugin(name, STEPS, chained=STEPS - 1, overlay=overlay)
            where.cluster.kubectl("create", "--filename=-", stdin=json.dumps(body))
        alone, beside, claimed = asyncio.run(_compare(where, sandboxes, noise))
    slowest, calm = percentile(beside.ours, 99), percentile(alone.ours, 99)
    apart, theirs = slowest / calm, percentile(beside.bare, 99) / percentile(alone.bare, 99)
    return [
        Row(
            f"(f) sandboxes of {STEPS} steps beside a namespace with {noise} whose steps take {TAKES}, 99th percentile "
            f"of {sandboxes}, against the same alone",
            f"{slowest:.2f} s",
            f"{calm:.2f} s",
            f"{apart:.2f} x (medians {percentile(beside.ours, 50):.2f} and {percentile(alone.ours, 50):.2f} s; "
            f"bare pods in turns with them {theirs:.2f} x, medians {percentile(beside.bare, 50):.2f} and "
            f"{percentile(alone.bare, 50):.2f} s; the neighbour had {claimed} of its own meanwhile)",
            f"{AIM:g} x",
            apart < AIM,
        )
    ]


class Took(NamedTuple):
    """Seconds that each sandbox took from its wish to its last step, and each chain of bare pods."""

    ours: list[float]
    bare: list[float]


def percentile(values: list[float], of: int) -> float:
    """The value that so many in a hundred do not exceed."""
    return sorted(values)[math.ceil(len(values) * of / 100) - 1]


async def _compare(where: Place, sandboxes: int, noise: int) -> tuple[Took, Took, int]:
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
            assert not neighbour.done(), "else nothing was measured"
        finally:
            neighbour.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await neighbour
        ended = sum(_is_neighbours(run) and recorded(run, STEPS) for run in runs.cache)
    return alone, beside, ended


class _Others:
    """Who has a share of the cluster, and takes less of it."""

    def __init__(self, asking: Client, runs: Seen[RunObject], pods: Seen[Pod]) -> None:
        self._asking = asking
        self._runs = runs
        self._pods = pods

    async def take(self, name: str, sandboxes: int) -> Took:
        """So many of each."""
        left = iter([f"{name}-{number}" for number in range(sandboxes)])
        took = Took([], [])

        async def some() -> None:
            for each in left:
                began = time.perf_counter()
                run = await _make(self._asking, each, "bulk", HOME)
                took.ours.append(await self._runs.until(run, lambda seen: recorded(seen, STEPS)) - began)
                took.bare.append(await self._bare(each))

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        return took

    async def _bare(self, name: str) -> float:
        """Two pods at once, and a third when the first has succeeded: the shape of the plugin's steps."""
        began = time.perf_counter()
        first, beside, then = (f"{name}-s{number}" for number in (0, 2, 1))
        for each in (first, beside):
            await self._asking.create(PODS, wishes.pod(each), HOME)
        await self._pods.until(first, succeeded, HOME)
        await self._asking.create(PODS, wishes.pod(then), HOME)
        ended = [await self._pods.until(each, succeeded, HOME) for each in (then, beside)]
        for each in (first, beside, then):
            await self._asking.delete(PODS, each, HOME)
        return max(ended) - began


async def _noise(asking: Client, runs: Seen[RunObject], noise: int) -> None:
    """Always so many that have not come to their end."""

    async def one(place: int) -> None:
        number = 0
        while True:
            number += 1
            run = await _make(asking, f"noise-{place}-{number}", "slow", NEIGHBOUR)
            await runs.until(run, lambda seen: recorded(seen, STEPS), patience=None)

    await asyncio.gather(*(one(place) for place in range(noise)))


async def _make(asking: Client, name: str, plugin: str, namespace: str) -> str:
    body: dict[str, Any] = wishes.sandbox(name, plugin, namespace)
    made = await asking.create(SANDBOXES, body, namespace)
    return run_name(name, made.metadata.uid)


def _is_neighbours(run: RunObject) -> bool:
    return run.ledger.target.namespace == NEIGHBOUR
