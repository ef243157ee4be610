"""The token of a resource: `HOST.MAC`, which proves that a host of the owner of a key has made a thing.

Plugins put it into a tag of the things that they create. It is not a secret and grants nothing, because a reader can
only copy it.
"""

import hashlib
import hmac
from typing import Final, NamedTuple

KEY_BYTES: Final = 32
_MAC_LENGTH: Final = 32


class HostIdentity(NamedTuple):
    """The name of a home or cluster in tokens, and the key that makes them."""

    host: str
    key: bytes


def resource_token(key: bytes, host: str, resource_id: str) -> str:
    """Return the token of a resource. `key` belongs to an organisation or a home, `host` to one of its hosts."""
    mac = hmac.new(key, f"{host}:{resource_id}".encode(), hashlib.sha256).hexdigest()
    return f"{host}.{mac[:_MAC_LENGTH]}"


def verified_host(key: bytes, token: str, resource_id: str) -> str:
    """Return the host that a token names; empty if it was not made with this key for this resource."""
    host, _, _ = token.partition(".")
    expected = resource_token(key, host, resource_id)
    return host if hmac.compare_digest(expected.encode(), token.encode()) else ""
