"""Sessions of agents: each has a separate key, sees and deletes only its sandboxes, and holds a lease.

The key of a session is `dfs_NAME_SECRET`, and works wherever an API key does, with the limits of the key that started
the session. Other sessions of the same key cannot use it. When the lease ends, the server deletes all sandboxes of the
session, so nothing stays behind if an agent dies.
"""

from __future__ import annotations

import hmac
import secrets
import string
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dayfly.lib.clock import now_ms
from dayfly.server.access import callers, scopes
from dayfly.server.admin import audit
from dayfly.server.db.tables import agent_sessions as table
from dayfly.server.db.tables import api_keys, sandboxes
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_json, rfc3339
from dayfly.server.records.agent_budget import SESSION_OVER
from dayfly.server.runs.run_requests import parse_lease
from dayfly.spec.errors import SpecError, quote

if TYPE_CHECKING:
    from sqlalchemy import Row
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.access.callers import Caller, Keys
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

PREFIX = "dfs"
DEFAULT_LEASE_S = 600
MAX_SESSIONS = 100

_LETTERS = string.ascii_lowercase + string.digits
_NAME_LENGTH = 8


class SessionKeys:
    """The keys of sessions in the store. Each request reads the store, as for other keys."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._keys, self._org_store = keys, store.all_orgs()

    async def caller(self, key: str) -> Caller | None:
        prefix, _, rest = key.partition("_")
        name, _, secret = rest.partition("_")
        if prefix != PREFIX or not (name and secret and key.isascii() and key.isprintable()):
            return None
        query = lambda rows: rows.execute(rows.select(table).where(table.c.id == name)).one_or_none()  # noqa: E731
        row = await self._org_store.read(query)
        if row is None or not hmac.compare_digest(callers.digest(secret).hex(), row.digest):
            return None
        caller = await self._keys.holder(row.key) if row.expires_at > now_ms() else None
        if caller is None or caller.org != row.org or caller.scope.agent is None:
            return None
        limits, clusters = caller.scope.agent.limits, caller.scope.clusters
        return caller._replace(scope=scopes.agent_scope(row.key, limits, clusters, name))

    async def holder(self, key_id: str) -> Caller | None:  # noqa: ARG002 # a session opens no further sessions
        return None


class AgentSessions:
    """The endpoints below `/sessions`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        collection = "/orgs/{org}/sessions"
        return [
            serve(collection, GET=self.list_all, POST=self.start),
            serve(collection + "/{name}", DELETE=self.end),
            serve(collection + "/{name}/lease", PUT=self.renew),
        ]

    async def list_all(self, request: Request) -> Any:
        def work(rows: Rows) -> Any:
            counts = dict(
                map(
                    tuple,
                    rows.execute(
                        rows.select(sandboxes.c.session, sa.func.count())
                        .where(sandboxes.c.session != "")
                        .group_by(sandboxes.c.session)
                    ),
                )
            )
            names = dict(map(tuple, rows.execute(rows.select(api_keys.c.id, api_keys.c.name))))
            found = rows.execute(rows.select(table).order_by(table.c.created_at, table.c.id))
            return [_describe(row, names.get(row.key, row.key), counts.get(row.id, 0)) for row in found]

        return await self._store.for_org(callers.get_caller(request).org).read(work)

    async def start(self, request: Request) -> Any:
        """Start a session of the key of the request."""
        caller, who, body = callers.get_caller(request), audit.get_actor(request), await read_json(request)
        if caller.scope.agent is None or caller.scope.agent.session:
            raise RequestError(400, "sessions are for keys with the role agent; send such a key, not that of a session")
        if not isinstance(body, dict) or not set(body) <= {"lease"}:
            raise SpecError('must be {} or {"lease": {"seconds": n}}, and nothing else')
        seconds = parse_lease(body["lease"], ("lease",)) if "lease" in body else DEFAULT_LEASE_S
        name, secret, now = _choose_name(), secrets.token_urlsafe(32), now_ms()
        row = {"id": name, "key": who.key, "digest": callers.digest(secret).hex(), "created_at": now}
        row["expires_at"] = now + seconds * 1000

        def work(rows: Rows) -> Any:
            count = rows.execute(rows.select(sa.func.count(table.c.id)).where(table.c.key == who.key)).scalar_one()
            if count >= MAX_SESSIONS:
                text = f"your key has {count} sessions, the maximum; end some, or wait until their leases end"
                raise RequestError(409, text)
            rows.insert(table, row)
            audit.append(rows, who, "start", f"sessions/{name}")
            return _describe(rows.execute(rows.select(table).where(table.c.id == name)).one(), who.name, 0)

        return {**await self._store.for_org(who.org).write(work), "key": f"{PREFIX}_{name}_{secret}"}

    async def renew(self, request: Request) -> Any:
        """Renew the lease of the session of the request."""
        caller, name = callers.get_caller(request), request.path_params["name"]
        if caller.scope.agent is None or caller.scope.agent.session != name:
            raise _not_found(name)
        seconds = parse_lease(await read_json(request), ())
        now = now_ms()
        until = now + seconds * 1000

        def work(rows: Rows) -> None:
            this = rows.update(table).where(table.c.id == name, table.c.expires_at > now)
            if rows.execute(this.values(expires_at=until)).rowcount == 0:
                raise RequestError(401, SESSION_OVER)

        await self._store.for_org(caller.org).write(work)
        return {"seconds": seconds, "until": rfc3339(until)}

    async def end(self, request: Request) -> Any:
        """End a session now. Its own key and keys with the role admin may do it."""
        caller, who, name = callers.get_caller(request), audit.get_actor(request), request.path_params["name"]
        is_own = caller.scope.agent is not None and caller.scope.agent.session == name
        if not is_own and not (caller.role is callers.Role.ADMIN and caller.scope.is_whole):
            raise _not_found(name)

        def work(rows: Rows) -> None:
            this = rows.update(table).where(table.c.id == name)
            if rows.execute(this.values(expires_at=0)).rowcount == 0:
                raise _not_found(name)
            audit.append(rows, who, "end", f"sessions/{name}")

        await self._store.for_org(who.org).write(work)
        return {}


def _choose_name() -> str:
    first = secrets.choice(string.ascii_lowercase)  # names of sandboxes begin with a letter
    return first + "".join(secrets.choice(_LETTERS) for _ in range(_NAME_LENGTH - 1))


def _not_found(name: str) -> RequestError:
    return RequestError(404, f"no session {quote(name)} of your key here; a session is ended by its own key")


def _describe(row: Row[Any], key_name: str, count: int) -> dict[str, Any]:
    found = {"name": row.id, "keyName": key_name, "sandboxes": count}
    return found | {"createdAt": rfc3339(row.created_at), "expiresAt": rfc3339(row.expires_at)}
