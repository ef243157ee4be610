"""From what is there of a fork to a fact. Pure."""

from collections.abc import Iterator, Sequence

import msgspec

from dayfly.execute.pod.read import milliseconds
from dayfly.kube.objects import AnnotatedMeta, Condition, ObjectMeta, Pod, Slim
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Fact, Held, Running, Waiting
from dayfly.spec.run import Result, UnitRecord

# What a pod says on its ordinary way to its start.
_ORDINARY = frozenset({"", Reason.CREATING_CONTAINER, Reason.POD_INITIALIZING})


class WorkloadSpec(Slim, frozen=True):
    """How many pods are wished for; absent means one."""

    replicas: int = 1


class WorkloadStatus(Slim, frozen=True):
    """What the workload's controller says of it."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: list[Condition] | None = None


class ForkDeployment(Slim, frozen=True):
    """A Deployment as far as a fork's state is concerned."""

    metadata: AnnotatedMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ServicePort(Slim, frozen=True):
    """One port of a Service."""

    port: int
    name: str = ""
    protocol: str = ""
    app_protocol: str = ""
    target_port: int | str | None = None


class ServiceSpec(Slim, frozen=True):
    """Whom a Service leads to, and at which ports."""

    selector: dict[str, str] | None = None
    ports: list[ServicePort] | None = None
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class ForkService(Slim, frozen=True):
    """A Service."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


def fork(seen: ForkDeployment, pods: Sequence[Pod], now: int) -> Fact:
    """Read a fork's workload that is there, with those of its pods that are known; `now` in unix milliseconds."""
    meta, status, wanted = seen.metadata, seen.status, seen.spec.replicas
    since = milliseconds(meta.creation_timestamp) or now
    if meta.deletion_timestamp:
        return Running(since=since, ready=False)  # pods that are ending are counted nowhere: it may have some
    if not wanted:
        return Held(ref=meta.uid)
    seen_by_its_controller = status.observed_generation >= meta.generation
    # Pods of an older form that still answer are none of the fork that is wished for.
    all_new = status.updated_replicas >= wanted and status.replicas <= status.updated_replicas
    if seen_by_its_controller and all_new and status.available_replicas >= wanted:
        return Running(since=since)
    counted = f"{status.available_replicas} of {wanted} pods answer" if all_new else "its new pods are starting"
    reason, message = next(_troubles(seen, pods), (str(Reason.STARTING), counted))
    return Waiting(since=since, reason=reason, message=message or counted)


def gone(record: UnitRecord, *, left: int, wanted: bool, now: int) -> Fact:
    """A quorum read has found no workload of the claimed UID; so many things that it may have made are still there.

    `wanted`: nobody has ended its run, or wished for no such fork, so it was taken away by somebody else.
    """
    if left:
        return Running(since=record.claimed_at, ready=False)
    how = "its Deployment was deleted, and its pods are gone" if wanted else "was asked to end; its pods are gone"
    result = Result(
        outcome="failed",
        reason=Reason.DELETED if wanted else Reason.CANCELLED,
        message=how,
        started_at=record.claimed_at,
        ended_at=now,
    )
    return Ended(result=result)


def _troubles(seen: ForkDeployment, pods: Sequence[Pod]) -> Iterator[tuple[str, str]]:
    """What pods, and then the workload's own controller, say stands in the way; reason and sentence."""
    for pod in pods:
        for condition in pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                yield condition.reason or Reason.UNSCHEDULABLE, condition.message
        for container in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
            waiting = container.state.waiting
            if waiting is not None and waiting.reason not in _ORDINARY:
                yield waiting.reason, waiting.message
    for condition in seen.status.conditions or ():
        bad = "True" if condition.type == "ReplicaFailure" else "False"
        if condition.type in ("ReplicaFailure", "Progressing") and condition.status == bad:
            yield condition.reason or Reason.NOT_PROGRESSING, condition.message
