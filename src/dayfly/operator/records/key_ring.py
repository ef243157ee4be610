"""The keys for resource tokens that servers have given to this installation, in one Secret.

All keys are kept: resources that were made with an earlier key are still recognised.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from dayfly.execute.pod.names import GROUP
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS
from dayfly.operator.records.resource_key import BrokenKeyError
from dayfly.spec.resource_token import KEY_BYTES, HostIdentity

if TYPE_CHECKING:
    from dayfly.kube.client import KubeClient
    from dayfly.kube.objects import Secret

NAME = "dayfly-server-keys"
TYPE = f"{GROUP}/server-keys"
# The oldest ones are dropped. A server gives a cluster another key only if its database was lost, or the cluster moved.
MAX_KEYS: Final = 16
_MAX_TRIES: Final = 5
_KEYS = "keys"


class GivenKey(NamedTuple):
    """The identity of this cluster in the tokens of an organisation."""

    org: str
    identity: HostIdentity


class _Row(msgspec.Struct, array_like=True, frozen=True):
    org: str
    host: str
    key: bytes


async def load_keys(client: KubeClient, namespace: str) -> tuple[GivenKey, ...]:
    """Return the given keys, the newest last.

    Raises:
        BrokenKeyError: another program has changed the Secret.
        errors.ApiError: the API server failed or refused the request.
    """
    found = await client.find(SECRETS, NAME, namespace)
    return _unpack(found, namespace)


async def add_key(client: KubeClient, namespace: str, given: GivenKey) -> tuple[GivenKey, ...]:
    """Store a key as the newest one. When this returns, it is durable. Return all keys.

    Raises:
        BrokenKeyError: another program has changed the Secret.
        errors.ApiError: it may not be stored.
    """
    for tries in range(1, _MAX_TRIES + 1):
        found = await client.find(SECRETS, NAME, namespace)
        known = _unpack(found, namespace)
        if known and known[-1] == given:
            return known
        keys = (*(each for each in known if each != given), given)[-MAX_KEYS:]
        body, meta = _body(keys), {"name": NAME, "namespace": namespace}
        try:
            if found is None:
                await client.create(SECRETS, {**body, "metadata": meta}, namespace)
            else:
                version = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
                await client.update(SECRETS, {**body, "metadata": {**meta, **version}}, NAME, namespace)
        except (errors.Conflict, errors.NotFound, errors.AlreadyExists, errors.OutcomeUnknown):
            if tries == _MAX_TRIES:
                raise
        else:
            return keys
    raise AssertionError("the last try returns or raises")


def _body(keys: tuple[GivenKey, ...]) -> dict[str, Any]:
    rows = tuple(_Row(each.org, each.identity.host, each.identity.key) for each in keys)
    data = base64.b64encode(msgspec.msgpack.encode(rows)).decode()
    return {"apiVersion": "v1", "kind": "Secret", "type": TYPE, "data": {_KEYS: data}}


def _unpack(found: Secret | None, namespace: str) -> tuple[GivenKey, ...]:
    if found is None:
        return ()
    try:
        rows = msgspec.msgpack.decode((found.data or {}).get(_KEYS, b""), type=tuple[_Row, ...])
    except (msgspec.DecodeError, RecursionError):
        rows = ()
    if found.type != TYPE or not rows or any(len(each.key) != KEY_BYTES for each in rows):
        raise BrokenKeyError(
            f"Secret {namespace}/{NAME} does not have the keys of servers: restore it from a backup, or delete it; the "
            "server gives the latest key again, and tokens by earlier ones then prove nothing"
        )
    return tuple(GivenKey(each.org, HostIdentity(each.host, each.key)) for each in rows)
