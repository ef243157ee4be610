"""An object with a hook as the target of their run; each rule separately."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.kube.fake import Refusal
from tests.operator.rig.hook_bench import API, MERGE, QueueBench, run_story
from tests.operator.rig.hook_targets import MACHINES

from dayfly.kube import errors
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.targets.adapter import KindLostError
from dayfly.spec.kinds import Pin
from dayfly.spec.lifecycle import Exec, Lifecycle, Unit, digest
from dayfly.spec.lifecycle_hook import Hold
from dayfly.spec.run import EndRequest, Phase, State, UnitRecord
from dayfly.spec.steps.kube_object import ReadyRule

ASKED = EndRequest(at=1, reason="Deleted")
HOLD = Hold(annotation="example.org/hold", value="yes")
ROLLOUT = Hold(path="/spec/rollout/paused", value=True)


def of(made: RunObject, *, hook: dict[str, Any] | None = None, **ledger: Any) -> RunObject:
    """Return the run with changes of its ledger or hook."""
    spec = msgspec.structs.replace(made.spec, hook=msgspec.structs.replace(made.spec.hook, **(hook or {})))
    return msgspec.structs.replace(made, ledger=msgspec.structs.replace(made.ledger, **ledger), spec=spec)


@pytest.mark.parametrize(
    ("definition", "gone"), [("", False), ("deleted", True), ("served", False), ("recreated", True)]
)
def test_unsupported_object_is_gone_once_its_definition_is(definition, gone):
    async def story(bench: QueueBench):
        made = bench.create_run()
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        body = {"metadata": {"name": "machines.cluster.example.org"}, "spec": {}}
        uid = bench.ask("POST", path, body)["metadata"]["uid"]
        if definition in ("deleted", "recreated"):
            bench.ask("DELETE", f"{path}/machines.cluster.example.org")
        if definition == "recreated":
            bench.ask("POST", path, body)
        run = of(made, hook={"definition": uid if definition else ""})
        bench.server.forget("machines")
        if gone:
            assert await bench.watched.adapter.read_fields(run) is None
        else:
            with pytest.raises(KindLostError, match="if that definition is deleted, the step ends by itself"):
                await bench.watched.adapter.read_fields(run)

    run_story(story)


class TestHold:
    @pytest.mark.parametrize(
        ("hold", "there", "wanted"),
        [
            (None, {}, {}),
            (HOLD, {}, {"metadata": {"annotations": {"example.org/hold": "yes"}}}),
            (HOLD, {"metadata": {"annotations": {"example.org/hold": "theirs"}}}, {}),
            (Hold(annotation="a/b"), {}, {"metadata": {"annotations": {"a/b": ""}}}),
            (ROLLOUT, {}, {"spec": {"rollout": {"paused": True}}}),
            (ROLLOUT, {"spec": {"rollout": {"paused": False}}}, {}),
            (ROLLOUT, {"spec": {"rollout": "x"}}, {"spec": {"rollout": {"paused": True}}}),
        ],
    )
    def test_hold_is_set_unless_its_place_is_taken(self, hold, there, wanted):
        async def story(bench: QueueBench):
            if there:
                bench.ask("PATCH", f"{MACHINES}/m", there, MERGE)
            made, seen = of(bench.create_run(), hook={"hold": hold}), bench.change_machine(labels={"a": "b"})
            assert await bench.watched.adapter.build_hold_patch(made, seen.metadata) == wanted
            other = msgspec.structs.replace(seen.metadata, resource_version="1")
            assert await bench.watched.adapter.build_hold_patch(made, other) == {}, "it has changed since"
            bench.ask("DELETE", f"{MACHINES}/m")
            assert await bench.watched.adapter.build_hold_patch(made, seen.metadata) == {}

        run_story(story)

    @pytest.mark.parametrize(
        ("hold", "there", "left"),
        [
            (HOLD, {"metadata": {"annotations": {"example.org/hold": "yes"}}}, None),
            (HOLD, {"metadata": {"annotations": {"example.org/hold": "theirs"}}}, "theirs"),
            (HOLD, {}, None),
            (None, {"metadata": {"annotations": {"example.org/hold": "yes"}}}, "yes"),
        ],
    )
    def test_hold_is_removed_only_if_it_is_ours(self, hold, there, left):
        async def story(bench: QueueBench):
            if there:
                bench.ask("PATCH", f"{MACHINES}/m", there, MERGE)
            made = of(bench.create_run(), hook={"hold": hold})
            assert await bench.watched.adapter.remove_hold(made) is True
            found = bench.ask("GET", f"{MACHINES}/m")["metadata"].get("annotations", {})
            assert found.get("example.org/hold") == left
            bench.ask("DELETE", f"{MACHINES}/m")
            assert await bench.watched.adapter.remove_hold(made) is True

        run_story(story)

    def test_hold_is_removed_in_the_version_that_set_it(self):
        async def story(bench: QueueBench):
            born = bench.create_run()
            target = msgspec.structs.replace(born.ledger.target, api_version="cluster.example.org/v1beta1")
            made = of(born, hook={"hold": ROLLOUT}, target=target)
            asked: list[str] = []

            async def held(_run):
                return {"metadata": {"uid": target.uid}, "spec": {"rollout": {"paused": True}}}

            bench.watched.adapter.read_fields = held
            bench.server.faults = lambda call: asked.append(f"{call.request.method} {call.request.path}")
            with pytest.raises(KindLostError):
                await bench.watched.adapter.remove_hold(made)
            assert f"PATCH {MACHINES.replace('v1', 'v1beta1')}/m" in asked

        run_story(story)

    def test_run_does_not_wait_for_its_own_hold(self):
        async def story(bench: QueueBench):
            hook = {"hook": {"hold": {"annotation": HOLD.annotation, "value": HOLD.value}}}
            bench.create_run()
            bench.ask("PATCH", f"{API}/runs/{bench.name}", {"spec": hook}, MERGE)
            made = msgspec.convert(bench.ask("GET", f"{API}/runs/{bench.name}"), RunObject)
            assert made.spec.hook.hold == HOLD
            assert await bench.watched.adapter.remove_hold(made) is True

        run_story(story)

    def test_hold_is_not_removed_if_its_kind_goes_just_before(self):
        """Otherwise the run that waits for the removal would wait until the operator restarts."""

        async def story(bench: QueueBench):
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"annotations": {"example.org/hold": "yes"}}}, MERGE)
            made = of(bench.create_run(), hook={"hold": HOLD})

            def forget(call):
                if call.request.method == "PATCH":
                    bench.server.forget("machines")

            bench.server.faults = forget
            with pytest.raises(KindLostError):
                await bench.watched.adapter.remove_hold(made)

        run_story(story)

    @pytest.mark.parametrize(("status", "error"), [(409, errors.Conflict), (422, errors.Invalid)])
    def test_refused_removal_of_a_hold_raises(self, status, error):
        """A schema may require the field. The error is reported and retried, since the target cannot stop."""

        def no(operation, kind, _old, _new):
            if operation == "UPDATE" and kind.plural == "machines":
                raise Refusal(status, "spec.hold: Required value")

        async def story(bench: QueueBench):
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"annotations": {"example.org/hold": "yes"}}}, MERGE)
            made = of(bench.create_run(), hook={"hold": HOLD})
            bench.server.admission.append(no)
            with pytest.raises(error, match="Required value"):
                await bench.watched.adapter.remove_hold(made)

        run_story(story)

    def test_hold_that_a_peer_removes_first_is_removed(self):
        async def story(bench: QueueBench):
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"annotations": {"example.org/hold": "yes"}}}, MERGE)
            made = of(bench.create_run(), hook={"hold": HOLD})

            def peer(call):
                if call.request.method == "PATCH":
                    bench.server.faults = lambda _: None
                    bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"annotations": None}}, MERGE)

            bench.server.faults = peer
            assert await bench.watched.adapter.remove_hold(made) is True

        run_story(story)

    @pytest.mark.parametrize(
        ("change", "loosened"),
        [
            ({}, False),
            ({"hold": None}, True),
            ({"hold": "other"}, True),
            ({"phase": "cleaned"}, True),
            ({"phase": "cleaned", "documents": "gone"}, True),
            ({"units": "done"}, True),
            ({"gone": True}, True),
            ({"unheard": True}, True),
        ],
    )
    def test_hold_stays_while_another_run_needs_it(self, change, loosened):
        """The other run still has steps before the object stops."""

        async def story(bench: QueueBench):
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"annotations": {"example.org/hold": "yes"}}}, MERGE)
            made = of(bench.create_run(), hook={"hold": HOLD})
            step = Unit(name="drain", kind="exec", exec=Exec(script="#!/bin/sh"))
            spec = Lifecycle(target=made.ledger.target, pre_stop=(step,))
            body = {"metadata": {"name": "d"}, "spec": msgspec.to_builtins(spec)}
            document = bench.ask("POST", f"{API}/objectlifecyclemethods", body)
            pin = Pin(name="d", uid=document["metadata"]["uid"], digest=digest(spec))
            hold = {"other": ROLLOUT, None: None}.get(change["hold"]) if "hold" in change else HOLD
            done = {"drain": UnitRecord(attempt=1, state=State.DONE, outcome="succeeded")}
            other = of(made, hook={"hold": hold, "name": "other"}, uid="o", closed=ASKED, phase=Phase.CLOSED)
            other = of(other, started_at=5)
            other = of(other, units=done) if "units" in change else other
            other = of(other, phase=Phase.CLEANED) if "phase" in change else other
            other = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, documents=(pin,)))
            whole = msgspec.to_builtins(msgspec.structs.replace(other, metadata=other.metadata))
            body = {"metadata": {"name": "other"}, "ledger": whole["ledger"], "spec": whole["spec"]}
            stored = msgspec.convert(bench.ask("POST", f"{API}/runs", body), RunObject)
            if "unheard" not in change:
                bench.caches.runs.put(stored)
            if "gone" in change:
                bench.ask("DELETE", f"{API}/runs/other")
            if "documents" in change:
                bench.ask("DELETE", f"{API}/objectlifecyclemethods/d")
            assert await bench.watched.adapter.remove_hold(made) is loosened
            found = bench.ask("GET", f"{MACHINES}/m")["metadata"].get("annotations", {})
            assert ("example.org/hold" in found) is not loosened

        run_story(story)


@pytest.mark.parametrize("started", [True, False])
def test_object_that_is_gone_has_stopped(started):
    async def story(bench: QueueBench):
        made = of(bench.create_run(), hook={"started": ReadyRule(condition="Ready") if started else None})
        bench.ask("DELETE", f"{MACHINES}/m")
        found = await bench.watched.adapter.read_state(made)
        assert (found.started, found.stopped, found.message) == (not started, True, "")

    run_story(story)
