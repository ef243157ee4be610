"""Which kinds a server has."""

from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import ServedKind


async def served(client: Client, api_version: str, kind: str) -> ServedKind | None:
    """How the server serves a kind under one API version (`batch/v1`); None where it does not.

    What lies below objects (`machines/scale`) has a kind as well, which is never meant.
    """
    try:
        every = await client.kinds(api_version)
    except errors.NotServed:
        return None
    return next((each for each in every if each.kind == kind and "/" not in each.name), None)
