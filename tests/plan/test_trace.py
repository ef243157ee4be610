"""Traces: parents, times, errors, and what they never contain."""

from __future__ import annotations

import msgspec
import pytest
from tests.server.test_cloud_event_publisher import report

from dayfly.plan import run_trace
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import EndRequest, Phase, Run, State, UnitRecord
from dayfly.spec.run_data import HistoryEntry

UID = "11111111-2222-3333-4444-555555555555"


def entry(at, unit, attempt, move, reason="", message=""):
    return HistoryEntry(seq=0, at=at, unit=unit, attempt=attempt, move=move, reason=reason, message=message)


def done(attempt, times, outcome="succeeded", reason="", **more):
    claimed, started, ended = times
    record = {"attempt": attempt, "state": State.DONE, "outcome": outcome, "reason": reason, "kind": "exec"}
    return UnitRecord(**record, claimed_at=claimed, started_at=started, ended_at=ended, **more)


TARGET = Target(kind="Sandbox", name="demo", namespace="pay", uid=UID)
RUN = Run(
    uid=UID,
    target=TARGET,
    plan="",
    born_at=100,
    units={"db/make": done(2, (300, 320, 400)), "db/seed": done(1, (410, 415, 500))},
)
HISTORY = (
    entry(100, "", 0, "Born"),
    entry(110, "db/make", 1, "Claim"),
    entry(200, "db/make", 1, "Record", "ExitCode", "exit code 3: s3cr3t"),
    entry(300, "db/make", 2, "Claim"),
    entry(401, "db/make", 2, "Record", "succeeded"),
    entry(410, "db/seed", 1, "Claim"),
    entry(501, "db/seed", 1, "Record", "succeeded"),
)


def tree(spans):
    """Return each span by name, with its parent's name."""
    names = {each.id: each.name for each in spans}
    return [(names.get(each.parent, ""), each.name, each.start, each.end, each.error) for each in spans]


def test_a_creation_has_its_units_and_their_attempts_below_it():
    spans = run_trace.creation_trace(RUN, HISTORY, "ready", "", 999)
    assert tree(spans) == [
        ("", "create sandbox", 100, 500, ""),
        ("create sandbox", "db/make", 110, 400, ""),
        ("db/make", "attempt 1", 110, 200, "ExitCode"),
        ("db/make", "attempt 2", 300, 400, ""),
        ("create sandbox", "db/seed", 410, 500, ""),
        ("db/seed", "attempt 1", 410, 500, ""),
    ]
    first, unit, failed, again = spans[:4]
    assert first.parent == 0, "nothing is above the whole"
    assert first.attributes == {
        "dayfly.run.uid": UID,
        "dayfly.target.kind": "Sandbox",
        "dayfly.target.name": "demo",
        "k8s.namespace.name": "pay",
        "dayfly.outcome": "ready",
    }
    of = {"dayfly.unit": "db/make", "dayfly.resource": "db", "dayfly.step": "make", "dayfly.kind": "exec"}
    assert unit.attributes == {**of, "dayfly.attempts": 2, "dayfly.outcome": "succeeded"}
    assert failed.attributes == {
        **of,
        "dayfly.attempt": 1,
        "dayfly.outcome": "failed",
        "error.type": "ExitCode",
    }
    assert again.attributes["dayfly.waited_ms"] == 20
    assert "s3cr3t" not in str(spans), "no sentence of a step's is in it"


def test_trace_is_reproducible_with_unique_span_ids():
    spans = run_trace.creation_trace(RUN, HISTORY, "ready", "", 999)
    assert spans == run_trace.creation_trace(RUN, HISTORY, "ready", "", 5000)
    assert len({each.id for each in spans}) == len(spans)
    assert {each.trace for each in spans} == {run_trace.trace_id(UID, "create")}
    other = run_trace.creation_trace(msgspec.structs.replace(RUN, uid="another"), HISTORY, "ready", "", 999)
    assert not {each.id for each in spans} & {each.id for each in other}
    assert spans[0].trace != other[0].trace
    parent = run_trace.traceparent(UID, "db/make", 2, creates=True)
    assert parent == f"00-{spans[3].trace:032x}-{spans[3].id:016x}-01"


def test_trace_without_history_has_only_the_latest_attempts():
    assert tree(run_trace.creation_trace(RUN, (), "ready", "", 999))[1:3] == [
        ("create sandbox", "db/make", 300, 400, ""),
        ("db/make", "attempt 2", 300, 400, ""),
    ]


def test_failed_unit_marks_its_parent_spans_as_failed():
    run = msgspec.structs.replace(RUN, units={"db/make": done(1, (110, 0, 200), "failed", "OOMKilled")})
    spans = run_trace.creation_trace(run, (), "failed", Reason.RESOURCE_FAILED, 999)
    assert [each.error for each in spans] == ["ResourceFailed", "OOMKilled", "OOMKilled"]
    assert spans[0].attributes["error.type"] == "ResourceFailed"


@pytest.mark.parametrize("reason", ["a b", "x" * 64, "key=s3cr3t", "s3cr3t!"])
def test_reason_that_is_no_word_is_traced_as_other(reason):
    run = msgspec.structs.replace(RUN, units={"db/make": done(1, (110, 0, 200), "failed", reason)})
    assert run_trace.creation_trace(run, (), "failed", Reason.RESOURCE_FAILED, 999)[2].error == "Other"


def test_deletion_is_its_own_trace_linked_to_the_creation():
    units = RUN.units | {"db/drop": done(40, (9000, 9001, 9100))}
    closed = EndRequest(at=2000, reason="Deleted")
    run = msgspec.structs.replace(RUN, units=units, closed=closed, phase=Phase.CLEANED, ended_at=9200)
    tries = [entry(2010 + 10 * n, "db/drop", n, "Claim") for n in range(1, 40)]
    tries += [entry(2015 + 10 * n, "db/drop", n, "Record", "ExitCode") for n in range(1, 40)]
    spans = run_trace.deletion_trace(run, (*HISTORY, *tries))
    assert tree(spans)[:2] == [
        ("", "delete sandbox", 2000, 9200, ""),
        ("delete sandbox", "db/drop", 2020, 9100, ""),
    ]
    assert len(spans) == 2 + run_trace.MAX_ATTEMPTS, "a unit that is retried for weeks is still one trace"
    assert spans[1].attributes["dayfly.attempts"] == 40
    assert spans[0].link == (run_trace.trace_id(UID, "create"), run_trace.span_id(UID, "create"))
    assert spans[0].trace != spans[0].link[0]
    given_up = msgspec.structs.replace(run, phase=Phase.ABANDONED)
    assert run_trace.deletion_trace(given_up, ())[0].error == "Abandoned"
    cut = run_trace.creation_trace(run, HISTORY, "closed", "", 9999)
    assert tree(cut)[0] == ("", "create sandbox", 100, 2000, "")
    assert [each.name for each in cut if each.parent == cut[0].id] == ["db/make", "db/seed"], (
        "only units before the close"
    )


def test_fork_span_lasts_from_its_start_until_readiness():
    fork = UnitRecord(attempt=1, state=State.CLAIMED, kind="fork", generation="g", claimed_at=600)
    run = msgspec.structs.replace(RUN, units=RUN.units | {"fork:Deployment/default/shop": fork})
    spans = run_trace.creation_trace(run, HISTORY, "ready", "", 999)
    assert tree(spans)[0][3] == 999
    assert tree(spans)[-2:] == [
        ("create sandbox", "fork:Deployment/default/shop", 600, 999, ""),
        ("fork:Deployment/default/shop", "attempt 1", 600, 999, ""),
    ]
    assert spans[-2].attributes == {
        "dayfly.unit": "fork:Deployment/default/shop",
        "dayfly.step": "fork:Deployment/default/shop",
        "dayfly.kind": "fork",
        "dayfly.attempts": 1,
        "dayfly.outcome": "running",
    }, "a fork has no resource"
    assert run_trace.last_change(run) == 600
    failed = run_trace.creation_trace(run, HISTORY, "failed", Reason.HOOK_FAILED, 999)
    assert tree(failed)[0][3] == 500, "the trace ends with the last unit"


def test_unit_started_at_the_close_belongs_to_the_deletion():
    closed = EndRequest(at=300, reason="Deleted")
    run = msgspec.structs.replace(RUN, closed=closed, phase=Phase.CLEANED, ended_at=600)
    assert [each.name for each in run_trace.creation_trace(run, (), "closed", "", 999)] == ["create sandbox"]
    assert tree(run_trace.deletion_trace(run, ()))[1] == ("delete sandbox", "db/make", 300, 400, "")


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, ""),
        ({"ready": True, "reason": Reason.READY}, "ready"),
        ({"reason": Reason.HOOK_FAILED}, "failed"),
        ({"reason": Reason.OUTCOME_UNKNOWN}, ""),
        ({"closed": EndRequest(at=1, reason="Deleted")}, "closed"),
        ({"phase": Phase.CLOSED, "reason": Reason.CLEANUP_STUCK}, "closed"),
    ],
)
def test_when_a_creation_is_settled(changes, outcome):
    assert run_trace.creation_outcome(report(**changes)) == outcome
