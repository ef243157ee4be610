"""Signing in on the page: a link that works once and for a minute becomes a cookie, which may what its key may.

The link's code stands behind the address's `#`, which no browser sends, so no log and no preview of a link has it; the
page's script hands it over. A session is a row; it ends with its key, after half a day, or by signing out. A cookie
comes along with requests that other sites cause, so a change also needs a header that only our page can send.
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import TYPE_CHECKING, Any

from dayfly.server.access import callers
from dayfly.server.admin import audit
from dayfly.server.admin.audit import Who
from dayfly.server.admin.page_cookie import Cookie
from dayfly.server.db.tables import page_sessions as table
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import answer, read_json, rfc3339, serve

if TYPE_CHECKING:
    from sqlalchemy import Row
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.access.callers import Caller, Keys
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

LINK_S = 60
SESSION_S = 12 * 3600
ENTER = "/page/enter"
USED = "this link has been used already, or is older than a minute; make another one with: dayfly page"


class PageSessions:
    """The addresses below `/page` of the API, and whose a cookie is.

    Args:
        store: Where sessions are kept.
        keys: Knows whose a key is now.
        tls: Whether browsers come by TLS.
    """

    def __init__(self, store: Store, keys: Keys, *, tls: bool) -> None:
        self._store, self._keys, self._cookie = store, keys, Cookie(tls=tls)
        self._everywhere = store.all_orgs()

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            serve("/page/links", POST=self.link),
            serve("/page/enter", POST=self.enter),
            serve("/page/session", GET=self.who, DELETE=self.leave),
        ]

    async def caller(self, request: Request) -> Caller | None:
        """Who sent a request that has a cookie of ours and no key; None for a session that has ended, or none."""
        row = await self._row(self._cookie.given(request), "digest")
        return None if row is None else await self._holder(row)

    async def link(self, request: Request) -> Any:
        """The way in for the key that asks."""
        who, now = audit.who(request), _now()
        id_, code = secrets.token_hex(8), secrets.token_urlsafe(32)
        row = {"id": id_, "key": who.key, "code": callers.digest(code).hex(), "digest": "", "created_at": now}

        def work(rows: Rows) -> None:
            rows.execute(rows.delete(table).where(table.c.expires_at <= now))
            rows.insert(table, {**row, "expires_at": now + LINK_S * 1000})

        await self._store.for_org(who.org).write(work)
        return {"path": f"{ENTER}#{id_}.{code}", "expiresInSeconds": LINK_S}

    async def enter(self, request: Request) -> Any:
        """Hand over a link's code for a cookie."""
        if trouble := callers.stranger(request.headers):
            raise RequestError(403, trouble)
        body = await read_json(request)
        code = body.get("code") if isinstance(body, dict) else None
        row = await self._row(code if isinstance(code, str) else "", "code")
        caller = None if row is None else await self._holder(row)
        if row is None or caller is None:
            raise RequestError(401, USED)
        secret, now = secrets.token_urlsafe(32), _now()
        until = now + SESSION_S * 1000
        who = Who(caller.org, caller.key_id, caller.name, callers.program(request.headers))

        def work(rows: Rows) -> None:
            this = rows.update(table).where(table.c.id == row.id, table.c.code == row.code, table.c.expires_at > now)
            if rows.execute(this.values(code="", digest=callers.digest(secret).hex(), expires_at=until)).rowcount == 0:
                raise RequestError(401, USED)  # somebody else was quicker
            audit.note(rows, who, "sign in", "page")

        await self._store.for_org(caller.org).write(work)
        return self._cookie.handed(request, answer(_wire(caller, until)), f"{row.id}.{secret}", SESSION_S)

    async def who(self, request: Request) -> Any:
        """Who is signed in, and as what."""
        row = await self._row(self._cookie.given(request), "digest")
        return _wire(callers.caller(request), row.expires_at if row else 0)

    async def leave(self, request: Request) -> Any:
        """Sign out."""
        row, who = await self._row(self._cookie.given(request), "digest"), audit.who(request)

        def work(rows: Rows) -> None:
            if row is not None and rows.execute(rows.delete(table).where(table.c.id == row.id)).rowcount:
                audit.note(rows, who, "sign out", "page")

        await self._store.for_org(who.org).write(work)
        return self._cookie.handed(request, answer({}), "", 0)

    async def _row(self, given: str, column: str) -> Row[Any] | None:
        """The row of a link or session that is still good, by `ID.SECRET`."""
        id_, _, secret = given.partition(".")
        # Not printable is a NUL, which a cookie may have behind a backslash, and no row of PostgreSQL.
        if not (id_ and secret and given.isascii() and given.isprintable()):
            return None
        query = lambda rows: rows.execute(rows.select(table).where(table.c.id == id_)).one_or_none()  # noqa: E731
        row = await self._everywhere.read(query)
        if row is None or not hmac.compare_digest(callers.digest(secret).hex(), getattr(row, column)):
            return None
        return row if row.expires_at > _now() else None

    async def _holder(self, row: Row[Any]) -> Caller | None:
        """Whose it is, as long as its key is good and of the same organisation."""
        caller = await self._keys.holder(row.key)
        return caller if caller is not None and caller.org == row.org else None


def _wire(caller: Caller, until: int) -> dict[str, Any]:
    found = {"org": caller.org, "role": caller.role.word, "name": caller.name, "key": caller.key_id}
    return {**found, "expiresAt": rfc3339(until)} if until else found


def _now() -> int:
    return time.time_ns() // 1_000_000
