"""Changes to forks: create with zero replicas, scale, update, and delete with their pods."""

from collections.abc import Awaitable
from typing import Any, TypeVar

from dayfly.execute.fork.read import ForkDeployment, ForkService
from dayfly.execute.fork.render import FORK_LABEL, FORM_ANNOTATION, REPLICAS_ANNOTATION, ports
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.forms import Propagation
from dayfly.kube.objects import PODS, ApiResource, HasMeta, untyped_resource
from dayfly.plan import messages
from dayfly.spec.scalars.numbers import parse_whole

T = TypeVar("T", bound=HasMeta)

DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment", ForkDeployment)
SERVICES = ApiResource("", "v1", "services", "Service", ForkService)
REPLICA_SETS = untyped_resource("apps/v1", "ReplicaSet", "replicasets").metadata_only()
_REVISION = "deployment.kubernetes.io/revision"
_MAX_REPLICAS = (1 << 31) - 1  # int32 of the API
_WHOLE = DEPLOYMENTS.read_as(dict[str, Any])


class ForeignForkError(Exception):
    """A Deployment or Service with the fork's name exists and was not created by Dayfly."""


class Forks:
    """Forks of Deployments and their Services. Every read is a quorum read.

    Methods that change an object return false if it was replaced or has changed. Then the caller must read it again.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def read_baseline(self, name: str, namespace: str) -> dict[str, Any] | None:
        """Read the baseline; None if there is none."""
        return await self._client.find(_WHOLE, name, namespace)

    async def find(self, name: str, namespace: str) -> ForkDeployment | None:
        """Read the fork's Deployment; None if there is none."""
        return await self._client.find(DEPLOYMENTS, name, namespace)

    async def count_leftovers(self, name: str, namespace: str) -> tuple[int, int]:
        """Count the ReplicaSets and pods of a fork whose Deployment is gone, including terminating ones.

        With background deletion, ReplicaSets outlive the Deployment and may still create pods. So ReplicaSets are
        listed first: if there are none, the following list contains all pods.
        """
        which = f"{FORK_LABEL}={name}"
        sets = await self._client.list_all(REPLICA_SETS, namespace, labels=which)
        return len(sets.items), len((await self._client.list_all(PODS, namespace, labels=which)).items)

    async def prepare(self, manifest: dict[str, Any]) -> None:
        """Create the Deployment with zero replicas, unless an earlier try or another replica has created it.

        Raises:
            ForeignForkError: An object with this name was not created by Dayfly.
            errors.Refused: The API server refuses the object.
        """
        await self._ensure(DEPLOYMENTS, manifest)

    async def ensure_service(self, manifest: dict[str, Any]) -> ForkService:
        """Create the fork's Service, or return the one that an earlier try or another replica has created.

        Raises:
            ForeignForkError: An object with this name was not created by Dayfly.
            errors.Refused: The API server refuses the object.
        """
        return await self._ensure(SERVICES, manifest)

    async def find_service(self, name: str, namespace: str, owner: dict[str, Any]) -> ForkService | None:
        """Read the fork's Service; None if there is none. `owner` is its owner reference.

        Raises:
            ForeignForkError: An object with this name was not created by Dayfly.
        """
        found = await self._client.find(SERVICES, name, namespace)
        return None if found is None else _check_owner(SERVICES, found, owner)

    async def _ensure(self, resource: ApiResource[T], manifest: dict[str, Any]) -> T:
        meta = manifest["metadata"]
        try:
            return await self._client.create(resource, manifest, meta["namespace"])
        except (errors.AlreadyExists, errors.OutcomeUnknown) as fault:
            found = await self._client.find(resource, meta["name"], meta["namespace"])
            if found is None:
                raise fault from None
        return _check_owner(resource, found, meta["ownerReferences"][0])

    async def scale_up(self, seen: ForkDeployment) -> bool:
        """Scale the Deployment with this UID to its number of replicas. The call is idempotent."""
        annotation = (seen.metadata.annotations or {}).get(REPLICAS_ANNOTATION, "")
        replicas = parse_whole(annotation, _MAX_REPLICAS) or 1  # a user may have edited it
        meta = seen.metadata
        return await _succeeds(self._client.scale(DEPLOYMENTS, meta.name, meta.namespace, replicas, uid=meta.uid))

    async def update(self, seen: ForkDeployment, manifest: dict[str, Any]) -> bool:
        """Update a scaled fork to the manifest if its digest has changed and it still has this resource version.

        Raises:
            errors.Refused: The API server refuses the update.
        """
        wanted, meta = manifest["metadata"]["annotations"], seen.metadata
        if (meta.annotations or {}).get(FORM_ANNOTATION) == wanted[FORM_ANNOTATION]:
            return True
        identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        # The controller's own annotation. Without it, the controller would write the Deployment again.
        revision = {key: value for key, value in (meta.annotations or {}).items() if key == _REVISION}
        body = {
            **manifest,
            "metadata": {**manifest["metadata"], **identity, "annotations": {**revision, **wanted}},
            "spec": {**manifest["spec"], "replicas": int(wanted[REPLICAS_ANNOTATION])},
        }
        return await _succeeds(self._client.update(DEPLOYMENTS, body, meta.name, meta.namespace))

    async def update_service(self, seen: ForkService, like: ForkService) -> bool:
        """Update the ports of the fork's Service to those of the baseline's Service."""
        if ports(seen) == ports(like):
            return True
        meta = seen.metadata
        identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": identity, "spec": {"ports": ports(like)}}
        return await _succeeds(self._client.patch(SERVICES, patch, meta.name, meta.namespace))

    async def remove(self, seen: ForkDeployment) -> bool:
        """Delete the Deployment in the foreground: it is gone only when its pods are."""
        meta = seen.metadata
        if meta.deletion_timestamp:
            return True
        foreground = Propagation.FOREGROUND
        return await _succeeds(
            self._client.delete(DEPLOYMENTS, meta.name, meta.namespace, uid=meta.uid, propagation=foreground)
        )

    async def remove_service(self, seen: ForkService) -> bool:
        """Delete the fork's Service."""
        meta = seen.metadata
        if meta.deletion_timestamp:
            return True
        return await _succeeds(self._client.delete(SERVICES, meta.name, meta.namespace, uid=meta.uid))


async def _succeeds(change: Awaitable[Any]) -> bool:
    """Return whether the change was made, or the object is gone; false after a conflict."""
    try:
        await change
    except errors.NotFound:
        return True
    except errors.Conflict:
        return False
    return True


def _check_owner(resource: ApiResource[T], found: T, owner: dict[str, Any]) -> T:
    """Return the object if it has the owner reference of the run, whose UID other users cannot predict."""
    meta = found.metadata
    if owner["uid"] not in {reference.uid for reference in meta.owner_references or ()}:
        raise ForeignForkError(messages.foreign_object(resource.kind, meta.namespace, meta.name))
    return found
