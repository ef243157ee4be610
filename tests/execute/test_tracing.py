"""Traces of runs: configuration, when they are sent, and that nothing waits for the collector."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from tests.cli.command import until
from tests.examples import external_services
from tests.execute.collector import collecting
from tests.plan.test_trace import HISTORY, RUN
from tests.ports import free_port
from tests.server.test_cloud_event_publisher import report

from dayfly.execute import tracing
from dayfly.execute.tracing import Tracer
from dayfly.plan import run_trace
from dayfly.plan.reasons import Reason
from dayfly.spec.run import EndRequest, Phase

AT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ROOT = Path(tracing.__file__).parents[2]
READY = report(ready=True, reason=Reason.READY)
CLOSED = EndRequest(at=1500, reason="Deleted")
FAILED = report(reason=Reason.RESOURCE_FAILED)


class Told:
    """A tracer with stored traces and a clock of the test."""

    def __init__(self, now=1000):
        self.traces, self.taken = [], True
        self.tracer = Tracer(self.send, now=lambda: now)

    def send(self, spans):
        self.traces.append(spans)
        return self.taken

    def names(self):
        self.tracer.close()
        return [(spans[0].name, spans[0].attributes["dayfly.outcome"]) for spans in self.traces]


def early(url):
    """Return a tracer of a process that started before all runs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: 0)
        return tracing.from_environment({AT: url})


def ended(run=RUN, at=2000):
    return msgspec.structs.replace(
        run, closed=EndRequest(at=at - 500, reason="Deleted"), phase=Phase.CLEANED, ended_at=at
    )


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({AT: ""}, False),
        ({AT: "http://a"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a"}, True),
        ({AT: "http://a", "OTEL_SDK_DISABLED": "True"}, False),
        ({AT: "http://a", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({AT: "http://a", "OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_SERVICE_NAME": "x"}, False),
    ],
)
def test_standard_environment_requests_traces(environment, asked):
    assert tracing.is_requested(environment) is asked


def test_unusable_tracing_settings_are_logged_and_ignored(caplog, monkeypatch):
    assert tracing.from_environment({AT: "http://a", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is None
    assert "protocol grpc is not supported; set it to http/protobuf" in caplog.text
    monkeypatch.delitem(sys.modules, "dayfly.execute.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert tracing.from_environment({AT: "http://a"}) is None
    assert "is missing; install dayfly[otel]" in caplog.text


def test_unconfigured_tracing_imports_no_library():
    code = (
        "import os, sys; import dayfly.cli.commands.up; from dayfly.execute import tracing; "
        "assert tracing.from_environment(os.environ) is None; "
        "sys.exit(any(name.startswith(('opentelemetry', 'requests', 'google')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}).returncode == 0


def test_run_is_traced_once_when_ready_and_once_when_gone():
    told = Told()
    told.tracer.observe(RUN, report(), lambda: HISTORY)
    for _ in range(3):
        told.tracer.observe(RUN, READY, lambda: HISTORY)
    assert not told.tracer.expects(RUN.uid)
    told.tracer.observe(RUN, report(closed=CLOSED))
    told.tracer.record_end(ended())
    told.tracer.observe(ended(), report(phase=Phase.CLEANED))
    assert told.names() == [("create sandbox", "ready"), ("delete sandbox", "cleaned")]
    assert told.tracer.expects(RUN.uid), "ended runs are forgotten"


def test_failed_run_is_traced_again_after_recovery():
    told = Told()
    told.tracer.observe(RUN, FAILED)
    told.tracer.observe(RUN, FAILED)
    told.tracer.observe(RUN, READY)
    assert told.names() == [("create sandbox", "failed"), ("create sandbox", "ready")]
    assert told.traces[0][0].trace == told.traces[1][0].trace


def test_run_closed_before_ready_is_traced_at_its_end():
    told = Told()
    told.tracer.record_end(ended())
    assert told.names() == [("create sandbox", "closed"), ("delete sandbox", "cleaned")]


def test_failure_after_ready_adds_no_creation_trace():
    told = Told()
    told.tracer.observe(RUN, READY)
    told.tracer.observe(RUN, FAILED)
    assert told.names() == [("create sandbox", "ready")]


def test_closed_run_is_traced_at_once_unless_traced_before():
    closed, run = report(closed=CLOSED), msgspec.structs.replace(RUN, closed=CLOSED)
    before = Told()
    before.tracer.observe(RUN, FAILED)
    before.tracer.observe(run, closed)
    assert before.names() == [("create sandbox", "failed")], (
        "the creation has failed, and the deletion is a separate trace"
    )
    soon = Told(now=RUN.born_at + tracing.BEFORE_MS)
    soon.tracer.observe(run, closed)
    assert soon.names() == [("create sandbox", "closed")]
    late = Told(now=RUN.born_at + tracing.BEFORE_MS + 1)
    late.tracer.observe(run, closed)
    assert late.names() == [], "it may have been ready before"


def test_run_settled_long_before_this_process_is_not_traced():
    late = Told(now=RUN.units["db/seed"].ended_at + tracing.BEFORE_MS + 1)
    late.tracer.observe(RUN, READY)
    assert late.names() == []
    soon = Told(now=RUN.units["db/seed"].ended_at + tracing.BEFORE_MS)
    soon.tracer.observe(RUN, READY)
    assert soon.names() == [("create sandbox", "ready")], "a killed process may not have sent it"


@pytest.mark.parametrize(
    ("since", "told"),
    [
        (RUN.born_at, [("create sandbox", "closed"), ("delete sandbox", "cleaned")]),
        (RUN.born_at + 1, [("delete sandbox", "cleaned")]),
        (2000, [("delete sandbox", "cleaned")]),
        (2001, []),
    ],
)
def test_parts_of_an_ended_run_before_this_process_are_skipped(since, told):
    late = Told(now=since + tracing.BEFORE_MS)
    late.tracer.record_end(ended(at=2000))
    assert late.names() == told


def test_slow_collector_blocks_nothing_and_drops_are_logged(caplog, monkeypatch):
    monkeypatch.setattr(tracing, "MAX_QUEUED_TRACES", 2)
    monkeypatch.setattr(tracing, "CLOSE_TIMEOUT_S", 0.01)
    begun, go_on, sent = threading.Event(), threading.Event(), []

    def send(spans):
        sent.append(spans)
        begun.set()
        go_on.wait(20)
        return False

    tracer = Tracer(send, now=lambda: 1000)
    for number in range(6):
        tracer.observe(msgspec.structs.replace(RUN, uid=f"u{number}"), READY)
        assert begun.wait(20)
    assert [each.getMessage() for each in caplog.records] == [
        "2 traces are queued for the collector: further traces are dropped"
    ]
    tracer.close()
    go_on.set()
    until(lambda: len(sent) == 3)
    monkeypatch.setattr(tracing, "CLOSE_TIMEOUT_S", 20)
    tracer.close()
    assert sum("accepts no traces" in each.getMessage() for each in caplog.records) == 1, "one warning for all failures"


def test_real_collector_receives_the_spans(monkeypatch):
    with collecting() as collector:
        for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(AT, collector.url)
        tracer = early(collector.url)
        tracer.observe(RUN, FAILED, lambda: HISTORY)
        tracer.record_end(ended(), lambda: HISTORY)
        tracer.close()
        assert collector.requests == [("/v1/traces", "application/x-protobuf")] * 2
    assert collector.resources[0]["service.name"] == "dayfly"
    roots = collector.roots()
    create, delete = roots["create sandbox"], roots["delete sandbox"]
    assert create.trace == f"{run_trace.trace_id(RUN.uid, 'create'):032x}"
    assert (create.start, create.error) == (100_000_000, "ResourceFailed")
    assert delete.links == ((create.trace, create.id),)
    make, seed = collector.below(create)
    assert (make.name, seed.name) == ("db/make", "db/seed")
    assert [(each.name, each.error) for each in collector.below(make)] == [("attempt 1", "ExitCode"), ("attempt 2", "")]
    assert {each.trace for each in (create, make, *collector.below(make))} == {create.trace}
    assert "s3cr3t" not in str(collector.spans)


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_opentelemetry_collector_accepts_the_spans(tmp_path, monkeypatch):
    port, said = free_port(), tmp_path / "said"
    settings = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"debug": {"verbosity": "detailed"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}},
        },
    }
    program = external_services.collector()
    with said.open("wb") as log:
        process = subprocess.Popen([program, "--config", f"yaml:{json.dumps(settings)}"], stderr=log, stdout=log)
        try:
            external_services.awaited(lambda: external_services.answers(port), process)
            monkeypatch.setenv(AT, f"http://127.0.0.1:{port}")
            tracer = early(f"http://127.0.0.1:{port}")
            tracer.observe(RUN, FAILED, lambda: HISTORY)
            tracer.record_end(ended(), lambda: HISTORY)
            tracer.close()
            until(lambda: "delete sandbox" in said.read_text())
        finally:
            process.terminate()
            process.wait(30)
    text = " ".join(said.read_text().split())
    first = f"Trace ID : {run_trace.trace_id(RUN.uid, 'create'):032x} Parent ID : ID : {run_trace.span_id(RUN.uid, 'create'):016x}"
    assert first in text
    assert text.count(f"Parent ID : {run_trace.span_id(RUN.uid, 'create', 'db/make'):016x}") == 2
    assert "Status code : Error Status message : ExitCode" in text
    assert "service.name: Str(dayfly)" in text
    assert f"SpanLink #0 -> Trace ID: {run_trace.trace_id(RUN.uid, 'create'):032x}" in text
    assert "s3cr3t" not in text


def test_sampler_of_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with collecting() as collector:
        monkeypatch.setenv(AT, collector.url)
        tracer = early(collector.url)
        tracer.observe(RUN, READY)
        tracer.close()
    assert collector.requests == []


def test_rejecting_collector_costs_one_log_line(monkeypatch, caplog):
    logging.getLogger("opentelemetry").setLevel(logging.NOTSET)  # as at the start of a process
    with collecting() as collector, caplog.at_level(logging.WARNING):
        collector.status = 400
        monkeypatch.setenv(AT, collector.url)
        tracer = early(collector.url)
        for number in range(3):
            tracer.observe(msgspec.structs.replace(RUN, uid=f"u{number}"), READY)
        tracer.close()
        assert len(collector.requests) == 3
    assert [each.getMessage() for each in caplog.records] == [
        "the collector accepts no traces, so they are dropped; check OTEL_EXPORTER_OTLP_*"
    ]
