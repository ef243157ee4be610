"""(n) to (q) Pools in a cluster: the time and the stored writes of a hit, the writes of a member, rate, and rest.

Nodes are simulated by KWOK, so that members are ready at once. A hit needs no pod. Members have two chained steps, and
the plugin has one delete step.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.cluster import manifests
from bench.cluster.audit import Audit
from bench.cluster.idle import Spoken
from bench.cluster.place import HOME, OPERATOR, client, operator, place
from bench.cluster.watches import watching
from bench.rows import Row, median, spread
from dayfly.kube.objects import ApiResource
from dayfly.operator.cluster.objects import PLUGINS, POOL_MEMBERS, POOL_REQUEST_ANNOTATION, POOLS, SANDBOXES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.cluster.audit import Write
    from bench.cluster.place import Place
    from bench.cluster.watches import Watched
    from dayfly.kube.client import KubeClient

HITS, MEMBERS = 60, 10
REST_S, SETTLE_S = 60.0, 12.0
RATES = (2, 4, 8, 16)
RATE_S, LIFE_S, RATE_READY = 60.0, 5.0, 40
AIM_WRITES, AIM_CREATE, AIM_END, AIM_P99_MS = 8, 17, 12, 250.0
POOL = "warm"
_POOLS = POOLS.read_as(Spoken)
_SANDBOXES = SANDBOXES.read_as(Spoken)
_MEMBERS = POOL_MEMBERS.read_as(Spoken)
_PATCHED = ApiResource("", "v1", "configmaps", "ConfigMap", dict[str, Any])


class View(NamedTuple):
    """The client, its watches, and the audit log."""

    client: KubeClient
    sandboxes: Watched[Spoken]
    pools: Watched[Spoken]
    members: Watched[Spoken]
    audit: Audit


def measure(hits: int = HITS, rates: tuple[int, ...] = RATES, rest: float = REST_S) -> list[Row]:
    """Fill a pool, and measure hits next to one patch, members, a pool at rest, and rising rates of sandboxes."""
    with place(kwok_nodes=1, everything=True) as where, operator(where):
        return asyncio.run(_measure(where, hits, rates, rest))


async def _measure(where: Place, hits: int, rates: tuple[int, ...], rest: float) -> list[Row]:
    async with AsyncExitStack() as stack:
        asking = await stack.enter_async_context(client(where.cluster.kubeconfig))
        boxes = await stack.enter_async_context(watching(asking, _SANDBOXES, HOME))
        pools = await stack.enter_async_context(watching(asking, _POOLS, HOME))
        members = await stack.enter_async_context(watching(asking, _MEMBERS, HOME))
        view = View(asking, boxes, pools, members, Audit(where.cluster.audit_log))
        await asking.create(PLUGINS, _plugin())
        await _resize(view, hits + 1, create=True)
        await _until_full(view)
        await _hit(view, "first")  # it labels the plugin and the namespace as used
        await _request(view, "pause")
        await _writes_during(view, SETTLE_S)
        idle = await _writes_during(view, rest)
        rows = [_row("(q) stored writes of the operator in a minute with a full pool", sum(idle.values()), 0, rest)]
        rows += await _hits(view, hits)
        rows += await _members(view)
        rows.append(await _rate(view, rates))
        return rows


async def _hits(view: View, hits: int) -> list[Row]:
    ready, patch, stored = [], [], Counter[str]()
    await view.client.create(_PATCHED, {"metadata": {"name": "yardstick"}}, HOME)
    for number in range(hits - 1):
        began = time.perf_counter()
        await view.client.patch(_PATCHED, {"data": {"number": str(number)}}, "yardstick", HOME)
        patch.append((time.perf_counter() - began) * 1e3)
        ready.append(await _hit(view, f"hit-{number}"))
        stored += await _writes_during(view, 0.0)
    late = await _writes_during(view, SETTLE_S)
    p99 = sorted(ready)[int(len(ready) * 0.99)]
    count, runs = sum(stored.values()) / len(ready), stored["update runs"] / len(ready)
    after = sum(late.values()) / len(ready)
    return [
        Row(
            "(n) a sandbox that finds a ready member, from POST to Ready seen by a watch (yardstick: one patch)",
            f"{median(ready):.0f} ms",
            f"{median(patch):.1f} ms",
            f"p99 {p99:.0f} ms ({spread(ready)})",
            f"p99 {AIM_P99_MS:g} ms",
            p99 < AIM_P99_MS,
        ),
        Row(
            "(o) stored writes of the operator for such a sandbox until it is ready (yardstick: those of Runs)",
            f"{count:.1f}",
            f"{runs:.1f}",
            f"{count:.1f}, and {after:.1f} later for statuses and the ledger of the pool",
            f"{AIM_WRITES}",
            count <= AIM_WRITES,
        ),
    ]


async def _members(view: View) -> list[Row]:
    """Create members without requests, then drain the pool, and count the writes of the operator for each."""
    for each in list(view.sandboxes.cache):
        await view.client.delete(SANDBOXES, each.metadata.name, HOME)
    await view.sandboxes.until_none()
    await _resize(view, MEMBERS)  # a changed spec ends a pause
    await _request(view, "drain")
    await view.members.until_none()
    await _writes_during(view, SETTLE_S)
    await _request(view, "resume")
    await _until_full(view)
    made = await _writes_during(view, SETTLE_S)
    await _request(view, "drain")
    await view.members.until_none()
    ended = await _writes_during(view, SETTLE_S)
    return [
        _row("(o) stored writes of the operator to create a member of two steps", _each(made, MEMBERS), AIM_CREATE),
        _row("(o) stored writes of the operator to end a member with one delete step", _each(ended, MEMBERS), AIM_END),
    ]


async def _rate(view: View, rates: tuple[int, ...]) -> Row:
    """Create sandboxes at random times with each mean rate. Each is deleted some seconds after it is ready."""
    shown, best = [], 0
    for rate in rates:
        await _resize(view, RATE_READY)
        await _request(view, "resume")
        await _until_full(view)
        p99 = await _poisson(view, rate)
        shown.append(f"{rate}/s: p99 {p99:.0f} ms")
        if p99 >= AIM_P99_MS:
            break
        best = rate
    what = f"(p) rate of sandboxes with p99 below {AIM_P99_MS:g} ms, at random times for {RATE_S:.0f} s"
    return Row(what, f"{best}/s", "none", "; ".join(shown), "none", best > 0)


async def _poisson(view: View, rate: int) -> float:
    chance, end, times = random.Random(rate), time.monotonic() + RATE_S, list[float]()

    async def one(name: str) -> None:
        times.append(await _hit(view, name))
        await asyncio.sleep(LIFE_S)
        await view.client.delete(SANDBOXES, name, HOME)
        await view.sandboxes.until(name, lambda seen: seen is None, HOME)

    async with asyncio.TaskGroup() as tasks:
        for number in itertools.count():
            if time.monotonic() > end:
                break
            tasks.create_task(one(f"rate-{rate}-{number}"))
            await asyncio.sleep(chance.expovariate(rate))
    return sorted(times)[int(len(times) * 0.99)]


async def _hit(view: View, name: str) -> float:
    """Create a sandbox; return the milliseconds until the watch shows that it is ready."""
    began = time.perf_counter()
    await view.client.create(SANDBOXES, manifests.sandbox(name, POOL), HOME)
    at = await view.sandboxes.until(name, lambda seen: seen is not None and bool(seen.status.get("ready")), HOME)
    return (at - began) * 1e3


async def _writes_during(view: View, seconds: float) -> Counter[str]:
    """Return the stored writes of the operator since the last call and in these seconds, by request."""
    await asyncio.sleep(seconds)
    return Counter(_ours(view.audit.new_writes()))


def _ours(writes: Iterable[Write]) -> Iterable[str]:
    return (
        write.what for write in writes if write.writer == OPERATOR and not write.what.endswith(("leases", "events"))
    )


async def _resize(view: View, ready: int, *, create: bool = False) -> None:
    spec = {"cluster": "local", "plugin": f"{POOL}@1.0.0", "ready": ready}
    if create:
        body = {"apiVersion": POOLS.api_version, "kind": POOLS.kind, "metadata": {"name": POOL}, "spec": spec}
        await view.client.create(_POOLS, body, HOME)
    else:
        await view.client.patch(_POOLS, {"spec": spec}, POOL, HOME)


async def _request(view: View, action: str) -> None:
    note = {POOL_REQUEST_ANNOTATION: f"{action} bench at {time.time()}"}
    await view.client.patch(_POOLS, {"metadata": {"annotations": note}}, POOL, HOME)


async def _until_full(view: View) -> None:
    def is_full(seen: Spoken | None) -> bool:
        status = seen.status if seen is not None else {}
        current = seen is not None and status.get("observedGeneration") == seen.metadata.generation
        return current and not status.get("paused") and status.get("available", 0) >= status.get("wanted", 1)

    await view.pools.until(POOL, is_full, HOME, timeout_s=600)


def _plugin() -> dict[str, Any]:
    found = manifests.plugin(POOL, 2)
    found["spec"]["delete"] = [{"name": "drop", "script": manifests.SCRIPT}]
    return found


def _each(writes: Counter[str], count: int) -> float:
    return sum(writes.values()) / count


def _row(what: str, value: float, aim: float, seconds: float = 0.0) -> Row:
    shown = f"{value:.1f}" + (f" in {seconds:.0f} s" if seconds else "")
    return Row(what, f"{value:.1f}", "none", shown, f"{aim:g}", value <= aim)


if __name__ == "__main__":
    from bench.rows import show

    show(measure)
