"""The shared secrets of all replicas: the key that seals states and signs tokens, and a certificate authority for TLS.

Both are in one Secret of the operator's namespace, which the first replica creates. Each replica issues its own
certificate.
"""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.execute.pod.names import GROUP
from dayfly.execute.state.access import KEY_BYTES, StateKeys
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.kube.client import KubeClient

NAME = "dayfly-state"
"""Name of the Secret and of the Service."""
TYPE = f"{GROUP}/state-key"
_KEY, _CERTIFICATE, _PRIVATE_KEY = "key", "ca.crt", "ca.key"


class BrokenAuthorityError(Exception):
    """The Secret is missing or cannot be used; the message states why."""


class Authority(msgspec.Struct, frozen=True):
    """The keys derived from the key in the Secret, and the CA's certificate and private key as PEM."""

    keys: StateKeys
    certificate: bytes
    private_key: bytes


async def load(client: KubeClient, namespace: str, *, create: bool = True) -> Authority:
    """Return the content of the Secret, which is created if it is missing and `create` is set.

    Raises:
        BrokenAuthorityError: the Secret cannot be used, or is missing.
        errors.ApiError: the API server failed or refused the request.
    """
    found = await client.find(SECRETS, NAME, namespace)
    if found is None and not create:
        raise BrokenAuthorityError(
            f"there is no Secret {namespace}/{NAME}: no state was ever stored in this cluster, "
            "or the Secret was deleted"
        )
    if found is None:
        try:
            found = await client.create(SECRETS, _secret(namespace), namespace)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            found = await client.get(SECRETS, NAME, namespace)
    data = found.data or {}
    try:
        made = Authority(StateKeys.derive(data[_KEY]), data[_CERTIFICATE], data[_PRIVATE_KEY])
        made.certificate.decode()  # steps receive it as text
    except (KeyError, ValueError) as error:
        raise BrokenAuthorityError(f"Secret {namespace}/{NAME} cannot be used: {error}") from None
    return made


def create_leaf(authority: Authority, names: Sequence[str]) -> bytes:
    """Return a new private key with a certificate for these names and addresses, as one PEM file.

    Raises:
        BrokenAuthorityError: the authority cannot be used.
    """
    from dayfly.operator.states import certificates  # noqa: PLC0415 - only processes that serve states load it

    try:
        return certificates.create_leaf(authority.certificate, authority.private_key, names)
    except (TypeError, ValueError) as error:
        raise BrokenAuthorityError(f"the authority in Secret {NAME} cannot be used: {error}") from None


def _secret(namespace: str) -> dict[str, Any]:
    from dayfly.operator.states import certificates  # noqa: PLC0415 - as above

    certificate, private = certificates.create_authority()
    data = {_KEY: secrets.token_bytes(KEY_BYTES), _CERTIFICATE: certificate, _PRIVATE_KEY: private}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "immutable": True,
        "type": TYPE,
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }
