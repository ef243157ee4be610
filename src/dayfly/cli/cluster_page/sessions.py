"""Signing in on the page of one's own process: a link that works once, and a cookie. Both end with the process."""

from __future__ import annotations

import hmac
import secrets
import time
from typing import TYPE_CHECKING, Any

from dayfly.server.access import callers
from dayfly.server.access.callers import Caller, Role
from dayfly.server.admin.page_sessions import ENTER, LINK_S, SESSION_S, Cookie
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import answer, serve
from dayfly.server.http.request_data import read_json, rfc3339

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

ORG = "cluster"
USED = "this link has been used already, or is older than a minute; press Enter where dayfly page runs for another one"


class Sessions:
    """Of the one person whose process this is. `place` is what the page is told of where it looks."""

    def __init__(self, name: str, place: dict[str, str]) -> None:
        # What the cluster allows is the cluster's business: here whoever is signed in may ask for everything.
        self._caller = Caller(ORG, Role.MEMBER, "kubeconfig", name)
        self._place = place
        self._cookie = Cookie(tls=False)
        # Digests, and until when they are good by a clock that nobody sets.
        self._links: dict[bytes, float] = {}
        self._sessions: dict[bytes, float] = {}

    def routes(self) -> list[Route]:
        """All addresses."""
        return [serve("/page/enter", POST=self.enter), serve("/page/session", GET=self.who, DELETE=self.leave)]

    def link(self) -> str:
        """A way in, once: the path of it."""
        code = secrets.token_urlsafe(32)
        self._links = {digest: until for digest, until in self._links.items() if until > time.monotonic()}
        self._links[callers.digest(code)] = time.monotonic() + LINK_S
        return f"{ENTER}#{code}"

    async def caller(self, request: Request) -> Caller | None:
        """Whoever has a cookie of ours that is still good."""
        return self._caller if _found(self._sessions, self._cookie.read(request)) else None

    async def enter(self, request: Request) -> Response:
        """Hand over a link's code for a cookie."""
        if trouble := callers.describe_foreign_origin(request.headers):
            raise RequestError(403, trouble)
        body = await read_json(request)
        code = body.get("code") if isinstance(body, dict) else None
        digest = _found(self._links, code if isinstance(code, str) else "")
        if digest is None:
            raise RequestError(401, USED)
        del self._links[digest]
        secret = secrets.token_urlsafe(32)
        self._sessions = {each: until for each, until in self._sessions.items() if until > time.monotonic()}
        self._sessions[callers.digest(secret)] = time.monotonic() + SESSION_S
        return self._cookie.set(request, answer(self._wire(SESSION_S)), secret, SESSION_S)

    async def who(self, request: Request) -> Any:
        """Who is signed in, and where the page looks."""
        digest = _found(self._sessions, self._cookie.read(request))
        return self._wire(self._sessions[digest] - time.monotonic() if digest else 0)

    async def leave(self, request: Request) -> Response:
        """Sign out."""
        if digest := _found(self._sessions, self._cookie.read(request)):
            del self._sessions[digest]
        return self._cookie.set(request, answer({}), "", 0)

    def _wire(self, seconds: float) -> dict[str, Any]:
        caller = self._caller
        found = {"org": caller.org, "role": caller.role.word, "name": caller.name, "key": caller.key_id}
        until = rfc3339(time.time_ns() // 1_000_000 + int(seconds * 1000))
        return {**found, "expiresAt": until, "place": self._place}


def _found(known: dict[bytes, float], given: str) -> bytes | None:
    """The digest of what is given, if it is known and still good; all of them are looked at, whichever it is."""
    if not given.isascii():
        return None
    wanted = callers.digest(given)
    found = [each for each, until in known.items() if hmac.compare_digest(each, wanted) and until > time.monotonic()]
    return found[0] if found else None
