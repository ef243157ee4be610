"""(v), (w) Databases of a real PostgreSQL, from a pool and without it.

(v) has a plugin of two steps: a new database, and `pgbench --initialize` in it. (w) copies templates of two sizes with
the plugins of `examples/pooled-postgres`. PostgreSQL is separate and does not wait for the disk. The file system needs
six times the size of the large template.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import servers
from bench.pools import PATIENCE_S, timed
from bench.rows import Row, folder, median, show, spread
from dayfly.client import Client, files
from dayfly.spec import documents

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[1] / "examples" / "pooled-postgres"
SMALL_MB, LARGE_MB = 8, 1024
WARM, COLD = 5, 2
TWO_STEPS = 10
COPY_RATIO, TWO_STEPS_RATIO = 1.2, 50.0
SQL = """
CREATE TABLE filler (id integer PRIMARY KEY, pad text);
ALTER TABLE filler ALTER COLUMN pad SET STORAGE EXTERNAL;
INSERT INTO filler SELECT n, repeat(md5(n::text), 250) FROM generate_series(1, {rows}) AS n;
"""
CREATE = """#!/bin/sh
createdb "db_$DAYFLY_RESOURCE_ID" && printf %s "db_$DAYFLY_RESOURCE_ID" > /tmp/database
"""
FILL = """#!/bin/sh
pgbench --initialize --quiet
"""
DROP = """#!/bin/sh
dropdb --if-exists --force "db_$DAYFLY_RESOURCE_ID"
"""


def measure(warm: int = WARM, cold: int = COLD, large: int = LARGE_MB, two_steps: int = TWO_STEPS) -> Iterator[Row]:
    """Yield a row for two steps, and two rows for copies."""
    from tests.examples import external_services

    with external_services.postgres() as settings, folder() as home:
        path = f"{external_services.postgres_programs()}:{os.environ['PATH']}"
        with (
            servers.running(home / "server", variables={**settings, "PATH": path}) as server,
            Client(home=server.home.path) as client,
        ):
            yield _two_steps(client, two_steps)
            yield from _copies(client, warm, cold, large)


def _two_steps(client: Client, count: int) -> Row:
    database = {
        "name": "database",
        "valueFromStep": {"name": "create", "output": "database"},
        "as": {"env": "PGDATABASE"},
    }
    create = {"name": "create", "outputs": [{"name": "database", "valueFromPath": "/tmp/database"}], "script": CREATE}
    fill = {"name": "fill", "inputs": [database], "script": FILL}
    spec = {"create": [create, fill], "delete": [{"name": "drop", "script": DROP}]}
    client.plugins.apply({"name": "pgbench@1.0.0", "spec": spec})
    _fill(client, "benches", count, {"plugin": "pgbench"})
    cold, warm = [], []
    for number in range(count):
        warm.append(_time(client, f"warm-{number}", {"plugin": "pgbench"}))
        cold.append(_time(client, f"cold-{number}", {"plugin": "pgbench", "pool": "never"}))
    _clear(client)
    ratio = median(cold) / median(warm)
    return Row(
        "(v) a new PostgreSQL database with the tables of pgbench, two steps, without a pool (yardstick: from a pool)",
        f"{median(cold):.0f} ms",
        f"{median(warm):.1f} ms",
        f"{ratio:.0f} x",
        f"at least {TWO_STEPS_RATIO:g} x",
        ratio >= TWO_STEPS_RATIO,
    )


def sql(megabytes: int) -> str:
    """Return SQL that fills a database with this size: each row has 8,000 bytes that are not compressed."""
    return SQL.format(rows=megabytes * 125)


def _copies(client: Client, warm: int, cold: int, large: int) -> Iterator[Row]:
    for wished in files.load([str(EXAMPLE / "golden"), str(EXAMPLE / "plugin.yaml")], ()):
        client.plugins.apply(documents.export(wished.content))
    resources = {size: {"plugin": "pooled-postgres", "params": {"sql": sql(size)}} for size in (SMALL_MB, large)}
    for size, resource in resources.items():
        _fill(client, f"of-{size}", warm, resource)
    times: dict[str, dict[int, list[float]]] = {}
    # In turns, because a busy machine makes both slower.
    for word, pool, count in (("warm", "", warm), ("cold", "never", cold)):
        times[word] = {size: [] for size in resources}
        for number in range(count):
            for size, resource in resources.items():
                times[word][size].append(_time(client, f"{word}-{size}-{number}", {**resource, "pool": pool}))
    _clear(client)
    yield _copy_row("warm", "from a pool", times["warm"], f"{COPY_RATIO:g} x")
    yield _copy_row("cold", "without a pool", times["cold"], "none")


def _copy_row(word: str, how: str, times: dict[int, list[float]], target: str) -> Row:
    (small, small_ms), (large, large_ms) = times.items()
    ratios = [one / other for one, other in zip(large_ms, small_ms, strict=True)]
    return Row(
        f"(w) a {word} copy of a template of {large} MB, {how} (yardstick: of {small} MB)",
        f"{median(large_ms):.0f} ms",
        f"{median(small_ms):.0f} ms",
        f"{median(ratios):.2f} x ({spread(ratios)})",
        target,
        word == "cold" or median(ratios) <= COPY_RATIO,
    )


def _fill(client: Client, name: str, ready: int, resource: dict[str, Any]) -> None:
    """Create a pool and fill it, without refill."""
    client.pools.apply({"name": name, "spec": {"cluster": "local", "ready": ready, **resource}})
    client.pools.wait_ready(name, timeout=PATIENCE_S)
    client.pools.pause(name)


def _time(client: Client, name: str, resource: dict[str, Any]) -> float:
    return timed(client, {"name": name, "spec": {"cluster": "local", "resources": [{"name": "db", **resource}]}})


def _clear(client: Client) -> None:
    """Delete everything, and wait for its end."""
    for nouns in (client.sandboxes, client.pools):
        for each in nouns.list():
            nouns.delete(each.name)
    end = time.monotonic() + PATIENCE_S
    while client.sandboxes.list() or client.pools.list():
        if time.monotonic() > end:
            raise TimeoutError("the sandboxes and pools were not deleted in time")
        time.sleep(0.1)


if __name__ == "__main__":
    show(lambda: list(measure()))
