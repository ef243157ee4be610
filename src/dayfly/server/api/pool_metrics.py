"""The endpoint for Prometheus metrics of the pools and leak checks of an organisation, as their hosts report them.

They have names of pools and checks, so a key is required, and its scope applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.responses import Response

from dayfly.lib.clock import now_ms
from dayfly.plan.reasons import Reason
from dayfly.server.access import callers
from dayfly.server.http.handler import serve
from dayfly.server.http.prometheus import CONTENT_TYPE, metric_lines
from dayfly.server.leaks import leak_metrics
from dayfly.server.records import leak_records
from dayfly.server.records.run_records import POOLS, read_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.db.store import Store
    from dayfly.server.runs.run_service import RunService
    from dayfly.spec.report import PoolReport, RunReport
    from dayfly.spec.resource_pool import ResourcePoolSpec

CANNOT_END = (Reason.CLEANUP_STUCK, Reason.LEDGER_LOST)


class PoolMetric(NamedTuple):
    """A metric with the labels `cluster` and `pool`. `values` returns its value for each value of a further `label`."""

    name: str
    kind: str
    help: str
    values: Callable[[RunReport, PoolReport], Mapping[str, float]]
    label: str = ""


def _gauge(name: str, help_: str, value: Callable[[RunReport, PoolReport], float]) -> PoolMetric:
    return PoolMetric(f"dayfly_pool_{name}", "gauge", help_, lambda report, numbers: {"": value(report, numbers)})


METRICS: Final = (
    _gauge("wanted", "Ready members that the pool keeps now.", lambda _, numbers: numbers.wanted),
    _gauge("ready", "Ready members that no sandbox uses.", lambda _, numbers: numbers.ready),
    _gauge("creating", "Members that are being created.", lambda _, numbers: numbers.creating),
    _gauge("held", "Members that sandboxes use.", lambda _, numbers: numbers.held),
    _gauge("failures", "Members that failed in a row.", lambda _, numbers: numbers.failed),
    _gauge("paused", "1 while the pool creates no members, otherwise 0.", lambda _, numbers: bool(numbers.paused)),
    _gauge(
        "failing",
        "1 while the pool is paused because its members failed, otherwise 0.",
        lambda report, _: report.reason == Reason.FAILING,
    ),
    _gauge(
        "members_stuck",
        "Members whose cleanup does not succeed.",
        lambda report, _: sum(unit.reason in CANNOT_END for unit in report.units),
    ),
    _gauge(
        "refill_seconds",
        "Usual time to create a member; 0 if it was not measured yet.",
        lambda _, numbers: numbers.refill_ms / 1000,
    ),
    PoolMetric(
        "dayfly_pool_requests_total",
        "counter",
        "Resources that found a ready member (hit) or none (miss).",
        lambda _, numbers: {"hit": numbers.hits, "miss": numbers.misses},
        "result",
    ),
)


class PoolMetrics:
    """The endpoint `/metrics` of an organisation."""

    def __init__(self, store: Store, pools: RunService[ResourcePoolSpec]) -> None:
        self._store, self._pools = store, pools

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        return [serve("/orgs/{org}/metrics", GET=self.scrape)]

    async def scrape(self, request: Request) -> Any:
        """Return the metrics of pools in the scope of the key, and of leak checks for a key without a scope."""
        who = callers.get_caller(request)
        records, checks = await self._store.for_org(who.org).read(
            lambda rows: (read_page(rows, POOLS), leak_records.read_all(rows) if who.scope.is_whole else [])
        )
        visible = [each for each in records if who.scope.includes(each)]
        states = await self._pools.query_states(visible, who.scope)
        text = render((each.cluster, each.name, states[each.uid].report) for each in visible)
        text += leak_metrics.render(checks, now_ms())
        return Response(text, media_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})


def render(pools: Iterable[tuple[str, str, RunReport]]) -> str:
    """Return the metrics of pools: cluster, name and report. A pool whose host has not reported it has none."""
    found = [(cluster, name, report, report.pool) for cluster, name, report in pools]
    reported = [(cluster, name, report, numbers) for cluster, name, report, numbers in found if numbers is not None]
    return "".join(line for metric in METRICS for line in _lines(metric, reported))


def _lines(metric: PoolMetric, pools: list[tuple[str, str, RunReport, PoolReport]]) -> Iterator[str]:
    samples = (
        ({"cluster": cluster, "pool": name, **({metric.label: value} if metric.label else {})}, number)
        for cluster, name, report, numbers in pools
        for value, number in metric.values(report, numbers).items()
    )
    return metric_lines(metric.name, metric.kind, metric.help, samples)
