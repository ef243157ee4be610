"""Conversion of a pod, as the API server returns it, to a fact. Pure.

`NeverRan` needs proof: the pod is deleted behind its gate, was never bound to a node, has a sealed report of the
runner, or has a final report of the kubelet without a start. `Ended` needs the kubelet's report that every container
has ended. The phase Pending proves nothing, because the kubelet reports late.
"""

import base64
import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dayfly.execute import receipt
from dayfly.execute.pod import names
from dayfly.execute.pod.render import MAIN
from dayfly.kube.objects import ContainerStatus, ObjectCondition, Pod, StateTerminated
from dayfly.plan import reason_catalog
from dayfly.plan.messages import evicted, never_began, no_record, out_of_memory, start_deadline
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Fact, NeverRan, Prepared, Running, Sealed, Unclear, Waiting
from dayfly.spec.frames import FrameError, decode
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import Result, UnitRecord
from dayfly.spec.scalars.numbers import MAX_INTEGER, parse_whole

# Maximum difference between the clocks of a lost node and of this machine.
SKEW_MS = 300_000
# 9999-12-31T23:59:59Z. A time to live of weeks in 32 bits may end later.
_LAST_SECOND_MS = 253_402_300_799_000
# Reasons of the kubelet for a container that it could not start.
#
# `ContainerStatusUnknown` is not among them. Every pod that is deleted before its container exists ends with it, for
# example because the image is missing (kubelet 1.34, `TerminatePod` in pkg/kubelet/status/status_manager.go: any
# container that the runtime does not know). But a pod whose step did run can end in the same way:
#
# - The phase Pending, `started: false`, an empty `imageID` and a missing `containerID` are only the last report of the
#   kubelet, and it reports late: by minutes if the API server does not answer.
# - If the kubelet dies, an unreported start is lost. The next kubelet queries the runtime, which may have lost it too:
#   containers of a deleted pod are removed as soon as they have ended (`ShouldPodContentBeRemoved`), and a node may
#   return under its old name with an empty disk. The kubelet then ends the pod with this reason.
#
# If this counted as proof, a create step could run twice, or its objects could be left behind. So a pod that was
# released and ends with this reason is cleaned up as if it had started.
#
# There is another proof for a pod that waits for its image and has not been deleted. A recall (`PodClient.recall`) adds
# an ephemeral container with the fallback image and its own pull policy, because the step's container cannot be changed
# in a way that every policy allows. Kubelets start ephemeral containers before they pull other images. The runner in it
# creates the marker `void` in the pod's state volume, unless the step's runner has created its own marker: the file can
# be created once. A sealed `void` excludes the start from then on, whatever happens to the step's container. No other
# result of that container counts: `refused` is no proof, because a runner with another user may be unable to read the
# marker. Like every `void`, it requires that the state volume is kept while the pod is bound to its node.
_NOT_STARTED_REASONS = frozenset(
    {"StartError", "ContainerCannotRun", "CreateContainerError", "CreateContainerConfigError"}
)
# Reasons of the kubelet for a container that it cannot start now, so that the step is recalled.
_CANNOT_START_REASONS = reason_catalog.NO_IMAGE | {
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}
# The exit codes of the runner for `void`, `refused` and `not-executable`. A script can write such a receipt itself and
# have the kernel kill the whole container, but then the exit code differs. So it cannot pretend that it never started.
_UNSTARTED_CODES = frozenset({125, 127})
# The exit code of a second runner in the same pod, which ends without a receipt while the first one runs.
_TAKEN_CODE = 3
_BY_NODE_LOSS = frozenset({Reason.NODE_LOST, "DeletionByPodGC", "DeletionByTaintManager"})


class PodReading(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a pod: the fact, the outputs in its termination message, and the names of those in its log.

    `log_digest` is the digest of the receipt in the log, which contains all outputs.
    """

    fact: Fact
    values: dict[str, bytes] = {}
    in_log: tuple[str, ...] = ()
    log_digest: str = ""


def read_pod(seen: Pod, *, unit: Unit, record: UnitRecord, nonce: str, now: int) -> PodReading:
    """Read the pod of an attempt. `record` is the unit's record in the ledger."""
    if is_gated(seen):
        if seen.metadata.deletion_timestamp:
            return _never_ran("Deleted", "its pod was deleted before it was released")
        return PodReading(fact=Prepared(ref=seen.metadata.uid))
    main = _main_status(seen)
    if proof := _read_recall(seen, main, record, unit, nonce):
        return proof
    if main is not None and main.state.terminated is not None:
        return _read_terminated(seen, main.state.terminated, unit=unit, record=record, nonce=nonce)
    if seen.status.phase in ("Failed", "Succeeded"):
        return _failed_early(seen, record, unit)
    if seen.metadata.deletion_timestamp and not seen.spec.node_name:
        return _never_placed(seen, record, unit)
    if main is not None and main.state.running is not None:
        return PodReading(fact=_read_running(main, record, unit, now))
    return PodReading(fact=_read_waiting(seen, main, unit))


def read_missing_pod(record: UnitRecord, unit: Unit) -> Unclear:
    """Return the fact for a released pod that no longer exists: its proof was deleted with it."""
    return Unclear(
        since=record.claimed_at,
        reason=Reason.POD_DELETED,
        message="its pod was deleted together with the proof of its result",
        dead_by=dead_by(record, unit),
    )


def dead_by(record: UnitRecord, unit: Unit) -> int:
    """Return when no process of the attempt can run any longer: start window, deadline, grace and skew have passed."""
    limits = unit.timeouts
    start = record.claimed_at + limits.schedule_ms + limits.pull_ms
    return start + limits.run_ms + limits.grace_ms + SKEW_MS


def dead_by_order(stored: dict[str, Any]) -> int:
    """Return the same for a pod whose ledger is gone, from its work order; 0 if the order is invalid."""
    start, run, grace = _order_numbers(stored, "start-before-ms", "run-ms", "grace-ms")
    return start + run + grace + SKEW_MS if start and run else 0


def start_before(stored: dict[str, Any]) -> int:
    """Return the latest start that the pod's work order permits; 0 if the order is invalid."""
    (start,) = _order_numbers(stored, "start-before-ms")
    return start


def is_traced(stored: dict[str, Any]) -> bool:
    """Return whether the pod's work order sets `TRACEPARENT`."""
    return any(key == "env" and value.startswith(b"TRACEPARENT=") for key, value in _order(stored))


def _order_numbers(stored: dict[str, Any], *keys: str) -> tuple[int, ...]:
    """Return numbers of a pod's work order; all 0 if one is missing, because any client may have created the pod."""
    records = dict(_order(stored))
    try:
        return tuple(int(records[key]) for key in keys)
    except (KeyError, ValueError):
        return (0,) * len(keys)


def _order(stored: dict[str, Any]) -> Sequence[tuple[str, bytes]]:
    order = (stored["metadata"].get("annotations") or {}).get(names.ORDER_ANNOTATION, "")
    try:
        return decode("dayfly-order", order.encode())
    except (FrameError, ValueError):
        return ()


def has_started(seen: Pod) -> bool:
    """Return whether the kubelet reports that the step's container was started. Before that it has no log."""
    main = _main_status(seen)
    return main is not None and main.state.waiting is None


def log_bytes(seen: Pod) -> int:
    """Return the size of the step's output according to the runner's termination message; 0 if it is not known."""
    main = _main_status(seen)
    ended = main.state.terminated if main is not None else None
    records = _message(ended.message) if ended is not None else None
    size = next((value for key, value in records or () if key == "log-bytes"), b"")
    return parse_whole(size.decode(errors="replace"), MAX_INTEGER) or 0


def recalled_at(seen: Pod) -> int:
    """Return when the pod was recalled, in unix milliseconds; 0 if it was not."""
    added = (each.name for each in seen.spec.ephemeral_containers or ())
    return max(
        (parse_whole(name.removeprefix(names.RECALL), MAX_INTEGER) or 0 for name in added if _is_recall(name)),
        default=0,
    )


def _is_recall(name: str) -> bool:
    return name.startswith(names.RECALL)


def is_gated(seen: Pod) -> bool:
    """Return whether the pod has Dayfly's scheduling gate."""
    return any(gate.name == names.GATE for gate in seen.spec.scheduling_gates or ())


def is_over(seen: Pod) -> bool:
    """Return whether it is proven that no container runs or will run: all have ended, or the pod was never bound."""
    main = _main_status(seen)
    if main is None and _node_lost(seen):
        return False  # the kubelet may have started it without reporting that
    if seen.status.phase in ("Failed", "Succeeded") or main is not None:
        return _all_ended(seen)
    return seen.metadata.deletion_timestamp is not None and not seen.spec.node_name


def _main_status(seen: Pod) -> ContainerStatus | None:
    return next((status for status in seen.status.container_statuses or () if status.name == MAIN), None)


def _never_ran(reason: str, message: str) -> PodReading:
    return PodReading(fact=NeverRan(reason=reason, message=message))


def _script_never_ran(seen: Pod, unit: Unit, reason: str, message: str) -> PodReading:
    """Return the fact of a pod whose script never started. Other containers of the pod template may have run."""
    if _has_one_container(unit):
        return _never_ran(reason, message)
    result = Result(outcome="failed", reason=reason, message=f"{message}; other containers of its pod may have run")
    return PodReading(fact=Ended(result=result) if _all_ended(seen) else Sealed(result=result))


def _has_one_container(unit: Unit) -> bool:
    """Return whether the pod template adds no containers. Containers that the cluster adds do not count."""
    spec = (unit.exec.pod_template or {}).get("spec") if unit.exec is not None else None
    beside = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())] if isinstance(spec, dict) else []
    return all(isinstance(each, dict) and each.get("name") == MAIN for each in beside)


def is_recallable(seen: Pod, unit: Unit) -> bool:
    """Return whether a recall can prove that nothing of the pod ran."""
    return not seen.metadata.deletion_timestamp and _has_one_container(unit)


def _never_placed(seen: Pod, record: UnitRecord, unit: Unit) -> PodReading:
    refused = _scheduled_condition(seen, "False")
    since = max(record.claimed_at, parse_time(refused.last_transition_time)) if refused else 0
    if refused is None or _removed_at(seen) < since + unit.timeouts.schedule_ms:
        return _never_ran("Deleted", "its pod was deleted before it was placed on a node")
    message = start_deadline(unit.timeouts.schedule_ms, is_scheduled=False)
    return _never_ran(Reason.START_DEADLINE, f"{message}: {refused.message}" if refused.message else message)


def _scheduled_condition(seen: Pod, status: str) -> ObjectCondition | None:
    """Return the condition `PodScheduled` if it has this status: "True" means bound, "False" unschedulable."""
    return next(
        (each for each in seen.status.conditions or () if each.type == "PodScheduled" and each.status == status), None
    )


def _read_terminated(
    seen: Pod, terminated: StateTerminated, *, unit: Unit, record: UnitRecord, nonce: str
) -> PodReading:
    records = _message(terminated.message)
    if records is None:
        if terminated.reason in _NOT_STARTED_REASONS and not parse_time(terminated.started_at):
            return _script_never_ran(seen, unit, terminated.reason, terminated.message or "its container never started")
        fact: Fact = Ended(result=_without_receipt(seen, terminated, record, unit.timeouts.pull_ms))
    else:
        fact = receipt.read_records(records, nonce=nonce, unit=unit)
        if isinstance(fact, Ended) and fact.result.reason == Reason.CANCELLED and seen.status.reason == Reason.EVICTED:
            fact = Ended(result=_evicted(seen, fact.result))
    forgeable = unit.kind != Kind.WEBHOOK  # the program of a webhook is Dayfly's and has other exit codes
    if isinstance(fact, NeverRan) and forgeable and terminated.exit_code not in _UNSTARTED_CODES:
        fact = receipt.lost_receipt(
            "the runner was killed before it sealed a receipt, and this receipt is not the runner's"
        )
    if isinstance(fact, NeverRan):
        fact = _script_never_ran(seen, unit, fact.reason, fact.message).fact
    if isinstance(fact, Ended) and not _all_ended(seen):
        fact = Sealed(result=fact.result)
    found = records or []
    return PodReading(
        fact=fact,
        values=receipt.contents(found),
        in_log=tuple(value.decode(errors="replace") for key, value in found if key == "output-in-log"),
        log_digest=next((value.decode(errors="replace") for key, value in found if key == "log-document"), ""),
    )


def _read_recall(
    seen: Pod, main: ContainerStatus | None, record: UnitRecord, unit: Unit, nonce: str
) -> PodReading | None:
    """Return the proof in the receipt of a recall's container, unless the step's own container reports its result."""
    recalls = (each for each in seen.status.ephemeral_container_statuses or () if _is_recall(each.name))
    ended = next((each.state.terminated for each in recalls if each.state.terminated is not None), None)
    records = _message(ended.message) if ended is not None else None
    if records is None or not _has_one_container(unit) or (main is not None and _reports_result(main)):
        return None
    fact = receipt.read_records(records, nonce=nonce, unit=unit)
    if not isinstance(fact, NeverRan) or fact.reason != Reason.NEVER_RAN:
        return None
    due = max(record.claimed_at, parse_time(seen.status.start_time)) + unit.timeouts.pull_ms
    if recalled_at(seen) < due:
        return _never_ran(fact.reason, never_began())
    return _never_ran(Reason.START_DEADLINE, start_deadline(unit.timeouts.pull_ms, is_scheduled=True))


def _reports_result(main: ContainerStatus) -> bool:
    """Return whether the step's own container runs, or has ended after a start."""
    ended = main.state.terminated
    if ended is None:
        return main.state.running is not None
    return _message(ended.message) is not None or (
        bool(parse_time(ended.started_at)) and ended.exit_code != _TAKEN_CODE
    )


def _message(message: str) -> list[tuple[str, bytes]] | None:
    head, _, body = message.partition("\n")
    if not head.startswith("dayfly-receipt 1 "):
        return None
    try:
        return decode("dayfly-receipt", base64.b64decode("".join(body.split()), validate=True))
    except ValueError:  # if the kernel killed the runner too, the step may have written something else
        return None


def _without_receipt(seen: Pod, terminated: StateTerminated, record: UnitRecord, pull_ms: int) -> Result:
    """Return the result of a container that was killed together with the runner. Its outputs are not known."""
    reason = terminated.reason if terminated.reason not in ("", "Error", "Completed") else Reason.RESULT_LOST
    killed = f"signal {terminated.signal}" if terminated.signal else f"exit code {terminated.exit_code}"
    message = f"its container ended with {killed}, without a receipt"
    if reason == Reason.OOM_KILLED:
        message = out_of_memory("the kernel ended its whole container, without a receipt", _memory_limit(seen))
    elif reason == Reason.NO_RECORD:
        message = no_record()
        if _removed_at(seen) >= max(record.claimed_at, parse_time(seen.status.start_time)) + pull_ms:
            reason, message = Reason.START_DEADLINE, f"{start_deadline(pull_ms, is_scheduled=True)}: {message}"
    result = Result(
        outcome="failed",
        reason=reason,
        message=message,
        started_at=parse_time(terminated.started_at),
        ended_at=parse_time(terminated.finished_at),
    )
    return _evicted(seen, result) if seen.status.reason == Reason.EVICTED else result


def _evicted(seen: Pod, result: Result) -> Result:
    """Return the result of a step whose pod the kubelet evicted, with the kubelet's reason."""
    message = evicted(seen.status.message, result.message)
    return msgspec.structs.replace(result, reason=Reason.EVICTED, message=message)


def _removed_at(seen: Pod) -> int:
    """Return when the deletion was requested, rounded up to the next second; 0 if it was not."""
    meta = seen.metadata
    due = parse_time(meta.deletion_timestamp)
    return due - 1000 * (meta.deletion_grace_period_seconds or 0) + 1000 if due else 0


def _memory_limit(seen: Pod) -> str | None:
    main = _main_status(seen)
    return (main.resources.limits or {}).get("memory", "") if main is not None and main.resources is not None else None


def _all_ended(seen: Pod) -> bool:
    status = seen.status
    every = (
        *(status.container_statuses or ()),
        *(status.init_container_statuses or ()),
        *(status.ephemeral_container_statuses or ()),
    )
    return all(one.state.terminated is not None or _is_recall(one.name) for one in every)


def _node_lost(seen: Pod) -> bool:
    """Return whether a controller ended the pod because its kubelet no longer reports."""
    reasons = {seen.status.reason, *(condition.reason for condition in seen.status.conditions or ())}
    return bool(seen.spec.node_name and reasons & _BY_NODE_LOSS)


def _failed_early(seen: Pod, record: UnitRecord, unit: Unit) -> PodReading:
    """Return the fact of a pod that has ended without an end of its main container."""
    if _node_lost(seen):
        message = f"its node {seen.spec.node_name} is lost"
        return PodReading(
            fact=Unclear(
                since=record.claimed_at, reason=Reason.NODE_LOST, message=message, dead_by=dead_by(record, unit)
            )
        )
    main = _main_status(seen)
    if main is not None and (main.state.running is not None or main.restart_count):
        message = "its pod has ended, but the result of its container is not known"
        return PodReading(
            fact=Unclear(
                since=record.claimed_at, reason=Reason.POD_ENDED, message=message, dead_by=dead_by(record, unit)
            )
        )
    message = seen.status.message or "its pod ended before it started"
    return _script_never_ran(seen, unit, seen.status.reason or Reason.CANNOT_START, message)


def _read_running(main: ContainerStatus, record: UnitRecord, unit: Unit, now: int) -> Fact:
    assert main.state.running is not None, "the caller passes a running container"
    # The start is measured by the node's clock. If it is before the claim, that clock is behind.
    since = max(parse_time(main.state.running.started_at), record.claimed_at)
    limits = unit.timeouts
    end = since + limits.run_ms + limits.grace_ms + SKEW_MS
    if limits.run_ms and now >= end:
        message = "its deadline has passed, but its node has not reported its end"
        return Unclear(since=end, reason=Reason.NODE_NOT_REPORTING, message=message, dead_by=end)
    return Running(since=since)


def _read_waiting(seen: Pod, main: ContainerStatus | None, unit: Unit) -> Waiting:
    created = parse_time(seen.metadata.creation_timestamp)
    if refused := _scheduled_condition(seen, "False"):
        since = parse_time(refused.last_transition_time) or created
        return Waiting(
            since=since, reason=refused.reason or Reason.UNSCHEDULABLE, message=refused.message, is_scheduled=False
        )
    bound = _scheduled_condition(seen, "True")  # a gated pod may be bound long after its creation
    since = parse_time(seen.status.start_time or (bound.last_transition_time if bound else None)) or created
    recalled = recalled_at(seen)
    if main is not None and main.state.waiting is not None:
        waiting = main.state.waiting
        return Waiting(
            since=since,
            reason=waiting.reason or Reason.STARTING,
            message=waiting.message,
            recallable=waiting.reason in _CANNOT_START_REASONS and is_recallable(seen, unit),
            recalled=recalled,
        )
    # No message while the kubelet has not written its first status, which can take ten seconds.
    is_scheduled = bool(seen.spec.node_name)
    message = "" if is_scheduled else "is being placed on a node"
    return Waiting(since=since, reason=Reason.STARTING, message=message, is_scheduled=is_scheduled, recalled=recalled)


@functools.lru_cache(maxsize=1024)  # statuses repeat the same times
def format_time(milliseconds: int, timespec: str = "seconds") -> str:
    """Return unix milliseconds as RFC 3339, at most the last second of the year 9999; empty for 0.

    `timespec` is `seconds`, as in Kubernetes, or `milliseconds` if readers compute a duration.
    """
    if not milliseconds:
        return ""
    moment = datetime.fromtimestamp(min(milliseconds, _LAST_SECOND_MS) / 1000, UTC)
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


@functools.lru_cache(maxsize=1024)  # each turn reads the same times again
def parse_time(text: str | None) -> int:
    """Return an RFC 3339 time as unix milliseconds; 0 for None and for times up to the epoch.

    Runtimes write the epoch for a missing time. The API server accepts the year 0, which Python cannot represent.
    """
    if not text or text.startswith("0000-"):
        return 0
    return max(int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000), 0)
