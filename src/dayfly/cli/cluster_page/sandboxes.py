"""The addresses of one sandbox: how it stands and why, what its units gave, and what can be done to it."""

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
from dayfly.plan.why import forgotten, mute
from dayfly.server.api.overview import describe_plan, parse_output
from dayfly.server.http.errors import SANDBOX_NOT_FOUND, RequestError
from dayfly.server.http.request_data import read_flag, read_json, read_number, read_wait
from dayfly.server.runs import lifetimes, run_requests
from dayfly.spec import documents
from dayfly.spec.errors import quote
from dayfly.spec.identity import routing_key
from dayfly.spec.run import Phase
from dayfly.spec.sandbox import Sandbox
from dayfly.spec.unsupported_fields import ToLocal

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.cli.backends.cluster_objects import Objects
    from dayfly.cli.cluster_page.handler import Side
    from dayfly.cli.cluster_page.rights import Rights
    from dayfly.cli.cluster_page.sandbox_watch import DeletedSandbox

_ALL = ("delete", "extend", "retry", "abandon")


class Boxes:
    """Of all sandboxes that are watched."""

    def __init__(self, side: Side, rights: Rights) -> None:
        self._side, self._rights = side, rights

    def routes(self) -> list[Route]:
        """All of them."""
        one, serve = "/orgs/{org}/sandboxes/{name}", self._side.serve
        return [
            serve(one, GET=self.get, DELETE=self.delete),
            serve(one + "/report", GET=self.report),
            serve(one + "/why", GET=self.why),
            serve(one + "/plan", GET=self.plan),
            serve(one + "/history", GET=self.history),
            serve(one + "/outputs", GET=self.outputs),
            serve(one + "/reveal", POST=self.reveal),
            serve(one + "/extend", POST=self.extend),
            serve(one + "/retry", POST=self.retry),
            serve(one + "/abandon", POST=self.abandon),
        ]

    async def get(self, request: Request) -> Any:
        """The whole of it."""
        name = _name(request)
        found = await self._side.living(name)
        return entries.form(found, name, cluster_report.report(found, now()))

    async def report(self, request: Request) -> Any:
        """How it stands; with `after` and `wait`, once that is another than that version, if it comes in time."""
        name, watched = _name(request), self._side.watched
        after, seconds = read_number(request, "after", 0), read_wait(request)
        await watched.settled(seconds)
        if after:
            await watched.changed(name, after, seconds)
        if (gone := self._gone(name)) is not None:
            why, phase, reason = gone.abandoned, Phase.CLEANED, Reason.CLEANED
            if why is not None:
                phase, reason = Phase.ABANDONED, Reason.ABANDONED
            over = {"phase": phase, "reason": reason, "message": why.message if why else "It is gone.", "version": 1}
            return {**gone.told, **over, "ready": False, "endpoints": []}
        found = await self._side.living(name)
        denied = _others(found) or await self._rights.denied(found["metadata"]["namespace"])
        return entries.told(found, name, watched.version(name), cluster_report.report(found, now()), denied)

    def _gone(self, name: str) -> DeletedSandbox | None:
        """Return the record of a sandbox that ended while this process watched, unless its name is in use again."""
        watched = self._side.watched
        return watched.ended.get(name) if name not in watched.entries else None

    async def why(self, request: Request) -> Any:
        if (gone := self._gone(_name(request))) is not None:
            ended_at = cluster_report.milliseconds(gone.told["endedAt"])
            return gone.abandoned or forgotten(_name(request), abandoned=False, ended_at=ended_at)
        found = await self._side.living(_name(request))
        objects, bare = self._side.objects(_name(request))
        logs = await ClusterLogs(objects.client, objects.namespace).kept(found)
        return objects.why(found, bare, mute(logs)) or {}

    async def plan(self, request: Request) -> Any:
        """What its run has sealed; before there is a run what its wish means."""
        found = await self._side.living(_name(request))
        if run := found["status"].get("run"):
            try:
                return describe_plan(await self._sealed(run))
            except errors.NotFound:
                pass  # it is about to be born, or to go
        return describe_plan(await self._meant(found, self._side.objects(_name(request))[0]))

    async def _sealed(self, name: str) -> Compiled:
        client = self._side.client
        run = await client.get(RUNS, name)
        pinned = [(await client.get(DOCUMENTS, pin.name)).spec for pin in run.spec.documents]
        return Compiled(tuple(pinned), run.spec.forks)

    async def _meant(self, found: Any, objects: Objects) -> Compiled:
        meta = found["metadata"]
        check_depth(found["spec"])
        wish = documents.from_wire({"name": meta["name"], "spec": found["spec"]}, "Sandbox", name=meta["name"])
        assert isinstance(wish, Sandbox), "asked for by its kind"
        plugins = [await objects.plugin(*each) for each in compiler.missing(wish)]
        return compiler.compile(
            wish,
            {(plugin.name, plugin.version): plugin for plugin in plugins},
            uid=meta["uid"],
            routing_key=routing_key(meta["uid"]),
            namespace=meta["namespace"],
            local=ToLocal.CLUSTER,
        )

    async def history(self, request: Request) -> Any:
        """What the ledger still holds."""
        run = (await self._side.living(_name(request)))["status"].get("run")
        return list(run_reads.history(await self._side.client.get(RUNS, run))) if run else []

    async def outputs(self, request: Request) -> Any:
        """All; with `masked` in the query without what is in the sensitive ones."""
        found = await self._outputs(_name(request))
        return (
            [{**each, "value": ""} if each["sensitive"] else each for each in found]
            if read_flag(request, "masked")
            else found
        )

    async def reveal(self, request: Request) -> Any:
        """One output, sensitive or not."""
        unit, output = parse_output(await read_json(request))
        for each in await self._outputs(_name(request)):
            if (f"{each['resource']}/{each['step']}", each["output"]) == (unit, output):
                return each
        raise RequestError(404, f"sandbox {quote(_name(request))} has no output {quote(output)} of {quote(unit)} now")

    async def _outputs(self, name: str) -> list[Any]:
        return await self._side.objects(name)[0].outputs(await self._side.living(name))

    async def delete(self, request: Request) -> Any:
        objects, bare = await self._meets(request)
        await objects.delete(bare)
        return {}

    async def extend(self, request: Request) -> Any:
        body = await read_json(request)
        lifetimes.parse_extension(body, 1)
        objects, bare = await self._meets(request)
        end = await objects.extend(bare, body.get("seconds", 0), body.get("until", ""))
        shown = await self.get(request)
        return {**shown, "status": {**shown["status"], "scheduledDeleteTime": end}}

    async def retry(self, request: Request) -> Any:
        unit = run_requests.parse_unit(await read_json(request))
        objects, bare = await self._meets(request)
        return {"retried": [{"unit": unit, "attempt": n} for unit, n in (await objects.retry(bare, unit)).items()]}

    async def abandon(self, request: Request) -> Any:
        give_up = run_requests.parse_abandonment(await read_json(request), "")
        objects, bare = await self._meets(request)
        await objects.abandon(bare, give_up.request.message, force=give_up.forced)
        return {}

    async def _meets(self, request: Request) -> tuple[Objects, str]:
        """What changes one that is there, and belongs to nobody else."""
        found = await self._side.living(_name(request))
        if others := _others(found):
            raise RequestError(409, others["delete"])
        return self._side.objects(_name(request))


def _others(found: Any) -> dict[str, str]:
    """What cannot be done to a sandbox that a server has, and why."""
    whose = found["status"].get("servedFor")
    return dict.fromkeys(_ALL, f"a server has it, as {whose}: change it there") if whose else {}


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not name or len(name) > 320:
        raise RequestError(404, SANDBOX_NOT_FOUND)
    return name
