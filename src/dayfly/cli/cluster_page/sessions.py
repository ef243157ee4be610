"""Sign-in for the page of this process: a one-time link and a cookie. Both end with the process."""

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
USED = (
    "this link was used before, or is older than a minute; press Enter in the terminal of dayfly page for another link"
)


class Sessions:
    """The sessions of the user of this process. `place` is the context and namespace that the page shows."""

    def __init__(self, name: str, place: dict[str, str]) -> None:
        # The cluster authorises each request, so the session itself has no restrictions.
        self._caller = Caller(ORG, Role.MEMBER, "kubeconfig", name)
        self._place = place
        self._cookie = Cookie(tls=False)
        # The expiry of each digest, on the monotonic clock.
        self._links: dict[bytes, float] = {}
        self._sessions: dict[bytes, float] = {}

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [serve("/page/enter", POST=self.sign_in), serve("/page/session", GET=self.session, DELETE=self.sign_out)]

    def link(self) -> str:
        """Return the path of a new one-time link."""
        code = secrets.token_urlsafe(32)
        self._links = {digest: until for digest, until in self._links.items() if until > time.monotonic()}
        self._links[callers.digest(code)] = time.monotonic() + LINK_S
        return f"{ENTER}#{code}"

    async def caller(self, request: Request) -> Caller | None:
        """Return the caller if the request has a valid cookie."""
        return self._caller if _find_valid(self._sessions, self._cookie.read(request)) else None

    async def sign_in(self, request: Request) -> Response:
        """Exchange the code of a link for a cookie."""
        if trouble := callers.describe_foreign_origin(request.headers):
            raise RequestError(403, trouble)
        body = await read_json(request)
        code = body.get("code") if isinstance(body, dict) else None
        digest = _find_valid(self._links, code if isinstance(code, str) else "")
        if digest is None:
            raise RequestError(401, USED)
        del self._links[digest]
        secret = secrets.token_urlsafe(32)
        self._sessions = {each: until for each, until in self._sessions.items() if until > time.monotonic()}
        self._sessions[callers.digest(secret)] = time.monotonic() + SESSION_S
        return self._cookie.set(request, answer(self._wire(SESSION_S)), secret, SESSION_S)

    async def session(self, request: Request) -> Any:
        """Return the signed-in user, and the context and namespace of the page."""
        digest = _find_valid(self._sessions, self._cookie.read(request))
        return self._wire(self._sessions[digest] - time.monotonic() if digest else 0)

    async def sign_out(self, request: Request) -> Response:
        """Sign out."""
        if digest := _find_valid(self._sessions, self._cookie.read(request)):
            del self._sessions[digest]
        return self._cookie.set(request, answer({}), "", 0)

    def _wire(self, seconds: float) -> dict[str, Any]:
        caller = self._caller
        found = {"org": caller.org, "role": caller.role.api_name, "name": caller.name, "key": caller.key_id}
        until = rfc3339(time.time_ns() // 1_000_000 + int(seconds * 1000))
        return {**found, "expiresAt": until, "place": self._place}


def _find_valid(known: dict[bytes, float], given: str) -> bytes | None:
    """Return the digest of a secret if it is known and has not expired. The comparison takes constant time."""
    if not given.isascii():
        return None
    wanted = callers.digest(given)
    found = [each for each, until in known.items() if hmac.compare_digest(each, wanted) and until > time.monotonic()]
    return found[0] if found else None
