"""Who did what: an entry for each change, written in the change's own transaction, and never changed.

It holds names and digests; a wish itself may have secrets in it. PostgreSQL lets nobody alter or remove an entry who
comes as the server does; and who comes otherwise is told by the chain.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.server.access import callers
from dayfly.server.access.scopes import WHOLE, Scope
from dayfly.server.admin.audit_chain import ChainEntry, ChainHead, link
from dayfly.server.db.tables import audit, audit_heads
from dayfly.server.http.handler import serve, whole_number

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

PAGE = 500


class Who(NamedTuple):
    """Who asks for a change: a key of an organisation, the program that sent it, and what it may touch there."""

    org: str
    key: str
    name: str
    program: str = ""
    scope: Scope = WHOLE

    @property
    def words(self) -> str:
        """For records of a sandbox."""
        return f"{self.program or 'unknown program'}, key {self.key}"


def who(request: Request) -> Who:
    """Who sent this request."""
    caller = callers.caller(request)
    return Who(caller.org, caller.key_id, caller.name, callers.program(request.headers), caller.scope)


def note(rows: Rows, who: Who, action: str, what: str, spec: str | bytes = "") -> None:
    """Add an entry to the chain of the rows' organisation. It is there if the transaction's change is, and only then.

    Args:
        rows: Of the change's own transaction.
        who: Who asked for it.
        action: What is done, in a word.
        what: The object, as in its address.
        spec: What is stored of the wish; its digest is kept, not itself.
    """
    found = rows.execute(rows.select(audit_heads)).one_or_none()
    head = ChainHead(found.number, found.digest) if found is not None else ChainHead()
    data = spec.encode() if isinstance(spec, str) else spec
    entry = ChainEntry(
        number=0,
        at=time.time_ns() // 1_000_000,
        key=who.key,
        name=who.name,
        program=who.program,
        action=action,
        object=what,
        spec=hashlib.sha256(data).hexdigest() if data else "",
    )
    entry = link(rows.org, head, entry)
    now = {"number": entry.number, "digest": entry.digest}
    if found is None:
        rows.insert(audit_heads, now)
    else:
        rows.execute(rows.update(audit_heads).values(now))
    rows.insert(audit, {name: getattr(entry, name) for name in ChainEntry.__struct_fields__})


class Audit:
    """The address `/audit`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """All of them."""
        return [serve("/orgs/{org}/audit", GET=self.list_all)]

    async def list_all(self, request: Request) -> Any:
        """The entries behind `after`, the oldest first, and the head of the chain."""
        after = whole_number(request, "after", 0)
        limit = min(whole_number(request, "limit", PAGE, least=1), PAGE)

        def work(rows: Rows) -> Any:
            query = rows.select(audit).where(audit.c.number > after).order_by(audit.c.number).limit(limit)
            found = [{name: getattr(row, name) for name in ChainEntry.__struct_fields__} for row in rows.execute(query)]
            head = rows.execute(rows.select(audit_heads)).one_or_none()
            last = ChainHead(head.number, head.digest) if head is not None else ChainHead()
            return {"entries": found, "head": last}

        return await self._store.for_org(callers.caller(request).org).read(work)
