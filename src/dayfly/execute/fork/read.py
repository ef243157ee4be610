"""Conversion of a fork's Deployment and pods to a fact. Pure."""

from collections.abc import Iterator, Sequence

import msgspec

from dayfly.execute.pod.read import parse_time
from dayfly.kube.objects import AnnotatedMeta, KubeStruct, ObjectCondition, ObjectMeta, Pod
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Fact, Prepared, Running, Waiting
from dayfly.spec.run import Result, UnitRecord

# Reasons of a container during a normal start.
_NORMAL_REASONS = frozenset({"", Reason.CREATING_CONTAINER, Reason.POD_INITIALIZING})


class WorkloadSpec(KubeStruct, frozen=True):
    """The desired number of pods; one by default."""

    replicas: int = 1


class WorkloadStatus(KubeStruct, frozen=True):
    """The status of a workload."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: list[ObjectCondition] | None = None


class ForkDeployment(KubeStruct, frozen=True):
    """The fields of a Deployment that determine a fork's state."""

    metadata: AnnotatedMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ServicePort(KubeStruct, frozen=True):
    """A port of a Service."""

    port: int
    name: str = ""
    protocol: str = ""
    app_protocol: str = ""
    target_port: int | str | None = None


class ServiceSpec(KubeStruct, frozen=True):
    """The selector and the ports of a Service."""

    selector: dict[str, str] | None = None
    ports: list[ServicePort] | None = None
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class ForkService(KubeStruct, frozen=True):
    """The fields of a Service that forks and routes use."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


def read_fork(seen: ForkDeployment, pods: Sequence[Pod], now: int) -> Fact:
    """Return the fact of an existing fork, from its Deployment and its known pods; `now` is unix milliseconds."""
    meta, status, wanted = seen.metadata, seen.status, seen.spec.replicas
    since = parse_time(meta.creation_timestamp) or now
    if meta.deletion_timestamp:
        return Running(since=since, ready=False)  # the status does not count terminating pods: some may still run
    if not wanted:
        return Prepared(ref=meta.uid)
    is_observed = status.observed_generation >= meta.generation
    # Available pods of an older revision do not count.
    all_new = status.updated_replicas >= wanted and status.replicas <= status.updated_replicas
    if is_observed and all_new and status.available_replicas >= wanted:
        return Running(since=since)
    counted = f"{status.available_replicas} of {wanted} pods are available" if all_new else "its new pods are starting"
    reason, message = next(_troubles(seen, pods), (str(Reason.STARTING), counted))
    return Waiting(since=since, reason=reason, message=message or counted)


def read_missing_fork(record: UnitRecord, *, left: int, wanted: bool, now: int) -> Fact:
    """Return the fact of a fork whose Deployment a quorum read did not find.

    `left` is the number of ReplicaSets and pods that it may have left. `wanted` is false if the fork or its run was
    ended; otherwise someone else deleted the Deployment.
    """
    if left:
        return Running(since=record.claimed_at, ready=False)
    how = "its Deployment was deleted, and its pods are gone" if wanted else "was cancelled; its pods are gone"
    result = Result(
        outcome="failed",
        reason=Reason.DELETED if wanted else Reason.CANCELLED,
        message=how,
        started_at=record.claimed_at,
        ended_at=now,
    )
    return Ended(result=result)


def _troubles(seen: ForkDeployment, pods: Sequence[Pod]) -> Iterator[tuple[str, str]]:
    """Yield reason and message of each problem: those of pods, then those of the Deployment."""
    for pod in pods:
        for condition in pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                yield condition.reason or Reason.UNSCHEDULABLE, condition.message
        for container in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
            waiting = container.state.waiting
            if waiting is not None and waiting.reason not in _NORMAL_REASONS:
                yield waiting.reason, waiting.message
    for condition in seen.status.conditions or ():
        bad = "True" if condition.type == "ReplicaFailure" else "False"
        if condition.type in ("ReplicaFailure", "Progressing") and condition.status == bad:
            yield condition.reason or Reason.NOT_PROGRESSING, condition.message
