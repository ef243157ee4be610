"""What the replicas share: the key that seals states and signs tokens, and the authority by which steps know them.

Both lie in one Secret of the operator's namespace, made by whichever replica is first. Each replica makes itself a
certificate of its own.
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

    from dayfly.kube.client import Client

NAME = "dayfly-state"
"""Of the Secret, and of the Service."""
TYPE = f"{GROUP}/state-key"
_KEY, _CERTIFICATE, _PRIVATE = "key", "ca.crt", "ca.key"


class BrokenAuthorityError(Exception):
    """The Secret is there and not what was written; the text says which."""


class Authority(msgspec.Struct, frozen=True):
    """The key, and the authority's certificate and private key (PEM)."""

    keys: StateKeys
    certificate: bytes
    private: bytes


async def load(client: Client, namespace: str, *, make_it: bool = True) -> Authority:
    """As it lies in the cluster; made if there is none.

    Raises:
        BrokenAuthorityError: what lies there cannot be used.
        errors.ApiError: the server cannot be asked, or does not let us.
    """
    found = await client.find(SECRETS, NAME, namespace)
    if found is None and not make_it:
        raise BrokenAuthorityError(f"there is no Secret {namespace}/{NAME}: no state was ever kept here")
    if found is None:
        try:
            found = await client.create(SECRETS, _secret(namespace), namespace)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            found = await client.get(SECRETS, NAME, namespace)
    data = found.data or {}
    try:
        made = Authority(StateKeys.derive(data[_KEY]), data[_CERTIFICATE], data[_PRIVATE])
        made.certificate.decode()  # steps are given it as text
    except (KeyError, ValueError) as error:
        raise BrokenAuthorityError(f"Secret {namespace}/{NAME} cannot be used: {error}") from None
    return made


def leaf(authority: Authority, names: Sequence[str]) -> bytes:
    """A private key with a certificate for these names and addresses, as one PEM file.

    Raises:
        BrokenAuthorityError: the authority is none.
    """
    from dayfly.operator.states import certificates  # noqa: PLC0415 - who serves no states need not load it

    try:
        return certificates.leaf(authority.certificate, authority.private, names)
    except (TypeError, ValueError) as error:
        raise BrokenAuthorityError(f"the authority in Secret {NAME} cannot be used: {error}") from None


def _secret(namespace: str) -> dict[str, Any]:
    from dayfly.operator.states import certificates  # noqa: PLC0415 - as above

    certificate, private = certificates.authority()
    data = {_KEY: secrets.token_bytes(KEY_BYTES), _CERTIFICATE: certificate, _PRIVATE: private}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "immutable": True,
        "type": TYPE,
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }
