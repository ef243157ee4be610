"""The endpoint that gives a resource of a sandbox another pool member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.link.wire import Reply, Reset, Verdict
from dayfly.plan.resource_reset import ResetRefusedError, UnknownResourceError, member_to_replace
from dayfly.server.admin import audit
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_json
from dayfly.server.records import agent_budget
from dayfly.server.runs.run_requests import parse_resource
from dayfly.spec.errors import quote
from dayfly.spec.host_errors import DocumentsRefusedError, HostSilentError, HostUnavailableError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.link.server_end import Link
    from dayfly.server.admin.audit import Actor
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.runs.run_service import RunService
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.sandbox import SandboxSpec


class ResetEndpoint:
    """The endpoint `/reset` below a sandbox."""

    def __init__(self, store: Store, sync: HostSync, sandboxes: RunService[SandboxSpec]) -> None:
        self._store, self._sync, self._sandboxes = store, sync, sandboxes

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        return [serve("/orgs/{org}/sandboxes/{name}/reset", POST=self.reset)]

    async def reset(self, request: Request) -> Any:
        """Give a resource another pool member in place of the one in its report."""
        who, record = audit.get_actor(request), await self._sandboxes.get_record(request)
        resource, link = parse_resource(await read_json(request)), self._sync.link(record)
        report = (await self._sandboxes.query_states([record]))[record.uid].report
        try:
            member = member_to_replace(report, resource)
        except UnknownResourceError as refusal:
            raise RequestError(404, str(refusal)) from None
        except ResetRefusedError as refusal:
            raise RequestError(409, str(refusal)) from None
        if link is None:
            raise RequestError(503, f"no host serves the cluster {record.cluster} now; nothing was changed")

        def charge(rows: Rows) -> None:
            if who.scope.agent is not None:
                agent_budget.charge_reset(rows, who.scope.agent)
            audit.append(rows, who, "reset", f"sandboxes/{record.name}/{resource}")

        await self._store.for_org(who.org).write(charge)
        order = Reset(uid=report.uid, resource=resource, member=member, by=who.description)
        verdict = await self._order(link, who, order)
        if verdict is Verdict.UNKNOWN:
            raise RequestError(409, f"sandbox {quote(record.name)} has not reached its cluster yet; try again")
        if verdict is not Verdict.TAKEN:
            raise RequestError(409, "the sandbox is being deleted")
        return {"resource": resource, "replaced": member}

    async def _order(self, link: Link, who: Actor, order: Reset) -> Verdict:
        """Send an order and return its verdict. An agent gets its charge back if no pool member was used."""
        try:
            answer = await link.order(order)
        except (HostUnavailableError, DocumentsRefusedError) as fault:
            if not isinstance(fault, HostSilentError):  # a silent host may have executed it
                await self._refund(who)
            raise
        verdict = answer.verdict if isinstance(answer, Reply) else Verdict.OVER
        if verdict is not Verdict.TAKEN:
            await self._refund(who)
        return verdict

    async def _refund(self, who: Actor) -> None:
        agent = who.scope.agent
        if agent is not None:
            await self._store.for_org(who.org).write(lambda rows: agent_budget.refund_reset(rows, agent))
