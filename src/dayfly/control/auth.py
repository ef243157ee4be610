"""Who may come in: callers with a key, and browsers only by our own name."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import Headers

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def single(key: str) -> Callable[[str], bool]:
    """A check that knows one key. It holds only the key's digest, and takes equally long for every wrong key."""
    known = hashlib.sha256(key.encode()).digest()
    return lambda given: hmac.compare_digest(hashlib.sha256(given.encode()).digest(), known)


def key_of(headers: Headers) -> str:
    """The key a caller gives, in `signadot-api-key` or as `Authorization: Bearer`; empty if none."""
    if given := headers.get("signadot-api-key"):
        return given
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def caller(headers: Headers) -> str:
    """Who asks, for the records: the program's name for itself and eight digits of its key's digest, never the key."""
    program = "".join(char for char in headers.get("user-agent", "") if char.isprintable())[:60] or "unknown program"
    return f"{program}, key {hashlib.sha256(key_of(headers).encode()).hexdigest()[:8]}"


def is_loopback_name(host: str) -> bool:
    """Whether a Host header names this machine by a loopback name, with any port.

    A page of another site that had its own name resolved to 127.0.0.1 still says its own name here.
    """
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        name = host
    return name.lower() in LOOPBACK_NAMES
