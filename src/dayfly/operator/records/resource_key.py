"""The identity of this installation in tokens, and their key: one immutable Secret, which the first replica creates."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Any

from dayfly.execute.pod.names import GROUP
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS
from dayfly.spec.resource_token import KEY_BYTES, HostIdentity

if TYPE_CHECKING:
    from dayfly.kube.client import KubeClient

NAME = "dayfly-resource-key"
TYPE = f"{GROUP}/resource-key"
_HOST_BYTES = 8
_HOST, _KEY = "host", "key"


class BrokenKeyError(Exception):
    """The Secret cannot be used; the message states why and what to do."""


async def load_identity(client: KubeClient, namespace: str) -> HostIdentity:
    """Return the content of the Secret, which is created if it is missing.

    Raises:
        BrokenKeyError: the Secret cannot be used.
        errors.ApiError: the API server failed or refused the request.
    """
    found = await client.find(SECRETS, NAME, namespace)
    if found is None:
        try:
            found = await client.create(SECRETS, _secret(namespace), namespace)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            found = await client.get(SECRETS, NAME, namespace)
    data = found.data or {}
    host, key = data.get(_HOST, b"").decode(errors="replace"), data.get(_KEY, b"")
    if found.type != TYPE or len(key) != KEY_BYTES or not (host.isascii() and host.isalnum()):
        raise BrokenKeyError(
            f"Secret {namespace}/{NAME} is not the key of resource tokens: restore it from a backup, or delete it and "
            "restart the operator; earlier tokens then prove nothing"
        )
    return HostIdentity(host, key)


def _secret(namespace: str) -> dict[str, Any]:
    data = {_HOST: secrets.token_hex(_HOST_BYTES).encode(), _KEY: secrets.token_bytes(KEY_BYTES)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "immutable": True,
        "type": TYPE,
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }
