"""Sessions of the page: a link signs in once within a minute, and sets a cookie with the rights of its key.

The code of a link is in the fragment of its URL (after `#`), which browsers do not send. Therefore logs and link
previews do not contain it; the page's script sends it. A session ends with its key, after 12 hours, or by signing out.
Browsers may send the cookie with requests that other sites cause, so a change also needs a header of the page.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Any

from dayfly.lib.clock import now_ms
from dayfly.server.access import callers
from dayfly.server.admin import audit
from dayfly.server.admin.audit import Actor
from dayfly.server.db.tables import page_sessions as table
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import answer, serve
from dayfly.server.http.request_data import read_json, rfc3339

if TYPE_CHECKING:
    from sqlalchemy import Row
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from dayfly.server.access.callers import Caller, Keys
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

LINK_S = 60
SESSION_S = 12 * 3600
ENTER = "/page/enter"
USED = "this link was used before or is older than a minute; create another one with: dayfly page"


class PageSessions:
    """The API's endpoints below `/page`, and the callers of cookies.

    Args:
        store: Stores the sessions.
        keys: Finds the caller of a key.
        tls: Whether the server uses TLS.
    """

    def __init__(self, store: Store, keys: Keys, *, tls: bool) -> None:
        self._store, self._keys, self._cookie = store, keys, Cookie(tls=tls)
        self._all_orgs = store.all_orgs()

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        return [
            serve("/page/links", POST=self.create_link),
            serve("/page/enter", POST=self.sign_in),
            serve("/page/session", GET=self.show_session, DELETE=self.sign_out),
        ]

    async def caller(self, request: Request) -> Caller | None:
        """Return the caller of the request's cookie; None without a valid session."""
        row = await self._read_row(self._cookie.read(request), "digest")
        return None if row is None else await self._holder(row)

    async def create_link(self, request: Request) -> Any:
        """Create a link for the key of the request."""
        who, now = audit.get_actor(request), now_ms()
        id_, code = secrets.token_hex(8), secrets.token_urlsafe(32)
        row = {"id": id_, "key": who.key, "code": callers.digest(code).hex(), "digest": "", "created_at": now}

        def work(rows: Rows) -> None:
            rows.execute(rows.delete(table).where(table.c.expires_at <= now))
            rows.insert(table, {**row, "expires_at": now + LINK_S * 1000})

        await self._store.for_org(who.org).write(work)
        return {"path": f"{ENTER}#{id_}.{code}", "expiresInSeconds": LINK_S}

    async def sign_in(self, request: Request) -> Any:
        """Exchange the code of a link for a cookie."""
        if problem := callers.describe_foreign_origin(request.headers):
            raise RequestError(403, problem)
        body = await read_json(request)
        code = body.get("code") if isinstance(body, dict) else None
        row = await self._read_row(code if isinstance(code, str) else "", "code")
        caller = None if row is None else await self._holder(row)
        if row is None or caller is None:
            raise RequestError(401, USED)
        secret, now = secrets.token_urlsafe(32), now_ms()
        until = now + SESSION_S * 1000
        who = Actor(caller.org, caller.key_id, caller.name, callers.client_program(request.headers))

        def work(rows: Rows) -> None:
            this = rows.update(table).where(table.c.id == row.id, table.c.code == row.code, table.c.expires_at > now)
            if rows.execute(this.values(code="", digest=callers.digest(secret).hex(), expires_at=until)).rowcount == 0:
                raise RequestError(401, USED)  # a concurrent request has used it
            audit.append(rows, who, "sign in", "page")

        await self._store.for_org(caller.org).write(work)
        return self._cookie.set(request, answer(_describe(caller, until)), f"{row.id}.{secret}", SESSION_S)

    async def show_session(self, request: Request) -> Any:
        """Return the caller, and the end of the session."""
        row = await self._read_row(self._cookie.read(request), "digest")
        return _describe(callers.get_caller(request), row.expires_at if row else 0)

    async def sign_out(self, request: Request) -> Any:
        """End the session."""
        row, who = await self._read_row(self._cookie.read(request), "digest"), audit.get_actor(request)

        def work(rows: Rows) -> None:
            if row is not None and rows.execute(rows.delete(table).where(table.c.id == row.id)).rowcount:
                audit.append(rows, who, "sign out", "page")

        await self._store.for_org(who.org).write(work)
        return self._cookie.set(request, answer({}), "", 0)

    async def _read_row(self, given: str, column: str) -> Row[Any] | None:
        """Return the row of a valid link or session for `ID.SECRET`."""
        id_, _, secret = given.partition(".")
        # A cookie may contain an escaped NUL, which PostgreSQL does not accept.
        if not (id_ and secret and given.isascii() and given.isprintable()):
            return None
        row = await self._all_orgs.look_up(lambda rows: rows.find(table, id=id_))
        if row is None or not hmac.compare_digest(callers.digest(secret).hex(), getattr(row, column)):
            return None
        return row if row.expires_at > now_ms() else None

    async def _holder(self, row: Row[Any]) -> Caller | None:
        """Return the caller of its key; None if the key is not valid or belongs to another organisation."""
        caller = await self._keys.holder(row.key)
        return caller if caller is not None and caller.org == row.org else None


class Cookie:
    """The cookie of a session. Scripts cannot read it, and browsers do not send it with requests of other sites.

    Args:
        tls: Whether the server uses TLS.
    """

    def __init__(self, *, tls: bool) -> None:
        self._tls = tls

    def read(self, request: Request) -> str:
        """Return the value in a request; empty without one."""
        cookies = request.cookies
        return cookies.get(_cookie_name(request.headers, tls=True)) or (
            "" if self._tls else cookies.get(_cookie_name(request.headers, tls=False), "")
        )

    def set(self, request: Request, response: Response, value: str, seconds: int) -> Response:
        """Set the cookie for a number of seconds, or delete it with an empty value; return the response."""
        # If a proxy terminates TLS, the origin of the browser has the scheme https.
        tls = self._tls or request.headers.get("origin", "").startswith("https:")
        response.set_cookie(
            _cookie_name(request.headers, tls=tls),
            value,
            max_age=seconds,
            path="/",
            secure=tls,
            httponly=True,
            samesite="strict",
        )
        return response


def _cookie_name(headers: Headers, *, tls: bool) -> str:
    """Return the cookie's name. It has the port, because browsers share cookies between the ports of a host."""
    if tls:
        return "__Host-dayfly"
    _, _, port = headers.get("host", "").rpartition(":")
    return f"dayfly-{port if port.isascii() and port.isdigit() else 80}"


def _describe(caller: Caller, until: int) -> dict[str, Any]:
    found: dict[str, Any] = {"org": caller.org, "role": caller.role_name, "name": caller.name, "key": caller.key_id}
    found = found if caller.scope.is_whole else {**found, "scoped": True}
    return {**found, "expiresAt": rfc3339(until)} if until else found
