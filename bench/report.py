"""Run one group of benchmarks and write `bench/results/GROUP.md`, with machine and date.

Usage: `python -m bench.report [machine|cluster|server|pools]`.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench import bulk, deciding, leaks, memory, quiet, start, step, webhook
from bench.rows import Row, Table

FOLDER = Path(__file__).resolve().parent / "results"
HEADER = "| measurement | Dayfly | yardstick | result | target | met |\n|---|---|---|---|---|---|\n"


class Group(NamedTuple):
    """Benchmarks that run together: their title, their `make` target, and the function that measures."""

    title: str
    target: str
    measure: Callable[[], Iterable[Row | Table]]


def _measure_machine() -> Iterator[Row | Table]:
    for bench in (step, bulk, start, deciding, memory, webhook, leaks):
        yield from bench.measure()


def _measure_cluster() -> Iterable[Row | Table]:
    from bench.cluster import suite  # its imports are not installed for the other benchmarks

    return suite.measure()


def _measure_server() -> Iterator[Row | Table]:
    from bench import route  # as above
    from bench.cluster import link
    from bench.cluster import route as in_cluster
    from bench.fleet import latency, suite

    yield from route.measure()
    yield from in_cluster.measure()
    yield from suite.measure()
    yield from latency.measure()
    yield from link.measure()


def _measure_pools() -> Iterator[Row | Table]:
    from bench import databases, pool_traces, pools  # as above

    yield from pools.measure()
    yield from databases.measure()
    yield from pool_traces.measure()


GROUPS = {
    "machine": Group("Results on one machine", "bench", _measure_machine),
    "cluster": Group("Results in a cluster", "bench-cluster", _measure_cluster),
    "pools": Group("Results of pools", "bench-pools", _measure_pools),
    "server": Group("Results of a server and of routes", "bench-server", _measure_server),
}


def main(name: str = "machine") -> None:
    """Measure everything in the group, print each result, then write the page."""
    group = GROUPS[name]
    if name == "machine":
        quiet.own_tmp()
    about = machine()
    found: list[Row | Table] = []
    for each in group.measure():
        found.append(each)
        sys.stdout.write(line(each) if isinstance(each, Row) else section(each))
        sys.stdout.flush()
    FOLDER.joinpath(f"{name}.md").write_text(page(group, about, found), encoding="utf-8")


def page(group: Group, about: str, found: Iterable[Row | Table]) -> str:
    """Return the page of a group: machine and date, one table of all rows, and a section for each further table."""
    rows, tables = [], []
    for each in found:
        if isinstance(each, Row):
            rows.append(line(each))
        else:
            tables.append(section(each))
    head = (
        f"<!-- Written by `make {group.target}` -->\n# {group.title}\n\n{about}"
        f"[README.md](../README.md) describes each measurement. `make {group.target}` repeats them.\n\n"
    )
    return "".join([head, HEADER, *rows, *tables])


def line(row: Row) -> str:
    """Return one line of the table."""
    met = "yes" if row.met else "**no**"
    return f"| {row.what} | {row.ours} | {row.yardstick} | {row.value} | {row.aim} | {met} |\n"


def section(table: Table) -> str:
    """Return a further table below its heading."""
    return f"\n## {table.title}\n\n{table.text}"


def machine() -> str:
    """Return machine and load in two lines. The load affects the results as much as the machine."""
    cpu = next(
        (text.partition(":")[2].strip() for text in _lines("/proc/cpuinfo") if text.startswith("model name")),
        platform.machine(),
    )
    memory_gib = int(_lines("/proc/meminfo")[0].split()[1]) / (1 << 20)
    load = os.getloadavg()[0]
    entries = len(list(Path("/tmp").iterdir()))
    return (
        f"{time.strftime('%Y-%m-%d')}: {os.cpu_count()} cores ({cpu}), {memory_gib:.0f} GiB, Linux "
        f"{platform.release()}, Python {platform.python_version()}.\n"
        f"Load average at the start {load:.1f}, {entries} entries in the benchmarks' /tmp.\n"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    main(*sys.argv[1:])
