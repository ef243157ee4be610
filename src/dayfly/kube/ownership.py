"""Finalizers and owner references. Every write is bound to the UID of the object, not only to its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.forms import Style
from dayfly.kube.objects import ApiResource, HasMeta, ObjectMeta, ObjectReference, OwnerReference

T = TypeVar("T", bound=HasMeta)


class NameConflictError(Exception):
    """An object with another owner has the name; the text names the owner."""


def reference(resource: ApiResource[Any], item: HasMeta) -> ObjectReference:
    """Return the reference to an object, for example for an Event."""
    meta = item.metadata
    return ObjectReference(resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid)


def owner_reference(resource: ApiResource[Any], item: HasMeta) -> dict[str, Any]:
    """Return an entry for `ownerReferences` of a created object: the server deletes it with its owner."""
    meta = item.metadata
    about = {"apiVersion": resource.api_version, "kind": resource.kind, "name": meta.name, "uid": meta.uid}
    return {**about, "controller": True, "blockOwnerDeletion": True}


def controller_of(item: HasMeta) -> OwnerReference | None:
    """Return the controlling owner of an object; None if it has none."""
    return next((owner for owner in item.metadata.owner_references or () if owner.controller), None)


def controls(owner: HasMeta, item: HasMeta) -> bool:
    """Return whether exactly this owner controls the object."""
    found = controller_of(item)
    return found is not None and found.uid == owner.metadata.uid


async def create_owned(
    client: KubeClient, resource: ApiResource[T], body: dict[str, Any], owner: HasMeta, owner_kind: ApiResource[Any]
) -> T:
    """Create an object for an owner, in its namespace, under a name that depends on the owner.

    The call is idempotent because of the name. An existing object with the name is returned if the owner controls it.

    Raises:
        NameConflictError: the existing object has another owner; it is not changed.
    """
    namespace, meta = owner.metadata.namespace, body["metadata"]
    meta = {**meta, "namespace": namespace, "ownerReferences": [owner_reference(owner_kind, owner)]}
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": meta}
    try:
        return await client.create(resource, whole, namespace)
    except errors.AlreadyExists:
        found = await client.get(resource, meta["name"], namespace)
    if not controls(owner, found):
        keeper = controller_of(found)
        whose = f"{keeper.kind} {keeper.name} controls it" if keeper else "it has no controller"
        raise NameConflictError(f"{resource.kind} {meta['name']} already exists, and {whose}: rename or delete it")
    return found


async def add_finalizer(client: KubeClient, resource: ApiResource[Any], meta: ObjectMeta, finalizer: str) -> bool:
    """Add a finalizer to the object in the state `meta`; return whether it was missing.

    Raises:
        errors.Conflict: the object has changed since then, and may be in deletion.
        errors.NotFound: the object is gone.
    """
    finalizers = meta.finalizers or []
    if finalizer in finalizers:
        return False
    held = {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": [*finalizers, finalizer]}
    await client.patch(resource.metadata_only(), {"metadata": held}, meta.name, meta.namespace)
    return True


async def drop_finalizer(
    client: KubeClient,
    resource: ApiResource[Any],
    meta: ObjectMeta,
    finalizer: str,
    *,
    if_so: Mapping[str, str] | None = None,
) -> None:
    """Remove a finalizer from exactly this object. A removed finalizer or a deleted object is a success.

    Args:
        client: The client.
        resource: The kind.
        meta: A known state of the object, of any age.
        finalizer: The finalizer.
        if_so: Values, by JSON pointer, that the object must still have. A caller that decides by a cache passes the
            values of its decision.

    Raises:
        errors.ApiError: the finalizer may still be there.
    """
    conditions = [{"op": "test", "path": path, "value": value} for path, value in (if_so or {}).items()]
    for last in (False, False, True):
        finalizers = list(meta.finalizers or ())
        if finalizer not in finalizers:
            return
        at = finalizers.index(finalizer)
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            *conditions,
            {"op": "test", "path": f"/metadata/finalizers/{at}", "value": finalizer},
            {"op": "remove", "path": f"/metadata/finalizers/{at}"},
        ]
        try:
            await client.patch(resource, operations, meta.name, meta.namespace, style=Style.JSON)
            return
        except errors.NotFound:
            return
        except (errors.Conflict, errors.Invalid):
            # A peer has removed it, or another finalizer is gone and the index has changed.
            if last:
                raise
        try:
            seen = await client.get(resource.metadata_only(), meta.name, meta.namespace)
        except errors.NotFound:
            return
        if seen.metadata.uid != meta.uid:
            return
        meta = seen.metadata
