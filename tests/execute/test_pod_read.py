"""Facts of pods: which statuses prove that a step never ran, or has ended, and which prove nothing."""

import base64

import msgspec
import pytest

from dayfly.execute.pod import read
from dayfly.execute.pod.names import GATE, ORDER_ANNOTATION
from dayfly.kube.objects import Pod
from dayfly.plan import reason_catalog
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, NeverRan, Prepared, Running, Sealed, Unclear, Waiting
from dayfly.spec.frames import encode
from dayfly.spec.lifecycle import Exec, Unit
from dayfly.spec.run import State, UnitRecord

UNIT = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n"))
NOW = "1970-01-01T00:00:02Z"
RECORD = UnitRecord(attempt=1, state=State.CLAIMED, ref="p", claimed_at=1_000)


def seen(
    *,
    main=None,
    phase="Running",
    node="n",
    gates=(),
    deleted="",
    reason="",
    said="",
    restarts=0,
    recalled=0,
    beside=None,
    unit=UNIT,
    **told,
):
    """Return the fact of a pod with this state and these fields of the main container."""
    statuses = [{"name": "main", "state": main, "restartCount": restarts, **told}] if main is not None else []
    added = [{"name": f"dayfly-recall-{recalled}"}] if recalled else []
    pod = {
        "metadata": {"name": "r", "uid": "p", **({"deletionTimestamp": deleted} if deleted else {})},
        "spec": {
            "nodeName": node,
            "schedulingGates": [{"name": gate} for gate in gates],
            "ephemeralContainers": added,
        },
        "status": {"phase": phase, "reason": reason, "message": said, "containerStatuses": statuses},
    }
    for field, others in (beside or {}).items():
        pod["status"][field] = [*pod["status"].get(field, ()), *others]
    told = msgspec.convert(pod, Pod)
    return read.read_pod(told, unit=unit, record=RECORD, nonce="n", now=2_000).fact


def overlaid(field):
    """Return the step with another container in its pod template."""
    other = {"name": "other", "image": "x"}
    template = {"spec": {field: [other]}}
    return msgspec.structs.replace(UNIT, exec=msgspec.structs.replace(UNIT.exec, pod_template=template))


def ended(**terminated):
    return {"terminated": {"exitCode": 137, **terminated}}


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_unstartable_container_never_ran(reason):
    assert isinstance(seen(main=ended(reason=reason, startedAt="1970-01-01T00:00:00Z")), NeverRan)


def test_started_container_may_have_run_with_any_reason():
    fact = seen(main=ended(reason="StartError", startedAt=NOW))
    assert isinstance(fact, Ended)
    assert fact.result.reason == "StartError"


def test_unknown_end_proves_nothing():
    """The kubelet writes this reason, without a start, also for containers that did run.

    The other fields of the status are the last report of the kubelet, here for a missing image. If this counted as
    proof, the script would run twice.
    """
    never = {"imageID": "", "started": False, "image": "no-such-image", "lastState": {}}
    fact = seen(main=ended(reason="ContainerStatusUnknown"), phase="Failed", deleted=NOW, **never)
    assert isinstance(fact, Ended)
    assert (fact.result.outcome, fact.result.reason) == ("failed", "ContainerStatusUnknown")
    assert "not known whether it began" in fact.result.message


WAITS = {"waiting": {"reason": "ErrImagePull"}}
CODES = {"void": 125, "refused": 125, "not-executable": 127}


def sealed(outcome, code=None):
    """Return a terminated container with the runner's receipt in its message."""
    records = [("nonce", b"n"), ("attempt", b"1"), ("outcome", outcome.encode()), ("code", b"0")]
    coded = base64.b64encode(encode("dayfly-receipt", records)).decode()
    code = CODES.get(outcome, 137) if code is None else code
    return ended(message=f"dayfly-receipt 1 {outcome} 0\n{coded}", exitCode=code)


@pytest.mark.parametrize("outcome", CODES)
def test_step_that_sealed_no_start_never_ran(outcome):
    assert isinstance(seen(main=sealed(outcome), phase="Failed"), NeverRan)


@pytest.mark.parametrize("outcome", CODES)
@pytest.mark.parametrize("code", [0, 3, 137])
def test_script_that_forged_its_receipt_counts_as_run(outcome, code):
    """The script wrote the message and had the kernel kill the runner, for example by using too much memory."""
    fact = seen(main=sealed(outcome, code), phase="Failed")
    assert isinstance(fact, Ended)
    assert (fact.result.outcome, fact.result.reason) == ("failed", "ResultLost")


BESIDE = {"initContainers": "initContainerStatuses", "containers": "containerStatuses"}


@pytest.mark.parametrize("field", BESIDE)
@pytest.mark.parametrize("state", [ended(), {"running": {}}, {"waiting": {}}])
@pytest.mark.parametrize(
    "main", [sealed("not-executable"), ended(reason="StartError"), {"waiting": {"reason": "PodInitializing"}}]
)
def test_step_beside_other_containers_counts_as_run(field, state, main):
    beside = {BESIDE[field]: [{"name": "other", "state": state}]}
    fact = seen(main=main, phase="Failed", beside=beside, unit=overlaid(field))
    assert isinstance(fact, (Ended, Sealed))
    assert fact.result.outcome == "failed"
    assert "other containers of its pod may have run" in fact.result.message
    assert isinstance(fact, Ended) == ("terminated" in state and "terminated" in main)


def test_sidecar_of_the_cluster_leaves_the_proof_alone():
    side = {"containerStatuses": [{"name": "istio-proxy", "state": {"running": {}}}]}
    assert isinstance(seen(main=sealed("not-executable"), phase="Running", beside=side), NeverRan)


@pytest.mark.parametrize(("message", "said"), [("no such file", "no such file"), ("", "its container never started")])
def test_reason_of_a_step_that_never_ran_is_reported(message, said):
    fact = seen(main=ended(reason="StartError", message=message))
    assert (fact.reason, fact.message) == ("StartError", said)


@pytest.mark.parametrize(("altered", "kept"), [("", True), ("\n", True), (" ", True), ("!", False), ("\u00e4", False)])
def test_altered_receipt_is_rejected_except_for_line_ends(altered, kept):
    """The kubelet may change line ends."""
    state = sealed("void")
    head, _, body = state["terminated"]["message"].partition("\n")
    state["terminated"]["message"] = f"{head}\n{body[:8]}{altered}{body[8:]}"
    assert isinstance(seen(main=state), NeverRan) is kept


NOT_CREATED = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}


@pytest.mark.parametrize("reason", sorted(reason_catalog.NO_IMAGE | NOT_CREATED))
def test_step_without_image_is_recallable_until_pod_deletion(reason):
    waiting = {"waiting": {"reason": reason, "message": "no"}}
    assert seen(main=waiting, phase="Pending").recallable
    assert not seen(main=waiting, phase="Pending", deleted=NOW).recallable
    assert seen(main=waiting, phase="Pending", recalled=5_000).recalled == 5_000


@pytest.mark.parametrize("field", BESIDE)
def test_step_beside_other_containers_cannot_be_recalled(field):
    assert not seen(main=WAITS, phase="Pending", unit=overlaid(field)).recallable


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", "CrashLoopBackOff"])
def test_step_waiting_for_another_reason_is_not_recallable(reason):
    assert not seen(main={"waiting": {"reason": reason}}, phase="Pending").recallable


def recalled_pod(outcome="void", *, main=WAITS, since=5_000, code=None, **more):
    """Return the fact of a recalled pod whose added container has sealed `outcome`."""
    told = [{"name": f"dayfly-recall-{since}", "state": sealed(outcome, code)}]
    beside = {"ephemeralContainerStatuses": told, **more.pop("beside", {})}
    return seen(main=main, phase="Pending", recalled=since, beside=beside, **more)


@pytest.mark.parametrize(
    ("since", "reason"), [(600_999, "NeverRan"), (601_000, "StartDeadlineExceeded"), (700_000, "StartDeadlineExceeded")]
)
def test_sealed_recall_proves_and_explains_that_it_never_ran(since, reason):
    fact = recalled_pod(since=since)
    assert isinstance(fact, NeverRan)
    assert fact.reason == reason
    assert ("did not start within 10 min" in fact.message) == (reason == "StartDeadlineExceeded")


@pytest.mark.parametrize(
    "main",
    [
        WAITS,
        ended(reason="ContainerStatusUnknown"),
        ended(exitCode=3, reason="Error", startedAt=NOW),  # it started while the recall held the lock
        sealed("void"),
        sealed("refused"),
    ],
)
def test_recall_is_proof_if_the_container_did_not_run(main):
    assert isinstance(recalled_pod(main=main), NeverRan)


@pytest.mark.parametrize(
    "main",
    [{"running": {"startedAt": NOW}}, sealed("exited"), ended(reason="OOMKilled", startedAt=NOW), sealed("void", 137)],
)
def test_recall_is_no_proof_against_a_container_that_ran(main):
    """A script of the same user can remove the marker that the recall needs."""
    assert not isinstance(recalled_pod(main=main), NeverRan)


@pytest.mark.parametrize("outcome", ["refused", "lost", "cancelled", "exited"])
def test_recall_without_a_sealed_void_proves_nothing(outcome):
    """The runner of the recall may have another user, which cannot read the files of the first runner."""
    fact = recalled_pod(outcome)
    assert isinstance(fact, Waiting)
    assert fact.recalled == 5_000


def test_recall_of_another_attempt_proves_nothing():
    state = sealed("void")
    records = [("nonce", b"other"), ("attempt", b"1"), ("outcome", b"void"), ("code", b"0")]
    coded = base64.b64encode(encode("dayfly-receipt", records)).decode()
    state["terminated"]["message"] = f"dayfly-receipt 1 void 0\n{coded}"
    told = [{"name": "dayfly-recall-5000", "state": state}]
    assert isinstance(seen(main=WAITS, recalled=5_000, beside={"ephemeralContainerStatuses": told}), Waiting)


def test_recall_beside_other_containers_proves_nothing():
    assert isinstance(recalled_pod(unit=overlaid("initContainers")), Waiting)


@pytest.mark.parametrize("state", [{"waiting": {"reason": "ErrImagePull"}}, {"running": {"startedAt": NOW}}])
def test_end_of_a_step_does_not_wait_for_its_recall(state):
    told = [{"name": "dayfly-recall-5000", "state": state}]
    fact = seen(main=sealed("exited"), phase="Succeeded", recalled=5_000, beside={"ephemeralContainerStatuses": told})
    assert isinstance(fact, Ended)


def test_end_without_receipt_is_lost_or_the_kernel_reason():
    killed = seen(main=ended(reason="OOMKilled", startedAt="2026-01-01T00:00:00Z"))
    assert killed.result.reason == "OOMKilled"
    assert seen(main=ended(reason="Error", startedAt="2026-01-01T00:00:00Z")).result.reason == "ResultLost"


@pytest.mark.parametrize(
    ("deleted", "reason"),
    [
        ("1970-01-01T00:09:59Z", "ContainerStatusUnknown"),
        (
            "1970-01-01T00:10:00Z",
            "StartDeadlineExceeded",
        ),  # whole seconds: requested in this second, due 1 s after 10 min
        ("1970-01-01T00:10:01Z", "StartDeadlineExceeded"),
    ],
)
def test_removed_pod_past_its_start_deadline_reports_that(deleted, reason):
    fact = seen(main=ended(reason="ContainerStatusUnknown"), phase="Failed", deleted=deleted)
    assert fact.result.reason == reason
    assert ("did not start within 10 min" in fact.result.message) == (reason == "StartDeadlineExceeded")
    assert "not known whether it began" in fact.result.message


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"resources": {"limits": {"memory": "24Mi", "cpu": "1"}}}, "needed more memory than its limit of 24Mi ("),
        ({"resources": {"limits": {"cpu": "1"}}}, "needed more memory than its node had left ("),
        ({"resources": {}}, "needed more memory than its node had left ("),
        ({}, "needed more memory than its limit ("),  # API servers before 1.33 lack this field
    ],
)
def test_out_of_memory_names_the_limit(told, message):
    killed = seen(main=ended(reason="OOMKilled", startedAt="2026-01-01T00:00:00Z"), **told)
    assert killed.result.message.startswith(message)
    assert "resources.limits.memory of container main" in killed.result.message


def test_ended_pod_with_running_container_is_unclear():
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    fact = seen(main=running, phase="Failed")
    assert isinstance(fact, Unclear)
    assert fact.dead_by > 2_000


def test_pod_refused_by_the_kubelet_never_ran():
    assert isinstance(seen(phase="Failed", reason="OutOfcpu"), NeverRan)
    assert isinstance(seen(phase="Failed", reason="NodeLost"), Unclear)
    assert isinstance(seen(phase="Failed", reason="NodeLost", node=""), NeverRan), (
        "it was never bound, so its node cannot be lost"
    )


@pytest.mark.parametrize("metadata", [{}, {"annotations": {}}, {"annotations": {ORDER_ANNOTATION: "rubbish"}}])
def test_missing_order_has_no_times(metadata):
    assert read.dead_by_order({"metadata": metadata}) == 0
    assert read.start_before({"metadata": metadata}) == 0


def test_order_gives_the_latest_possible_end():
    def ordered(**records):
        told = [(key.replace("_", "-"), str(value).encode()) for key, value in records.items()]
        return {"metadata": {"annotations": {ORDER_ANNOTATION: encode("dayfly-order", told).decode()}}}

    whole = ordered(start_before_ms=1_000, run_ms=20_000, grace_ms=300)
    assert read.start_before(whole) == 1_000
    assert read.dead_by_order(whole) == 21_300 + read.SKEW_MS
    assert read.dead_by_order(ordered(start_before_ms=1_000, run_ms=0, grace_ms=300)) == 0, "it may run forever"
    assert read.dead_by_order(ordered(start_before_ms=0, run_ms=20_000, grace_ms=300)) == 0
    assert read.dead_by_order(ordered(start_before_ms=1_000, run_ms=20_000)) == 0


def test_gated_pod_is_held_and_never_ran_once_deleted():
    assert seen(phase="Pending", node="", gates=[GATE]) == Prepared(ref="p")
    assert isinstance(seen(phase="Pending", node="", gates=[GATE], deleted=NOW), NeverRan)
    assert isinstance(seen(phase="Pending", node="", deleted=NOW), NeverRan)


def test_start_before_the_claim_counts_from_the_claim():
    fact = seen(main={"running": {"startedAt": "1970-01-01T00:00:00Z"}})
    assert fact == Running(since=RECORD.claimed_at)


@pytest.mark.parametrize("state", [{}, {"waiting": {}}])
def test_container_without_state_is_starting(state):
    fact = seen(main=state, phase="Pending")
    assert isinstance(fact, Waiting)
    assert (fact.reason, fact.is_scheduled, fact.recallable) == ("Starting", True, False)


def test_placed_pending_pod_proves_nothing():
    assert isinstance(seen(phase="Pending", deleted=NOW), Waiting)
    assert isinstance(seen(main={"waiting": {"reason": "ErrImagePull"}}, phase="Pending"), Waiting)
    assert isinstance(seen(main={"running": {"startedAt": "2026-01-01T00:00:00Z"}}), Running)


def test_placed_pod_waits_since_the_kubelet_accepted_it():
    pod = {
        "metadata": {"name": "r", "uid": "p", "creationTimestamp": "1970-01-01T00:00:01Z"},
        "spec": {"nodeName": "n"},
        "status": {
            "phase": "Pending",
            "startTime": "1970-01-01T00:06:00Z",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:05:00Z"}],
        },
    }
    fact = read.read_pod(msgspec.convert(pod, Pod), unit=UNIT, record=RECORD, nonce="n", now=2_000).fact
    assert fact == Waiting(since=360_000, reason="Starting", message="", is_scheduled=True)


def test_placed_pod_waits_since_the_scheduler_placed_it():
    """The kubelet has written no status yet, so the time is from the scheduler's condition."""
    pod = {
        "metadata": {"name": "r", "uid": "p", "creationTimestamp": "1970-01-01T00:00:01Z"},
        "spec": {"nodeName": "n"},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:05:00Z"}],
        },
    }
    fact = read.read_pod(msgspec.convert(pod, Pod), unit=UNIT, record=RECORD, nonce="n", now=2_000).fact
    assert fact == Waiting(since=300_000, reason="Starting", message="", is_scheduled=True)


def pod_from_server(status, spec=None, **metadata):
    """Return a pod as the API server returns it."""
    raw = {"metadata": {"name": "r", "uid": "p", **metadata}, "spec": spec or {"nodeName": "n"}, "status": status}
    return msgspec.convert(raw, Pod)


def fact_of(pod):
    return read.read_pod(pod, unit=UNIT, record=RECORD, nonce="n", now=2_000).fact


ENDED, RUNS = {"terminated": {"exitCode": 0}}, {"running": {"startedAt": NOW}}


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"])
def test_result_is_final_only_after_all_containers_ended(kind):
    """Neither a retry nor cleanup may start while it may run."""
    for state, over in ((RUNS, False), ({"waiting": {"reason": "x"}}, False), (ENDED, True)):
        status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": sealed("exited")}]}
        status[kind] = [*status.get(kind, ()), {"name": "side", "state": state}]
        assert type(fact_of(pod_from_server(status))) is (Ended if over else Sealed)
        assert read.is_over(pod_from_server(status)) is over
        assert read.is_over(pod_from_server(status | {"phase": "Failed"})) is over


def test_step_without_deadline_is_never_late():
    endless = msgspec.structs.replace(UNIT, timeouts=msgspec.structs.replace(UNIT.timeouts, run_ms=0))
    running = pod_from_server({"phase": "Running", "containerStatuses": [{"name": "main", "state": RUNS}]})
    for now in (2_000, 10**13):
        assert read.read_pod(running, unit=endless, record=RECORD, nonce="n", now=now).fact == Running(since=2_000)


def test_pod_that_was_never_placed_is_over():
    assert read.is_over(pod_from_server({"phase": "Pending"}, {"nodeName": ""}, deletionTimestamp=NOW))
    assert not read.is_over(pod_from_server({"phase": "Pending"}, {"nodeName": ""}))
    assert not read.is_over(pod_from_server({"phase": "Pending"}, deletionTimestamp=NOW))
    assert read.is_over(pod_from_server({"phase": "Failed"}))
    assert not read.is_over(pod_from_server({"phase": "Failed", "reason": "NodeLost"}))
    main = [{"name": "main", "state": RUNS}]
    assert not read.is_over(
        pod_from_server({"phase": "Running", "containerStatuses": main}, {"nodeName": ""}, deletionTimestamp=NOW)
    )


def test_kubelet_refusal_is_reported_in_its_words():
    refused = fact_of(pod_from_server({"phase": "Failed", "reason": "OutOfcpu", "message": "no room"}))
    assert (refused.reason, refused.message) == ("OutOfcpu", "no room")
    silent = fact_of(pod_from_server({"phase": "Failed"}))
    assert (silent.reason, silent.message) == (Reason.CANNOT_START, "its pod ended before it started")


@pytest.mark.parametrize(
    ("deleted", "grace", "reason"),
    [
        ("1970-01-01T00:10:00Z", 0, "StartDeadlineExceeded"),
        ("1970-01-01T00:10:00Z", 1, "Deleted"),
        ("1970-01-01T00:10:30Z", 30, "StartDeadlineExceeded"),
        ("1970-01-01T00:10:29Z", 30, "Deleted"),
    ],
)
def test_deletion_grace_is_not_counted_as_placement_time(deleted, grace, reason):
    """The deletion timestamp includes the grace period."""
    refusal = {"type": "PodScheduled", "status": "False", "message": "no node", "lastTransitionTime": NOW[:-3] + "01Z"}
    status = {"phase": "Pending", "conditions": [refusal]}
    meta = {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace}
    assert fact_of(pod_from_server(status, {"nodeName": ""}, **meta)).reason == reason


def test_unscheduled_deleted_pod_reports_deletion():
    status = {"phase": "Pending", "conditions": []}
    late = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    assert fact_of(pod_from_server(status, {"nodeName": ""}, **late)).reason == "Deleted"


def test_pod_deleted_just_before_its_deadline_reports_deletion():
    """Times have whole seconds, so the time is rounded up by at most one second."""
    refusal = {"type": "PodScheduled", "status": "False", "message": "no node", "lastTransitionTime": NOW[:-3] + "01Z"}
    removed = {"deletionTimestamp": "1970-01-01T00:10:00Z", "deletionGracePeriodSeconds": 0}
    pod = pod_from_server({"phase": "Pending", "conditions": [refusal]}, {"nodeName": ""}, **removed)
    for claimed_at, reason in ((1_000, "StartDeadlineExceeded"), (1_001, "Deleted")):
        record = msgspec.structs.replace(RECORD, claimed_at=claimed_at)
        assert read.read_pod(pod, unit=UNIT, record=record, nonce="n", now=2_000).fact.reason == reason


def test_long_passed_deadline_is_reported_with_the_node():
    late = read.read_pod(
        pod_from_server({"phase": "Running", "containerStatuses": [{"name": "main", "state": RUNS}]}),
        unit=UNIT,
        record=RECORD,
        nonce="n",
        now=2_000 + UNIT.timeouts.run_ms + UNIT.timeouts.grace_ms + read.SKEW_MS,
    )
    assert isinstance(late.fact, Unclear)
    assert late.fact.dead_by == 2_000 + UNIT.timeouts.run_ms + UNIT.timeouts.grace_ms + read.SKEW_MS


def test_unplaced_pod_reports_the_scheduler_reason_and_time():
    refusal = {"type": "PodScheduled", "status": "False", "message": "no node", "lastTransitionTime": NOW}
    for reason, shown in (("", "Unschedulable"), ("SchedulerError", "SchedulerError")):
        conditions = [refusal | {"reason": reason}]
        fact = fact_of(pod_from_server({"phase": "Pending", "conditions": conditions}, {"nodeName": ""}))
        assert fact == Waiting(since=2_000, reason=shown, message="no node", is_scheduled=False)
    at_once = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}]}
    assert fact_of(pod_from_server(at_once, {"nodeName": ""}, creationTimestamp=NOW)).since == 2_000
    fresh = fact_of(pod_from_server({"phase": "Pending"}, {"nodeName": ""}, creationTimestamp=NOW))
    assert fresh == Waiting(since=2_000, reason="Starting", message="is being placed on a node", is_scheduled=False)


@pytest.mark.parametrize(
    "record",
    [("content", b"no end"), ("content", b"\xff\0x"), ("output-in-log", b"\xff"), ("log-document", b"\xff")],
    ids=lambda record: f"{record[0]}={record[1]!r}",
)
def test_invalid_termination_message_still_ends_the_step(record):
    """A step can forge a receipt with a valid nonce and digest. Nothing may wait for it forever."""
    words = [("nonce", b"n"), ("outcome", b"exited"), ("code", b"1"), record]
    message = "dayfly-receipt 1 x\n" + base64.b64encode(encode("dayfly-receipt", words)).decode()
    fact = seen(main=ended(message=message))
    assert isinstance(fact, Ended)
    assert fact.result.reason == "ExitCode"


class TestEviction:
    DISK = 'Container main exceeded its local ephemeral storage limit "2Gi". '
    RAISE = "raise resources.limits.ephemeral-storage of container main"

    @pytest.mark.parametrize("main", [sealed("cancelled"), ended(), ended(reason="Error")])
    def test_evicted_step_fails_with_the_kubelets_reason(self, main):
        fact = seen(main=main, phase="Failed", reason="Evicted", said=self.DISK)
        assert isinstance(fact, Ended)
        assert (fact.result.outcome, fact.result.reason) == ("failed", "Evicted")
        assert "its local ephemeral storage limit" in fact.result.message
        assert self.RAISE in fact.result.message

    def test_eviction_from_a_full_node_has_no_advice_on_the_limit(self):
        low = "The node was low on resource: ephemeral-storage."
        fact = seen(main=ended(), phase="Failed", reason="Evicted", said=low)
        assert fact.result.message == (
            "its node evicted its pod: The node was low on resource: ephemeral-storage "
            "(its container ended with exit code 137, without a receipt)"
        )

    def test_step_that_ended_before_the_eviction_keeps_its_result(self):
        fact = seen(main=sealed("exited"), phase="Failed", reason="Evicted", said=self.DISK)
        assert (fact.result.outcome, fact.result.reason) == ("succeeded", "")
