"""Copies of a template database that they share as their parent: from a pool and without it, for two sizes.

The plugins are those of `examples/pooled-postgres`. The PG* variables name an administrator of a PostgreSQL server
(15 or later) that does nothing else. The file system needs four times the size of the large template.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import servers
from bench.rows import Row, folder, median, show, spread
from dayfly.client import Client, files
from dayfly.spec import documents

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = Path(__file__).parents[1] / "examples" / "pooled-postgres"
SMALL_MB, LARGE_MB = 8, 1024
WARM, COLD = 5, 2
RATIO = 1.2
PATIENCE_S = 600.0
SQL = """
CREATE TABLE filler (id integer PRIMARY KEY, pad text);
ALTER TABLE filler ALTER COLUMN pad SET STORAGE EXTERNAL;
INSERT INTO filler SELECT n, repeat(md5(n::text), 250) FROM generate_series(1, {rows}) AS n;
"""


def sql(megabytes: int) -> str:
    """Return SQL that fills a database with this size: each row has 8,000 bytes that are not compressed."""
    return SQL.format(rows=megabytes * 125)


def measure() -> list[Row]:
    """Measure warm and cold copies of a large template next to those of a small one."""
    if "PGHOST" not in os.environ:
        sys.exit(
            "set PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE to a PostgreSQL server, then repeat the command"
        )
    warm: dict[int, list[float]] = {}
    cold: dict[int, list[float]] = {}
    with folder() as home, servers.running(home / "server") as server, Client(home=server.home.path) as client:
        for wished in files.load([str(EXAMPLE / "golden"), str(EXAMPLE / "plugin.yaml")], ()):
            client.plugins.apply(documents.export(wished.content))
        for size in (SMALL_MB, LARGE_MB):
            pool = {"cluster": "local", "plugin": "pooled-postgres", "params": {"sql": sql(size)}, "ready": WARM}
            client.pools.apply({"name": f"of-{size}", "spec": pool})
            _wait(partial(_is_full, client, f"of-{size}"))
            client.pools.pause(f"of-{size}")
            warm[size], cold[size] = [], []
        # In turns, because a busy machine makes both slower.
        for number in range(WARM):
            for size, times in warm.items():
                times.append(_time(client, f"warm-{size}-{number}", size))
        for number in range(COLD):
            for size, times in cold.items():
                times.append(_time(client, f"cold-{size}-{number}", size, pool="never"))
        for name in [each.name for each in client.sandboxes.list()]:
            client.sandboxes.delete(name)
        for size in warm:
            client.pools.delete(f"of-{size}")
        _wait(lambda: not client.sandboxes.list() and not client.pools.list())
    return [_row("warm", "from a pool", warm, f"{RATIO:g} x"), _row("cold", "without a pool", cold, "none")]


def _is_full(client: Client, pool: str) -> bool:
    return client.pools.get(pool).status.counts.ready >= WARM


def _row(word: str, how: str, times: dict[int, list[float]], target: str) -> Row:
    ratios = [large / small for small, large in zip(times[SMALL_MB], times[LARGE_MB], strict=True)]
    return Row(
        f"a {word} copy of a template of {LARGE_MB} MB, {how} (yardstick: of {SMALL_MB} MB)",
        f"{median(times[LARGE_MB]):.0f} ms",
        f"{median(times[SMALL_MB]):.0f} ms",
        f"{median(ratios):.2f} x ({spread(ratios)})",
        target,
        word == "cold" or median(ratios) <= RATIO,
    )


def _time(client: Client, name: str, size: int, **more: str) -> float:
    resource: dict[str, Any] = {"name": "db", "plugin": "pooled-postgres", "params": {"sql": sql(size)}, **more}
    begun = time.perf_counter()
    client.sandboxes.apply({"name": name, "spec": {"cluster": "local", "resources": [resource]}})
    client.sandboxes.wait_ready(name, timeout=PATIENCE_S)
    return (time.perf_counter() - begun) * 1e3


def _wait(is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_done():
        if time.monotonic() > end:
            raise TimeoutError("PostgreSQL has not finished in time")
        time.sleep(0.1)


if __name__ == "__main__":
    show(measure)
