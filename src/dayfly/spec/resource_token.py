"""The token of a resource: `HOST.MAC`, which proves that a host of the owner of a key has created an item.

Plugins put it into a tag of the items that they create. It is not a secret and grants nothing, because a reader can
only copy it.
"""

import hashlib
import hmac
import re
from typing import Annotated, Final, NamedTuple

import msgspec

from dayfly.spec.meta import doc

KEY_BYTES: Final = 32
_MAC_LENGTH: Final = 32
_HOST_LENGTH: Final = 16
_is_token = re.compile(r"[0-9a-z]{1,64}\.[0-9a-f]{32}").fullmatch
_is_resource_id = re.compile("[0-9a-f]{26}").fullmatch


class HostIdentity(NamedTuple):
    """The name of a home or cluster in tokens, and the key that makes them."""

    host: str
    key: bytes


class ResourceToken(msgspec.Struct, frozen=True):
    """The token of an item, with the resource ID that the item claims."""

    id: Annotated[str, doc("Resource ID.", 1024)]
    token: Annotated[str, doc("Value of DAYFLY_RESOURCE_TOKEN.", 1024)]

    @property
    def is_well_formed(self) -> bool:
        """Whether both have the form that Dayfly gives them. Anyone can write such tags."""
        return bool(_is_token(self.token) and _is_resource_id(self.id))

    @property
    def host(self) -> str:
        """The host that it names, which proves nothing."""
        return self.token.partition(".")[0]


def resource_token(key: bytes, host: str, resource_id: str) -> str:
    """Return the token of a resource. `key` belongs to an organisation or a home, `host` to one of its hosts."""
    mac = hmac.new(key, f"{host}:{resource_id}".encode(), hashlib.sha256).hexdigest()
    return f"{host}.{mac[:_MAC_LENGTH]}"


def verified_host(key: bytes, token: str, resource_id: str) -> str:
    """Return the host that a token names; empty if it was not made with this key for this resource."""
    host, _, _ = token.partition(".")
    expected = resource_token(key, host, resource_id)
    return host if hmac.compare_digest(expected.encode(), token.encode()) else ""


def derive_identity(key: bytes, cluster_uid: str) -> HostIdentity:
    """Return the identity of a cluster of an organisation, derived from the organisation's key.

    A cluster gets only its own key, with which it cannot make tokens of another cluster.
    """
    host = hmac.new(key, f"host:{cluster_uid}".encode(), hashlib.sha256).hexdigest()[:_HOST_LENGTH]
    return HostIdentity(host, derive_key(key, host))


def derive_key(key: bytes, host: str) -> bytes:
    """Return the key of a cluster by its name in tokens."""
    return hmac.new(key, f"key:{host}".encode(), hashlib.sha256).digest()
