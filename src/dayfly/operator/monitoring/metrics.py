"""Figures for Prometheus, counted where they arise and read when they are asked for. No names, no values of anybody."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dayfly.lib.clock import now_ms
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.spec.run import State

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST


class Metrics:
    """One operator's figures."""

    def __init__(self, cluster: ClusterWatches, **gauges: Callable[[], float]) -> None:
        """`gauges` are further figures by name, asked for at each scrape."""
        self._registry = prometheus.CollectorRegistry()
        self.turns = prometheus.Counter(
            "dayfly_turns", "Turns taken over runs, by how they ended.", ["result"], registry=self._registry
        )
        self.turn_seconds = prometheus.Histogram(
            "dayfly_turn_seconds", "How long a turn takes, requests included.", registry=self._registry
        )
        self._registry.register(_Now(cluster, gauges))

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return prometheus.generate_latest(self._registry)


class _Now(Collector):
    """What is so at this moment, from the caches."""

    def __init__(self, cluster: ClusterWatches, gauges: dict[str, Callable[[], float]]) -> None:
        self._cluster = cluster
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        runs: Tally[str] = Tally()
        doubtful = 0
        for run in self._cluster.runs:
            runs[run.ledger.phase.value] += 1
            doubtful += sum(record.state is State.UNKNOWN for record in run.ledger.units.values())
        family = GaugeMetricFamily("dayfly_runs", "Runs by phase.", labels=["phase"])
        for phase, count in sorted(runs.items()):
            family.add_metric([phase], count)
        yield family
        yield GaugeMetricFamily("dayfly_units_unknown", "Steps whose outcome is not known.", value=doubtful)
        yield GaugeMetricFamily("dayfly_queue_depth", "Runs that wait for a worker.", value=len(self._cluster.queue))
        yield GaugeMetricFamily(
            "dayfly_watch_age_seconds", "Since the most backward watch was last proved.", value=self._cluster.age
        )
        yield GaugeMetricFamily(
            "dayfly_clock_ahead_seconds",
            "By how much this machine's clock is ahead of the API server's.",
            value=(now_ms() - self._cluster.now()) / 1000,
        )
        for name, ask in self._gauges.items():
            yield GaugeMetricFamily(f"dayfly_{name}", name.replace("_", " ").capitalize() + ".", value=ask())
