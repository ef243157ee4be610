"""The audit log: an entry for each change, written in the same transaction as the change.

Entries contain names and digests, but no specs, which may contain confidential values. PostgreSQL's policies forbid
the server's user to change or delete entries. The hash chain reveals changes by other users.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.lib.clock import now_ms
from dayfly.server.access import callers
from dayfly.server.access.scopes import WHOLE, Scope
from dayfly.server.admin.audit_chain import ChainEntry, ChainHead, next_entry
from dayfly.server.db.tables import audit, audit_heads
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_number

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

PAGE_SIZE = 500


class Actor(NamedTuple):
    """The author of a change: a key with its organisation and scope, and the program that sent the request."""

    org: str
    key: str
    name: str
    program: str = ""
    scope: Scope = WHOLE

    @property
    def description(self) -> str:
        """The author in the records of a run."""
        return f"{self.program or 'unknown program'}, key {self.key}"


def get_actor(request: Request) -> Actor:
    """Return the author of a request."""
    caller = callers.get_caller(request)
    return Actor(caller.org, caller.key_id, caller.name, callers.client_program(request.headers), caller.scope)


def append(rows: Rows, who: Actor, action: str, what: str, spec: str | bytes = "") -> None:
    """Append an entry to the organisation's chain.

    Args:
        rows: The rows of the transaction that makes the change.
        who: The author of the change.
        action: A verb, such as "create".
        what: The object, as in its path.
        spec: The stored spec; the entry contains its digest.
    """
    found = rows.find(audit_heads)
    head = ChainHead(found.number, found.digest) if found is not None else ChainHead()
    data = spec.encode() if isinstance(spec, str) else spec
    entry = ChainEntry(
        number=0,
        at=now_ms(),
        key=who.key,
        name=who.name,
        program=who.program,
        action=action,
        object=what,
        spec=hashlib.sha256(data).hexdigest() if data else "",
    )
    entry = next_entry(rows.org, head, entry)
    now = {"number": entry.number, "digest": entry.digest}
    if found is None:
        rows.insert(audit_heads, now)
    else:
        rows.execute(rows.update(audit_heads).values(now))
    rows.insert(audit, {name: getattr(entry, name) for name in ChainEntry.__struct_fields__})


class Audit:
    """The endpoint `/audit`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        return [serve("/orgs/{org}/audit", GET=self.list_all)]

    async def list_all(self, request: Request) -> Any:
        """Return the entries after the number `after`, the oldest first, and the head of the chain."""
        after = read_number(request, "after", 0)
        limit = min(read_number(request, "limit", PAGE_SIZE, least=1), PAGE_SIZE)

        def work(rows: Rows) -> Any:
            query = rows.select(audit).where(audit.c.number > after).order_by(audit.c.number).limit(limit)
            found = [{name: getattr(row, name) for name in ChainEntry.__struct_fields__} for row in rows.execute(query)]
            head = rows.find(audit_heads)
            last = ChainHead(head.number, head.digest) if head is not None else ChainHead()
            return {"entries": found, "head": last}

        return await self._store.for_org(callers.get_caller(request).org).read(work)
