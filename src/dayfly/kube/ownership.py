"""Whose an object is: finalizers and owner references, written to that very object and to no other of its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.forms import Style
from dayfly.kube.objects import HasMeta, ObjectMeta, ObjectReference, OwnerReference, Resource

T = TypeVar("T", bound=HasMeta)


class ForeignError(Exception):
    """The name is taken by an object of somebody else's; the text says whose."""


def reference(resource: Resource[Any], item: HasMeta) -> ObjectReference:
    """Which object one speaks of, as in an Event."""
    meta = item.metadata
    return ObjectReference(resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid)


def owner_reference(resource: Resource[Any], item: HasMeta) -> dict[str, Any]:
    """For the `ownerReferences` of what a controller makes for an object: when that goes, the server collects it."""
    meta = item.metadata
    about = {"apiVersion": resource.api_version, "kind": resource.kind, "name": meta.name, "uid": meta.uid}
    return {**about, "controller": True, "blockOwnerDeletion": True}


def controller_of(item: HasMeta) -> OwnerReference | None:
    """Who makes an object and keeps it; at most one does."""
    return next((owner for owner in item.metadata.owner_references or () if owner.controller), None)


def controls(owner: HasMeta, item: HasMeta) -> bool:
    """Whether it is that very owner who keeps this object."""
    found = controller_of(item)
    return found is not None and found.uid == owner.metadata.uid


async def create_owned(
    client: Client, resource: Resource[T], body: dict[str, Any], owner: HasMeta, owner_kind: Resource[Any]
) -> T:
    """Make an object that an owner keeps, in its namespace, under a name that tells which one it is.

    Once, however often it is asked for: the name is the guard. If it is taken, the object is ours by its owner's UID.

    Raises:
        ForeignError: it is somebody else's, and stays as it is.
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
        whose = f"{keeper.kind} {keeper.name} keeps it" if keeper else "nobody keeps it"
        raise ForeignError(f"{resource.kind} {meta['name']} is there already, and {whose}: rename or delete it")
    return found


async def add_finalizer(client: Client, resource: Resource[Any], meta: ObjectMeta, finalizer: str) -> bool:
    """Hold an object as it was seen; whether that has just been written.

    Raises:
        errors.Conflict: it has changed since, and is perhaps on its way out.
        errors.NotFound: it is gone.
    """
    finalizers = meta.finalizers or []
    if finalizer in finalizers:
        return False
    held = {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": [*finalizers, finalizer]}
    await client.patch(resource.metadata_only(), {"metadata": held}, meta.name, meta.namespace)
    return True


async def drop_finalizer(
    client: Client, resource: Resource[Any], meta: ObjectMeta, finalizer: str, *, if_so: Mapping[str, str] | None = None
) -> None:
    """Take a finalizer off that very object, for certain; done already, or gone, is as good.

    Args:
        client: Who asks.
        resource: Its kind.
        meta: As it was seen, however long ago.
        finalizer: Which.
        if_so: Values that it must have still, by JSON pointer: whoever goes by a cache says what it goes by.

    Raises:
        errors.ApiError: it may still be there.
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
            # Done by a peer, or another finalizer went and ours has moved up.
            if last:
                raise
        try:
            seen = await client.get(resource.metadata_only(), meta.name, meta.namespace)
        except errors.NotFound:
            return
        if seen.metadata.uid != meta.uid:
            return
        meta = seen.metadata
