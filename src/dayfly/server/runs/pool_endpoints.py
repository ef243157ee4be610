"""Endpoints of resource pools only: pause, resume and drain, which the host records, and how a pool is used."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dayfly.link.wire import ControlPool, PoolAction, Reply, Verdict
from dayfly.server.admin import audit
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.runs import pool_forms
from dayfly.spec.errors import quote
from dayfly.spec.report import PoolReport

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.db.store import Store
    from dayfly.server.runs.run_service import RunService
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.resource_pool import ResourcePoolSpec


class PoolEndpoints:
    """The endpoints `/pause`, `/resume`, `/drain` and `/explain` below a resource pool."""

    def __init__(self, store: Store, sync: HostSync, pools: RunService[ResourcePoolSpec]) -> None:
        self._store, self._sync, self._pools = store, sync, pools

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        one = "/orgs/{org}/resourcepools/{name}/"
        found = [serve(one + action, POST=functools.partial(self.control, action)) for action in PoolAction]
        return [*found, serve(one + "explain", GET=self.explain)]

    async def control(self, action: PoolAction, request: Request) -> Any:
        """Send the action to the host. Return the pool as the host reports it afterwards."""
        who, record = audit.get_actor(request), await self._pools.get_record(request)
        subject, link = f"pool {quote(record.name)}", self._sync.link(record)
        if link is None:
            raise RequestError(503, f"no host serves the cluster {record.cluster} now; nothing was changed")
        answer = await link.order(ControlPool(uid=record.uid, action=action, by=who.description))
        verdict = answer.verdict if isinstance(answer, Reply) else Verdict.OVER
        match verdict:
            case Verdict.TAKEN:
                what = f"resourcepools/{record.name}"
                await self._store.for_org(who.org).write(lambda rows: audit.append(rows, who, action.value, what))
            case Verdict.UNKNOWN:
                raise RequestError(409, f"{subject} has not reached its cluster yet; try again")
            case Verdict.CLOSED:
                raise RequestError(409, f"{subject} is being deleted")
            case _:
                raise RequestError(404, self._pools.kind.not_found)
        (described,) = await self._pools.describe_all([record], who.scope)
        return described

    async def explain(self, request: Request) -> Any:
        """Return the use of a pool, and predictions for other sizes."""
        record = await self._pools.get_record(request)
        report = (await self._pools.query_states([record]))[record.uid].report
        return pool_forms.explain(record.name, report.pool or PoolReport())
