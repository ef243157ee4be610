"""(a), (b) Steps on a real kubelet, compared with bare pods that run the same script, in turns."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from bench.cluster import manifests
from bench.cluster.place import HOME, client
from bench.cluster.watches import watching
from bench.rows import Row, median, spread
from dayfly.execute.pod.names import run_name
from dayfly.kube.objects import PODS, Pod
from dayfly.operator.cluster.objects import PLUGINS, RUNS, SANDBOXES, RunObject

if TYPE_CHECKING:
    from bench.cluster.place import Place
    from bench.cluster.watches import Watched
    from dayfly.kube.client import KubeClient

ROUNDS = 15
# The maximum duration of a chain, by length, as a part of the duration of as many bare pods in sequence.
AIMS = {1: 0.5, 2: 0.6}


class View(NamedTuple):
    """The client, and its watches."""

    client: KubeClient
    pods: Watched[Pod]
    runs: Watched[RunObject]


def measure(where: Place, rounds: int = ROUNDS) -> list[Row]:
    """Measure chains and bare pods in turns.

    For a chain this is the time from the POST of the Sandbox to its last result recorded in the Run. For bare pods it
    is the time from the POST of the first to the last one's phase Succeeded. A watch of the same client observes both.
    """
    return asyncio.run(_measure(where, rounds))


async def _measure(where: Place, rounds: int) -> list[Row]:
    ours: dict[int, list[float]] = {length: [] for length in AIMS}
    bare: dict[int, list[float]] = {length: [] for length in AIMS}
    async with AsyncExitStack() as stack:
        asking = await stack.enter_async_context(client(where.cluster.kubeconfig))
        pods = await stack.enter_async_context(watching(asking, PODS, HOME))
        runs = await stack.enter_async_context(watching(asking, RUNS))
        view = View(asking, pods, runs)
        for length in AIMS:
            await asking.create(PLUGINS, manifests.plugin(f"chain-{length}", length))
        for number in range(rounds + 1):
            for length in AIMS:
                one = await _bare(view, f"bare-{length}-{number}", length)
                other = await _chain(view, f"chain-{length}-{number}", length)
                if number:  # the first round fills caches on both sides
                    bare[length].append(one)
                    ours[length].append(other)
    return [_row(length, ours[length], bare[length]) for length in AIMS]


def _row(length: int, ours: list[float], bare: list[float]) -> Row:
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    what = {
        1: "(a) one step on a real kubelet (yardstick: a bare pod)",
        2: "(b) two chained steps with an output (yardstick: two bare pods in sequence)",
    }
    return Row(
        what[length],
        f"{median(ours):.2f} s",
        f"{median(bare):.2f} s",
        f"{median(ratios):.2f} x ({spread(ratios)})",
        f"{AIMS[length]:g} x",
        median(ratios) <= AIMS[length],
    )


async def _bare(view: View, name: str, length: int) -> float:
    names = [f"{name}-{number}" for number in range(length)]
    began = ended = time.perf_counter()
    for each in names:
        await view.client.create(PODS, manifests.pod(each), HOME)
        ended = await view.pods.until(each, succeeded, HOME)
    for each in names:
        await view.client.delete(PODS, each, HOME)
        await view.pods.until(each, lambda pod: pod is None, HOME)
    return ended - began


def succeeded(pod: Pod | None) -> bool:
    """Return whether the pod has succeeded.

    Raises:
        RuntimeError: it has failed, so the measurement is not valid.
    """
    if pod is not None and pod.status.phase == "Failed":
        raise RuntimeError(f"bare pod {pod.metadata.name} failed: {pod.status.message}")
    return pod is not None and pod.status.phase == "Succeeded"


async def _chain(view: View, name: str, length: int) -> float:
    began = time.perf_counter()
    made = await view.client.create(SANDBOXES, manifests.sandbox(name, f"chain-{length}"), HOME)
    run = run_name(name, made.metadata.uid)
    ended = await view.runs.until(run, lambda seen: recorded(seen, length))
    await view.client.delete(SANDBOXES, name, HOME)
    await view.runs.until(run, lambda seen: seen is None)
    return ended - began


def recorded(run: RunObject | None, length: int) -> bool:
    """Return whether the ledger has `length` successes.

    Raises:
        RuntimeError: a step has failed, so the measurement is not valid.
    """
    if run is None:
        return False
    ends = [run.ledger.unit(f"db/s{number}") for number in range(length)]
    for end in ends:
        if end.outcome == "failed":
            raise RuntimeError(f"run {run.metadata.name}: a step failed: {end.reason} {end.message}")
    return all(end.outcome == "succeeded" for end in ends)
