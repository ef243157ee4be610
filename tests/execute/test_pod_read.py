"""Which words of the kubelet prove that a step never ran, which that it ended, and which prove nothing."""

import msgspec
import pytest

from dayfly.execute.pod import read
from dayfly.execute.pod.names import GATE
from dayfly.kube.objects import Pod
from dayfly.plan.world import Ended, Held, NeverRan, Running, Unclear, Waiting
from dayfly.spec.lifecycle import Exec, Unit
from dayfly.spec.run import State, UnitRecord

UNIT = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n"))
NOW = "1970-01-01T00:00:02Z"
RECORD = UnitRecord(attempt=1, state=State.CLAIMED, ref="p", claimed_at=1_000)


def seen(*, main=None, phase="Running", node="n", gates=(), deleted="", reason="", restarts=0, **told):
    """The fact of a pod whose main container's state is `main`, with whatever else is told of that container."""
    statuses = [{"name": "main", "state": main, "restartCount": restarts, **told}] if main is not None else []
    pod = {
        "metadata": {"name": "r", "uid": "p", **({"deletionTimestamp": deleted} if deleted else {})},
        "spec": {"nodeName": node, "schedulingGates": [{"name": gate} for gate in gates]},
        "status": {"phase": phase, "reason": reason, "containerStatuses": statuses},
    }
    told = msgspec.convert(pod, Pod)
    return read.pod(told, unit=UNIT, record=RECORD, nonce="n", now=2_000).fact


def ended(**terminated):
    return {"terminated": {"exitCode": 137, **terminated}}


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_a_container_that_could_not_be_started_never_ran(reason):
    assert isinstance(seen(main=ended(reason=reason, startedAt="1970-01-01T00:00:00Z")), NeverRan)


def test_an_unknown_end_is_no_proof_that_it_never_began():
    """The kubelet writes this, without a start, of containers that did run: taken for void, the script runs twice.

    Whatever else its last status says is what it knew then: here all that it says where an image is missing.
    """
    never = {"imageID": "", "started": False, "image": "no-such-image", "lastState": {}}
    fact = seen(main=ended(reason="ContainerStatusUnknown"), phase="Failed", deleted=NOW, **never)
    assert isinstance(fact, Ended)
    assert (fact.result.outcome, fact.result.reason) == ("failed", "ContainerStatusUnknown")
    assert "whether it ever began cannot be told" in fact.result.message


def test_an_end_with_a_start_and_without_a_receipt_is_lost_or_what_the_kernel_said():
    killed = seen(main=ended(reason="OOMKilled", startedAt="2026-01-01T00:00:00Z"))
    assert killed.result.reason == "OOMKilled"
    assert seen(main=ended(reason="Error", startedAt="2026-01-01T00:00:00Z")).result.reason == "Lost"


@pytest.mark.parametrize(
    ("deleted", "reason"),
    [
        ("1970-01-01T00:09:59Z", "ContainerStatusUnknown"),
        ("1970-01-01T00:10:00Z", "StartDeadlineExceeded"),  # whole seconds: asked for in this one, due 1 s after 10 min
        ("1970-01-01T00:10:01Z", "StartDeadlineExceeded"),
    ],
)
def test_what_was_removed_when_its_time_to_start_was_over_says_that(deleted, reason):
    fact = seen(main=ended(reason="ContainerStatusUnknown"), phase="Failed", deleted=deleted)
    assert fact.result.reason == reason
    assert ("did not start within 10 min" in fact.result.message) == (reason == "StartDeadlineExceeded")
    assert "cannot be told for certain" in fact.result.message


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"resources": {"limits": {"memory": "24Mi", "cpu": "1"}}}, "needed more memory than its limit of 24Mi ("),
        ({"resources": {"limits": {"cpu": "1"}}}, "needed more memory than its node had left ("),
        ({"resources": {}}, "needed more memory than its node had left ("),
        ({}, "needed more memory than its limit ("),  # a server before 1.33 does not tell it
    ],
)
def test_a_container_that_the_kernel_ended_with_its_runner_wanted_memory(told, message):
    killed = seen(main=ended(reason="OOMKilled", startedAt="2026-01-01T00:00:00Z"), **told)
    assert killed.result.message.startswith(message)
    assert "resources.limits.memory of container main" in killed.result.message


def test_a_pod_that_is_over_while_its_container_was_last_seen_running_proves_nothing():
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    fact = seen(main=running, phase="Failed")
    assert isinstance(fact, Unclear)
    assert fact.dead_by > 2_000


def test_a_pod_refused_by_its_kubelet_never_ran_unless_its_node_was_lost():
    assert isinstance(seen(phase="Failed", reason="OutOfcpu"), NeverRan)
    assert isinstance(seen(phase="Failed", reason="NodeLost"), Unclear)


def test_a_gate_holds_and_a_deleted_gated_or_unplaced_pod_never_runs():
    assert seen(phase="Pending", node="", gates=[GATE]) == Held(ref="p")
    assert isinstance(seen(phase="Pending", node="", gates=[GATE], deleted=NOW), NeverRan)
    assert isinstance(seen(phase="Pending", node="", deleted=NOW), NeverRan)


def test_a_placed_pod_that_is_pending_proves_nothing():
    assert isinstance(seen(phase="Pending", deleted=NOW), Waiting)
    assert isinstance(seen(main={"waiting": {"reason": "ErrImagePull"}}, phase="Pending"), Waiting)
    assert isinstance(seen(main={"running": {"startedAt": "2026-01-01T00:00:00Z"}}), Running)
