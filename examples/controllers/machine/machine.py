"""Machines on whatever infrastructure fulfils the contract `ready`. Run it with: python -m machine [KUBECONFIG]

A Machine names an object of another kind. This controller knows no such kind: it looks up how the reference's kind is
served, follows it when it first hears of it, and reads of it what the contract says. Which kinds those are is said by
whoever defines them, with a label on the definition; so a Machine cannot have this controller touch a Secret.
"""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

from dayfly import kube

CONTRACT = "machines.example.org/contract"
FINALIZER = "machines.example.org/infrastructure"
AGAIN_S = 10.0  # nobody tells that a kind is served now, or was granted


class Reference(kube.Slim, frozen=True):
    """An object of the Machine's own namespace."""

    api_version: str
    kind: str
    name: str


class Spec(kube.Slim, frozen=True):
    """What a Machine stands on."""

    infrastructure_ref: Reference


class Status(kube.Slim, frozen=True):
    """What the infrastructure tells."""

    ready: bool = False
    address: str | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[kube.Condition] | None = None


class Machine(kube.Slim, frozen=True):
    """What a user writes."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: Status = Status()


class Contract(kube.Slim, frozen=True):
    """What is read of infrastructure: `ready`, or where that is not said a condition `Ready`; and perhaps a failure."""

    ready: bool | None = None
    address: str | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[kube.Condition] | None = None


class Infrastructure(kube.Slim, frozen=True):
    """An object of any kind that fulfils the contract."""

    metadata: kube.ObjectMeta
    status: Contract = Contract()


MACHINES = kube.Resource("machines.example.org", "v1", "machines", "Machine", Machine)
DEFINITIONS = kube.anything(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
).metadata_only()


class WaitingError(Exception):
    """A Machine cannot go on; one word why, and the text what it waits for."""

    def __init__(self, reason: str, message: str, after: float | None = AGAIN_S) -> None:
        super().__init__(message)
        self.reason = reason
        self.after = after


class Machines:
    """Ties each Machine to its infrastructure, tells how that stands, and has it go first."""

    def __init__(self, manager: kube.Manager) -> None:
        self._manager, self._client = manager, manager.client
        self._status_writer = manager.status_writer(warnings={"NoContract", "NotServed", "Taken", "Failed"})
        self._machines = manager.control(MACHINES, self.reconcile)
        self._followed: dict[tuple[str, str], kube.Resource[Infrastructure]] = {}

    async def reconcile(self, machine: Machine) -> float | None:
        if machine.metadata.deletion_timestamp:
            return await self._end(machine)
        try:
            of = await self._kind(machine.spec.infrastructure_ref)
            if await kube.add_finalizer(self._client, MACHINES, machine.metadata, FINALIZER):
                return None  # held before anything is tied to it
            infrastructure = await self._tied(machine, of)
        except WaitingError as why:
            waits = kube.Condition("Ready", "False", why.reason, str(why))
            await self._status_writer.write(MACHINES, machine, Status(conditions=[waits]))
            return why.after
        await self._status_writer.write(MACHINES, machine, told(of.kind, infrastructure))
        return None

    async def _kind(self, to: Reference) -> kube.Resource[Infrastructure]:
        """How that kind is served, and followed from now on; looked up once.

        Raises:
            WaitingError: it is not served, or does not fulfil the contract.
        """
        if found := self._followed.get((to.api_version, to.kind)):
            return found
        of = await served(self._client, to)
        if of is None:
            raise WaitingError("NotServed", f"this cluster serves no {to.kind} of {to.api_version} in namespaces")
        definition = None
        if of.group:  # the server's own kinds have no definition
            definition = await self._client.find(DEFINITIONS, f"{of.plural}.{of.group}")
        if definition is None or (definition.metadata.labels or {}).get(CONTRACT) != "ready":
            lack = "has no definition that could say so"
            if definition is not None:
                lack = f"wants the label {CONTRACT}=ready on its definition {definition.metadata.name}"
            raise WaitingError("NoContract", f"{to.kind} is not known to fulfil the contract `ready`: it {lack}")
        self._followed[to.api_version, to.kind] = of
        self._machines.follows(self._manager.watch(of), lambda item: self._users(of, item))
        return of

    def _users(self, of: kube.Resource[Infrastructure], item: Infrastructure) -> list[kube.Key]:
        """The Machines that name it."""
        meta, named = item.metadata, Reference(of.api_version, of.kind, item.metadata.name)
        users = (each for each in self._machines.cache if each.spec.infrastructure_ref == named)
        return [kube.Key.of(each) for each in users if each.metadata.namespace == meta.namespace]

    async def _tied(self, machine: Machine, of: kube.Resource[Infrastructure]) -> Infrastructure:
        """Its infrastructure, made its own if it is nobody's; what somebody else keeps is used and left.

        Raises:
            WaitingError: there is none, or another Machine has it.
        """
        cache, name = self._manager.watch(of), machine.spec.infrastructure_ref.name
        if trouble := self._manager.trouble(cache):
            raise WaitingError("NotWatched", f"objects of kind {of.kind} cannot be watched: {trouble.message}")
        if not self._manager.synced(cache):
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
        """Its own infrastructure goes first. Whether it is gone no cache tells: it may never have been watched."""
        if FINALIZER not in (machine.metadata.finalizers or ()):
            return None
        to, meta = machine.spec.infrastructure_ref, machine.metadata
        of, found = await served(self._client, to), None
        if of is not None:
            found = await self._client.find(of, to.name, meta.namespace)
        if of is None or found is None or not kube.controls(machine, found):
            await kube.drop_finalizer(self._client, MACHINES, meta, FINALIZER)
            return None
        if not found.metadata.deletion_timestamp:
            await self._client.delete(of, to.name, meta.namespace, uid=found.metadata.uid)
        waits = kube.Condition("Ready", "False", "Deleting", f"{to.kind} {to.name} is being removed")
        await self._status_writer.write(MACHINES, machine, Status(conditions=[waits]))
        return 1.0


async def served(client: kube.Client, to: Reference) -> kube.Resource[Infrastructure] | None:
    """How the API serves that kind in namespaces; None if it does not."""
    try:
        every = await client.kinds(to.api_version)
    except kube.errors.NotServed:
        return None
    line = next((each for each in every if each.kind == to.kind and each.namespaced and "/" not in each.name), None)
    found: kube.Resource[Any] | None = kube.anything(to.api_version, to.kind, line.name) if line else None
    return found.read_as(Infrastructure) if found else None


def told(kind: str, infrastructure: Infrastructure) -> Status:
    """What the contract says of a Machine that stands on it."""
    said, own = infrastructure.status, kube.condition(infrastructure.status, "Ready")
    ready = said.ready if said.ready is not None else own is not None and own.status == "True"
    about, failed = f"{kind} {infrastructure.metadata.name}", [said.failure_reason, said.failure_message]
    if any(failed):
        news = kube.Condition("Ready", "False", "Failed", ": ".join([about, *(each for each in failed if each)]))
        return Status(False, said.address, said.failure_reason, said.failure_message, [news])
    message = (own.message if own else "") or ("it runs" if ready else "it is not ready yet")
    news = kube.Condition("Ready", "False", "Waiting", f"{about}: {message}")
    if ready:
        news = kube.Condition("Ready", "True", "Ready", f"{about}: {message}")
    return Status(ready, said.address, conditions=[news])


async def main(kubeconfig: Path | None) -> None:
    async with kube.connect(kubeconfig) as client:
        manager = kube.Manager(client, "machines.example.org/machines", socket.gethostname())
        Machines(manager)
        await kube.run_to_signal(manager)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
