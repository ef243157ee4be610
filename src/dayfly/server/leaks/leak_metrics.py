"""Prometheus metrics of leak checks, from the stored reports of their hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dayfly.plan.leaks.verdict import LeakVerdict
from dayfly.server.http.prometheus import metric_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dayfly.server.records.leak_records import LeakRecord
    from dayfly.spec.leak_report import LeakReport


class LeakMetric(NamedTuple):
    """A metric with the labels `cluster` and `check`. `values` returns its value for each value of a further `label`.

    Its arguments are a record, its report, and the current time in Unix milliseconds.
    """

    name: str
    kind: str
    help: str
    values: Callable[[LeakRecord, LeakReport, int], Mapping[str, float]]
    label: str = ""


METRICS: Final = (
    LeakMetric(
        "dayfly_leak_findings",
        "gauge",
        "Findings of the last complete list.",
        lambda _, report, __: {verdict.value: report.counts.get(verdict, 0) for verdict in LeakVerdict},
        "verdict",
    ),
    LeakMetric(
        "dayfly_leak_list_age_seconds",
        "gauge",
        "Time since the last complete list began; before the first one, since the check is known.",
        lambda record, report, now: {"": max(now - (report.listed_at or record.created_at), 0) / 1000},
    ),
    LeakMetric(
        "dayfly_leak_interval_seconds",
        "gauge",
        "Interval of the check.",
        lambda _, report, __: {"": report.spec.every_ms / 1000},
    ),
    LeakMetric(
        "dayfly_leak_deletions_total",
        "counter",
        "Deletions of orphans that have begun.",
        lambda record, _, __: {"": record.deletions},
    ),
)


def render(records: Iterable[LeakRecord], now: int) -> str:
    """Return the metrics of leak checks. A check that its host has not reported has none."""
    reported = [(each, report) for each in records if (report := each.decoded_report) is not None]
    lines: list[str] = []
    for metric in METRICS:
        samples = [
            ({"cluster": record.cluster, "check": record.name} | ({metric.label: key} if metric.label else {}), value)
            for record, report in reported
            for key, value in metric.values(record, report, now).items()
        ]
        lines += metric_lines(metric.name, metric.kind, metric.help, samples)
    return "".join(lines)
