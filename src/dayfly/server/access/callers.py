"""Who asks: a caller is of one organisation and has one role. Browsers are let in by our own name only."""

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

    from dayfly.server.access.scopes import Living

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
PAGE = "dayfly-page"
"""The header that the page alone sends: a form or a link of another site cannot."""
LOCAL = "local"
"""The only organisation of a home's own server."""


class Role(enum.IntEnum):
    """What a key may do; each role may do what the one before it may."""

    VIEWER = 1
    MEMBER = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """As it stands in the API."""
        return self.name.lower()


class Caller(NamedTuple):
    """Whoever sent a request, as its key says.

    Attributes:
        org: The organisation that the key belongs to, and the only one that it opens.
        role: What it may do there.
        key_id: Names the key in records; it opens nothing.
        name: What its maker called the key.
        scope: What of the organisation it may touch.
    """

    org: str
    role: Role
    key_id: str
    name: str
    scope: Scope = WHOLE


class Asking(Protocol):
    """On whose behalf something is looked for: a `Caller`, or whom the audit log names."""

    @property
    def org(self) -> str: ...  # as in `Caller`

    @property
    def scope(self) -> Scope: ...  # as in `Caller`


L = TypeVar("L", bound="Living")


def seen(who: Asking, found: L | None) -> L | None:
    """What was found, unless the key's scope leaves it out: then it is not there for whoever asks."""
    return found if found is not None and who.scope.takes(found) else None


class Keys(Protocol):
    """Knows whose a key is."""

    async def caller(self, key: str) -> Caller | None:
        """Whose the key is now; None for one that is unknown, expired or revoked."""

    async def holder(self, key_id: str) -> Caller | None:
        """As `caller`, for a key that was given earlier and is called by its id since."""


class Cookies(Protocol):
    """Knows whose a cookie of the page is."""

    async def caller(self, request: Request) -> Caller | None:
        """Who sent a request that carries no key, as long as its session and the session's key are good."""


class Single:
    """Knows the one key of a home, its admin's. It holds its digest, and takes equally long for every wrong key."""

    def __init__(self, key: str, org: str = LOCAL) -> None:
        self._known = digest(key)
        self._caller = Caller(org, Role.ADMIN, self._known.hex()[:8], "this home")

    async def caller(self, key: str) -> Caller | None:
        return self._caller if hmac.compare_digest(digest(key), self._known) else None

    async def holder(self, key_id: str) -> Caller | None:
        return self._caller if key_id == self._caller.key_id else None


def single(key: str, org: str = LOCAL) -> Keys:
    """One key, which may do everything."""
    return Single(key, org)


class First:
    """Asks several, in their order."""

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
    """What is kept of a secret. Ours have 256 random bits: no slow hash makes them harder to guess."""
    return hashlib.sha256(secret.encode()).digest()


def key_of(headers: Headers) -> str:
    """The key a caller gives, in `signadot-api-key` or as `Authorization: Bearer`; empty if none."""
    if given := headers.get("signadot-api-key"):
        return given
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def caller(request: Request) -> Caller:
    """Who sent this request. There is always somebody behind an address that has a role."""
    found = request.scope["caller"]
    assert isinstance(found, Caller), "the middleware lets nobody else in"
    return found


def stranger(headers: Headers) -> str:
    """Why a change that comes without a key is not our own page's; empty if it is.

    A cookie comes along with whatever another site makes a browser send. That site cannot add the header.
    """
    host = headers.get("host", "")
    try:
        origin = urlsplit(headers.get("origin", "")).netloc
    except ValueError:  # brackets without an end
        origin = ""
    if headers.get(PAGE) != "1" or not host or origin.lower() != host.lower():
        return "a change without a key needs the header Dayfly-Page: 1 and the page's own origin"
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return "only the page of this very server may change anything without a key"
    return ""


def crossed(headers: Headers) -> bool:
    """Whether a browser says that another page than our own asks, which came by a cookie that is not its own."""
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def program(headers: Headers) -> str:
    """The program's name for itself, cut to what fits into a line; browsers on the page are called by that."""
    if PAGE in headers:
        return "page"
    return "".join(char for char in headers.get("user-agent", "") if char.isprintable())[:60]


def is_loopback_name(host: str) -> bool:
    """Whether a Host header names this machine by a loopback name or address, with any port.

    A page of another site that had its own name resolved to 127.0.0.1 still says its own name here; an address is
    nobody's name. There are more of them than one: a server may listen at 127.0.0.2.
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
