"""Two controllers: BasicDeployments create BasicReplicaSets, which create pods.

Run it with: python -m basic_deployment [KUBECONFIG]
"""

import asyncio
import hashlib
import socket
import sys
from pathlib import Path

from dayfly import kube

TEMPLATE_LABEL = "basic.example.org/form"
RETRY_AFTER_S = 10.0  # no event reports that a quota was raised, or that a name is free


class Spec(kube.KubeStruct, frozen=True):
    """Number of pods, and their image."""

    image: str
    replicas: int = 1
    command: list[str] = []


class DeploymentStatus(kube.KubeStruct, frozen=True):
    """Status with `ready` if all pods of the current spec are ready."""

    ready: bool = False
    conditions: list[kube.ObjectCondition] | None = None


class BasicDeployment(kube.KubeStruct, frozen=True):
    """The kind that users write."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: DeploymentStatus = DeploymentStatus()


class SetStatus(kube.KubeStruct, frozen=True):
    """Number of ready pods that have the current template."""

    active: int = 0
    observed_generation: int = 0
    conditions: list[kube.ObjectCondition] | None = None


class BasicReplicaSet(kube.KubeStruct, frozen=True):
    """The kind that a BasicDeployment creates."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: SetStatus = SetStatus()


DEPLOYMENTS = kube.ApiResource("basic.example.org", "v1", "basicdeployments", "BasicDeployment", BasicDeployment)
SETS = kube.ApiResource("basic.example.org", "v1", "basicreplicasets", "BasicReplicaSet", BasicReplicaSet)


class Deployments:
    """Copy the spec of a BasicDeployment to its set, and the set's state back. It does not know pods."""

    def __init__(self, manager: kube.Manager) -> None:
        self._client, self._status_writer = manager.client, manager.status_writer()
        self._sets = manager.watch(SETS)
        manager.control(DEPLOYMENTS, self.reconcile, owns=[self._sets])

    async def reconcile(self, item: BasicDeployment) -> float | None:
        meta, spec = item.metadata, kube.to_json(item.spec)
        made = self._sets.get(meta.name, meta.namespace)
        if meta.deletion_timestamp:
            return None  # Kubernetes deletes its set, and the set's pods
        if made is None or not kube.controls(item, made):
            await kube.create_owned(
                self._client, SETS, {"metadata": {"name": meta.name}, "spec": spec}, item, DEPLOYMENTS
            )
            return None  # the watch event triggers the next reconciliation
        if made.spec != item.spec:
            seen = {"uid": made.metadata.uid, "resourceVersion": made.metadata.resource_version}
            await self._client.patch(SETS, {"metadata": seen, "spec": spec}, meta.name, meta.namespace)
            return None
        known = made.status.observed_generation == made.metadata.generation
        ready = known and made.status.active == item.spec.replicas
        message = (
            next((each.message for each in made.status.conditions or () if each.type == "Ready"), "") if known else ""
        )
        condition = kube.ObjectCondition(
            "Ready", "True" if ready else "False", "Ready" if ready else "Progressing", message
        )
        await self._status_writer.write(DEPLOYMENTS, item, DeploymentStatus(ready, [condition]))
        return None


class ReplicaSets:
    """Keep the number of pods. Each reconciliation makes one change, whose watch event triggers the next one.

    Pods are numbered. So a stale cache never creates a pod twice: the name is taken, and the owner reference shows
    whose pod it is.
    """

    def __init__(self, manager: kube.Manager) -> None:
        self._client, self._status_writer = manager.client, manager.status_writer(warnings={"Refused"})
        self._pods = manager.watch(kube.PODS, labels=TEMPLATE_LABEL)
        manager.control(SETS, self.reconcile, owns=[self._pods])

    async def reconcile(self, item: BasicReplicaSet) -> float | None:
        if item.metadata.deletion_timestamp:
            return None
        pods = {pod.metadata.name: pod for pod in self._pods.owned_by(item.metadata.uid)}
        refusal = ""
        try:
            await self._make_one_change(item, pods)
        except (kube.errors.Forbidden, kube.errors.Invalid, kube.NameConflictError) as error:
            refusal = error.message if isinstance(error, kube.errors.ApiError) else str(error)
        active = sum(is_ready(pod) and label_of(pod) == template_hash(item) for pod in pods.values())
        condition = kube.ObjectCondition("Ready", "True", "Ready", f"all {active} pods are ready")
        if refusal:
            condition = kube.ObjectCondition("Ready", "False", "Refused", refusal)
        elif active != item.spec.replicas or len(pods) != active:
            why = next((f": {pod_problem(pod)}" for pod in pods.values() if pod_problem(pod)), "")
            condition = kube.ObjectCondition(
                "Ready", "False", "Progressing", f"{active} of {item.spec.replicas} pods are ready{why}"
            )
        await self._status_writer.write(SETS, item, SetStatus(active, item.metadata.generation, [condition]))
        return RETRY_AFTER_S if refusal else None

    async def _make_one_change(self, item: BasicReplicaSet, pods: dict[str, kube.Pod]) -> None:
        """Make the first necessary change: create a missing pod, or delete a surplus, ended or outdated one."""
        wanted = [f"{item.metadata.name}-{number}" for number in range(item.spec.replicas)]
        if missing := [name for name in wanted if name not in pods]:
            await kube.create_owned(self._client, kube.PODS, render_pod(item, missing[0]), item, SETS)
            return
        living = [pod for pod in pods.values() if not pod.metadata.deletion_timestamp]
        old = [pod for pod in living if label_of(pod) != template_hash(item)]
        whole = all(is_ready(pod) for pod in pods.values())
        unwanted = [
            *(pod for pod in living if pod.metadata.name not in wanted),
            *(pod for pod in living if pod.status.phase in ("Succeeded", "Failed")),
            *(pod for pod in old if whole or not is_ready(pod)),  # ready pods one at a time
        ]
        if unwanted:
            meta = unwanted[0].metadata
            await self._client.delete(kube.PODS, meta.name, meta.namespace, uid=meta.uid)


def template_hash(item: BasicReplicaSet) -> str:
    """Return a label value for the pod template, which does not include the number of pods."""
    return hashlib.sha256(repr((item.spec.image, item.spec.command)).encode()).hexdigest()[:16]


def label_of(pod: kube.Pod) -> str:
    return (pod.metadata.labels or {}).get(TEMPLATE_LABEL, "")


def render_pod(item: BasicReplicaSet, name: str) -> dict[str, object]:
    """Return a pod of the set. Users choose only its image and command."""
    locked = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    main = {"name": "main", "image": item.spec.image, "command": item.spec.command, "securityContext": locked}
    unprivileged = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [main], "securityContext": unprivileged, "automountServiceAccountToken": False}
    labels = {TEMPLATE_LABEL: template_hash(item)}
    return {"metadata": {"name": name, "labels": labels}, "spec": {**spec, "terminationGracePeriodSeconds": 1}}


def is_ready(pod: kube.Pod) -> bool:
    conditions = {each.type: each.status for each in pod.status.conditions or ()}
    return conditions.get("Ready") == "True" and not pod.metadata.deletion_timestamp


def pod_problem(pod: kube.Pod) -> str:
    """Return the reason why a pod does not run, from its container or the scheduler; empty if there is none."""
    waits = [each.state.waiting for each in pod.status.container_statuses or ()]
    waiting = next((f"{each.reason}: {each.message}" for each in waits if each and each.message), "")
    unscheduled = [each.message for each in pod.status.conditions or () if each.type == "PodScheduled" and each.message]
    found = waiting or next(iter(unscheduled), "")
    return f"pod {pod.metadata.name}: {found}" if found else ""


async def main(kubeconfig: Path | None) -> None:
    async with kube.connect(kubeconfig) as client:
        manager = kube.Manager(client, "basic.example.org/controllers", socket.gethostname())
        Deployments(manager)
        ReplicaSets(manager)
        await kube.run_to_signal(manager)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
