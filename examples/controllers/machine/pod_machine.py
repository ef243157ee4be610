"""PodMachines: a pod for each. Run it with: python -m pod_machine [KUBECONFIG]

It fulfils the contract `ready`, and has never heard of Machines.
"""

import asyncio
import socket
import sys
from pathlib import Path

import msgspec

from dayfly import kube

LABEL = "machines.example.org/pod"
AGAIN_S = 10.0


class Spec(kube.Slim, frozen=True):
    """What runs in the pod."""

    image: str
    command: list[str] = []


class Status(kube.Slim, frozen=True):
    """The contract."""

    ready: bool = False
    address: str | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[kube.Condition] | None = None


class PodMachine(kube.Slim, frozen=True):
    """What a user writes."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: Status = Status()


class PodStatus(kube.Slim, frozen=True):
    """What is read of the pod's status."""

    phase: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[kube.Condition] | None = None
    container_statuses: list[kube.ContainerStatus] | None = None


class Pod(kube.Slim, frozen=True):
    """What is read of the pod."""

    metadata: kube.ObjectMeta
    status: PodStatus = PodStatus()


POD_MACHINES = kube.Resource("machines.example.org", "v1", "podmachines", "PodMachine", PodMachine)
PODS = kube.PODS.read_as(Pod)


class PodMachines:
    """Makes each one's pod, once: a pod that has ended stays, as evidence."""

    def __init__(self, manager: kube.Manager) -> None:
        self._client = manager.client
        self._status_writer = manager.status_writer(warnings={"Failed", "Refused"})
        self._pods = manager.watch(PODS, labels=LABEL)
        manager.control(POD_MACHINES, self.reconcile, owns=[self._pods])

    async def reconcile(self, item: PodMachine) -> float | None:
        meta = item.metadata
        if meta.deletion_timestamp:
            return None  # the server collects its pod
        pod, refusal = self._pods.get(meta.name, meta.namespace), ""
        if pod is None or not kube.controls(item, pod):
            try:
                pod = await kube.create_owned(self._client, PODS, rendered(item), item, POD_MACHINES)
            except (kube.errors.Forbidden, kube.errors.Invalid, kube.ForeignError) as no:
                refusal = no.message if isinstance(no, kube.errors.ApiError) else str(no)
        await self._status_writer.write(POD_MACHINES, item, told(pod, refusal))
        return AGAIN_S if refusal else None


def rendered(item: PodMachine) -> dict[str, object]:
    """Its pod. Whoever writes a PodMachine chooses image and command, and no more."""
    locked = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    main = {"name": "main", "image": item.spec.image, "command": item.spec.command, "securityContext": locked}
    nobody = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [main], "securityContext": nobody, "automountServiceAccountToken": False}
    fixed = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": item.metadata.name, "labels": {LABEL: "true"}}, "spec": {**spec, **fixed}}


def told(pod: Pod | None, refusal: str) -> Status:
    """How the machine stands, in the words of whoever knows."""
    if refusal or pod is None:
        return Status(conditions=[kube.Condition("Ready", "False", "Refused", refusal)])
    if pod.status.phase in ("Succeeded", "Failed"):
        ended = [each.state.terminated for each in pod.status.container_statuses or ()]
        why = next((f"exit code {each.exit_code} {each.message}".strip() for each in ended if each), pod.status.message)
        failed = kube.Condition("Ready", "False", "Failed", f"its pod has ended: {why}")
        return Status(failure_reason="PodEnded", failure_message=why, conditions=[failed])
    ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())
    waits = [each.state.waiting for each in pod.status.container_statuses or ()]
    said = next((f"{each.reason}: {each.message}" for each in waits if each and each.message), "its pod is starting")
    news = kube.Condition("Ready", "True", "Running", "its pod runs")
    if not ready:
        news = kube.Condition("Ready", "False", "Starting", said)
    return Status(ready=ready, address=pod.status.pod_ip or None, conditions=[news])


async def main(kubeconfig: Path | None) -> None:
    async with kube.connect(kubeconfig) as client:
        manager = kube.Manager(client, "machines.example.org/pods", socket.gethostname())
        PodMachines(manager)
        await kube.run_to_signal(manager)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
