"""Statuses of a Sandbox and of its resources, each rule separately: timing, generation and refusals."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import AnnotatedMeta, Key, ObjectMeta, OwnerReference
from dayfly.operator.cluster.objects import (
    SERVED_FOR_ANNOTATION,
    SERVED_KEY_ANNOTATION,
    SERVED_LABEL,
    SERVED_NAME_ANNOTATION,
    DocumentObject,
    RunObject,
    SandboxObject,
    resource_name,
)
from dayfly.operator.status.resource_status import (
    CONFLICT_RECHECK_S,
    ResourceMemory,
    ResourceObject,
    ResourceStatusWriter,
)
from dayfly.operator.status.sandbox_status import (
    CONFLICT_RETRY_S,
    AppliedSpec,
    SandboxNotReadyError,
    SandboxStatusWriter,
)
from dayfly.plan.reasons import Reason
from dayfly.plan.route_groups import EXPIRES_SOON_CONDITION
from dayfly.plan.sealed import seal
from dayfly.plan.world import TargetIntent
from dayfly.spec.identity import routing_key
from dayfly.spec.kinds import Pin, RunSpec
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase, Run

NOW = 10_000_000
TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
MAKE = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh"))
DOCUMENT = Lifecycle(target=TARGET, resource="db", pre_start=(MAKE,))
PLAN = seal((DOCUMENT, Lifecycle(target=TARGET)))
GONE = errors.NotFound("PATCH", "gone", status=404)
MOVED = errors.Conflict("PATCH", "moved", status=409)


def unit(state: str = "succeeded", *, kind: str = "exec", name: str = "make") -> UnitReport:
    return UnitReport(id=f"db/{name}", resource="db", name=name, kind=kind, state=state, event="preStart", attempt=1)


def report(
    *units: UnitReport, ready: bool = True, reason: str = "AllDesiredWorkloadsReady", closed: bool = False
) -> RunReport:
    return RunReport(
        uid="u",
        phase=Phase.OPEN,
        ready=ready,
        reason=reason,
        message="All desired workloads are available.",
        done=1,
        total=1,
        units=units or (unit(),),
        closed=EndRequest(at=1, reason="Deleted") if closed else None,
    )


def a_run(phase: Phase = Phase.OPEN) -> RunObject:
    ledger = Run(uid="u", target=TARGET, plan="", phase=phase)
    spec = RunSpec(documents=(Pin(name="gone", uid="x", digest=""), Pin(name="d", uid="d", digest="")))
    return RunObject(metadata=AnnotatedMeta(name="run", uid="r"), ledger=ledger, spec=spec)


class Client:
    """A server that records status writes; `faults` are its next answers."""

    def __init__(self) -> None:
        self.said: list[dict] = []
        self.made: list[dict] = []
        self.faults: list[Exception | None] = []
        self.there: ResourceObject | None = None

    async def patch(self, _kind, patch, *_where, subresource):
        assert subresource == "status"
        if self.faults and (fault := self.faults.pop(0)):
            raise fault
        self.said.append({"uid": patch["metadata"]["uid"], **patch["status"]})
        return SimpleNamespace(metadata=ObjectMeta())

    async def create(self, _kind, body):
        if self.there is not None:
            raise errors.AlreadyExists("POST", "exists", status=409)
        self.made.append(body)
        return self.resource("r")

    async def get(self, _kind, _name):
        return self.there

    def resource(self, owner: str, **status) -> ResourceObject:
        owners = [OwnerReference(api_version="v1", kind="Run", name="run", uid=owner)]
        body = {"metadata": {"name": "x", "uid": "of-db"}, **({"status": status} if status else {})}
        found = msgspec.convert(body, ResourceObject)
        return msgspec.structs.replace(found, metadata=ObjectMeta(name="x", uid="of-db", owner_references=owners))


class Boxes:
    """The status of one Sandbox."""

    def __init__(self, *, spec: dict | None = None, generation: int = 3, status: dict | None = None, **meta) -> None:
        self.client = Client()
        self.events: list[tuple[str, str]] = []
        body = {"metadata": {"name": "box", "namespace": "shop", "uid": "u", "generation": generation, **meta}}
        self.box = msgspec.convert(
            {**body, "spec": spec or {}, **({"status": status} if status else {})}, SandboxObject
        )
        self.listeners: list = []
        boxes = SimpleNamespace(get=lambda _name, _namespace: self.box, listen=self.listeners.append)
        cluster = SimpleNamespace(client=self.client, now=lambda: NOW, sandboxes=boxes, urls={})
        recorder = SimpleNamespace(
            record=lambda _of, _action, reason, _message, kind: self.events.append((kind, reason))
        )
        self.status = SandboxStatusWriter(cluster, recorder)
        self.scene = SimpleNamespace(plan=PLAN, world=SimpleNamespace(run=a_run().ledger, intent=TargetIntent()))

    async def say(self, told: RunReport | None = None, applied_spec: AppliedSpec | None = None, **how) -> float:
        return await self.status.write_report(
            self.scene, told or report(), lambda _seen: applied_spec or AppliedSpec(2), **how
        )

    @property
    def last(self) -> tuple[int, bool, str, str]:
        said = self.client.said[-1]
        return said["observedGeneration"], said["ready"], said["reason"], said["message"]


READY = "All desired workloads are available."
NO = SandboxNotReadyError(Reason.PLUGIN_MISSING, "resource plugin x is not in this cluster")


class TestSandbox:
    async def test_status_is_written_once_for_the_accepted_generation(self):
        bench = Boxes()
        assert [await bench.say(), await bench.say()] == [0.0, 0.0]
        assert bench.last == (2, True, "AllDesiredWorkloadsReady", READY)
        assert bench.client.said[0]["run"] == names.run_name("box", "u")
        assert len(bench.client.said) == 1
        assert bench.events == [("Normal", "AllDesiredWorkloadsReady")]

    async def test_status_omits_endpoints_if_there_never_were_any(self):
        bench = Boxes(status={"ready": False, "reason": "r", "message": "m"})
        await bench.say()
        assert "endpoints" not in bench.client.said[0]

    async def test_its_phase_is_that_of_its_run_and_no_event_of_its_own(self):
        bench = Boxes()
        await bench.status.report_waiting(bench.box, SandboxNotReadyError(Reason.PLUGIN_MISSING, "wait"))
        await bench.say(report(ready=False, reason="Starting"))
        await bench.say(report(ready=False, reason="Starting", closed=True))
        assert [said["phase"] for said in bench.client.said] == ["Pending", "Creating", "Deleting"]
        assert bench.events == [("Warning", "PluginMissing"), ("Normal", "Starting")]

    @pytest.mark.parametrize(("closed", "deleted"), [(True, False), (False, True)])
    async def test_ending_sandbox_reports_the_newest_generation(self, closed, deleted):
        """No further spec of its owner is applied."""
        bench = Boxes(**({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}))
        await bench.say(report(closed=closed, ready=False, reason="Deleting"), AppliedSpec(2, NO))
        assert bench.last[0] == 3
        assert bench.last[2] == "Deleting"

    @pytest.mark.parametrize(
        ("reason", "refused"),
        [("AllDesiredWorkloadsReady", True), ("ResourceFailed", False), (Reason.CLEANUP_STUCK, False)],
    )
    async def test_a_wish_that_was_refused_is_said_unless_there_is_worse(self, reason, refused):
        bench = Boxes()
        await bench.say(report(ready=reason == "AllDesiredWorkloadsReady", reason=reason), AppliedSpec(3, NO))
        generation, ready, said, message = bench.last
        assert (generation, ready, said) == (3, False, Reason.PLUGIN_MISSING if refused else reason)
        assert message == (f"{NO}; its forks stay as they are" if refused else READY)

    @pytest.mark.parametrize(("ready", "reason"), [(False, Reason.BLOCKED), (True, "AllDesiredWorkloadsReady")])
    async def test_hindrance_is_reported_only_while_not_ready(self, ready, reason):
        bench = Boxes()
        await bench.say(report(ready=ready, reason="AllDesiredWorkloadsReady"), hindrance="a quota")
        assert bench.last[2] == reason
        assert (bench.last[3] == "cannot continue and is retried: a quota") is not ready

    @pytest.mark.parametrize("uid", ["another", None])
    async def test_nothing_is_said_of_another_of_its_name(self, uid):
        bench = Boxes()
        await bench.say()
        meta = msgspec.structs.replace(bench.box.metadata, uid=uid or "")
        bench.box = uid and msgspec.structs.replace(bench.box, metadata=meta)
        assert await bench.say(report(ready=False, reason="Deleting")) == 0.0
        assert len(bench.client.said) == 1

    async def test_unsupported_field_is_reported_only_once_ready(self):
        bench = Boxes(spec={"middleware": [{"name": "override", "match": []}]})
        await bench.say(report(ready=False, reason="Starting"))
        assert bench.last[3] == READY
        await bench.say()
        assert bench.last[3] == f"{READY} Not supported here: spec.middleware (requests are not intercepted)."

    @pytest.mark.parametrize(
        ("before", "lacks", "kept"),
        [("True", False, True), ("False", False, False), ("False", True, True), ("True", True, False)],
    )
    async def test_served_condition_keeps_its_time_until_it_changes(self, before, lacks, kept):
        since = "2026-01-01T00:00:00Z"
        told = {"type": "Supported", "status": before, "lastTransitionTime": since, "reason": "r", "message": "m"}
        bench = Boxes(
            spec={"middleware": [{"name": "override", "match": []}]} if lacks else {},
            status={"ready": False, "reason": "r", "message": "m", "conditions": [told]},
        )
        await bench.say()
        [served] = [each for each in bench.client.said[-1]["conditions"] if each["type"] == "Supported"]
        assert (served["status"], served["reason"]) == (("False", "Unsupported") if lacks else ("True", "Supported"))
        assert (bool(served["message"]), served["observedGeneration"]) == (lacks, 3)
        assert (served["lastTransitionTime"] == since) is kept

    async def test_status_of_an_earlier_process_is_not_rewritten(self):
        first = Boxes()
        await first.say()
        spoken = {key: value for key, value in first.client.said[0].items() if key != "uid"}
        again = Boxes(status=spoken)
        assert await again.say() == 0.0
        assert again.client.said == []

    @pytest.mark.parametrize(("fault", "again"), [(GONE, 0.0), (MOVED, CONFLICT_RETRY_S)])
    async def test_failed_status_write_is_retried_if_the_sandbox_exists(self, fault, again):
        bench = Boxes()
        bench.client.faults = [fault]
        assert await bench.say() == again
        assert bench.events == []
        assert await bench.say() == 0.0
        assert len(bench.client.said) == 1

    async def test_frozen_sandbox_is_counted_until_it_recovers_or_ends(self):
        bench = Boxes()
        await bench.status.report_waiting(bench.box, SandboxNotReadyError(Reason.PLAN_LOST, "restore it"))
        assert bench.last == (3, False, Reason.PLAN_LOST, "restore it")
        assert bench.status.frozen == {"u": Reason.PLAN_LOST}
        await bench.say()
        assert bench.status.frozen == {}
        await bench.status.report_waiting(bench.box, SandboxNotReadyError(Reason.LEDGER_LOST, "restore it"))
        [heard] = bench.listeners
        heard(ObjectChange(Key("shop", "box"), bench.box, bench.box))
        assert bench.status.frozen == {"u": Reason.LEDGER_LOST}
        heard(ObjectChange(Key("shop", "box"), bench.box, None))
        assert bench.status.frozen == {}

    async def test_after_another_has_spoken_it_is_said_again(self):
        bench = Boxes()
        await bench.say()
        bench.status.reset()
        await bench.say()
        assert len(bench.client.said) == 2

    @pytest.mark.parametrize(("notes", "key"), [({SERVED_KEY_ANNOTATION: "theirs"}, "theirs"), ({}, routing_key("u"))])
    async def test_served_sandbox_keeps_the_key_from_its_server(self, notes, key):
        bench = Boxes(annotations=notes)
        await bench.say()
        assert bench.client.said[0]["routingKey"] == key

    @pytest.mark.parametrize("said", [False, True])
    async def test_expiry_warning_is_recorded_once_across_processes(self, said):
        told = [
            {
                "type": EXPIRES_SOON_CONDITION,
                "status": "True",
                "reason": "r",
                "message": "m",
                "lastTransitionTime": "then",
            }
        ]
        status = {"ready": False, "reason": "Starting", "message": "m", "conditions": told if said else []}
        bench = Boxes(spec={"ttl": {"duration": "1h"}}, status=status)
        bench.scene.world.intent = TargetIntent(expires_at=NOW)
        await bench.say()
        assert (("Warning", Reason.EXPIRES_SOON) in bench.events) is not said

    async def test_expiring_sandbox_is_checked_again_before_its_end(self):
        bench = Boxes(spec={"ttl": {"duration": "1h"}})
        bench.scene.world.intent = TargetIntent(expires_at=NOW + 3_600_000)
        assert [await bench.say(), await bench.say()] == [pytest.approx(3_240.001)] * 2

    @pytest.mark.parametrize(
        ("labels", "whose"), [({SERVED_LABEL: "u"}, {"servedFor": "acme/shop"}), ({}, {})], ids=["theirs", "own"]
    )
    async def test_served_sandbox_reports_its_organisation_and_name(self, labels, whose):
        bench = Boxes(labels=labels, annotations={SERVED_FOR_ANNOTATION: "acme", SERVED_NAME_ANNOTATION: "shop"})
        await bench.say()
        assert {key: value for key, value in bench.client.said[0].items() if key == "servedFor"} == whose

    async def test_a_doubt_is_an_event(self):
        bench = Boxes()
        bench.status.warn(bench.box, "nobody takes that")
        assert bench.events == [("Warning", Reason.PARTLY_APPLIED)]

    @pytest.mark.parametrize(
        ("state", "pod"), [("running", True), ("unknown", True), ("succeeded", False), ("waiting", False)]
    )
    async def test_the_pods_are_named_in_which_steps_run_now(self, state, pod):
        bench = Boxes()
        await bench.say(report(unit(state), ready=False, reason="Starting"))
        [told] = bench.client.said[-1]["units"]
        assert told.get("pod", "").startswith("dayfly-runners/r-db-make") is pod


class Resources:
    """The statuses of one run's resources."""

    def __init__(self, *, bound: str = "secret", phase: Phase = Phase.OPEN) -> None:
        self.client = Client()
        self.asked = 0
        self.bound = bound
        self.memory: dict[str, ResourceMemory] = {}
        body = {
            "metadata": {"name": "box", "uid": "u"},
            "spec": {"resources": [{"name": "x"}, {"name": "db", "plugin": "pg"}]},
        }
        box = msgspec.convert(body, SandboxObject)
        document = DocumentObject(metadata=AnnotatedMeta(name="d"), spec=DOCUMENT)
        cluster = SimpleNamespace(
            client=self.client,
            sandboxes=SimpleNamespace(get=lambda _name, _namespace: box),
            documents=SimpleNamespace(get={"d": document}.get),
        )
        self.status = ResourceStatusWriter(cluster, self._bind)
        self.run = a_run(phase)

    async def _bind(self, _run, document):
        assert document is DOCUMENT
        self.asked += 1
        return self.bound

    async def say(self, told: RunReport | None = None) -> float:
        return await self.status.write_due(SimpleNamespace(plan=PLAN, now=NOW), self.run, told or report(), self.memory)


class TestResources:
    async def test_each_is_made_and_said_once_with_where_its_outputs_lie(self):
        bench = Resources()
        assert [await bench.say(), await bench.say()] == [0.0, 0.0]
        [made], [said] = bench.client.made, bench.client.said
        assert made["metadata"]["name"] == resource_name(bench.run, "db")
        assert (made["spec"]["plugin"], made["spec"]["document"]) == ("pg", "d")
        assert (said["uid"], said["phase"], said["ready"]) == ("of-db", "Ready", True)
        assert (said["binding"], said["reason"]) == ({"name": "secret"}, Reason.RESOURCE_READY)
        assert len(said["units"]) == 1
        assert (said["observedGeneration"], said["conditions"][0]["observedGeneration"]) == (1, 1)
        assert bench.asked == 1

    async def test_resource_status_omits_units_of_other_resources(self):
        bench = Resources()
        await bench.say(report(unit(), msgspec.structs.replace(unit("failed"), id="mq/make", resource="mq")))
        [said] = bench.client.said
        assert (said["phase"], [told["id"] for told in said["units"]]) == ("Ready", ["db/make"])

    async def test_unready_resource_does_not_bind_its_outputs(self):
        bench = Resources()
        await bench.say(report(unit("running"), ready=False, reason="Starting"))
        assert bench.asked == 0
        assert (bench.client.said[0]["ready"], bench.client.said[0]["binding"]) == (False, None)

    async def test_resource_without_a_secret_names_no_binding(self):
        bench = Resources(bound="")
        await bench.say()
        assert bench.client.said[0]["binding"] is None

    @pytest.mark.parametrize("phase", [Phase.CLEANED, Phase.ABANDONED])
    async def test_ended_run_gets_no_resource_status(self, phase):
        bench = Resources(phase=phase)
        assert await bench.say() == 0.0
        assert (bench.client.made, bench.client.said) == ([], [])

    async def test_foreign_resource_is_left_unchanged_and_checked_again(self):
        bench = Resources()
        bench.client.there = bench.client.resource("another")
        assert await bench.say() == CONFLICT_RECHECK_S
        assert bench.client.said == []
        bench.client.there = None
        assert await bench.say() == 0.0
        assert len(bench.client.said) == 1

    async def test_status_of_an_earlier_process_is_not_rewritten(self):
        first = Resources()
        await first.say()
        spoken = {key: value for key, value in first.client.said[0].items() if key != "uid"}
        bench = Resources()
        bench.client.there = bench.client.resource("r", **msgspec.to_builtins(spoken))
        assert [await bench.say(), await bench.say()] == [0.0, 0.0]
        assert bench.client.said == []
        await bench.say(report(unit("failed"), ready=False, reason="ResourceFailed"))
        assert bench.client.said[0]["phase"] == "Failed"

    @pytest.mark.parametrize("fault", [GONE, MOVED])
    async def test_deleted_resource_is_recreated_at_the_next_change(self, fault):
        bench = Resources()
        bench.client.faults = [fault]
        assert await bench.say() == 0.0
        assert bench.memory["db"].uid == ""
        await bench.say()
        assert len(bench.client.made) == 2
        assert len(bench.client.said) == 1

    async def test_status_of_a_replaced_resource_is_written_again(self):
        """Another user's status may have the right reason and wrong details; only a new process must believe it."""
        first, bench = Resources(), Resources()
        await first.say()
        await bench.say(report(unit("running"), ready=False, reason="Starting"))
        bench.client.faults = [MOVED]
        await bench.say()
        spoken = {key: value for key, value in first.client.said[0].items() if key != "uid"}
        lie = msgspec.to_builtins(spoken) | {"binding": {"name": "somebody-elses"}}
        bench.client.there = bench.client.resource("r", **lie)
        await bench.say()
        assert bench.client.said[-1]["binding"] == {"name": "secret"}

    async def test_mere_progress_has_time(self):
        bench = Resources()
        two = (unit("running"), unit("waiting", name="seed"))
        await bench.say(report(*two, ready=False, reason="Starting"))
        assert await bench.say(report(unit(), unit("running", name="seed"), ready=False, reason="Starting")) > 0
        assert len(bench.client.said) == 1
