"""Alerts and dashboard read figures that there are, and each alert comes when it should."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.fake import FakeCluster, run

from dayfly.kube.client import Client
from dayfly.operator.agent.agent import Agent
from dayfly.operator.main import Operator
from dayfly.operator.pods.namespaces import RunnerConfigMap

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
PAGE = (ROOT / "docs" / "monitoring.md").read_text()


def figures() -> set[str]:
    """Return the names of all figures that an operator with a server reports."""

    async def reported() -> str:
        operator = Operator(
            Client(FakeCluster().transport()),
            runner=RunnerConfigMap("x"),
            agent=lambda cluster, admit: Agent(cluster, None, {}, "dayfly-system", admit),
        )
        return operator.metrics.render().decode()

    names = re.findall(r"^# TYPE (dayfly_\w+) ", run(reported()), re.MULTILINE)
    return {name for name in read(" ".join(names)) if not name.endswith("_created")}


def read(expression: str) -> set[str]:
    """The figures that it reads, by the names that the operator gives them."""
    return {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in re.findall(r"\bdayfly_\w+", expression)}


def test_every_figure_that_is_read_is_there():
    there = figures()
    assert {"dayfly_turns", "dayfly_runs", "dayfly_leading", "dayfly_server_frozen"} <= there
    for rule in RULES:
        assert read(rule["expr"]) <= there, rule["alert"]
    shown = {target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
    assert set().union(*map(read, shown)) == there, "the dashboard shows all of them"
    told = {name for row in re.findall(r"^\| (`dayfly_.*?) \|", PAGE, re.MULTILINE) for name in read(row)}
    assert told == there


def test_alerts_count_all_turns_but_done_ones():
    """tests/operator/test_monitoring.py reads the result `done` of a turn."""
    assert re.findall(r'result!="(\w+)"', (FOLDER / "alerts.yaml").read_text()) == ["done"]


def test_alerts_have_summary_severity_and_a_table_row():
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
    rows = re.findall(r"^\| `(Dayfly\w+)` \| (\d+) min \|", PAGE, re.MULTILINE)
    assert [(rule["alert"], rule["for"]) for rule in RULES] == [(name, f"{minutes}m") for name, minutes in rows]


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
}
"""Series that raise each alert after its duration: a value each minute for an hour."""
CALM = [
    ("dayfly_leading", "1x60"),
    ("dayfly_watch_age_seconds", "20x60"),
    ('dayfly_turns_total{result="done"}', "0+9x60"),
    ('dayfly_turns_total{result="failed"}', "0+1x60"),
    ("dayfly_clock_ahead_seconds", "-60x60"),
    ("dayfly_server_connected", "1x60"),
]


def test_each_has_its_series():
    """A new alert without a series fails here at once, and not only in the proof."""
    assert set(SERIES) == {rule["alert"] for rule in RULES}


@pytest.mark.proof
def test_each_comes_when_it_should_and_not_before(tmp_path: Path):
    """Prometheus' own promtool, of Debian's package, which is unpacked and not installed."""
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
    """Return a test in which the alert is absent before its duration, and firing afterwards."""
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
    """Prometheus' own series of alerts that are firing."""
    asked = f'count(ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}})'
    return {"expr": asked, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}] if there else []}


def _calm() -> dict[str, Any]:
    """Return a test with healthy series, in which no alert fires."""
    asked = {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "59m", "exp_samples": []}
    return {"name": "calm", "interval": "1m", "input_series": _input(CALM), "promql_expr_test": [asked]}
