"""What is said of a Sandbox and shown of its logs, piece by piece: conditions, and which logs are still to be written."""

from __future__ import annotations

import msgspec
import pytest

from dayfly.execute.pod.read import stamp
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import RunObject, SandboxObject
from dayfly.operator.status.sandbox_status import _found, _served
from dayfly.operator.status.status_throttle import SILENT_MS
from dayfly.operator.status.step_logs import RECENT_MS, LogMemory, StepLogs, _ends, _entry, _forgotten, _rests
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import Report, UnitReport
from dayfly.spec.run import Phase, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
NOW = 10_000_000


def box(status: dict | None = None) -> SandboxObject:
    body = {"metadata": {"name": "box", "namespace": "shop", "uid": "u", "generation": 3}, "spec": {}}
    return msgspec.convert({**body, **({"status": status} if status else {})}, SandboxObject)


def spoken(served: str) -> SandboxObject:
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": since, "reason": "r", "message": "m"}
        for kind, status, since in (("Ready", served, "then"), ("Served", served, "since"))
    ]
    return box({"ready": True, "reason": "r", "message": "m", "phase": "Ready", "conditions": conditions})


class TestServed:
    @pytest.mark.parametrize(
        ("before", "lacking", "since"),
        [
            (None, (), stamp(NOW)),
            ("True", (), "since"),
            ("False", (), stamp(NOW)),
            ("False", ("spec.middleware",), "since"),
            ("True", ("spec.middleware",), stamp(NOW)),
        ],
    )
    def test_it_is_so_since_it_was_said_first(self, before, lacking, since):
        found = _served(spoken(before) if before else box(), lacking, NOW)
        assert (found["type"], found["lastTransitionTime"]) == ("Served", since)
        assert (found["status"], bool(found["message"])) == (("False", True) if lacking else ("True", False))
        assert found["reason"] == ("Unserved" if lacking else "Served")
        assert found["observedGeneration"] == 3

    @pytest.mark.parametrize(("status", "lacks"), [("True", False), ("False", True)])
    def test_what_was_said_before_us_is_found(self, status, lacks):
        found = _found(spoken(status))
        assert found.news == (True, "r", "Ready", 0)
        assert found.rest == ("m", "", (), lacks)
        assert found.since == "then"
        assert _found(box()).news == ()


def a_run(**units: UnitRecord) -> RunObject:
    ledger = Run(uid="u", target=TARGET, plan="", units={f"db/{name}": record for name, record in units.items()})
    return RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)


def done(attempt: int = 1, ended_at: int = NOW - 1_000, **more) -> UnitRecord:
    return UnitRecord(attempt=attempt, state=more.pop("state", State.DONE), ended_at=ended_at, **more)


class TestLogs:
    KEY = "db/make", 1

    @pytest.mark.parametrize(
        ("record", "known", "forgotten"),
        [
            (done(), False, True),
            (done(), True, False),
            (done(state=State.CLAIMED), False, False),
            (done(generation="g"), False, False),
            (done(ended_at=NOW - RECENT_MS + 1), False, True),
            (done(ended_at=NOW - RECENT_MS), False, False),
        ],
        ids=["done", "known", "alive", "kept", "of late", "long ago"],
    )
    def test_those_of_late_that_nobody_knows_were_forgotten(self, record, known, forgotten):
        for memory in (LogMemory(), LogMemory()):
            if known:
                memory.dealt_with.add(self.KEY)
            assert _forgotten(a_run(make=record), memory, NOW) == ({self.KEY: record.ended_at} if forgotten else {})
        memory = LogMemory()
        memory.waiting[self.KEY] = _entry(*self.KEY, b"", 0)
        assert _forgotten(a_run(make=record), memory, NOW) == {}

    def test_one_of_an_attempt_before_the_last_has_waited_for_long(self):
        waiting = {("db/make", 1): None, ("db/make", 2): None}
        assert _ends(a_run(make=done(attempt=2, ended_at=7)), waiting, NOW) == [NOW - SILENT_MS, 7]

    def test_what_is_no_text_is_told_as_bytes(self):
        assert (_entry("a", 1, "ä".encode(), 9).text, _entry("a", 1, b"", 0).encoding) == ("ä", "utf-8")
        found = _entry("a", 1, b"\xff", 9)
        assert (found.text, found.encoding, found.size, found.attempt) == ("/w==", "base64", 9, 1)

    def test_what_could_not_be_had_is_not_looked_for(self):
        memory = LogMemory()
        StepLogs.heard(memory, ("a", 1), None)
        StepLogs.heard(memory, ("b", 2), (b"x", 5))
        assert memory.dealt_with == {("a", 1)}
        assert memory.waiting["b", 2].size == 5
        memory.clear()
        assert (memory.waiting, memory.dealt_with) == ({}, set())

    @pytest.mark.parametrize(
        ("ready", "states", "rests"),
        [
            (True, ["succeeded"], True),
            (False, ["succeeded", "waiting"], False),
            (False, ["succeeded", "failed"], True),
            (False, ["retrying"], True),
            (False, ["unknown"], True),
            (True, ["succeeded", "running"], False),
            (False, ["failed", "running"], False),
        ],
    )
    def test_while_something_runs_they_wait_for_company(self, ready, states, rests):
        units = tuple(unit(f"db/{n}", "exec", state) for n, state in enumerate(states))
        forks = (unit("fork:shop/web", "fork", "running"),)
        report = Report(
            uid="u",
            phase=Phase.OPEN,
            ready=ready,
            reason="r",
            message="m",
            done=0,
            total=1,
            units=(*units, *forks),
        )
        assert _rests(report) is rests


def unit(name: str, kind: str, state: str) -> UnitReport:
    return UnitReport(id=name, name=name, kind=kind, state=state, event="preStart", attempt=1, reason="", message="")
