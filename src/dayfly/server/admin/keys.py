"""API keys. An admin creates and revokes them. A key is shown once, and only its digest is stored.

A key is `dfk_ID_SECRET`. The ID identifies its row and is not secret; the secret has 256 random bits. So a dump of the
database contains no usable keys. Secret scanners recognise the prefix, and the checksum in the last six characters
distinguishes real keys from examples.

A key with a scope or with limits is stored with a role that older servers do not know, so they reject it.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import string
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.lib.clock import now_ms
from dayfly.server.access import agent_limits, callers, scopes
from dayfly.server.access.agent_limits import HOUR_S, AgentLimits
from dayfly.server.access.callers import AGENT, Caller, Role
from dayfly.server.access.scopes import WHOLE, Scope
from dayfly.server.admin import audit
from dayfly.server.admin.audit import Actor
from dayfly.server.db.store import StoreError, WriteConflictError
from dayfly.server.db.tables import agent_sessions, api_keys, organisations, page_sessions
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_json, rfc3339
from dayfly.spec.errors import Faults, SpecError, quote

if TYPE_CHECKING:
    from sqlalchemy import Row
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

PREFIX = "dfk"
# Interval at which the last use of a key is recorded, because each record is a write.
RECORD_USE_INTERVAL_MS = 60_000
MAX_NAME_LENGTH = 100
ROLES = {role.api_name: role for role in Role}
SCOPED = "scoped"
DAY_S = 86_400

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase


class StoredKeys:
    """The keys in the store. Each request reads the store, so that a revocation holds on all servers at once."""

    def __init__(self, store: Store) -> None:
        self._org_store = store.all_orgs()

    async def caller(self, key: str) -> Caller | None:
        prefix, _, rest = key.partition("_")
        id_, _, secret = rest.partition("_")
        if prefix != PREFIX or not (id_ and secret and key.isascii()):
            return None
        row = await self._read_row(id_)
        if row is None or not hmac.compare_digest(callers.digest(secret).hex(), row.digest):
            return None
        now = now_ms()
        if row.last_used_at is None or row.last_used_at <= now - RECORD_USE_INTERVAL_MS:
            # A full disk must not reject reading requests; a change fails by itself.
            with contextlib.suppress(StoreError, WriteConflictError):
                await self._org_store.write(lambda rows: _record_use(rows, id_, now))
        return _caller(row)

    async def holder(self, key_id: str) -> Caller | None:
        row = await self._read_row(key_id)
        return None if row is None else _caller(row)

    async def _read_row(self, id_: str) -> Row[Any] | None:
        """Return the row of a key that has not expired."""
        row = await self._org_store.look_up(lambda rows: rows.find(api_keys, id=id_))
        return None if row is None or (row.expires_at is not None and row.expires_at <= now_ms()) else row


class ApiKeys:
    """The endpoints below `/keys`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        collection = "/orgs/{org}/keys"
        return [serve(collection, GET=self.list_all, POST=self.create), serve(collection + "/{id}", DELETE=self.delete)]

    async def list_all(self, request: Request) -> Any:
        def work(rows: Rows) -> Any:
            found = rows.execute(rows.select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id))
            return [_describe(row) for row in found]

        return await self._store.for_org(callers.get_caller(request).org).read(work)

    async def create(self, request: Request) -> Any:
        name, role, seconds, scope, limits = _parse(await read_json(request))
        who = audit.get_actor(request)

        def work(rows: Rows) -> Any:
            key, id_ = create(rows, name, role, who=who, seconds=seconds, scope=scope, limits=limits)
            return {**_describe(rows.execute(rows.select(api_keys).where(api_keys.c.id == id_)).one()), "key": key}

        return await self._store.for_org(who.org).write(work)

    async def delete(self, request: Request) -> Any:
        id_, who = request.path_params["id"], audit.get_actor(request)

        def work(rows: Rows) -> None:
            if rows.execute(rows.delete(api_keys).where(api_keys.c.id == id_)).rowcount == 0:
                raise RequestError(
                    404, f"no key {quote(id_)} here; the ID of a key is the part between its two underscores"
                )
            rows.execute(rows.delete(page_sessions).where(page_sessions.c.key == id_))
            rows.execute(rows.update(agent_sessions).where(agent_sessions.c.key == id_).values(expires_at=0))
            audit.append(rows, who, "revoke", f"keys/{id_}")

        await self._store.for_org(who.org).write(work)
        return {}


def create(
    rows: Rows,
    name: str,
    role: Role,
    *,
    who: Actor,
    seconds: int = 0,
    scope: Scope = WHOLE,
    limits: AgentLimits | None = None,
) -> tuple[str, str]:
    """Create a key; return it and its ID. The key itself is not stored.

    Args:
        rows: The rows of its organisation.
        name: Its name.
        role: Its role.
        who: The author.
        seconds: When it expires; 0 for never.
        scope: Its scope.
        limits: The limits of a key for agents; its role is member.
    """
    id_, drawn, now = secrets.token_hex(8), secrets.token_urlsafe(32), now_ms()
    secret = drawn + checksum(f"{PREFIX}_{id_}_{drawn}")
    limited = limits is not None or not scope.is_whole
    row = {
        "id": id_,
        "name": name,
        "role": AGENT if limits else role.api_name if scope.is_whole else SCOPED,
        "scope": msgspec.json.encode(_Scoped(role.api_name, scope.terms, limits)).decode() if limited else "",
        "digest": callers.digest(secret).hex(),
        "created_at": now,
        "created_by": who.key,
        "expires_at": now + seconds * 1000 if seconds else None,
    }
    rows.insert(api_keys, row)
    what, spec = f"keys/{id_}", " ".join([role.api_name, *scope.terms, name])
    if limits:
        what += f" for agents of {limits.owner}, {limits.budget_hours} h"
        spec = str(row["scope"])
    audit.append(rows, who, "create", what, spec)
    return f"{PREFIX}_{id_}_{secret}", id_


def checksum(key: str) -> str:
    """Return the checksum of a key: CRC-32 as six digits of base 62, as in the keys of other services."""
    found, rest = "", zlib.crc32(key.encode())
    for _ in range(6):
        rest, digit = divmod(rest, len(_DIGITS))
        found = _DIGITS[digit] + found
    return found


async def create_organisation(store: Store, org: str) -> str | None:
    """Create an organisation; return its first key, with the role admin, or None if the organisation exists.

    Raises:
        StoreError: the store cannot be written.
    """

    def work(rows: Rows) -> str | None:
        if rows.find(organisations) is not None:
            return None
        rows.insert(organisations, {"display_name": org, "created_at": now_ms()})
        who = Actor(org, "init", "dayfly server init")
        audit.append(rows, who, "create", "organisation")
        return create(rows, "first", Role.ADMIN, who=who)[0]

    return await store.for_org(org).write(work)


async def create_admin_key(store: Store, org: str) -> str | None:
    """Create another key with the role admin; return it, or None if there is no such organisation.

    Raises:
        StoreError: the store cannot be written.
    """

    def work(rows: Rows) -> str | None:
        if rows.find(organisations) is None:
            return None
        return create(rows, "recovery", Role.ADMIN, who=Actor(org, "admin-key", "dayfly server admin-key"))[0]

    return await store.for_org(org).write(work)


def _record_use(rows: Rows, id_: str, now: int) -> None:
    rows.execute(rows.update(api_keys).where(api_keys.c.id == id_).values(last_used_at=now))


class NewKey(NamedTuple):
    """The key in the body of a request. A key for agents has limits and the role member."""

    name: str
    role: Role
    seconds: int
    scope: Scope
    limits: AgentLimits | None


def _parse(body: Any) -> NewKey:
    if not isinstance(body, dict):
        raise RequestError(400, 'the body must be a mapping, as {"name": "ci", "role": "member"}')
    faults = Faults()
    for key in sorted(body.keys() - {"name", "role", "expiresInSeconds", "scope", "limits"}):
        problem = "unknown field; there are name, role, expiresInSeconds, scope and limits"
        faults.found.append(SpecError(problem, (key,)))
    name, role, seconds = body.get("name"), body.get("role"), body.get("expiresInSeconds")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        problem = f"must be one line of at most {MAX_NAME_LENGTH} printable characters"
        faults.found.append(SpecError(problem, ("name",)))
    if not isinstance(role, str) or role not in (*ROLES, AGENT):
        faults.found.append(SpecError(f"must be one of {', '.join((*ROLES, AGENT))}", ("role",)))
    # Only a missing field means a key without expiry or scope; 0, null and an empty list are errors.
    if "expiresInSeconds" in body and (type(seconds) is not int or not 0 < seconds <= 3660 * DAY_S):
        problem = "must be a whole number of seconds from 1 to ten years; without it the key does not expire"
        faults.found.append(SpecError(problem, ("expiresInSeconds",)))
    scope = WHOLE
    with faults:
        scope = scopes.parse(body["scope"]) if "scope" in body else WHOLE
    if scope.plugins and role in (Role.VIEWER.api_name, Role.MEMBER.api_name):
        faults.found.append(SpecError(f"plugin: needs the role admin, since a {role} cannot publish", ("scope",)))
    limits = None
    if role == AGENT:
        if scope.names or scope.plugins:
            faults.found.append(SpecError("only cluster: is for keys for agents; limits have plugins", ("scope",)))
        with faults:
            limits = agent_limits.parse(body.get("limits"))
    elif "limits" in body:
        faults.found.append(SpecError("are only for keys with the role agent", ("limits",)))
    faults.settle()
    return NewKey(str(name), ROLES.get(str(role), Role.MEMBER), int(seconds or 0), scope, limits)


class _Scoped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stored role, scope and limits of a key with a scope or limits."""

    role: str
    scope: list[str]
    limits: AgentLimits | None = None


def _rights(row: Row[Any]) -> tuple[Role, Scope] | None:
    """Return role and scope of a key; None if this version does not know them, because a newer server stored them."""
    try:
        if row.role != SCOPED and not row.scope:
            return ROLES[row.role], WHOLE
        found = msgspec.json.decode(row.scope, type=_Scoped)
        if row.role == AGENT and found.limits is not None:
            clusters = scopes.parse(found.scope).clusters if found.scope else ()
            return ROLES[found.role], scopes.agent_scope(row.id, found.limits, clusters)
        scope = scopes.parse(found.scope)
        return None if row.role != SCOPED or scope.is_whole else (ROLES[found.role], scope)
    except (KeyError, msgspec.MsgspecError, SpecError):
        return None


def _caller(row: Row[Any]) -> Caller | None:
    rights = _rights(row)
    return Caller(row.org, rights[0], row.id, row.name, rights[1]) if rights is not None else None


def _describe(row: Row[Any]) -> dict[str, Any]:
    role, scope = _rights(row) or (None, WHOLE)
    shown = role.api_name if role and not scope.agent else row.role
    found: dict[str, Any] = {"id": row.id, "name": row.name, "role": shown}
    found |= {"createdAt": rfc3339(row.created_at), "createdBy": row.created_by}
    if scope.agent:
        found |= {"limits": scope.agent.limits, "usedHours": round(row.used_seconds / HOUR_S, 2)}
        found |= {"scope": [f"cluster:{each.text}" for each in scope.clusters]} if scope.clusters else {}
    elif not scope.is_whole:
        found["scope"] = scope.terms
    for field, at in (("expiresAt", row.expires_at), ("lastUsedAt", row.last_used_at)):
        if at is not None:
            found[field] = rfc3339(at)
    return found
