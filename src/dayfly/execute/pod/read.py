"""From a pod, as the API server tells of it, to a fact. Pure.

Only proof makes `NeverRan` (still gated and being deleted, never bound, the runner's sealed word, or the kubelet's
final report without a start) and only the kubelet's word on every container makes `Ended`. A pod in phase Pending
proves nothing: the kubelet reports late.
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
from dayfly.kube.objects import Condition, ContainerStatus, Pod, StateTerminated
from dayfly.plan import reason_catalog
from dayfly.plan.messages import evicted, never_began, no_record, out_of_memory, start_deadline
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Fact, Held, NeverRan, Running, Sealed, Unclear, Waiting
from dayfly.spec.frames import FrameError, decode
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import Result, UnitRecord
from dayfly.spec.scalars.numbers import MAX_INTEGER, whole

# Clocks of a lost node and ours may differ by so much; used nowhere else.
SKEW_MS = 300_000
# 9999-12-31T23:59:59Z. A time to live may end long after that: its number has 32 bits, and it may be of weeks.
_LAST_SECOND_MS = 253_402_300_799_000
# What the kubelet says of a container that it could not start.
#
# `ContainerStatusUnknown` is not among them, though it is also the end of every pod that is deleted before its
# container came to be, say because its image is missing (kubelet 1.34, `TerminatePod` in
# pkg/kubelet/status/status_manager.go: any container that the runtime knows nothing of). Nothing beside it tells such
# a pod from one whose step did run: phase Pending, `started: false`, an empty `imageID` and no `containerID` are what
# the kubelet told the server last, and it tells late. A start that it had not told yet is forgotten with a kubelet
# that dies (behind a server that does not answer that may take minutes). The next kubelet asks the runtime, which
# forgets as well: a deleted pod's containers are removed as soon as they have ended (`ShouldPodContentBeRemoved`),
# and a node may come back under its old name on an empty disk. It then ends the pod with these very words. Taken for
# proof, a create step would run twice, or what it made would be left over: so whatever was let go and ends like that
# is cleaned up as if it had begun.
#
# While a pod waits for its image, and has not been deleted, there is another proof. A recall (`Pods.recall`) adds an
# ephemeral container with the image of the fallback and a pull policy of its own: those of the step's container may not
# be changed in a way that every policy allows. Kubelets start it before they look for other images. In it the runner
# puts the marker `void` into the pod's state volume, unless the step's runner has put its own there: the file can be
# made once. A sealed `void` excludes the start from then on, whatever becomes of the step's container. It is the only
# word of that container that counts: `refused` is no proof, since a runner of another user may be kept from the marker.
# Like every `void` it rests on the state volume staying what it was, as long as the pod is bound to its node.
_NEVER_BEGAN = frozenset({"StartError", "ContainerCannotRun", "CreateContainerError", "CreateContainerConfigError"})
# Reasons of the kubelet for a container that it cannot start now: the step is recalled.
_CANNOT_BEGIN = reason_catalog.NO_IMAGE | {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
# The exit codes of the runner for `void`, `refused` and `not-executable`. A script that writes such a receipt itself
# and has the kernel kill the whole container leaves another code, so it cannot pretend that it never began.
_UNSTARTED_CODES = frozenset({125, 127})
# The exit code of a second runner in the same pod, which ends without a receipt while the first one works.
_TAKEN_CODE = 3
_BY_NODE_LOSS = frozenset({Reason.NODE_LOST, "DeletionByPodGC", "DeletionByTaintManager"})


class PodReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod tells: the fact, the outputs that its message carries, and the names of those to fetch from its log.

    `log_digest` is the digest of the document in the log that holds all of them.
    """

    fact: Fact
    values: dict[str, bytes] = {}
    in_log: tuple[str, ...] = ()
    log_digest: str = ""


def pod(seen: Pod, *, unit: Unit, record: UnitRecord, nonce: str, now: int) -> PodReading:
    """Read one attempt's pod. `record` is the unit's line in the ledger."""
    if gated(seen):
        if seen.metadata.deletion_timestamp:
            return _never("Deleted", "its pod was deleted before it was released")
        return PodReading(fact=Held(ref=seen.metadata.uid))
    main = _main(seen)
    if proof := _excluded(seen, main, record, unit, nonce):
        return proof
    if main is not None and main.state.terminated is not None:
        return _ended(seen, main.state.terminated, unit=unit, record=record, nonce=nonce)
    if seen.status.phase in ("Failed", "Succeeded"):
        return _failed_early(seen, record, unit)
    if seen.metadata.deletion_timestamp and not seen.spec.node_name:
        return _never_placed(seen, record, unit)
    if main is not None and main.state.running is not None:
        return PodReading(fact=_running(main, record, unit, now))
    return PodReading(fact=_waiting(seen, main, unit))


def gone(record: UnitRecord, unit: Unit) -> Unclear:
    """The ledger let a pod go and there is none of that UID: somebody took it away together with the proof."""
    return Unclear(
        since=record.claimed_at,
        reason=Reason.POD_DELETED,
        message="its pod is gone, and with it the proof of how it ended",
        dead_by=dead_by(record, unit),
    )


def dead_by(record: UnitRecord, unit: Unit) -> int:
    """From then on no process of it can live: its start window, its deadline, its grace and the skew are over."""
    limits = unit.timeouts
    start = record.claimed_at + limits.schedule_ms + limits.pull_ms
    return start + limits.run_ms + limits.grace_ms + SKEW_MS


def dead_by_order(stored: dict[str, Any]) -> int:
    """The same of a pod whose ledger is gone, by the order that it carries; 0 if that does not say."""
    start, run, grace = _ordered(stored, "start-before-ms", "run-ms", "grace-ms")
    return start + run + grace + SKEW_MS if start and run else 0


def start_before(stored: dict[str, Any]) -> int:
    """Until when the order that a pod carries lets it start; 0 if that does not say."""
    (start,) = _ordered(stored, "start-before-ms")
    return start


def is_traced(stored: dict[str, Any]) -> bool:
    """Whether the order that a pod carries tells its step what its spans hang below."""
    return any(key == "env" and value.startswith(b"TRACEPARENT=") for key, value in _order(stored))


def _ordered(stored: dict[str, Any], *keys: str) -> tuple[int, ...]:
    """Numbers of a pod's order, 0 for all of them if one is not there: what is stored may be anybody's."""
    said = dict(_order(stored))
    try:
        return tuple(int(said[key]) for key in keys)
    except (KeyError, ValueError):
        return (0,) * len(keys)


def _order(stored: dict[str, Any]) -> Sequence[tuple[str, bytes]]:
    order = (stored["metadata"].get("annotations") or {}).get(names.ORDER_ANNOTATION, "")
    try:
        return decode("dayfly-order", order.encode())
    except (FrameError, ValueError):
        return ()


def began(seen: Pod) -> bool:
    """Whether the kubelet says that the step's container was started: not before can its log be had."""
    main = _main(seen)
    return main is not None and main.state.waiting is None


def log_bytes(seen: Pod) -> int:
    """Return how many bytes the step printed according to its runner's termination message; 0 if that is not known."""
    main = _main(seen)
    ended = main.state.terminated if main is not None else None
    records = _message(ended.message) if ended is not None else None
    said = next((value for key, value in records or () if key == "log-bytes"), b"")
    return whole(said.decode(errors="replace"), MAX_INTEGER) or 0


def recalled(seen: Pod) -> int:
    """Return when the pod was recalled, in unix milliseconds; 0 if it was not."""
    added = (each.name for each in seen.spec.ephemeral_containers or ())
    return max(
        (whole(name.removeprefix(names.RECALL), MAX_INTEGER) or 0 for name in added if _is_recall(name)), default=0
    )


def _is_recall(name: str) -> bool:
    return name.startswith(names.RECALL)


def gated(seen: Pod) -> bool:
    """Whether our gate still holds it."""
    return any(gate.name == names.GATE for gate in seen.spec.scheduling_gates or ())


def over(seen: Pod) -> bool:
    """Whether it is proven that nothing of it lives or ever will: all containers ended, or it was never placed."""
    main = _main(seen)
    if main is None and _node_lost(seen):
        return False  # its kubelet may have started it, and found nobody to tell
    if seen.status.phase in ("Failed", "Succeeded") or main is not None:
        return _all_ended(seen)
    return seen.metadata.deletion_timestamp is not None and not seen.spec.node_name


def _main(seen: Pod) -> ContainerStatus | None:
    return next((status for status in seen.status.container_statuses or () if status.name == MAIN), None)


def _never(reason: str, message: str) -> PodReading:
    return PodReading(fact=NeverRan(reason=reason, message=message))


def _unbegun(seen: Pod, unit: Unit, reason: str, message: str) -> PodReading:
    """The step's own container never started its script. Containers of the overlay beside it may have run."""
    if _is_alone(unit):
        return _never(reason, message)
    result = Result(outcome="failed", reason=reason, message=f"{message}; other containers of its pod may have run")
    return PodReading(fact=Ended(result=result) if _all_ended(seen) else Sealed(result=result))


def _is_alone(unit: Unit) -> bool:
    """Whether the overlay puts no containers beside the step's own. What the cluster adds is none of the step's."""
    spec = (unit.exec.pod_template or {}).get("spec") if unit.exec is not None else None
    beside = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())] if isinstance(spec, dict) else []
    return all(isinstance(each, dict) and each.get("name") == MAIN for each in beside)


def is_recallable(seen: Pod, unit: Unit) -> bool:
    """Whether a recall can prove that nothing of the pod ran, if its kubelet cannot start the step's container."""
    return not seen.metadata.deletion_timestamp and _is_alone(unit)


def _never_placed(seen: Pod, record: UnitRecord, unit: Unit) -> PodReading:
    refused = _placing(seen, "False")
    since = max(record.claimed_at, milliseconds(refused.last_transition_time)) if refused else 0
    if refused is None or _removed_at(seen) < since + unit.timeouts.schedule_ms:
        return _never("Deleted", "its pod was deleted before it was placed on a node")
    message = start_deadline(unit.timeouts.schedule_ms, placed=False)
    return _never(Reason.START_DEADLINE, f"{message}: {refused.message}" if refused.message else message)


def _placing(seen: Pod, status: str) -> Condition | None:
    """The scheduler's word, if that is it: "False", it has refused the pod; "True", it has placed it."""
    return next(
        (each for each in seen.status.conditions or () if each.type == "PodScheduled" and each.status == status), None
    )


def _ended(seen: Pod, terminated: StateTerminated, *, unit: Unit, record: UnitRecord, nonce: str) -> PodReading:
    records = _message(terminated.message)
    if records is None:
        never = terminated.reason in _NEVER_BEGAN and not milliseconds(terminated.started_at)
        if never:
            return _unbegun(seen, unit, terminated.reason, terminated.message or "its container never started")
        fact: Fact = Ended(result=_without_receipt(seen, terminated, record, unit.timeouts.pull_ms))
    else:
        fact = receipt.understand(records, nonce=nonce, unit=unit)
        if isinstance(fact, Ended) and fact.result.reason == Reason.CANCELLED and seen.status.reason == Reason.EVICTED:
            fact = Ended(result=_evicted(seen, fact.result))
    forgeable = unit.kind != Kind.WEBHOOK  # the program of a webhook is Dayfly's, with exit codes of its own
    if isinstance(fact, NeverRan) and forgeable and terminated.exit_code not in _UNSTARTED_CODES:
        fact = receipt.lost("the runner did not live to seal a receipt, and what is in its place is not its own")
    if isinstance(fact, NeverRan):
        fact = _unbegun(seen, unit, fact.reason, fact.message).fact
    if isinstance(fact, Ended) and not _all_ended(seen):
        fact = Sealed(result=fact.result)
    said = records or []
    return PodReading(
        fact=fact,
        values=receipt.contents(said),
        in_log=tuple(value.decode(errors="replace") for key, value in said if key == "output-in-log"),
        log_digest=next((value.decode(errors="replace") for key, value in said if key == "log-document"), ""),
    )


def _excluded(seen: Pod, main: ContainerStatus | None, record: UnitRecord, unit: Unit, nonce: str) -> PodReading | None:
    """The proof that the container of a recall has sealed, unless the step's own container tells something else."""
    told = (each for each in seen.status.ephemeral_container_statuses or () if _is_recall(each.name))
    ended = next((each.state.terminated for each in told if each.state.terminated is not None), None)
    records = _message(ended.message) if ended is not None else None
    if records is None or not _is_alone(unit) or (main is not None and _has_begun(main)):
        return None
    fact = receipt.understand(records, nonce=nonce, unit=unit)
    if not isinstance(fact, NeverRan) or fact.reason != Reason.NEVER_RAN:
        return None
    due = max(record.claimed_at, milliseconds(seen.status.start_time)) + unit.timeouts.pull_ms
    if recalled(seen) < due:
        return _never(fact.reason, never_began())
    return _never(Reason.START_DEADLINE, start_deadline(unit.timeouts.pull_ms, placed=True))


def _has_begun(main: ContainerStatus) -> bool:
    """Whether the step's own container may tell itself what became of it."""
    ended = main.state.terminated
    if ended is None:
        return main.state.running is not None
    return _message(ended.message) is not None or (
        bool(milliseconds(ended.started_at)) and ended.exit_code != _TAKEN_CODE
    )


def _message(message: str) -> list[tuple[str, bytes]] | None:
    head, _, body = message.partition("\n")
    if not head.startswith("dayfly-receipt 1 "):
        return None
    try:
        return decode("dayfly-receipt", base64.b64decode("".join(body.split()), validate=True))
    except ValueError:  # no receipt: where the kernel killed the runner too, the step's own words may lie there
        return None


def _without_receipt(seen: Pod, terminated: StateTerminated, record: UnitRecord, pull_ms: int) -> Result:
    """The container ended without the runner's word: killed from outside. Its outputs are not known."""
    reason = terminated.reason if terminated.reason not in ("", "Error", "Completed") else Reason.RESULT_LOST
    killed = f"signal {terminated.signal}" if terminated.signal else f"exit code {terminated.exit_code}"
    message = f"its container ended with {killed}, without a receipt"
    if reason == Reason.OOM_KILLED:
        message = out_of_memory("the kernel ended its whole container, without a receipt", _memory_limit(seen))
    elif reason == Reason.NO_RECORD:
        message = no_record()
        if _removed_at(seen) >= max(record.claimed_at, milliseconds(seen.status.start_time)) + pull_ms:
            reason, message = Reason.START_DEADLINE, f"{start_deadline(pull_ms, placed=True)}: {message}"
    result = Result(
        outcome="failed",
        reason=reason,
        message=message,
        started_at=milliseconds(terminated.started_at),
        ended_at=milliseconds(terminated.finished_at),
    )
    return _evicted(seen, result) if seen.status.reason == Reason.EVICTED else result


def _evicted(seen: Pod, result: Result) -> Result:
    """The result of a step whose pod the kubelet evicted: the kubelet's reason replaces the way in which it ended."""
    message = evicted(seen.status.message, result.message)
    return msgspec.structs.replace(result, reason=Reason.EVICTED, message=message)


def _removed_at(seen: Pod) -> int:
    """When the pod's end was asked for, or later; rounded up, since the server tells whole seconds. 0: it was not."""
    meta = seen.metadata
    at = milliseconds(meta.deletion_timestamp)
    return at - 1000 * (meta.deletion_grace_period_seconds or 0) + 1000 if at else 0


def _memory_limit(seen: Pod) -> str | None:
    main = _main(seen)
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
    """Whether its end was written by somebody else than its kubelet, which is not heard of any more."""
    reasons = {seen.status.reason, *(condition.reason for condition in seen.status.conditions or ())}
    return bool(seen.spec.node_name and reasons & _BY_NODE_LOSS)


def _failed_early(seen: Pod, record: UnitRecord, unit: Unit) -> PodReading:
    """The pod is over, and of its main container there is no end."""
    if _node_lost(seen):
        message = f"its node {seen.spec.node_name} is lost"
        return PodReading(
            fact=Unclear(
                since=record.claimed_at, reason=Reason.NODE_LOST, message=message, dead_by=dead_by(record, unit)
            )
        )
    main = _main(seen)
    if main is not None and (main.state.running is not None or main.restart_count):
        message = "its pod has ended, and how its container ended is not known"
        return PodReading(
            fact=Unclear(
                since=record.claimed_at, reason=Reason.POD_ENDED, message=message, dead_by=dead_by(record, unit)
            )
        )
    message = seen.status.message or "its pod ended before it started"
    return _unbegun(seen, unit, seen.status.reason or Reason.CANNOT_START, message)


def _running(main: ContainerStatus, record: UnitRecord, unit: Unit, now: int) -> Fact:
    assert main.state.running is not None, "asked for a running container"
    # By its node's clock. Nothing starts before its claim; where it seems to, that clock is behind.
    since = max(milliseconds(main.state.running.started_at), record.claimed_at)
    limits = unit.timeouts
    end = since + limits.run_ms + limits.grace_ms + SKEW_MS
    if limits.run_ms and now >= end:
        message = "its deadline ended it long ago, but its node has not reported that"
        return Unclear(since=end, reason=Reason.NODE_NOT_REPORTING, message=message, dead_by=end)
    return Running(since=since)


def _waiting(seen: Pod, main: ContainerStatus | None, unit: Unit) -> Waiting:
    created = milliseconds(seen.metadata.creation_timestamp)
    if refused := _placing(seen, "False"):
        since = milliseconds(refused.last_transition_time) or created
        return Waiting(
            since=since, reason=refused.reason or Reason.UNSCHEDULABLE, message=refused.message, placed=False
        )
    bound = _placing(seen, "True")  # long after it was made, if it had been waiting behind its gate
    since = milliseconds(seen.status.start_time or (bound.last_transition_time if bound else None)) or created
    asked = recalled(seen)
    if main is not None and main.state.waiting is not None:
        waiting = main.state.waiting
        return Waiting(
            since=since,
            reason=waiting.reason or Reason.STARTING,
            message=waiting.message,
            recallable=waiting.reason in _CANNOT_BEGIN and is_recallable(seen, unit),
            recalled=asked,
        )
    # A node's kubelet is heard of only when it writes a status, which can take it ten seconds; until then it is silent.
    placed = bool(seen.spec.node_name)
    message = "" if placed else "is being placed on a node"
    return Waiting(since=since, reason=Reason.STARTING, message=message, placed=placed, recalled=asked)


@functools.lru_cache(maxsize=1024)  # the same moments stand in one saying after the other
def stamp(milliseconds: int, timespec: str = "seconds") -> str:
    """Unix milliseconds as RFC 3339; empty for 0. What lies behind the last second that can be written so is that.

    `timespec` is `seconds`, as for Kubernetes' own times, or `milliseconds`, where a duration follows from two of them.
    """
    if not milliseconds:
        return ""
    moment = datetime.fromtimestamp(min(milliseconds, _LAST_SECOND_MS) / 1000, UTC)
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


@functools.lru_cache(maxsize=1024)  # each turn reads them again
def milliseconds(text: str | None) -> int:
    """Unix milliseconds of an RFC 3339 time; 0 for none, and for the epoch that runtimes write instead of none.

    The API server keeps times of the year 0, of which no Python has any: as all before the epoch they are 0.
    """
    if not text or text.startswith("0000-"):
        return 0
    return max(int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000), 0)
