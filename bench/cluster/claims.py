"""A pool, and sandboxes that take its members, as a user with kubectl creates them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.cluster import manifests
from bench.cluster.idle import Spoken
from bench.cluster.place import HOME, client
from bench.cluster.watches import watching
from bench.rows import median
from dayfly.operator.cluster.objects import PLUGINS, POOL_MEMBERS, POOL_REQUEST_ANNOTATION, POOLS, SANDBOXES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.cluster.place import Place
    from bench.cluster.watches import Watched
    from dayfly.kube.client import KubeClient

POOL = "warm"
FILL_S, SETTLE_S = 1_800.0, 12.0
_POOLS = POOLS.read_as(Spoken)
_SANDBOXES = SANDBOXES.read_as(Spoken)
_MEMBERS = POOL_MEMBERS.read_as(Spoken)


class User(NamedTuple):
    """The client of a user, and its watches."""

    client: KubeClient
    sandboxes: Watched[Spoken]
    pools: Watched[Spoken]
    members: Watched[Spoken]

    async def create_pool(self, ready: int) -> str:
        """Create the plugin and the pool; return the UID of the pool."""
        await self.client.create(PLUGINS, plugin())
        body = {"apiVersion": POOLS.api_version, "kind": POOLS.kind, "metadata": {"name": POOL}, "spec": _spec(ready)}
        made = await self.client.create(_POOLS, body, HOME)
        await self.until_full()
        return made.metadata.uid

    async def fill(self, ready: int) -> float:
        """Wait until the pool has this number of ready members, also after a pause. Return the seconds that it took."""
        began = time.perf_counter()
        await self.client.patch(_POOLS, {"spec": _spec(ready)}, POOL, HOME)  # a changed spec ends a pause
        await self.request("resume")
        await self.until_full()
        return time.perf_counter() - began

    async def until_full(self) -> None:
        """Wait until the pool has as many ready members as its spec wants."""

        def is_full(seen: Spoken | None) -> bool:
            status = seen.status if seen is not None else {}
            current = seen is not None and status.get("observedGeneration") == seen.metadata.generation
            return current and not status.get("paused") and status.get("available", 0) >= status.get("wanted", 1)

        await self.pools.until(POOL, is_full, HOME, timeout_s=FILL_S)

    async def request(self, action: str) -> None:
        """Pause, resume or drain the pool."""
        note = {POOL_REQUEST_ANNOTATION: f"{action} bench at {time.time()}"}
        await self.client.patch(_POOLS, {"metadata": {"annotations": note}}, POOL, HOME)

    async def drain(self) -> None:
        """Delete all members."""
        await self.request("drain")
        await self.members.until_none(timeout_s=FILL_S)

    async def claim(self, name: str) -> float:
        """Create a sandbox; return the milliseconds until the watch shows that it is ready."""
        began = time.perf_counter()
        await self.client.create(SANDBOXES, manifests.sandbox(name, POOL), HOME)
        at = await self.sandboxes.until(name, _is_ready, HOME)
        return (at - began) * 1e3

    async def end(self, name: str) -> None:
        """Delete a sandbox, and wait for its end."""
        await self.client.delete(SANDBOXES, name, HOME)
        await self.sandboxes.until(name, lambda seen: seen is None, HOME, timeout_s=FILL_S)

    async def end_all(self) -> None:
        """Delete all sandboxes, and wait for their end."""
        await asyncio.gather(*(self.end(each.metadata.name) for each in list(self.sandboxes.cache)))


@asynccontextmanager
async def user(where: Place) -> AsyncIterator[User]:
    """Provide a user of the namespace of the benchmarks."""
    async with AsyncExitStack() as stack:
        asking = await stack.enter_async_context(client(where.cluster.kubeconfig))
        kinds = (_SANDBOXES, _POOLS, _MEMBERS)
        yield User(asking, *[await stack.enter_async_context(watching(asking, kind, HOME)) for kind in kinds])


class Requests(NamedTuple):
    """Fill the pool of a name to a size, in seconds; send one request, in milliseconds; end all."""

    fill: Callable[[str, int], Awaitable[float]]
    claim: Callable[[str, str], Awaitable[float]]
    end: Callable[[str], Awaitable[None]]


async def highest_rate(requests: Requests, rates: tuple[int, ...], seconds: float, limit_ms: float) -> tuple[int, str]:
    """Return the highest rate whose 99th percentile is below the limit, and the results of all rates up to a failure.

    The pool has a member for each request before the first one.
    """
    shown, best = [], 0
    for rate in rates:
        times, pool = arrivals(rate, seconds), f"rate-{rate}"
        took = await requests.fill(pool, len(times))
        await asyncio.sleep(SETTLE_S)
        found = await at_times(times, lambda number, pool=pool: requests.claim(f"{pool}-{number}", pool))
        await requests.end(pool)
        p99, filled = percentile(found), f"{len(times)} members filled in {took:.0f} s"
        shown.append(f"{rate}/s: median {median(found):.0f}, p99 {p99:.0f} ms ({filled})")
        if p99 >= limit_ms:
            break
        best = rate
    return best, "; ".join(shown)


def arrivals(rate: float, seconds: float) -> list[float]:
    """Return the random times of requests, in seconds from the start: those of a Poisson process, equal in each run."""
    chance, at, found = random.Random(rate), 0.0, list[float]()
    while (at := at + chance.expovariate(rate)) < seconds:
        found.append(at)
    return found


async def at_times(times: list[float], one: Callable[[int], Awaitable[float]]) -> list[float]:
    """Call `one` with a number at each of the times. Return the results."""
    began = time.monotonic()

    async def later(number: int, at: float) -> float:
        await asyncio.sleep(began + at - time.monotonic())
        return await one(number)

    return await asyncio.gather(*(later(number, at) for number, at in enumerate(times)))


def percentile(values: list[float], part: float = 0.99) -> float:
    """Return the value that this part of the values does not exceed."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def plugin() -> dict[str, Any]:
    """Return a plugin with two chained create steps and a delete step."""
    found = manifests.plugin(POOL, 2)
    found["spec"]["delete"] = [{"name": "drop", "script": manifests.SCRIPT}]
    return found


def _spec(ready: int) -> dict[str, Any]:
    return {"cluster": "local", "plugin": f"{POOL}@1.0.0", "ready": ready}


def _is_ready(seen: Spoken | None) -> bool:
    return seen is not None and bool(seen.status.get("ready"))
