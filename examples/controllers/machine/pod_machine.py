"""A controller that keeps one pod for each PodMachine. Run it with: python -m pod_machine [KUBECONFIG]

PodMachines fulfil the contract `ready`, but the controller does not know Machines.
"""

import asyncio
import socket
import sys
from pathlib import Path

import msgspec

from dayfly import kube

LABEL = "machines.example.org/pod"
RETRY_AFTER_S = 10.0


class Spec(kube.KubeStruct, frozen=True):
    """Image and command of the pod."""

    image: str
    command: list[str] = []


class Status(kube.KubeStruct, frozen=True):
    """The fields of the contract."""

    ready: bool = False
    address: str | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[kube.ObjectCondition] | None = None


class PodMachine(kube.KubeStruct, frozen=True):
    """The kind that users write."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: Status = Status()


class PodStatus(kube.KubeStruct, frozen=True):
    """The fields of the pod's status that are read."""

    phase: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[kube.ObjectCondition] | None = None
    container_statuses: list[kube.ContainerStatus] | None = None


class Pod(kube.KubeStruct, frozen=True):
    """The fields of the pod that are read."""

    metadata: kube.ObjectMeta
    status: PodStatus = PodStatus()


POD_MACHINES = kube.ApiResource("machines.example.org", "v1", "podmachines", "PodMachine", PodMachine)
PODS = kube.PODS.read_as(Pod)


class PodMachines:
    """Create one pod for each PodMachine. A pod that has ended stays, for diagnosis."""

    def __init__(self, manager: kube.Manager) -> None:
        self._client = manager.client
        self._status_writer = manager.status_writer(warnings={"Failed", "Refused"})
        self._pods = manager.watch(PODS, labels=LABEL)
        manager.control(POD_MACHINES, self.reconcile, owns=[self._pods])

    async def reconcile(self, item: PodMachine) -> float | None:
        meta = item.metadata
        if meta.deletion_timestamp:
            return None  # Kubernetes deletes its pod
        pod, refusal = self._pods.get(meta.name, meta.namespace), ""
        if pod is None or not kube.controls(item, pod):
            try:
                pod = await kube.create_owned(self._client, PODS, render_pod(item), item, POD_MACHINES)
            except (kube.errors.Forbidden, kube.errors.Invalid, kube.NameConflictError) as error:
                refusal = error.message if isinstance(error, kube.errors.ApiError) else str(error)
        await self._status_writer.write(POD_MACHINES, item, machine_status(pod, refusal))
        return RETRY_AFTER_S if refusal else None


def render_pod(item: PodMachine) -> dict[str, object]:
    """Return the pod. Users choose only its image and command."""
    locked = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    main = {"name": "main", "image": item.spec.image, "command": item.spec.command, "securityContext": locked}
    unprivileged = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [main], "securityContext": unprivileged, "automountServiceAccountToken": False}
    fixed = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": item.metadata.name, "labels": {LABEL: "true"}}, "spec": {**spec, **fixed}}


def machine_status(pod: Pod | None, refusal: str) -> Status:
    """Return the status of a PodMachine, with the reason from its pod or the API server."""
    if refusal or pod is None:
        return Status(conditions=[kube.ObjectCondition("Ready", "False", "Refused", refusal)])
    if pod.status.phase in ("Succeeded", "Failed"):
        ended = [each.state.terminated for each in pod.status.container_statuses or ()]
        why = next((f"exit code {each.exit_code} {each.message}".strip() for each in ended if each), pod.status.message)
        failed = kube.ObjectCondition("Ready", "False", "Failed", f"its pod has ended: {why}")
        return Status(failure_reason="PodEnded", failure_message=why, conditions=[failed])
    ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())
    waits = [each.state.waiting for each in pod.status.container_statuses or ()]
    waiting = next((f"{each.reason}: {each.message}" for each in waits if each and each.message), "its pod is starting")
    condition = kube.ObjectCondition("Ready", "True", "Running", "its pod is running")
    if not ready:
        condition = kube.ObjectCondition("Ready", "False", "Starting", waiting)
    return Status(ready=ready, address=pod.status.pod_ip or None, conditions=[condition])


async def main(kubeconfig: Path | None) -> None:
    async with kube.connect(kubeconfig) as client:
        manager = kube.Manager(client, "machines.example.org/pods", socket.gethostname())
        PodMachines(manager)
        await kube.run_to_signal(manager)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
