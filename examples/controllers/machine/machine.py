"""A controller for Machines on any infrastructure that fulfils the contract `ready`.

Run it with: python -m machine [KUBECONFIG]

A Machine names an object of another kind, which this controller does not know. It finds the kind's API, watches it from
then on, and reads only the fields of the contract. A label on the kind's definition declares that its objects fulfil
the contract. So a Machine cannot make this controller touch a Secret.
"""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

from dayfly import kube

CONTRACT = "machines.example.org/contract"
FINALIZER = "machines.example.org/infrastructure"
RETRY_AFTER_S = 10.0  # no event reports that a kind is served, or that a right was granted


class Reference(kube.KubeStruct, frozen=True):
    """An object in the Machine's namespace."""

    api_version: str
    kind: str
    name: str


class Spec(kube.KubeStruct, frozen=True):
    """The infrastructure of a Machine."""

    infrastructure_ref: Reference


class Status(kube.KubeStruct, frozen=True):
    """The state of the infrastructure."""

    ready: bool = False
    address: str | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[kube.ObjectCondition] | None = None


class Machine(kube.KubeStruct, frozen=True):
    """The kind that users write."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: Status = Status()


class Contract(kube.KubeStruct, frozen=True):
    """The fields read from infrastructure: `ready` (or a condition `Ready`), and a failure if there is one."""

    ready: bool | None = None
    address: str | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[kube.ObjectCondition] | None = None


class Infrastructure(kube.KubeStruct, frozen=True):
    """An object of any kind that fulfils the contract."""

    metadata: kube.ObjectMeta
    status: Contract = Contract()


MACHINES = kube.ApiResource("machines.example.org", "v1", "machines", "Machine", Machine)
DEFINITIONS = kube.untyped_resource(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
).metadata_only()


class WaitingError(Exception):
    """A Machine cannot continue. It has a reason in one word, and a message that states the missing condition."""

    def __init__(self, reason: str, message: str, after: float | None = RETRY_AFTER_S) -> None:
        super().__init__(message)
        self.reason = reason
        self.after = after


class Machines:
    """Connect each Machine to its infrastructure, report its state, and delete the infrastructure first."""

    def __init__(self, manager: kube.Manager) -> None:
        self._manager, self._client = manager, manager.client
        self._status_writer = manager.status_writer(warnings={"NoContract", "NotServed", "Taken", "Failed"})
        self._machines = manager.control(MACHINES, self.reconcile)
        self._followed: dict[tuple[str, str], kube.ApiResource[Infrastructure]] = {}

    async def reconcile(self, machine: Machine) -> float | None:
        if machine.metadata.deletion_timestamp:
            return await self._end(machine)
        try:
            of = await self._follow_kind(machine.spec.infrastructure_ref)
            if await kube.add_finalizer(self._client, MACHINES, machine.metadata, FINALIZER):
                return None  # the finalizer comes before ownership
            infrastructure = await self._adopt(machine, of)
        except WaitingError as why:
            waits = kube.ObjectCondition("Ready", "False", why.reason, str(why))
            await self._status_writer.write(MACHINES, machine, Status(conditions=[waits]))
            return why.after
        await self._status_writer.write(MACHINES, machine, machine_status(of.kind, infrastructure))
        return None

    async def _follow_kind(self, ref: Reference) -> kube.ApiResource[Infrastructure]:
        """Return the resource for a kind, and watch it from now on. The result is cached.

        Raises:
            WaitingError: the kind is not served, or does not fulfil the contract.
        """
        if found := self._followed.get((ref.api_version, ref.kind)):
            return found
        of = await find_resource(self._client, ref)
        if of is None:
            raise WaitingError("NotServed", f"this cluster serves no {ref.kind} of {ref.api_version} in namespaces")
        definition = None
        if of.group:  # built-in kinds have no definition
            definition = await self._client.find(DEFINITIONS, f"{of.plural}.{of.group}")
        if definition is None or (definition.metadata.labels or {}).get(CONTRACT) != "ready":
            lack = "has no definition that could declare it"
            if definition is not None:
                lack = f"needs the label {CONTRACT}=ready on its definition {definition.metadata.name}"
            raise WaitingError("NoContract", f"{ref.kind} is not known to fulfil the contract `ready`: it {lack}")
        self._followed[ref.api_version, ref.kind] = of
        self._machines.follows(self._manager.watch(of), lambda item: self._users(of, item))
        return of

    def _users(self, of: kube.ApiResource[Infrastructure], item: Infrastructure) -> list[kube.Key]:
        """Return the Machines that refer to this object."""
        meta, named = item.metadata, Reference(of.api_version, of.kind, item.metadata.name)
        users = (each for each in self._machines.cache if each.spec.infrastructure_ref == named)
        return [kube.Key.from_object(each) for each in users if each.metadata.namespace == meta.namespace]

    async def _adopt(self, machine: Machine, of: kube.ApiResource[Infrastructure]) -> Infrastructure:
        """Return the infrastructure. If it has no owner, the Machine becomes its owner; else it is only used.

        Raises:
            WaitingError: there is none, or another Machine has it.
        """
        cache, name = self._manager.watch(of), machine.spec.infrastructure_ref.name
        if trouble := self._manager.watch_error(cache):
            raise WaitingError("NotWatched", f"objects of kind {of.kind} cannot be watched: {trouble.message}")
        if not self._manager.is_synced(cache):
            raise WaitingError("NotWatched", f"objects of kind {of.kind} are being listed", after=1.0)
        found = cache.get(name, machine.metadata.namespace)
        if found is None:
            raise WaitingError("NoInfrastructure", f"there is no {of.kind} {name} yet", after=None)
        keeper = kube.controller_of(found)
        if keeper and keeper.kind == "Machine" and keeper.uid != machine.metadata.uid:
            raise WaitingError("Taken", f"{of.kind} {name} belongs to Machine {keeper.name}")
        if not found.metadata.owner_references and not found.metadata.deletion_timestamp:
            meta = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
            patch = {"metadata": {**meta, "ownerReferences": [kube.owner_reference(MACHINES, machine)]}}
            await self._client.patch(of, patch, name, machine.metadata.namespace)
        return found

    async def _end(self, machine: Machine) -> float | None:
        """Delete owned infrastructure before the Machine. It reads the API, because the kind may not be in a cache."""
        if FINALIZER not in (machine.metadata.finalizers or ()):
            return None
        ref, meta = machine.spec.infrastructure_ref, machine.metadata
        of, found = await find_resource(self._client, ref), None
        if of is not None:
            found = await self._client.find(of, ref.name, meta.namespace)
        if of is None or found is None or not kube.controls(machine, found):
            await kube.drop_finalizer(self._client, MACHINES, meta, FINALIZER)
            return None
        if not found.metadata.deletion_timestamp:
            await self._client.delete(of, ref.name, meta.namespace, uid=found.metadata.uid)
        waits = kube.ObjectCondition("Ready", "False", "Deleting", f"{ref.kind} {ref.name} is being removed")
        await self._status_writer.write(MACHINES, machine, Status(conditions=[waits]))
        return 1.0


async def find_resource(client: kube.KubeClient, ref: Reference) -> kube.ApiResource[Infrastructure] | None:
    """Find the namespaced API of a kind; None if the cluster does not serve it."""
    try:
        every = await client.kinds(ref.api_version)
    except kube.errors.NotServed:
        return None
    line = next((each for each in every if each.kind == ref.kind and each.namespaced and "/" not in each.name), None)
    found: kube.ApiResource[Any] | None = kube.untyped_resource(ref.api_version, ref.kind, line.name) if line else None
    return found.read_as(Infrastructure) if found else None


def machine_status(kind: str, infrastructure: Infrastructure) -> Status:
    """Return the status of a Machine, derived from the contract."""
    said, own = infrastructure.status, kube.condition(infrastructure.status, "Ready")
    ready = said.ready if said.ready is not None else own is not None and own.status == "True"
    about, failed = f"{kind} {infrastructure.metadata.name}", [said.failure_reason, said.failure_message]
    if any(failed):
        condition = kube.ObjectCondition(
            "Ready", "False", "Failed", ": ".join([about, *(each for each in failed if each)])
        )
        return Status(False, said.address, said.failure_reason, said.failure_message, [condition])
    message = (own.message if own else "") or ("it is running" if ready else "it is not ready yet")
    condition = kube.ObjectCondition("Ready", "False", "Waiting", f"{about}: {message}")
    if ready:
        condition = kube.ObjectCondition("Ready", "True", "Ready", f"{about}: {message}")
    return Status(ready, said.address, conditions=[condition])


async def main(kubeconfig: Path | None) -> None:
    async with kube.connect(kubeconfig) as client:
        manager = kube.Manager(client, "machines.example.org/machines", socket.gethostname())
        Machines(manager)
        await kube.run_to_signal(manager)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
