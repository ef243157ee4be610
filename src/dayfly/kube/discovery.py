"""Discovery of served kinds and of their CustomResourceDefinitions."""

from typing import Any

from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import DEFINITIONS, ApiResource, ServedKind


async def find_served_kind(client: KubeClient, api_version: str, kind: str) -> ServedKind | None:
    """Return how the server serves a kind under an API version (`batch/v1`); None if it does not.

    Subresources such as `machines/scale`, which also have a kind, are ignored.
    """
    try:
        every = await client.kinds(api_version)
    except errors.NotServed:
        return None
    return next((each for each in every if each.kind == kind and "/" not in each.name), None)


async def list_other_versions(client: KubeClient, api_version: str, kind: str) -> list[str]:
    """Return the other versions of the group in which the server serves the kind: its objects are the same ones."""
    group = api_version.rpartition("/")[0]
    versions = await client.versions(group) if group else []
    return [each for each in versions if each != api_version and await find_served_kind(client, each, kind)]


async def definition_uid(client: KubeClient, resource: ApiResource[Any]) -> str:
    """Return the UID of the CustomResourceDefinition of a kind; empty if it has none, or it may not be read.

    The absence of a definition proves something only if the definition existed before.
    """
    try:
        found = await client.find(DEFINITIONS, f"{resource.plural}.{resource.group}")
    except errors.Forbidden:
        return ""
    return found.metadata.uid if found is not None else ""


async def is_definition_gone(client: KubeClient, name: str, uid: str) -> bool:
    """Return whether that very CustomResourceDefinition is gone, and with it all objects of its kind.

    This is a quorum read of the definition itself. Discovery proves nothing: one of several API servers may be behind,
    and a definition may serve no version while its objects are stored.

    Raises:
        errors.ApiError: the definition cannot be read, so the answer is unknown.
    """
    try:
        found = await client.get(DEFINITIONS, name)
    except errors.NotFound:
        return True
    return found.metadata.uid != uid
