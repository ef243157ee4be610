"""Facts of forks: ready, waiting with a reason, and ended."""

import msgspec
import pytest

from dayfly.execute.fork import read
from dayfly.kube.objects import Pod
from dayfly.plan.world import Ended, Prepared, Running, Waiting
from dayfly.spec.run import State, UnitRecord

RECORD = UnitRecord(attempt=1, state=State.CLAIMED, ref="u", claimed_at=1_000)


def seen(*, replicas=1, generation=2, observed=2, counts=(1, 1, 1), deleted=False, conditions=()):
    """Return the fact of a Deployment. `counts` are its replicas, updated replicas and available replicas."""
    every, updated, available = counts
    meta = {"name": "f", "uid": "u", "generation": generation, "creationTimestamp": "2026-01-01T00:00:00Z"}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    status = {"observedGeneration": observed, "replicas": every, "updatedReplicas": updated}
    status |= {"availableReplicas": available, "conditions": list(conditions)}
    return msgspec.convert({"metadata": meta, "spec": {"replicas": replicas}, "status": status}, read.ForkDeployment)


def pod(**status):
    return msgspec.convert({"metadata": {"name": "p"}, "status": status}, Pod)


def fact(pods=(), **shape):
    return read.read_fork(seen(**shape), pods, 5_000)


def test_fork_without_replicas_is_held():
    assert fact(replicas=0, counts=(0, 0, 0)) == Prepared(ref="u")


def test_fork_is_running_once_its_newest_pods_answer():
    assert fact() == Running(since=1_767_225_600_000)


@pytest.mark.parametrize(
    "shape",
    [
        {"observed": 1},
        {"counts": (1, 0, 1)},  # an old pod is available
        {"counts": (2, 1, 1)},  # one of an old and a new pod is available
        {"counts": (1, 1, 0)},
        {"replicas": 2, "counts": (2, 2, 1)},
    ],
    ids=["unseen", "old", "both", "unavailable", "half"],
)
def test_fork_waits_for_its_pods(shape):
    assert isinstance(fact(**shape), Waiting)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((1, 1, 1), "its new pods are starting"),  # the second pod does not exist yet
        ((3, 2, 2), "its new pods are starting"),  # an old pod still exists
        ((2, 2, 1), "1 of 2 pods are available"),
    ],
)
def test_message_counts_available_pods(counts, message):
    assert fact(replicas=2, counts=counts).message == message


def test_deleted_fork_may_still_have_pods():
    """No count includes terminating pods, so no count proves that there are none."""
    assert fact(deleted=True, replicas=0, counts=(0, 0, 0)) == Running(since=1_767_225_600_000, ready=False)


def test_fork_message_prefers_pod_then_controller_then_count():
    """Messages of pods come first, then conditions of the Deployment, then the count. Normal phases are not reported."""
    pulling = pod(
        containerStatuses=[{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}]
    )
    ordinary = pod(containerStatuses=[{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}])
    unplaced = pod(
        conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}]
    )
    quota = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}

    def reason_and_message(*pods, conditions=()):
        found = fact(pods, counts=(1, 1, 0), conditions=conditions)
        return found.reason, found.message

    unready = pod(conditions=[{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "x"}])
    placed = pod(conditions=[{"type": "PodScheduled", "status": "True", "reason": "x", "message": "x"}])
    mute = pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "no reason"}])
    late = {"type": "Progressing", "status": "False", "message": "has timed out"}
    well = [{**quota, "status": "False"}, {**late, "status": "True"}, {"type": "Available", "status": "False"}]
    assert reason_and_message(unready, placed, conditions=well) == ("Starting", "0 of 1 pods are available")
    assert reason_and_message(mute) == ("Unschedulable", "no reason")
    assert reason_and_message(conditions=[late]) == ("NotProgressing", "has timed out")
    assert reason_and_message(conditions=[{**late, "reason": "Stuck"}]) == ("Stuck", "has timed out")
    assert reason_and_message(ordinary, pulling) == ("ImagePullBackOff", "no")
    assert reason_and_message(unplaced, conditions=[quota]) == ("Unschedulable", "full")
    assert reason_and_message(conditions=[quota]) == ("FailedCreate", "exceeded quota")
    assert reason_and_message(ordinary) == ("Starting", "0 of 1 pods are available")


def test_fork_is_gone_only_after_its_pods():
    for wanted, reason in ((True, "Deleted"), (False, "Cancelled")):
        assert read.read_missing_fork(RECORD, left=1, wanted=wanted, now=9_000) == Running(since=1_000, ready=False)
        ended = read.read_missing_fork(RECORD, left=0, wanted=wanted, now=9_000)
        assert isinstance(ended, Ended)
        result = ended.result
        assert (result.outcome, result.started_at, result.ended_at) == ("failed", 1_000, 9_000)
        assert result.reason == reason
