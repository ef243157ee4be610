"""The endpoint that adds up how long sandboxes lived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.lib.clock import now_ms
from dayfly.server.access import callers
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_text, read_time, rfc3339
from dayfly.server.records import usage
from dayfly.server.records.run_records import SANDBOXES, read_page
from dayfly.server.records.usage import SandboxLifetime

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

DEFAULT_PERIOD_MS = 30 * 24 * 3_600_000


class UsageApi:
    """The endpoint `/usage` of an organisation."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        return [serve("/orgs/{org}/usage", GET=self.show)]

    async def show(self, request: Request) -> Any:
        """Return the sums for the ended and existing sandboxes in the scope of the key."""
        who, now = callers.get_caller(request), now_ms()
        by = read_text(request, "by") or usage.CREATOR
        until = read_time(request, "until") or now
        since = read_time(request, "since") or until - DEFAULT_PERIOD_MS
        if since >= until:
            raise RequestError(400, "query parameter since: must be before until")

        def work(rows: Rows) -> list[SandboxLifetime]:
            living = [
                SandboxLifetime(each.name, each.cluster, each.created_by, each.labels, each.created_at, now)
                for each in read_page(rows, SANDBOXES)
            ]
            return living + usage.read_ended(rows, since)

        lives = await self._store.for_org(who.org).read(work)
        scope = who.scope
        visible = [life for life in lives if scope.includes_name(life.name) and scope.includes_cluster(life.cluster)]
        sums = usage.add_up(visible, by, since, until)
        return {"by": by, "since": rfc3339(since), "until": rfc3339(until), "sums": sums}
