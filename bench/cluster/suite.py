"""Run all benchmarks of the cluster: first on a real node, then on KWOK nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.cluster import bulk, idle, neighbours, pool_link, pools, steps, timeline, writes
from bench.cluster.audit import Audit
from bench.cluster.place import operator, place
from bench.rows import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.rows import Row


def measure() -> Iterator[Row | Table]:
    """Yield every line, and two tables about writes and time."""
    with place() as where, operator(where):
        yield from steps.measure(where)
        moments = timeline.table(Audit(where.cluster.audit_log).events())
        counted = writes.count(where)
    yield from writes.rows(counted)
    yield from bulk.measure()
    yield from idle.measure()
    yield from neighbours.measure()
    yield from pools.measure()
    yield from pool_link.measure()
    yield Table("Between the two steps of (b)", moments)
    yield Table("Writes counted in (c)", writes.table(counted))
