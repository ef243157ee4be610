"""Actions on resource pools: pause, resume and drain. The host records them, so they need an answer of the host."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dayfly.link.wire import ControlPool, PoolAction, Reply, Verdict
from dayfly.server.admin import audit
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.db.store import Store
    from dayfly.server.runs.run_service import RunService
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.resource_pool import ResourcePoolSpec


class PoolActions:
    """The endpoints `/pause`, `/resume` and `/drain` below a resource pool."""

    def __init__(self, store: Store, sync: HostSync, pools: RunService[ResourcePoolSpec]) -> None:
        self._store, self._sync, self._pools = store, sync, pools

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        one = "/orgs/{org}/resourcepools/{name}/"
        return [serve(one + action, POST=functools.partial(self.control, action)) for action in PoolAction]

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
