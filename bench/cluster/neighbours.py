"""(f) What others feel of a namespace that asks for more than its share: how long their own sandboxes take.

One operator, on KWOK's nodes. A few others take sandbox after sandbox, first with the cluster to themselves and then
beside a namespace whose sandboxes never end coming: it has the usual bound, so its steps wait for each other. They take
their time, as steps do: those that end at once would have all of a small machine, whoever is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Any

from bench.cluster import wishes
from bench.cluster.place import HOME, client, operator, place
from bench.cluster.seen import Seen, watching
from bench.cluster.steps import recorded
from bench.rows import Row
from dayfly.execute.pod.names import run_name
from dayfly.operator.cluster.objects import RUNS, SANDBOXES, RunObject

if TYPE_CHECKING:
    from bench.cluster.place import Place
    from dayfly.kube.client import Client

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
    slowest, calm = percentile(beside, 99), percentile(alone, 99)
    apart = slowest / calm
    return [
        Row(
            f"(f) sandboxes of {STEPS} steps beside a namespace with {noise} whose steps take {TAKES}, 99th percentile "
            f"of {sandboxes}, against the same alone",
            f"{slowest:.2f} s",
            f"{calm:.2f} s",
            f"{apart:.2f} x (medians {percentile(beside, 50):.2f} and {percentile(alone, 50):.2f} s; the neighbour had "
            f"{claimed} of its own meanwhile)",
            f"{AIM:g} x",
            apart < AIM,
        )
    ]


def percentile(values: list[float], of: int) -> float:
    """The value that so many in a hundred do not exceed."""
    return sorted(values)[math.ceil(len(values) * of / 100) - 1]


async def _compare(where: Place, sandboxes: int, noise: int) -> tuple[list[float], list[float], int]:
    async with client(where.cluster.kubeconfig) as asking, watching(asking, RUNS) as runs:
        others = _Others(asking, runs)
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

    def __init__(self, asking: Client, runs: Seen[RunObject]) -> None:
        self._asking = asking
        self._runs = runs

    async def take(self, name: str, sandboxes: int) -> list[float]:
        """Seconds that each took from its wish to its last step."""
        left = iter([f"{name}-{number}" for number in range(sandboxes)])
        took: list[float] = []

        async def some() -> None:
            for each in left:
                began = time.perf_counter()
                run = await _make(self._asking, each, "bulk", HOME)
                took.append(await self._runs.until(run, lambda seen: recorded(seen, STEPS)) - began)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        return took


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
