"""(n) to (q) Pools in a cluster: the time and the stored writes of a hit, the writes of a member, rates, and rest.

Nodes are simulated by KWOK, so that members are ready at once. A hit needs no pod. Members have two chained steps, and
the plugin has one delete step. `bench/cluster/claims.py` has the pool and the requests of a user.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.cluster.audit import Audit, Write
from bench.cluster.claims import (
    POOL,
    SETTLE_S,
    Requests,
    User,
    arrivals,
    at_times,
    highest_rate,
    percentile,
    user,
)
from bench.cluster.place import HOME, OPERATOR, cpu_seconds, operator, place
from bench.rows import Row, median, spread
from dayfly.execute.pod.names import run_name
from dayfly.kube.objects import ApiResource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster.place import Operator, Place

HITS, MEMBERS = 60, 10
REST_S = 60.0
RATES, STEADY_RATES = (10, 20, 40), (2, 4, 8, 16)
RATE_S, LIFE_S, STEADY_READY = 60.0, 5.0, 40
AIM_MS, AIM_P99_MS = 40.0, 150.0
AIM_WRITES, AIM_HOLD, AIM_CREATE, AIM_END = 8, 2, 17, 12
AIM_RATE, RATE_P99_MS = 20, 250.0
# One part in a thousand of a CPU: what differs between two idle minutes of an operator.
AIM_REST = 0.001
_PATCHED = ApiResource("", "v1", "configmaps", "ConfigMap", dict[str, Any])


class Sizes(NamedTuple):
    """The size of the benchmark: hits, seconds at rest, rates, and seconds of each rate."""

    hits: int = HITS
    rest: float = REST_S
    rates: tuple[int, ...] = RATES
    steady: tuple[int, ...] = STEADY_RATES
    seconds: float = RATE_S


FULL = Sizes()


class Watcher:
    """The stored writes of the operator, and its CPU time."""

    def __init__(self, where: Place, running: Operator) -> None:
        self._audit = Audit(where.cluster.audit_log)
        self._pid = running.pid

    async def writes_during(self, seconds: float) -> list[Write]:
        """Return the stored writes since the last call and in these seconds."""
        await asyncio.sleep(seconds)
        quiet = ("leases", "events")
        return [each for each in self._audit.new_writes() if each.writer == OPERATOR and not each.what.endswith(quiet)]

    async def rest(self, seconds: float) -> tuple[int, float]:
        """Return the number of stored writes in these seconds, and the part of a CPU that the operator used."""
        await self.writes_during(SETTLE_S)
        used = cpu_seconds(self._pid)
        writes = await self.writes_during(seconds)
        return len(writes), (cpu_seconds(self._pid) - used) / seconds


def measure(sizes: Sizes = FULL) -> list[Row]:
    """Fill a pool, and measure it at rest, hits next to one patch, members, and rising rates of sandboxes."""
    with place(kwok_nodes=1, everything=True) as where, operator(where) as running:
        return asyncio.run(_measure(where, Watcher(where, running), sizes))


async def _measure(where: Place, watcher: Watcher, sizes: Sizes) -> list[Row]:
    async with user(where) as person:
        _, idle = await watcher.rest(sizes.rest)
        uid = await person.create_pool(sizes.hits + 1)
        await person.claim("first")  # it labels the plugin and the namespace as used
        await person.until_full()
        writes, used = await watcher.rest(sizes.rest)
        await person.request("pause")
        await watcher.writes_during(SETTLE_S)
        rows = [*await _hits(person, watcher, sizes.hits, run_name(POOL, uid)), *_rest(writes, used, idle, sizes.rest)]
        rows += await _members(person, watcher)
        rows.append(await rate(person, sizes.rates, sizes.seconds))
        rows.append(await _steady(person, sizes.steady, sizes.seconds))
        return rows


async def _hits(person: User, watcher: Watcher, hits: int, pool_run: str) -> list[Row]:
    ready, patch, stored = [], [], list[Write]()
    await person.client.create(_PATCHED, {"metadata": {"name": "yardstick"}}, HOME)
    for number in range(hits):
        began = time.perf_counter()
        await person.client.patch(_PATCHED, {"data": {"number": str(number)}}, "yardstick", HOME)
        patch.append((time.perf_counter() - began) * 1e3)
        ready.append(await person.claim(f"hit-{number}"))
        stored += await watcher.writes_during(0.0)
    after = len(await watcher.writes_during(SETTLE_S)) / hits
    holds = sum(each.what in {"update runs", "patch runs"} and each.name != pool_run for each in stored) / hits
    p99, count = percentile(ready), len(stored) / hits
    kinds = ", ".join(f"{number / hits:.1f} {what}" for what, number in Counter(e.what for e in stored).most_common())
    return [
        Row(
            "(n) a sandbox that finds a ready member, from POST to Ready seen by a watch (yardstick: one patch)",
            f"{median(ready):.0f} ms",
            f"{median(patch):.1f} ms",
            f"{median(ready):.0f} ms, p99 {p99:.0f} ms ({spread(ready)})",
            f"{AIM_MS:g} ms, p99 {AIM_P99_MS:g} ms",
            median(ready) <= AIM_MS and p99 <= AIM_P99_MS,
        ),
        Row(
            "(o) stored writes of the operator for such a sandbox until it is ready",
            f"{count:.1f}",
            "none",
            f"{kinds}; and {after:.1f} later, for statuses and the ledger of the pool",
            f"{AIM_WRITES}",
            count <= AIM_WRITES,
        ),
        Row(
            "(o) of these, changes of existing ledgers of the member and the sandbox, which hold the member",
            f"{holds:.1f}",
            "none",
            f"{holds:.1f}",
            f"{AIM_HOLD}",
            holds <= AIM_HOLD,
        ),
    ]


def _rest(writes: int, used: float, idle: float, seconds: float) -> Iterator[Row]:
    yield _row(f"(q) stored writes of the operator in {seconds:.0f} s with a full pool", writes, 0)
    yield Row(
        f"(q) CPU time of the operator in {seconds:.0f} s with a full pool (yardstick: before its pool existed)",
        f"{used:.2%} of a CPU",
        f"{idle:.2%} of a CPU",
        f"{(used - idle) * 100:+.2f} percentage points",
        f"+{AIM_REST * 100:g} percentage points",
        used - idle <= AIM_REST,
    )


async def _members(person: User, watcher: Watcher) -> list[Row]:
    """Create members without requests, then drain the pool, and count the writes of the operator for each."""
    await person.end_all()
    await person.fill(MEMBERS)
    await person.drain()
    await watcher.writes_during(SETTLE_S)
    await person.fill(MEMBERS)
    made = await watcher.writes_during(SETTLE_S)
    await person.drain()
    ended = await watcher.writes_during(SETTLE_S)
    return [
        _row("(o) stored writes of the operator to create a member of two steps", len(made) / MEMBERS, AIM_CREATE),
        _row("(o) stored writes of the operator to end a member with one delete step", len(ended) / MEMBERS, AIM_END),
    ]


async def rate(person: User, rates: tuple[int, ...], seconds: float) -> Row:
    """Create sandboxes at random times with each mean rate, while the pool is paused."""

    async def fill(_: str, ready: int) -> float:
        took = await person.fill(ready)
        await person.request("pause")
        return took

    async def end(_: str) -> None:
        await person.end_all()
        await person.drain()

    requests = Requests(fill, lambda name, _: person.claim(name), end)
    best, shown = await highest_rate(requests, rates, seconds, RATE_P99_MS)
    what = f"(p) rate of sandboxes with p99 below {RATE_P99_MS:g} ms, at random times for {seconds:.0f} s, no refill"
    return Row(what, f"{best}/s", "none", shown, f"{AIM_RATE}/s", best >= AIM_RATE)


async def _steady(person: User, rates: tuple[int, ...], seconds: float) -> Row:
    """Do the same with a pool that refills. Each sandbox is deleted some seconds after it is ready."""
    shown, best = [], 0
    for each in rates:
        await person.fill(STEADY_READY)

        async def one(number: int, each: int = each) -> float:
            took = await person.claim(f"steady-{each}-{number}")
            await asyncio.sleep(LIFE_S)
            await person.end(f"steady-{each}-{number}")
            return took

        p99 = percentile(await at_times(arrivals(each, seconds), one))
        shown.append(f"{each}/s: p99 {p99:.0f} ms")
        if p99 >= RATE_P99_MS:
            break
        best = each
    what = f"(p) the same with refill, and with the end of each sandbox after {LIFE_S:g} s"
    return Row(what, f"{best}/s", "none", "; ".join(shown), "none", met=True)


def _row(what: str, value: float, aim: float) -> Row:
    return Row(what, f"{value:.1f}", "none", f"{value:.1f}", f"{aim:g}", value <= aim)


if __name__ == "__main__":
    from bench.rows import show

    show(measure)
