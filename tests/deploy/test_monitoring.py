"""Alerts and dashboard read existing metrics, each alert fires when its condition holds, and the pages list them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.fake import FakeCluster, run

from dayfly.kube.client import KubeClient
from dayfly.operator.agent.agent import Agent
from dayfly.operator.main import Operator
from dayfly.operator.pods.namespaces import RunnerConfigMap
from dayfly.server.api.pool_metrics import METRICS
from dayfly.server.leaks.leak_metrics import METRICS as LEAK_METRICS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
GUIDE = (ROOT / "docs" / "guides" / "alerts.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()


def operator_metrics() -> set[str]:
    """Return the names of all metrics of an operator with a server."""

    async def reported() -> str:
        operator = Operator(
            KubeClient(FakeCluster().transport()),
            runner=RunnerConfigMap("x"),
            agent=lambda cluster, admit: Agent(cluster, None, {}, "dayfly-system", admit),
        )
        return operator.metrics.render().decode()

    names = re.findall(r"^# TYPE (dayfly_\w+) ", run(reported()), re.MULTILINE)
    return {name for name in metrics_in(" ".join(names)) if not name.endswith("_created")}


def server_metrics() -> set[str]:
    """Return the names of all metrics of a server."""
    return metrics_in(" ".join(metric.name for metric in (*METRICS, *LEAK_METRICS)))


def metrics_in(expression: str) -> set[str]:
    """Return the metrics in an expression, without the endings that their types add."""
    return {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in re.findall(r"\bdayfly_\w+", expression)}


def test_alerts_dashboard_and_reference_match_the_metrics():
    there = operator_metrics() | server_metrics()
    assert {"dayfly_turns", "dayfly_runs", "dayfly_leading", "dayfly_server_frozen"} <= there
    for rule in RULES:
        assert metrics_in(rule["expr"]) <= there, rule["alert"]
    shown = {target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
    assert set().union(*map(metrics_in, shown)) == there, "the dashboard shows all of them"
    documented = {
        name for row in re.findall(r"^\| (`dayfly_.*?) \|", REFERENCE, re.MULTILINE) for name in metrics_in(row)
    }
    assert documented == there


def test_alerts_count_all_turns_but_done_ones():
    """tests/operator/test_monitoring.py reads the result `done` of a turn."""
    assert re.findall(r'result!="(\w+)"', (FOLDER / "alerts.yaml").read_text()) == ["done"]


def test_alerts_have_summary_severity_and_a_table_row():
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
    rows = re.findall(r"^\| `(Dayfly\w+)` \| \w+ \| `.*` \| (\d+m) \|", REFERENCE, re.MULTILINE)
    assert [(rule["alert"], rule["for"]) for rule in RULES] == rows
    responses = re.findall(r"^\| `(Dayfly\w+)` \| \S", GUIDE, re.MULTILINE)
    assert [rule["alert"] for rule in RULES] == responses


SERIES: dict[str, list[tuple[str, str]]] = {
    "DayflyAbsent": [],
    "DayflyNoLeader": [("dayfly_leading", "0x60")],
    "DayflyWatchStale": [("dayfly_watch_age_seconds", "200x60")],
    "DayflyFrozen": [("dayfly_frozen", "1x60")],
    "DayflyOutcomeUnknown": [("dayfly_units_unknown", "2x60")],
    "DayflyOrphans": [("dayfly_orphans", "1x60")],
    "DayflyQueueLong": [("dayfly_queue_depth", "101x60")],
    "DayflyTurnErrors": [
        ('dayfly_turns_total{result="done"}', "0+1x60"),
        ('dayfly_turns_total{result="failed"}', "0+1x60"),
    ],
    "DayflyLogsMissing": [("dayfly_nodes_without_logs", "1x60")],
    "DayflyClockSkew": [("dayfly_clock_ahead_seconds", "-61x60")],
    "DayflyServerUnreachable": [("dayfly_server_connected", "0x60")],
    "DayflyServerFrozen": [("dayfly_server_frozen", "1x60")],
    "DayflyPoolsFailing": [('dayfly_pools{reason="Failing"}', "2x60")],
    "DayflyPoolFailing": [('dayfly_pool_failing{pool="a"}', "1x60")],
    "DayflyPoolMisses": [
        ('dayfly_pool_requests_total{pool="a", result="hit"}', "0+3x60"),
        ('dayfly_pool_requests_total{pool="a", result="miss"}', "0+1x60"),
    ],
    "DayflyPoolMembersStuck": [('dayfly_pool_members_stuck{pool="a"}', "1x60")],
    "DayflyLeaks": [
        ('dayfly_leak_findings{check="a", verdict="orphan"}', "1x60"),
        ('dayfly_leak_findings{check="a", verdict="missing"}', "0x60"),
    ],
    "DayflyLeakListOld": [
        ('dayfly_leak_list_age_seconds{check="a"}', "10801x60"),
        ('dayfly_leak_interval_seconds{check="a"}', "3600x60"),
    ],
}
"""Series that make each alert fire: a value each minute for an hour."""
CALM = [
    ("dayfly_leading", "1x60"),
    ("dayfly_watch_age_seconds", "20x60"),
    ('dayfly_turns_total{result="done"}', "0+9x60"),
    ('dayfly_turns_total{result="failed"}', "0+1x60"),
    ("dayfly_clock_ahead_seconds", "-60x60"),
    ("dayfly_server_connected", "1x60"),
    ('dayfly_pools{reason="PoolFull"}', "2x60"),
    ('dayfly_pool_failing{pool="a"}', "0x60"),
    ('dayfly_pool_requests_total{pool="a", result="hit"}', "0+9x60"),
    ('dayfly_pool_requests_total{pool="a", result="miss"}', "0+1x60"),
    ('dayfly_pool_members_stuck{pool="a"}', "0x60"),
    ('dayfly_leak_findings{check="a", verdict="held"}', "5x60"),
    ('dayfly_leak_findings{check="a", verdict="orphan"}', "0x60"),
    ('dayfly_leak_list_age_seconds{check="a"}', "10800x60"),
    ('dayfly_leak_interval_seconds{check="a"}', "3600x60"),
]


def test_every_alert_has_a_series():
    """Without this check, only `make proof` would notice a new alert without a series."""
    assert set(SERIES) == {rule["alert"] for rule in RULES}


@pytest.mark.proof
def test_each_alert_fires_after_its_time_and_not_before(tmp_path: Path):
    """Use Prometheus' promtool from Debian's package, which is unpacked and not installed."""
    subprocess.run(["apt-get", "download", "prometheus"], cwd=tmp_path, check=True, capture_output=True)
    (package,) = tmp_path.glob("prometheus_*.deb")
    subprocess.run(["dpkg", "-x", package, tmp_path / "there"], check=True)
    promtool = tmp_path / "there" / "usr" / "bin" / "promtool"
    subprocess.run([promtool, "check", "rules", FOLDER / "alerts.yaml"], check=True, capture_output=True)
    tests = [_played(rule) for rule in RULES] + [_calm()]
    stories = {"rule_files": [str(FOLDER / "alerts.yaml")], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "stories.yaml").write_text(yaml.safe_dump(stories))
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "stories.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            group = {"name": "x", "rules": [{"record": "x", "expr": target["expr"]}]}
            (tmp_path / "one.yaml").write_text(yaml.safe_dump({"groups": [group]}))
            subprocess.run([promtool, "check", "rules", tmp_path / "one.yaml"], check=True, capture_output=True)


def _input(series: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series]


def _played(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a test in which the alert does not fire before its time, and fires afterwards."""
    minutes = int(rule["for"][:-1])
    begins = 1 if "rate(" in rule["expr"] else 0
    return {
        "name": rule["alert"],
        "interval": "1m",
        "input_series": _input(SERIES[rule["alert"]]),
        "promql_expr_test": [
            _firing(rule, f"{max(minutes + begins - 1, 0)}m", there=False),
            _firing(rule, f"{minutes + begins + 1}m", there=True),
        ],
    }


def _firing(rule: dict[str, Any], at: str, *, there: bool) -> dict[str, Any]:
    """Return a check of Prometheus' series of firing alerts."""
    asked = f'count(ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}})'
    return {"expr": asked, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}] if there else []}


def _calm() -> dict[str, Any]:
    """Return a test of a healthy cluster, in which no alert fires."""
    asked = {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "59m", "exp_samples": []}
    return {"name": "calm", "interval": "1m", "input_series": _input(CALM), "promql_expr_test": [asked]}
