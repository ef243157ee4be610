"""Pools on the embedded host: a sandbox that finds a ready member, one that does not, and a pool at rest.

Requests go through the Python client to a real server (`dayfly up`). The script of the plugin creates one file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import servers
from bench.rows import Row, folder, median, show, spread
from dayfly.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

HITS = 60
MISSES = 15
COMMITS = 60
REST_S = 10
HIT_MS, HIT_P99_MS, MISS_RATIO = 5.0, 20.0, 1.1
MAKE = """#!/bin/sh
printf '%s' "$FOLDER/$DAYFLY_RESOURCE_ID" > /tmp/path
: > "$FOLDER/$DAYFLY_RESOURCE_ID"
"""
SEED = """#!/bin/sh
echo seed > "$TARGET"
printf 1 > /tmp/rows
"""
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


class Times(NamedTuple):
    """Milliseconds from the PUT of a sandbox until its client knows that it is ready, and of one durable commit."""

    ready: list[float]
    commit: list[float]


def measure() -> list[Row]:
    """Measure hits next to durable commits, misses next to the same plugin without a pool, and a pool at rest."""
    with folder() as home:
        data = home / "data"
        data.mkdir()
        with servers.running(home / "server") as server, _client(server) as client:
            for name in ("pooled", "empty", "plain"):
                client.plugins.apply(plugin(name))
            client.pools.apply(pool("full", "pooled", str(data), HITS + 5))
            client.pools.apply(pool("empty", "empty", str(data), 0))
            _wait(lambda: client.pools.get("full").status.counts.ready >= HITS + 5)
            rest = _at_rest(server.pid, home / "server")
            client.pools.pause("full")  # refill is not part of a hit
            hits = _hits(client, home, str(data))
            misses, plain = _misses(client, str(data))
    extra = [each - 2 * median(hits.commit) for each in hits.ready]
    ratios = [one / other for one, other in zip(misses, plain, strict=True)]
    p99 = sorted(extra)[int(len(extra) * 0.99)]
    return [
        Row(
            "(g) a sandbox that finds a ready pool member, from PUT to ready (yardstick: two durable commits)",
            f"{median(hits.ready):.1f} ms",
            f"{2 * median(hits.commit):.1f} ms",
            f"{median(extra):+.1f} ms, p99 {p99:+.1f} ms",
            f"+{HIT_MS:g} ms, p99 +{HIT_P99_MS:g} ms",
            median(extra) <= HIT_MS and p99 <= HIT_P99_MS,
        ),
        Row(
            "(h) a sandbox that finds no pool member (yardstick: the same plugin without a pool)",
            f"{median(misses):.1f} ms",
            f"{median(plain):.1f} ms",
            f"{median(ratios):.2f} x ({spread(ratios)})",
            f"{MISS_RATIO:g} x",
            median(ratios) <= MISS_RATIO,
        ),
        rest,
    ]


def _client(server: servers.Server) -> Client:
    return Client(home=server.home.path)


def _hits(client: Client, home: Path, data: str) -> Times:
    ready, commit = [], []
    database = sqlite3.connect(home / "commits.db", isolation_level=None)
    database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (v INTEGER)")
    for number in range(HITS):
        begun = time.perf_counter()
        database.execute("INSERT INTO t VALUES (?)", (number,))
        commit.append((time.perf_counter() - begun) * 1e3)
        ready.append(_time(client, sandbox(f"hit-{number}", "pooled", data)))
    database.close()
    return Times(ready, commit)


def _misses(client: Client, data: str) -> tuple[list[float], list[float]]:
    misses, plain = [], []
    for number in range(MISSES):
        misses.append(_time(client, sandbox(f"miss-{number}", "empty", data)))
        plain.append(_time(client, sandbox(f"plain-{number}", "plain", data)))
    return misses, plain


def _time(client: Client, document: dict[str, Any]) -> float:
    begun = time.perf_counter()
    made = client.sandboxes.apply(document)
    client.sandboxes.wait_ready(made.name)
    return (time.perf_counter() - begun) * 1e3


def _at_rest(pid: int, home: Path) -> Row:
    """Count the changes of the server's files and its CPU time while a full pool waits."""
    time.sleep(2)
    files, cpu = _changes(home), _cpu_s(pid)
    time.sleep(REST_S)
    changed, used = len(_changes(home) ^ files), _cpu_s(pid) - cpu
    share = used / REST_S
    return Row(
        f"(i) a full pool at rest for {REST_S} s",
        f"{changed} changed files",
        "none",
        f"{share:.2%} of a processor",
        "0 changed files",
        not changed,
    )


def _changes(home: Path) -> set[tuple[str, int]]:
    return {(path.name, path.stat().st_mtime_ns) for path in home.glob("*.db*")}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait(is_done: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise TimeoutError("the pool was not filled in time")
        time.sleep(0.05)


if __name__ == "__main__":
    show(measure)
