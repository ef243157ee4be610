"""(r) to (u) Pools on one machine: sandboxes with and without a ready member, a pool at rest, and predicted misses.

Requests go through the Python client to a real server (`dayfly up`). The script of the plugin creates one file.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench import servers
from bench.rows import Row, folder, median, show, spread
from dayfly.client import AsyncClient, Client, PoolExplanation

HITS = 60
MISSES = 15
COMMITS = 60
REST_S = 10
# For (u): requests per second, seconds of the create step, ready members, and seconds of the measurement.
RATE, TAKES_S, READY, PREDICTED_S = 10.0, 0.2, 6, 300.0
HIT_MS, HIT_P99_MS, MISS_RATIO, MAX_ERROR = 5.0, 20.0, 1.1, 1.0
PATIENCE_S = 600.0
MAKE = """#!/bin/sh
printf '%s' "$FOLDER/$DAYFLY_RESOURCE_ID" > /tmp/path
: > "$FOLDER/$DAYFLY_RESOURCE_ID"
"""
SEED = """#!/bin/sh
echo seed > "$TARGET"
printf 1 > /tmp/rows
"""
SLOW = f"""#!/bin/sh
sleep {TAKES_S:g}
"""
END = "#!/bin/sh\n"
DROP = """#!/bin/sh
rm -f "$FOLDER/$DAYFLY_RESOURCE_ID"
"""


def plugin(name: str) -> dict[str, Any]:
    """Return a plugin with two create steps."""
    given = [{"name": "folder", "valueFromSandbox": True}]
    path = {"name": "path", "valueFromStep": {"name": "make", "output": "path"}, "as": {"env": "TARGET"}}
    outputs = [{"name": "path", "valueFromPath": "/tmp/path"}]
    make = {"name": "make", "inputs": given, "outputs": outputs, "script": MAKE}
    seed = {"name": "seed", "inputs": [path], "outputs": [{"name": "rows", "valueFromPath": "/tmp/rows"}]}
    drop = {"name": "drop", "inputs": given, "script": DROP}
    return {"name": f"{name}@1.0.0", "spec": {"create": [make, {**seed, "script": SEED}], "delete": [drop]}}


def pool(name: str, of: str, data: str, ready: int) -> dict[str, Any]:
    """Return a pool of that plugin."""
    return {"name": name, "spec": {"cluster": "local", "plugin": of, "params": {"folder": data}, "ready": ready}}


def sandbox(name: str, of: str, data: str) -> dict[str, Any]:
    """Return a sandbox with one resource of that plugin."""
    resource = {"name": "db", "plugin": of, "params": {"folder": data}}
    return {"name": name, "spec": {"cluster": "local", "resources": [resource]}}


def timed(client: Client, document: dict[str, Any]) -> float:
    """Create a sandbox; return the milliseconds until the client knows that it is ready."""
    begun = time.perf_counter()
    made = client.sandboxes.apply(document)
    client.sandboxes.wait_ready(made.name, timeout=PATIENCE_S)
    return (time.perf_counter() - begun) * 1e3


class Times(NamedTuple):
    """Milliseconds from the PUT of a sandbox until its client knows that it is ready, and of one durable commit."""

    ready: list[float]
    commit: list[float]


def measure(hits: int = HITS, misses: int = MISSES, rest: float = REST_S, predicted: float = PREDICTED_S) -> list[Row]:
    """Measure hits next to durable commits, misses next to the same plugin without a pool, a pool at rest, and (u)."""
    with folder() as home:
        data = home / "data"
        data.mkdir()
        with servers.running(home / "server") as server, Client(home=server.home.path) as client:
            for name in ("pooled", "empty", "plain"):
                client.plugins.apply(plugin(name))
            client.pools.apply(pool("full", "pooled", str(data), hits + 1))
            client.pools.apply(pool("empty", "empty", str(data), 0))
            client.pools.wait_ready("full", timeout=PATIENCE_S)
            resting = _at_rest(server.pid, home / "server", rest)
            client.pools.pause("full")  # refill is not part of a hit
            timed(client, sandbox("first", "pooled", str(data)))
            found = [_hit_row(_hits(client, home, str(data), hits)), _miss_row(client, str(data), misses), resting]
            assert client.pools.get("full").status.hits == hits + 1, "each of (r) found a ready member"
            assert client.pools.get("empty").status.misses == misses, "none of (s) did"
            if predicted:
                found.append(_predicted(client, server, predicted))
    return found


def _hits(client: Client, home: Path, data: str, count: int) -> Times:
    ready, commit = [], []
    database = sqlite3.connect(home / "commits.db", isolation_level=None)
    database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (v INTEGER)")
    for number in range(count):
        begun = time.perf_counter()
        database.execute("INSERT INTO t VALUES (?)", (number,))
        commit.append((time.perf_counter() - begun) * 1e3)
        ready.append(timed(client, sandbox(f"hit-{number}", "pooled", data)))
    database.close()
    return Times(ready, commit)


def _hit_row(hits: Times) -> Row:
    extra = [each - 2 * median(hits.commit) for each in hits.ready]
    p99 = sorted(extra)[int(len(extra) * 0.99)]
    return Row(
        "(r) a sandbox that finds a ready pool member, from PUT to ready (yardstick: two durable commits)",
        f"{median(hits.ready):.1f} ms",
        f"{2 * median(hits.commit):.1f} ms",
        f"{median(extra):+.1f} ms, p99 {p99:+.1f} ms",
        f"+{HIT_MS:g} ms, p99 +{HIT_P99_MS:g} ms",
        median(extra) <= HIT_MS and p99 <= HIT_P99_MS,
    )


def _miss_row(client: Client, data: str, count: int) -> Row:
    misses, plain = [], []
    for number in range(count):
        misses.append(timed(client, sandbox(f"miss-{number}", "empty", data)))
        plain.append(timed(client, sandbox(f"plain-{number}", "plain", data)))
    ratios = [one / other for one, other in zip(misses, plain, strict=True)]
    return Row(
        "(s) a sandbox that finds no pool member (yardstick: the same plugin without a pool)",
        f"{median(misses):.1f} ms",
        f"{median(plain):.1f} ms",
        f"{median(ratios):.2f} x ({spread(ratios)})",
        f"{MISS_RATIO:g} x",
        median(ratios) <= MISS_RATIO,
    )


def _at_rest(pid: int, home: Path, rest: float) -> Row:
    """Count the changes of the server's files and its CPU time while a full pool waits."""
    time.sleep(2)
    files, cpu = _changes(home), _cpu_s(pid)
    time.sleep(rest)
    changed, used = len(_changes(home) ^ files), _cpu_s(pid) - cpu
    return Row(
        f"(t) a full pool at rest for {rest:g} s",
        f"{changed} changed files",
        "none",
        f"{used / rest:.2%} of a CPU",
        "0 changed files",
        not changed,
    )


def _changes(home: Path) -> set[tuple[str, int]]:
    return {(path.name, path.stat().st_mtime_ns) for path in home.glob("*.db*")}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _predicted(client: Client, server: servers.Server, seconds: float) -> Row:
    """Send requests to a pool of constant size, and compare its misses with its prediction."""
    step = {"name": "wait", "script": SLOW}
    client.plugins.apply({"name": "slow@1.0.0", "spec": {"create": [step], "delete": [{"name": "end", "script": END}]}})
    client.pools.apply({"name": "slow", "spec": {"cluster": "local", "plugin": "slow", "ready": READY}})
    client.pools.wait_ready("slow", timeout=PATIENCE_S)
    found = asyncio.run(_requests(server, seconds))
    count = found.hits + found.misses
    measured = found.misses / count
    predicted = next(each.miss_ratio for each in found.sizes if each.ready == READY)
    error = abs(measured - predicted) * 100
    return Row(
        f"(u) share of {count} requests that found no ready member (yardstick: predicted by `dayfly pool explain`)",
        f"{measured:.4f}",
        f"{predicted:.4f}",
        f"{error:.2f} percentage points ({READY} ready members, load {found.load:.2f})",
        f"{MAX_ERROR:g} percentage point",
        error <= MAX_ERROR,
    )


async def _requests(server: servers.Server, seconds: float) -> PoolExplanation:
    """Create sandboxes at random times, and delete each when it is ready."""
    chance, number, end = random.Random(1), 0, time.monotonic() + seconds
    spec = {"cluster": "local", "resources": [{"name": "db", "plugin": "slow"}]}

    async def one(name: str) -> None:
        await client.sandboxes.apply({"name": name, "spec": spec})
        await client.sandboxes.wait_ready(name, timeout=PATIENCE_S)
        await client.sandboxes.delete(name)

    async with AsyncClient(home=server.home.path) as client:
        async with asyncio.TaskGroup() as tasks:
            while time.monotonic() < end:
                tasks.create_task(one(f"request-{number}"))
                number += 1
                await asyncio.sleep(chance.expovariate(RATE))
        return await client.pools.explain("slow")


if __name__ == "__main__":
    show(measure)
