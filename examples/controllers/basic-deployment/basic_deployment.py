"""BasicDeployments make BasicReplicaSets, and these make pods. Run it with: python -m basic_deployment [KUBECONFIG]"""

import asyncio
import hashlib
import socket
import sys
from pathlib import Path

from dayfly import kube

FORM = "basic.example.org/form"
AGAIN_S = 10.0  # nobody tells that a quota was raised, or that a name is free


class Spec(kube.Slim, frozen=True):
    """So many pods of that image."""

    image: str
    replicas: int = 1
    command: list[str] = []


class DeploymentStatus(kube.Slim, frozen=True):
    """Whether all are there."""

    ready: bool = False
    conditions: list[kube.Condition] | None = None


class BasicDeployment(kube.Slim, frozen=True):
    """What a user writes."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: DeploymentStatus = DeploymentStatus()


class SetStatus(kube.Slim, frozen=True):
    """How many pods of the set's present form are ready."""

    active: int = 0
    observed_generation: int = 0
    conditions: list[kube.Condition] | None = None


class BasicReplicaSet(kube.Slim, frozen=True):
    """What a BasicDeployment makes."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: SetStatus = SetStatus()


DEPLOYMENTS = kube.Resource("basic.example.org", "v1", "basicdeployments", "BasicDeployment", BasicDeployment)
SETS = kube.Resource("basic.example.org", "v1", "basicreplicasets", "BasicReplicaSet", BasicReplicaSet)


class Deployments:
    """Hands a BasicDeployment's wish to its set, and tells how that stands. It knows nothing of pods."""

    def __init__(self, manager: kube.Manager) -> None:
        self._client, self._status_writer = manager.client, manager.status_writer()
        self._sets = manager.watch(SETS)
        manager.control(DEPLOYMENTS, self.reconcile, owns=[self._sets])

    async def reconcile(self, item: BasicDeployment) -> float | None:
        meta, spec = item.metadata, kube.whole(item.spec)
        made = self._sets.get(meta.name, meta.namespace)
        if meta.deletion_timestamp:
            return None  # the server collects its set, and the set's pods
        if made is None or not kube.controls(item, made):
            await kube.create_owned(
                self._client, SETS, {"metadata": {"name": meta.name}, "spec": spec}, item, DEPLOYMENTS
            )
            return None  # the watch brings it, and with it the next turn
        if made.spec != item.spec:
            seen = {"uid": made.metadata.uid, "resourceVersion": made.metadata.resource_version}
            await self._client.patch(SETS, {"metadata": seen, "spec": spec}, meta.name, meta.namespace)
            return None
        known = made.status.observed_generation == made.metadata.generation
        ready = known and made.status.active == item.spec.replicas
        told = (
            next((each.message for each in made.status.conditions or () if each.type == "Ready"), "") if known else ""
        )
        news = kube.Condition("Ready", "True" if ready else "False", "Ready" if ready else "Progressing", told)
        await self._status_writer.write(DEPLOYMENTS, item, DeploymentStatus(ready, [news]))
        return None


class ReplicaSets:
    """Keeps so many pods. One step a turn: what that step changes is the news that brings the next turn.

    Pods are numbered, so a cache that is behind makes none twice: the name is taken, and whose it is its owner tells.
    """

    def __init__(self, manager: kube.Manager) -> None:
        self._client, self._status_writer = manager.client, manager.status_writer(warnings={"Refused"})
        self._pods = manager.watch(kube.PODS, labels=FORM)
        manager.control(SETS, self.reconcile, owns=[self._pods])

    async def reconcile(self, item: BasicReplicaSet) -> float | None:
        if item.metadata.deletion_timestamp:
            return None
        pods = {pod.metadata.name: pod for pod in self._pods.owned_by(item.metadata.uid)}
        refusal = ""
        try:
            await self._step(item, pods)
        except (kube.errors.Forbidden, kube.errors.Invalid, kube.ForeignError) as no:
            refusal = no.message if isinstance(no, kube.errors.ApiError) else str(no)
        active = sum(ready(pod) and form_of(pod) == form(item) for pod in pods.values())
        news = kube.Condition("Ready", "True", "Ready", f"all {active} pods are ready")
        if refusal:
            news = kube.Condition("Ready", "False", "Refused", refusal)
        elif active != item.spec.replicas or len(pods) != active:
            why = next((f": {trouble(pod)}" for pod in pods.values() if trouble(pod)), "")
            news = kube.Condition(
                "Ready", "False", "Progressing", f"{active} of {item.spec.replicas} pods are ready{why}"
            )
        await self._status_writer.write(SETS, item, SetStatus(active, item.metadata.generation, [news]))
        return AGAIN_S if refusal else None

    async def _step(self, item: BasicReplicaSet, pods: dict[str, kube.Pod]) -> None:
        """The first of all that is not as it should be: too few, too many, ended, of an old form."""
        wanted = [f"{item.metadata.name}-{number}" for number in range(item.spec.replicas)]
        if missing := [name for name in wanted if name not in pods]:
            await kube.create_owned(self._client, kube.PODS, rendered(item, missing[0]), item, SETS)
            return
        living = [pod for pod in pods.values() if not pod.metadata.deletion_timestamp]
        old = [pod for pod in living if form_of(pod) != form(item)]
        whole = all(ready(pod) for pod in pods.values())
        unwanted = [
            *(pod for pod in living if pod.metadata.name not in wanted),
            *(pod for pod in living if pod.status.phase in ("Succeeded", "Failed")),
            *(pod for pod in old if whole or not ready(pod)),  # of those that serve one at a time
        ]
        if unwanted:
            meta = unwanted[0].metadata
            await self._client.delete(kube.PODS, meta.name, meta.namespace, uid=meta.uid)


def form(item: BasicReplicaSet) -> str:
    """What a pod of the set is made of, as a label; the number of pods is no part of it."""
    return hashlib.sha256(repr((item.spec.image, item.spec.command)).encode()).hexdigest()[:16]


def form_of(pod: kube.Pod) -> str:
    return (pod.metadata.labels or {}).get(FORM, "")


def rendered(item: BasicReplicaSet, name: str) -> dict[str, object]:
    """A pod of the set. Whoever writes a set chooses image and command, and no more."""
    locked = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    main = {"name": "main", "image": item.spec.image, "command": item.spec.command, "securityContext": locked}
    nobody = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [main], "securityContext": nobody, "automountServiceAccountToken": False}
    labels = {FORM: form(item)}
    return {"metadata": {"name": name, "labels": labels}, "spec": {**spec, "terminationGracePeriodSeconds": 1}}


def ready(pod: kube.Pod) -> bool:
    conditions = {each.type: each.status for each in pod.status.conditions or ()}
    return conditions.get("Ready") == "True" and not pod.metadata.deletion_timestamp


def trouble(pod: kube.Pod) -> str:
    """What keeps a pod from running, in the words of whoever knows."""
    waits = [each.state.waiting for each in pod.status.container_statuses or ()]
    said = next((f"{each.reason}: {each.message}" for each in waits if each and each.message), "")
    placed = [each.message for each in pod.status.conditions or () if each.type == "PodScheduled" and each.message]
    found = said or next(iter(placed), "")
    return f"pod {pod.metadata.name}: {found}" if found else ""


async def main(kubeconfig: Path | None) -> None:
    async with kube.connect(kubeconfig) as client:
        manager = kube.Manager(client, "basic.example.org/controllers", socket.gethostname())
        Deployments(manager)
        ReplicaSets(manager)
        await kube.run_to_signal(manager)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
