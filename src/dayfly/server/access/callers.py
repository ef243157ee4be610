"""Callers of the API: each key belongs to one organisation and has one role. Checks of browsers' requests."""

from __future__ import annotations

import enum
import hashlib
import hmac
import ipaddress
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from dayfly.server.access.scopes import WHOLE, Scope

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import Request

    from dayfly.server.access.scopes import ScopedObject

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
PAGE = "dayfly-page"
"""The header that the page sends. Forms and links of other sites cannot send it."""
AGENT = "agent"
"""The role of keys for agents in the API."""
LOCAL = "local"
"""The only organisation of a home's server."""


class Role(enum.IntEnum):
    """The rights of a key. Each role includes the previous one."""

    VIEWER = 1
    MEMBER = 2
    ADMIN = 3

    @property
    def api_name(self) -> str:
        """Its name in the API."""
        return self.name.lower()


class Caller(NamedTuple):
    """The sender of a request, according to its key.

    Attributes:
        org: The organisation of the key, the only one to which it has access.
        role: The role of the key.
        key_id: Identifies the key in records. It is not secret.
        name: The name of the key.
        scope: The objects to which the key has access.
    """

    org: str
    role: Role
    key_id: str
    name: str
    scope: Scope = WHOLE

    @property
    def role_name(self) -> str:
        """The role in the API; a key for agents has the rights of a member for its sandboxes."""
        return AGENT if self.scope.agent else self.role.api_name


class Requester(Protocol):
    """The sender of a request: a `Caller`, or an `Actor` of the audit log."""

    @property
    def org(self) -> str: ...  # as in `Caller`

    @property
    def scope(self) -> Scope: ...  # as in `Caller`


L = TypeVar("L", bound="ScopedObject")


def keep_visible(who: Requester, found: L | None) -> L | None:
    """Return the object, or None if the scope of the key excludes it."""
    return found if found is not None and who.scope.includes(found) else None


class Keys(Protocol):
    """Finds the caller of a key."""

    async def caller(self, key: str) -> Caller | None:
        """Return the caller; None if the key is unknown, expired or revoked."""

    async def holder(self, key_id: str) -> Caller | None:
        """Return the caller for the ID of a key that was given earlier; None as for `caller`."""


class Cookies(Protocol):
    """Finds the caller of a cookie of the page."""

    async def caller(self, request: Request) -> Caller | None:
        """Return the caller of a request without a key; None if the session or its key is no longer valid."""


class SingleKey:
    """The only key of a home, with the role admin. Its digest is compared in constant time."""

    def __init__(self, key: str, org: str, name: str) -> None:
        self._known = digest(key)
        self._caller = Caller(org, Role.ADMIN, self._known.hex()[:8], name)

    async def caller(self, key: str) -> Caller | None:
        return self._caller if hmac.compare_digest(digest(key), self._known) else None

    async def holder(self, key_id: str) -> Caller | None:
        return self._caller if key_id == self._caller.key_id else None


def single_key(key: str, org: str = LOCAL, name: str = "this home") -> Keys:
    """Return keys with a single key that has a name and the role admin."""
    return SingleKey(key, org, name)


class FirstMatch:
    """Searches several sources of keys in sequence."""

    def __init__(self, *keys: Keys) -> None:
        self._keys = keys

    async def caller(self, key: str) -> Caller | None:
        for each in self._keys:
            if (found := await each.caller(key)) is not None:
                return found
        return None

    async def holder(self, key_id: str) -> Caller | None:
        for each in self._keys:
            if (found := await each.holder(key_id)) is not None:
                return found
        return None


def digest(secret: str) -> bytes:
    """Return the digest that is stored of a secret. A slow hash is not needed, because secrets have 256 random bits."""
    return hashlib.sha256(secret.encode()).digest()


def extract_key(headers: Headers) -> str:
    """Return the key in the header `signadot-api-key` or `Authorization: Bearer`; empty without one."""
    if given := headers.get("signadot-api-key"):
        return given
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def get_caller(request: Request) -> Caller:
    """Return the caller of a request to an endpoint that needs a role."""
    found = request.scope["caller"]
    assert isinstance(found, Caller), "the middleware rejects other requests"
    return found


def describe_foreign_origin(headers: Headers) -> str:
    """Return why a change without a key is not from this server's page; "" if it is from the page.

    Browsers may send the cookie with requests that another site causes, but that site cannot add the page's header.
    """
    host = headers.get("host", "")
    try:
        origin = urlsplit(headers.get("origin", "")).netloc
    except ValueError:  # an unclosed bracket
        origin = ""
    if headers.get(PAGE) != "1" or not host or origin.lower() != host.lower():
        return "a change without a key needs the header Dayfly-Page: 1 and the page's own origin"
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return "without a key, only the page of this server may make changes"
    return ""


def is_cross_site(headers: Headers) -> bool:
    """Return whether a browser reports that the page of another site sends the request."""
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def client_program(headers: Headers) -> str:
    """Return the client's User-Agent, shortened to one line, or "page" for the page."""
    if PAGE in headers:
        return "page"
    return "".join(char for char in headers.get("user-agent", "") if char.isprintable())[:60]


def is_loopback_name(host: str) -> bool:
    """Return whether a Host header has a loopback name or address, with any port.

    This prevents DNS rebinding: a site whose name resolves to 127.0.0.1 still has its own name in the header. All
    loopback addresses are accepted, because a server may listen on 127.0.0.2, for example.
    """
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        name = host
    if name.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(name[1:-1] if name[:1] + name[-1:] == "[]" else name).is_loopback
    except ValueError:
        return False
