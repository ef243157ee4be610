"""What is said of a Sandbox, shown of its logs and believed of its documents, piece by piece."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from rig.world import KINDS

from dayfly.execute.pod import names
from dayfly.execute.pod.logs import TAIL_LIMIT, Printed
from dayfly.execute.pod.read import stamp
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import AnnotatedMeta, Secret
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import DocumentObject, RunObject, SandboxObject
from dayfly.operator.observe import Observer, PlanLostError
from dayfly.operator.session import Session
from dayfly.operator.status.sandbox_status import _found, _served
from dayfly.operator.status.status_throttle import GOING_ON_MS
from dayfly.operator.status.step_logs import RECENT_MS, LogMemory, StepLogs, _ends, _entry, _forgotten, _rests
from dayfly.plan.sealed import seal
from dayfly.spec.kinds import Pin, RunSpec
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit, digest
from dayfly.spec.report import Report, UnitReport
from dayfly.spec.run import Phase, Run, State, UnitRecord
from kube.fake import FakeCluster

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
        assert found.rest == ("m", "", (), lacks, False, {})
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
                memory.dealt_with |= {self.KEY}
            assert _forgotten(a_run(make=record), memory, NOW) == ({self.KEY: record.ended_at} if forgotten else {})
        memory = LogMemory()
        memory.waiting[self.KEY] = _entry(*self.KEY, Printed(b"", 0))
        assert _forgotten(a_run(make=record), memory, NOW) == {}

    def test_one_of_an_attempt_before_the_last_has_waited_for_long(self):
        waiting = {("db/make", 1): None, ("db/make", 2): None}
        assert _ends(a_run(make=done(attempt=2, ended_at=7)), waiting, NOW) == [NOW - GOING_ON_MS, 7]

    def test_what_is_no_text_is_told_as_bytes(self):
        assert (_entry("a", 1, Printed("ä".encode(), 9)).text, _entry("a", 1, Printed(b"", 0)).encoding) == (
            "ä",
            "utf-8",
        )
        found = _entry("a", 1, Printed(b"\xff", 9))
        assert (found.text, found.encoding, found.size, found.attempt) == ("/w==", "base64", 9, 1)

    def test_what_could_not_be_had_is_not_looked_for(self):
        memory = LogMemory()
        StepLogs.heard(memory, ("a", 1), None)
        StepLogs.heard(memory, ("b", 2), Printed(b"x", 5))
        assert memory.dealt_with == {("a", 1)}
        assert memory.waiting["b", 2].size == 5
        memory.clear()
        assert (memory.waiting, memory.dealt_with) == ({}, set())

    async def test_what_was_lost_is_taken_from_the_attempts_secrets(self):
        """Of those that are there; how much a log was in all is known only of one that is whole."""
        tails = {"whole": b"x", "cut": b"y" * TAIL_LIMIT, "empty": b"", "none": None}
        steps = tuple(Unit(name=name, kind="exec", exec=Exec(script="#!/bin/sh")) for name in ("gone", *tails))
        scene = SimpleNamespace(plan=seal((Lifecycle(target=TARGET, resource="db", pre_start=steps),)))
        secrets = {names.outputs_name("u", f"db/{name}", 1): tail for name, tail in tails.items()}

        async def get(_kind, name, namespace):
            assert namespace == names.RUNNERS
            if name not in secrets:
                raise errors.NotFound("GET", "gone", status=404)
            data = None if secrets[name] is None else {"log.tail": secrets[name]}
            return Secret(metadata=AnnotatedMeta(name=name), data=data)

        async def list_all(*_arguments, **_options):
            return SimpleNamespace(items=[])

        client = SimpleNamespace(get=get, list_all=list_all)
        logs = StepLogs(SimpleNamespace(client=client, now=lambda: NOW))
        lost = {(f"db/{name}", 1) for name in ("gone", *tails)} | {("db/another", 1)}
        found = await logs._recalled(scene, a_run(), lost)
        assert {key[0]: entry.size for key, entry in found.items()} == {"db/whole": 1, "db/cut": 0}

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


class TestPlan:
    """Nothing is decided but by the documents that were sealed."""

    DOCUMENTS = tuple(Lifecycle(target=TARGET, resource=name) for name in ("db", "mq"))

    async def plan(self, *, uid="d", edited=False, cached=True, missing=False, given_up=False, phase=Phase.OPEN):
        cluster = Cluster(Client(FakeCluster(extra=KINDS).transport("operator"), seed=1))
        pins = []
        for document in self.DOCUMENTS:
            name = document.resource
            pins.append(Pin(name=name, uid=f"{name}-d", digest=digest(document)))
            spec = msgspec.structs.replace(document, resource="x") if edited else document
            made = DocumentObject(metadata=AnnotatedMeta(name=name, uid=f"{name}-{uid}"), spec=spec)
            if cached and not (missing and name == "mq"):
                cluster.documents.put(made)
        run = RunObject(
            metadata=AnnotatedMeta(name="box", uid="r"),
            ledger=Run(uid="u", target=TARGET, plan="", phase=phase),
            spec=RunSpec(documents=tuple(pins)),
        )
        session = Session(run)
        observer = Observer(cluster, targets=None, executors=None, places=None)
        found = await observer._plan(run, session, given_up=given_up)
        return len(found.documents), session.work.plan is not None

    async def test_they_are_read_once(self):
        assert await self.plan() == (2, True)

    @pytest.mark.parametrize("how", [{"uid": "another"}, {"edited": True}, {"cached": False}, {"missing": True}])
    async def test_without_one_that_is_as_it_was_nothing_is_done(self, how):
        with pytest.raises(PlanLostError, match="is not the one that was sealed"):
            await self.plan(**how)

    @pytest.mark.parametrize("how", [{"given_up": True}, {"phase": Phase.CLEANED}, {"phase": Phase.ABANDONED}])
    async def test_a_run_that_is_over_needs_none(self, how):
        """Of what is left references may lead nowhere."""
        assert await self.plan(missing=True, **how) == (0, False)
