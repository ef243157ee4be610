"""Information for administrators: log lines of moves, metrics, health."""

from __future__ import annotations

import io
import json
import logging
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.ports import free_port

from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.monitoring import json_log, metrics
from dayfly.operator.monitoring.health_server import STALE_S, serve_health
from dayfly.operator.monitoring.json_log import JsonLines
from dayfly.operator.monitoring.metrics import Metrics
from dayfly.plan.actions import Bind, Claim, Close, Doubt, Finish, GiveUp, Record, Started, Stopped, Void
from dayfly.spec.kinds import PoolRecord, RunSpec
from dayfly.spec.lifecycle import Target
from dayfly.spec.pool_ledger import Demand, PoolLedger
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest, Phase, Result, Run, State, UnitRecord

OF = {"unit": "db/make", "attempt": 2}
TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
ASKED = EndRequest(at=1, reason="Deleted", message="in words")


def a_run(name: str = "r", *, abandon: EndRequest | None = None, **more) -> RunObject:
    return RunObject(
        metadata=AnnotatedMeta(name=name), ledger=Run(uid=name, target=TARGET, plan="", abandon=abandon, **more)
    )


def a_pool_run(name: str, *, hits: int, misses: int) -> RunObject:
    demand = Demand(hits=hits, misses=misses)
    spec = ResourcePoolSpec(plugin="pg", ready=1)
    record = PoolRecord(ledger=PoolLedger(uid=name, demand=demand), spec=spec, template=())
    return msgspec.structs.replace(a_run(name), spec=RunSpec(pool=record))


class TestJournal:
    @pytest.mark.parametrize(
        ("move", "said", "members"),
        [
            (Claim(**OF, kind="exec", ref="p", at=1), "db/make: attempt 2 may start", {"event": "claimed", **OF}),
            (Bind(**OF, ref="o"), "db/make: attempt 2 has made the object o", {"event": "bound", **OF}),
            (
                Record(**OF, result=Result(outcome="succeeded")),
                "db/make: attempt 2 succeeded",
                {"event": "recorded", "outcome": "succeeded", **OF},
            ),
            (
                Record(**OF, result=Result(outcome="failed", reason="Exit", message="code 1")),
                "db/make: attempt 2 failed: Exit: code 1",
                {"event": "recorded", "outcome": "failed", "reason": "Exit", **OF},
            ),
            (
                Void(**OF, reason="StartInterrupted", message="m", at=1),
                "db/make: attempt 2 never ran: StartInterrupted: m",
                {"event": "voided", "reason": "StartInterrupted", **OF},
            ),
            (
                Doubt(**OF, reason="NodeLost", message="m"),
                "db/make: the outcome of attempt 2 is unknown: NodeLost: m",
                {"event": "doubted", "reason": "NodeLost", **OF},
            ),
            (Close(request=ASKED), "the run closes: in words", {"event": "closed", "reason": "Deleted"}),
            (
                Close(request=EndRequest(at=1, reason="Deleted")),
                "the run closes: Deleted",
                {"event": "closed", "reason": "Deleted"},
            ),
            (Started(at=1), "the target has started", {"event": "started"}),
            (Stopped(at=1), "the target has stopped", {"event": "stopped"}),
            (GiveUp(request=ASKED), "cleanup was abandoned: in words", {"event": "given-up", "reason": "Deleted"}),
            (Finish(at=1), "the run has ended: cleaned", {"event": "ended", "outcome": "cleaned"}),
        ],
        ids=lambda value: type(value).__name__ if not isinstance(value, (str, dict)) else "",
    )
    def test_each_move_is_a_line_that_can_be_searched(self, caplog, move, said, members):
        caplog.set_level(logging.INFO, json_log.log.name)
        json_log.log_moves(a_run(), [move])
        [record] = caplog.records
        line = json.loads(JsonLines().format(record))
        told = {"run": "r", "sandbox": "shop/box", **members}
        assert line["message"] == said
        assert {key: value for key, value in line.items() if key not in ("time", "level", "logger", "message")} == told

    def test_a_run_that_was_given_up_is_not_cleaned(self, caplog):
        caplog.set_level(logging.INFO, json_log.log.name)
        json_log.log_moves(a_run(abandon=ASKED), [Finish(at=1)])
        assert [record.getMessage() for record in caplog.records] == ["the run has ended: abandoned"]

    def test_log_line_has_its_time_and_exception(self):
        fault = ValueError, ValueError("a defect"), None
        record = logging.LogRecord("dayfly", logging.ERROR, "", 0, "turn of %s", ("r",), fault)
        record.created = 1.5
        line = json.loads(JsonLines().format(record))
        assert (line["time"], line["level"], line["message"]) == ("1970-01-01T00:00:01.500Z", "error", "turn of r")
        assert "a defect" in line["exception"]


def test_all_log_lines_go_to_standard_error_as_json(monkeypatch):
    """A library in this process may have changed the logging settings."""
    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    logging.getLogger().handlers[:] = [logging.NullHandler()]
    json_log.to_stderr("info")
    logging.getLogger("any.library").info("a line")
    [line] = said.getvalue().splitlines()
    assert json.loads(line)["message"] == "a line"


def test_metrics_are_counted_and_served(monkeypatch):
    unknown = UnitRecord(attempt=1, state=State.UNKNOWN)
    runs = [
        a_run("a"),
        a_run("b", units={"x": unknown, "y": unknown, "z": UnitRecord()}),
        a_run("c", phase=Phase.CLOSED),
        *(a_pool_run(name, hits=3, misses=1) for name in ("p", "q")),
    ]
    monkeypatch.setattr(metrics, "now_ms", lambda: 5500)
    statuses = (SimpleNamespace(reason="Failing"), SimpleNamespace(reason="Failing"), None)
    members = [SimpleNamespace(status=SimpleNamespace(state=state)) for state in ("ready", "held", "ready")]
    holds = SimpleNamespace(pools=[SimpleNamespace(status=each) for each in statuses], members=members)
    counts = ({"orphan": 2, "held": 5}, {"orphan": 1, "missing": 1})
    statuses_of_checks = [SimpleNamespace(reason="LeaksFound", counts=each) for each in counts]
    checks = [
        SimpleNamespace(metadata=SimpleNamespace(name=f"check-{n}"), status=each)
        for n, each in enumerate((*statuses_of_checks, None))
    ]
    seen = SimpleNamespace(runs=runs, holds=holds, leak_checks=checks, queue=range(3), age=7.0, now=lambda: 3000)
    figures = Metrics(seen, orphans=lambda: 4)
    figures.turns.labels("done").inc()
    figures.turn_seconds.observe(2.5)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(figures.render().decode())
        for sample in family.samples
    }
    wanted = {
        ("dayfly_turns_total", "done"): 1,
        ("dayfly_turn_seconds_sum",): 2.5,
        ("dayfly_runs", "open"): 4,
        ("dayfly_runs", "closed"): 1,
        ("dayfly_pools", "Failing"): 2,
        ("dayfly_pool_members", "ready"): 2,
        ("dayfly_pool_members", "held"): 1,
        ("dayfly_cluster_pool_requests", "hit"): 6,
        ("dayfly_cluster_pool_requests", "miss"): 2,
        ("dayfly_leak_checks", "LeaksFound"): 2,
        ("dayfly_leak_findings", "check-0", "orphan"): 2,
        ("dayfly_leak_findings", "check-0", "held"): 5,
        ("dayfly_leak_findings", "check-1", "missing"): 1,
        ("dayfly_leak_findings", "check-1", "foreign"): 0,
        ("dayfly_units_unknown",): 2,
        ("dayfly_queue_depth",): 3,
        ("dayfly_watch_age_seconds",): 7,
        ("dayfly_clock_ahead_seconds",): 2.5,
        ("dayfly_orphans",): 4,
    }
    assert {key: found.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("age", "started", "alive", "ready"),
    [
        (STALE_S - 1, 900.0, 200, 200),
        (STALE_S, 900.0, 503, 503),
        (float("inf"), STALE_S - 1, 200, 503),
        (float("inf"), STALE_S, 503, 503),
    ],
)
async def test_operator_is_healthy_while_its_server_answers(age, started, alive, ready):
    """The operator is ready once the first lists are complete."""
    port = free_port()
    figures = SimpleNamespace(render=lambda: b"some_figure 1\n")
    async with (
        serve_health(port, age=lambda: age, started=lambda: started, metrics=figures),
        aiohttp.ClientSession() as session,
    ):
        for path, status in (("healthz", alive), ("readyz", ready), ("metrics", 200)):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                assert answer.status == status
                text = await answer.text()
        assert text == "some_figure 1\n"
