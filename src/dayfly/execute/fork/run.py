"""What is done to forks: created without replicas, scaled by UID, changed in place, removed with their pods."""

from collections.abc import Awaitable
from typing import Any, TypeVar

from dayfly.execute.fork.read import ForkDeployment, ForkService
from dayfly.execute.fork.render import FORK_LABEL, FORM_ANNOTATION, REPLICAS_ANNOTATION, ports
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.forms import Propagation
from dayfly.kube.objects import PODS, HasMeta, Resource, anything
from dayfly.spec.scalars.numbers import whole

T = TypeVar("T", bound=HasMeta)

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", ForkDeployment)
SERVICES = Resource("", "v1", "services", "Service", ForkService)
REPLICA_SETS = anything("apps/v1", "ReplicaSet", "replicasets").metadata_only()
_REVISION = "deployment.kubernetes.io/revision"
_MOST = (1 << 31) - 1  # replicas, as the server counts them
_WHOLE = DEPLOYMENTS.read_as(dict[str, Any])


class ForeignForkError(Exception):
    """A Deployment or a Service with our fork's name is not ours."""


class Forks:
    """Forks of Deployments and their Services. Every read is a quorum read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def baseline(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The baseline as it is now; None if there is none."""
        return await self._client.find(_WHOLE, name, namespace)

    async def find(self, name: str, namespace: str) -> ForkDeployment | None:
        """The fork of that name as it is now."""
        return await self._client.find(DEPLOYMENTS, name, namespace)

    async def left(self, name: str, namespace: str) -> tuple[int, int]:
        """Of a fork whose Deployment is gone: how many ReplicaSets, and how many pods, ending ones included.

        A Deployment that is deleted without waiting goes before its ReplicaSets, and these may yet make a pod. So they
        are asked for first: where there is none any more, no pod comes after those that are found then.
        """
        which = f"{FORK_LABEL}={name}"
        sets = await self._client.list_all(REPLICA_SETS, namespace, labels=which)
        return len(sets.items), len((await self._client.list_all(PODS, namespace, labels=which)).items)

    async def prepare(self, manifest: dict[str, Any]) -> None:
        """Create the Deployment without replicas, or find the one that an earlier try, or a peer, has created.

        Raises:
            ForeignForkError: the name is taken by somebody else's.
            errors.Refused: the server does not admit it.
        """
        await self._make(DEPLOYMENTS, manifest)

    async def service(self, manifest: dict[str, Any]) -> ForkService:
        """Create the fork's Service, or find the one that an earlier try, or a peer, has created.

        Raises:
            ForeignForkError: the name is taken by somebody else's.
            errors.Refused: the server does not admit it.
        """
        return await self._make(SERVICES, manifest)

    async def find_service(self, name: str, namespace: str, owner: dict[str, Any]) -> ForkService | None:
        """The fork's Service as it is now; `owner` is its owner reference.

        Raises:
            ForeignForkError: the name is taken by somebody else's.
        """
        found = await self._client.find(SERVICES, name, namespace)
        return None if found is None else _ours(SERVICES, found, owner)

    async def _make(self, resource: Resource[T], manifest: dict[str, Any]) -> T:
        meta = manifest["metadata"]
        try:
            return await self._client.create(resource, manifest, meta["namespace"])
        except (errors.AlreadyExists, errors.OutcomeUnknown) as fault:
            found = await self._client.find(resource, meta["name"], meta["namespace"])
            if found is None:
                raise fault from None
        return _ours(resource, found, meta["ownerReferences"][0])

    async def let_go(self, seen: ForkDeployment) -> bool:
        """Give it its pods. Doing it twice is doing it once; a Deployment of another UID is left alone.

        Here and below: false if the server saw another object, or another version, than we do. Then look again.
        """
        noted = (seen.metadata.annotations or {}).get(REPLICAS_ANNOTATION, "")
        replicas = whole(noted, _MOST) or 1  # anybody may have edited it
        meta = seen.metadata
        return await _done(self._client.scale(DEPLOYMENTS, meta.name, meta.namespace, replicas, uid=meta.uid))

    async def keep(self, seen: ForkDeployment, manifest: dict[str, Any]) -> bool:
        """Give a fork that has its pods the form of the manifest: that very object, at the version seen.

        Raises:
            errors.Refused: the server does not admit it.
        """
        wanted, meta = manifest["metadata"]["annotations"], seen.metadata
        if (meta.annotations or {}).get(FORM_ANNOTATION) == wanted[FORM_ANNOTATION]:
            return True
        identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        # Its controller's own note; without it, it would write another time.
        noted = {key: value for key, value in (meta.annotations or {}).items() if key == _REVISION}
        body = {
            **manifest,
            "metadata": {**manifest["metadata"], **identity, "annotations": {**noted, **wanted}},
            "spec": {**manifest["spec"], "replicas": int(wanted[REPLICAS_ANNOTATION])},
        }
        return await _done(self._client.update(DEPLOYMENTS, body, meta.name, meta.namespace))

    async def keep_service(self, seen: ForkService, like: ForkService) -> bool:
        """Give a fork's Service the ports that its model has now: that very object, at the version seen."""
        if ports(seen) == ports(like):
            return True
        meta = seen.metadata
        identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": identity, "spec": {"ports": ports(like)}}
        return await _done(self._client.patch(SERVICES, patch, meta.name, meta.namespace))

    async def remove(self, seen: ForkDeployment) -> bool:
        """Delete it with its pods; it is gone only when they are."""
        meta = seen.metadata
        if meta.deletion_timestamp:
            return True
        foreground = Propagation.FOREGROUND
        return await _done(
            self._client.delete(DEPLOYMENTS, meta.name, meta.namespace, uid=meta.uid, propagation=foreground)
        )

    async def remove_service(self, seen: ForkService) -> bool:
        """Delete it."""
        meta = seen.metadata
        if meta.deletion_timestamp:
            return True
        return await _done(self._client.delete(SERVICES, meta.name, meta.namespace, uid=meta.uid))


async def _done(change: Awaitable[Any]) -> bool:
    """Whether the change was made, or there is nothing left to change."""
    try:
        await change
    except errors.NotFound:
        return True
    except errors.Conflict:
        return False
    return True


def _ours(resource: Resource[T], found: T, owner: dict[str, Any]) -> T:
    """The same, if our owner reference is on it: it names the run, whose UID nobody could foresee."""
    meta = found.metadata
    if owner["uid"] not in {reference.uid for reference in meta.owner_references or ()}:
        raise ForeignForkError(
            f"{resource.kind} {meta.namespace}/{meta.name} exists and does not belong to Dayfly; delete it"
        )
    return found
