"""The routes of one sandbox: its state, report, plan, history and outputs, and its actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly import compile as compiler
from dayfly.cli.backends import cluster_report
from dayfly.cli.backends.cluster_logs import ClusterLogs
from dayfly.cli.backends.cluster_objects import now
from dayfly.cli.cluster_page import entries
from dayfly.compile import Compiled
from dayfly.kube import errors
from dayfly.operator.agent import run_reads
from dayfly.operator.cluster.objects import DOCUMENTS, RUNS, check_depth
from dayfly.plan.reasons import Reason
from dayfly.plan.why import explain_dropped_records, units_without_output
from dayfly.server.api.overview import describe_plan, parse_output
from dayfly.server.http.errors import SANDBOX_NOT_FOUND, RequestError
from dayfly.server.http.request_data import read_flag, read_json, read_number, read_wait
from dayfly.server.runs import run_requests, ttl_extensions
from dayfly.spec import documents
from dayfly.spec.errors import quote
from dayfly.spec.identity import routing_key
from dayfly.spec.run import Phase
from dayfly.spec.sandbox import Sandbox
from dayfly.spec.unsupported_fields import LocalRouting

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.cli.backends.cluster_objects import Objects
    from dayfly.cli.cluster_page.handler import PageContext
    from dayfly.cli.cluster_page.rights import Rights
    from dayfly.cli.cluster_page.sandbox_watch import DeletedSandbox

_ACTIONS = ("delete", "extend", "retry", "abandon")


class SandboxRoutes:
    """The routes of one sandbox."""

    def __init__(self, context: PageContext, rights: Rights) -> None:
        self._context, self._rights = context, rights

    def routes(self) -> list[Route]:
        """Return the routes."""
        path, serve = "/orgs/{org}/sandboxes/{name}", self._context.serve
        return [
            serve(path, GET=self.get, DELETE=self.delete),
            serve(path + "/report", GET=self.report),
            serve(path + "/why", GET=self.why),
            serve(path + "/plan", GET=self.plan),
            serve(path + "/history", GET=self.history),
            serve(path + "/outputs", GET=self.outputs),
            serve(path + "/reveal", POST=self.reveal),
            serve(path + "/extend", POST=self.extend),
            serve(path + "/retry", POST=self.retry),
            serve(path + "/abandon", POST=self.abandon),
        ]

    async def get(self, request: Request) -> Any:
        """Return the sandbox."""
        name = _name(request)
        found = await self._context.find_sandbox(name)
        return entries.sandbox_json(found, name, cluster_report.report(found, now()))

    async def report(self, request: Request) -> Any:
        """Return the report. With `after`, wait at most `wait` seconds for another version."""
        name, watch = _name(request), self._context.watch
        after, seconds = read_number(request, "after", 0), read_wait(request)
        await watch.wait_until_known(seconds)
        if after:
            await watch.wait_for_change(name, after, seconds)
        if (gone := self._find_deleted(name)) is not None:
            why, phase, reason = gone.abandoned, Phase.CLEANED, Reason.CLEANED
            if why is not None:
                phase, reason = Phase.ABANDONED, Reason.ABANDONED
            over = {
                "phase": phase,
                "reason": reason,
                "message": why.message if why else "The sandbox is deleted.",
                "version": 1,
            }
            run = {name: gone.row[name] for name in ("uid", "name", "cluster", "routingKey")}
            return {**run, **over, "ready": False, "endpoints": []}
        found = await self._context.find_sandbox(name)
        denied = _managed_elsewhere(found) or await self._rights.denied(found["metadata"]["namespace"])
        return entries.report_json(found, name, watch.version(name), cluster_report.report(found, now()), denied)

    def _find_deleted(self, name: str) -> DeletedSandbox | None:
        """Return the record of a sandbox that ended while this process watched, unless its name is in use again."""
        watch = self._context.watch
        return watch.ended.get(name) if name not in watch.entries else None

    async def why(self, request: Request) -> Any:
        if (gone := self._find_deleted(_name(request))) is not None:
            ended_at = cluster_report.milliseconds(gone.row["endedAt"])
            return gone.abandoned or explain_dropped_records(_name(request), abandoned=False, ended_at=ended_at)
        found = await self._context.find_sandbox(_name(request))
        objects, bare = self._context.objects(_name(request))
        logs = await ClusterLogs(objects.client, objects.namespace).list_stored(found)
        return objects.why(found, bare, units_without_output(logs)) or {}

    async def plan(self, request: Request) -> Any:
        """Return the sealed plan of its run. Without a run, compile the spec."""
        found = await self._context.find_sandbox(_name(request))
        if run := found["status"].get("run"):
            try:
                return describe_plan(await self._read_sealed(run))
            except errors.NotFound:
                pass  # the run does not exist yet, or no longer
        return describe_plan(await self._compile(found, self._context.objects(_name(request))[0]))

    async def _read_sealed(self, name: str) -> Compiled:
        client = self._context.client
        run = await client.get(RUNS, name)
        pinned = [
            *(run.inline_documents() or ()),
            *[(await client.get(DOCUMENTS, pin.name)).spec for pin in run.spec.documents],
        ]
        return Compiled(tuple(pinned), run.spec.forks)

    async def _compile(self, found: Any, objects: Objects) -> Compiled:
        meta = found["metadata"]
        check_depth(found["spec"])
        sandbox = documents.from_wire({"name": meta["name"], "spec": found["spec"]}, "Sandbox", name=meta["name"])
        assert isinstance(sandbox, Sandbox), "the kind is an argument"
        plugins = [await objects.plugin(*each) for each in compiler.required_plugins(sandbox)]
        known = {(plugin.name, plugin.version): plugin for plugin in plugins}
        for plugin in plugins:
            parent = plugin.spec.parent
            if parent is not None and parent.version not in known:
                known[parent.version] = found_parent = await objects.plugin(*parent.version)
                plugins.append(found_parent)  # it may have a parent, too
        return compiler.compile(
            sandbox,
            known,
            uid=meta["uid"],
            routing_key=routing_key(meta["uid"]),
            namespace=meta["namespace"],
            local=LocalRouting.CLUSTER,
        )

    async def history(self, request: Request) -> Any:
        """Return the attempts in the ledger."""
        run = (await self._context.find_sandbox(_name(request)))["status"].get("run")
        return list(run_reads.build_history(await self._context.client.get(RUNS, run))) if run else []

    async def outputs(self, request: Request) -> Any:
        """Return all outputs; with `masked` in the query, without sensitive values."""
        found = await self._outputs(_name(request))
        return (
            [{**each, "value": ""} if each["sensitive"] else each for each in found]
            if read_flag(request, "masked")
            else found
        )

    async def reveal(self, request: Request) -> Any:
        """Return one output, even if it is sensitive."""
        unit, output = parse_output(await read_json(request))
        for each in await self._outputs(_name(request)):
            if (f"{each['resource']}/{each['step']}", each["output"]) == (unit, output):
                return each
        raise RequestError(404, f"sandbox {quote(_name(request))} has no output {quote(output)} of {quote(unit)} now")

    async def _outputs(self, name: str) -> list[Any]:
        return await self._context.objects(name)[0].outputs(await self._context.find_sandbox(name))

    async def delete(self, request: Request) -> Any:
        objects, bare = await self._objects_to_change(request)
        await objects.delete(bare)
        return {}

    async def extend(self, request: Request) -> Any:
        body = await read_json(request)
        ttl_extensions.parse_extension(body, 1)
        objects, bare = await self._objects_to_change(request)
        end = await objects.extend(bare, body.get("seconds", 0), body.get("until", ""))
        shown = await self.get(request)
        return {**shown, "status": {**shown["status"], "scheduledDeleteTime": end}}

    async def retry(self, request: Request) -> Any:
        unit = run_requests.parse_unit(await read_json(request))
        objects, bare = await self._objects_to_change(request)
        return {"retried": [{"unit": unit, "attempt": n} for unit, n in (await objects.retry(bare, unit)).items()]}

    async def abandon(self, request: Request) -> Any:
        give_up = run_requests.parse_abandonment(await read_json(request), "")
        objects, bare = await self._objects_to_change(request)
        await objects.abandon(bare, give_up.request.message, force=give_up.forced)
        return {}

    async def _objects_to_change(self, request: Request) -> tuple[Objects, str]:
        """Return the objects to change a sandbox, and its name.

        Raises:
            RequestError: the sandbox does not exist, or a server manages it.
        """
        found = await self._context.find_sandbox(_name(request))
        if denied := _managed_elsewhere(found):
            raise RequestError(409, denied["delete"])
        return self._context.objects(_name(request))


def _managed_elsewhere(found: Any) -> dict[str, str]:
    """Return the actions that only the server of a sandbox can perform, with the reason."""
    name = found["status"].get("servedFor")
    return dict.fromkeys(_ACTIONS, f"a server manages it as {name}: change it there") if name else {}


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not name or len(name) > 320:
        raise RequestError(404, SANDBOX_NOT_FOUND)
    return name
