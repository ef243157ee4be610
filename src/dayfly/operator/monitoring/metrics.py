"""Prometheus metrics. No metric contains the name or a value of a user's object."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dayfly.lib.clock import now_ms
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.plan.leaks.verdict import LeakVerdict
from dayfly.spec.run import State

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
# Help texts of the gauges that other parts of the operator supply.
GAUGE_HELP = {
    "leading": "1 on the replica that is the leader, otherwise 0.",
    "orphans": "Pods of steps that belong to no run and may still be running.",
    "frozen": "Runs that do not continue because their ledger and their objects are inconsistent.",
    "events_lost": "Events that could not be written since the start of the replica.",
    "nodes_without_logs": "Nodes whose kubelet does not return the logs of steps.",
    "server_connected": "1 while the server answers and the cluster has a session with it, otherwise 0.",
    "server_frozen": "1 while the cluster accepts no orders of the server until an administrator decides, otherwise 0.",
    "server_refusals": "How often the server has refused the connection since the start of the replica.",
}


class Metrics:
    """The metrics of one operator."""

    def __init__(self, cluster: ClusterWatches, **gauges: Callable[[], float]) -> None:
        """`gauges` are additional gauges by their name in `GAUGE_HELP`, evaluated at each scrape."""
        self._registry = prometheus.CollectorRegistry()
        self.turns = prometheus.Counter(
            "dayfly_turns", "Turns by result: done, error, frozen or defect.", ["result"], registry=self._registry
        )
        self.turn_seconds = prometheus.Histogram(
            "dayfly_turn_seconds", "Duration of a turn, including its requests.", registry=self._registry
        )
        self._registry.register(_ClusterGauges(cluster, gauges))

    def collect(self) -> Iterator[Metric]:
        """Return all metrics with their help texts and current values."""
        yield from self._registry.collect()

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return prometheus.generate_latest(self._registry)


class _ClusterGauges(Collector):
    """Gauges that are computed from the caches at each scrape."""

    def __init__(self, cluster: ClusterWatches, gauges: dict[str, Callable[[], float]]) -> None:
        self._cluster = cluster
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        runs: Tally[str] = Tally()
        unknown = 0
        requests: Tally[str] = Tally()
        for run in self._cluster.runs:
            runs[run.ledger.phase.value] += 1
            if run.spec.pool is not None:
                demand = run.spec.pool.ledger.demand
                requests += Tally(hit=demand.hits, miss=demand.misses)
            unknown += sum(record.state is State.UNKNOWN for record in run.ledger.units.values())
        yield _gauge("runs", "Runs by phase: open (alive), closed (in cleanup).", "phase", runs)
        reasons = Tally(pool.status.reason for pool in self._cluster.holds.pools if pool.status is not None)
        yield _gauge("pools", "Resource pools by the reason in their status.", "reason", reasons)
        states = Tally(each.status.state for each in self._cluster.holds.members if each.status is not None)
        yield _gauge("pool_members", "Members of resource pools by the state in their status.", "state", states)
        checks = {each.metadata.name: each.status for each in self._cluster.leak_checks if each.status is not None}
        by_reason = Tally(each.reason for each in checks.values())
        yield _gauge("leak_checks", "Leak checks by the reason in their status.", "reason", by_reason)
        findings = GaugeMetricFamily(
            "dayfly_leak_findings", "Findings of the last complete list.", labels=("check", "verdict")
        )
        for name, status in checks.items():
            for verdict in LeakVerdict:
                findings.add_metric((name, verdict.value), status.counts.get(verdict.value, 0))
        yield findings
        yield _gauge(
            "cluster_pool_requests",
            "Resources that found a ready member (hit) or none (miss), as counted by the existing pools.",
            "result",
            {result: requests[result] for result in ("hit", "miss")},
        )
        yield GaugeMetricFamily("dayfly_units_unknown", "Steps whose outcome is unknown.", value=unknown)
        yield GaugeMetricFamily(
            "dayfly_queue_depth", "Runs that wait for a worker; 0 without leadership.", value=len(self._cluster.queue)
        )
        yield GaugeMetricFamily(
            "dayfly_watch_age_seconds",
            "Time since the API server last confirmed the oldest watch.",
            value=self._cluster.age,
        )
        yield GaugeMetricFamily(
            "dayfly_clock_ahead_seconds",
            "Lead of this machine's clock over the API server's clock.",
            value=(now_ms() - self._cluster.now()) / 1000,
        )
        for name, ask in self._gauges.items():
            yield GaugeMetricFamily(f"dayfly_{name}", GAUGE_HELP[name], value=ask())


def _gauge(name: str, help_: str, label: str, values: Mapping[str, int]) -> Metric:
    """Return a gauge with a value for each value of its label."""
    family = GaugeMetricFamily(f"dayfly_{name}", help_, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family
