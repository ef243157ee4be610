"""Endpoints for leak checks. A check is stored at the host of its cluster, which lists and deletes also without us."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from dayfly import compile as compiler
from dayfly.lib.clock import now_ms
from dayfly.link import wire
from dayfly.link.server_end import HostFailedError
from dayfly.server.access import callers
from dayfly.server.admin import audit
from dayfly.server.catalog import plugins
from dayfly.server.http.errors import RequestError, out_of_scope
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_flag, read_json
from dayfly.server.leaks.leak_forms import describe_report, with_cluster
from dayfly.server.records import leak_records, resource_records
from dayfly.server.records.leak_records import Author
from dayfly.server.records.unreadable_rows import UnreadableError
from dayfly.spec import documents
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.host_errors import DocumentsRefusedError, HostNeverConnectedError, HostUnavailableError
from dayfly.spec.leak_check import STATE_CHECK, LeakCheck
from dayfly.spec.lifecycle import canonical
from dayfly.spec.scalars import semver
from dayfly.spec.scalars.numbers import MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.link.server_end import Link, Links
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.leaks.leak_sync import LeakSync
    from dayfly.server.records.resource_records import ResourceOwner
    from dayfly.spec.leak_report import LeakReport
    from dayfly.spec.lifecycle import Lifecycle
    from dayfly.spec.plugin import Plugin

MAX_CHECKS: Final = 100
# Delete steps of this many versions, the highest first, and of this size are sent to the host.
MAX_VERSIONS: Final = 50
MAX_DELETE_BYTES: Final = 4 << 20
# A check that begins a deletion before each of these orders is not deleted.
MAX_DROPS: Final = 3
MAX_PLAN_LENGTH: Final = 64
READ_ONLY: Final = ("plugin", "status")


class _Found(NamedTuple):
    """Checks by name, and the clusters that do not answer, with the reason."""

    reports: dict[str, LeakReport]
    silent: dict[str, str]


class LeakCheckApi:
    """The endpoints below `/leakchecks`. Only keys without a scope use them: a list has items of all sandboxes."""

    def __init__(self, store: Store, links: Links, sync: LeakSync) -> None:
        self._store, self._links, self._sync = store, links, sync

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        collection = "/orgs/{org}/leakchecks"
        one = collection + "/{name}"
        return [
            serve(collection, GET=self.list_all),
            serve(one, GET=self.get, PUT=self.put, DELETE=self.delete),
            serve(one + "/sweep", POST=self.sweep),
        ]

    async def list_all(self, request: Request) -> Any:
        """Return all checks; those of a cluster that does not answer as its last report had them, without findings."""
        _refuse_scope(request)
        found = await self._find_all(request, is_brief=not read_flag(request, "findings", default=True))
        stored = await self._read_stored(request, found.silent)
        return await self._describe(request, *(report for _, report in sorted({**stored, **found.reports}.items())))

    async def get(self, request: Request) -> Any:
        _refuse_scope(request)
        name = request.path_params["name"]
        found = await self._find_all(request, name)
        if name not in found.reports and name in (stored := await self._read_stored(request, found.silent)):
            return (await self._describe(request, stored[name]))[0]
        return await self._find_described(request)

    async def put(self, request: Request) -> Any:
        """Create a check or change it, and let its host list soon."""
        name, body, who = request.path_params["name"], await read_json(request), audit.get_actor(request)
        if isinstance(body, dict):
            # Clients may PUT an object as GET has returned it.
            body = {key: value for key, value in body.items() if key not in READ_ONLY}
        check = documents.from_wire(body, "LeakCheck", name=name)
        assert isinstance(check, LeakCheck), "the kind is given"
        known, silent = await self._find_all(request, is_brief=True)
        if name in known and known[name].spec.cluster != check.spec.cluster:
            cluster = quote(known[name].spec.cluster)
            raise RequestError(409, f"leak check {quote(name)} exists in the cluster {cluster}; delete it first")
        if name not in known and len(known) >= MAX_CHECKS:
            raise RequestError(409, f"there are {len(known)} leak checks, the maximum; delete some")
        link = self._links.get(who.org, check.spec.cluster)
        if link is None:
            problem = f"no host serves the cluster {quote(check.spec.cluster)} now; correct the name or connect it"
            raise SpecError(problem, ("spec", "cluster"))
        if problem := next((why for each, why in silent.items() if self._links.get(who.org, each) is link), ""):
            problem = f"the cluster {check.spec.cluster} cannot be reached: {problem}"
            raise RequestError(503, f"{problem}; nothing was changed")
        publisher = link.compile_target().publisher
        order = await self._store.for_org(who.org).read(lambda rows: _compile(rows, check, publisher))
        stored = msgspec.json.encode(check)
        cluster, is_new = check.spec.cluster, name not in known

        def record(rows: Rows) -> None:
            audit.append(rows, who, "put", f"leakchecks/{name}", stored)
            leak_records.apply(rows, cluster, name, Author(who.key, who.name), now_ms(), is_new=is_new)

        await self._sync.sync(link)  # what has been deleted before belongs to the former author
        await self._store.for_org(who.org).write(record)
        await self._order(link, order)
        return await self._find_described(request)

    async def delete(self, request: Request) -> Any:
        who, (link, report) = audit.get_actor(request), await self._find(request)
        if report.name == STATE_CHECK:
            raise RequestError(409, f"{STATE_CHECK} is a built-in check, which cannot be deleted")
        await self._store.for_org(who.org).write(
            lambda rows: audit.append(rows, who, "delete", f"leakchecks/{report.name}")
        )
        await self._drop(link, report)
        await self._store.for_org(who.org).write(
            lambda rows: leak_records.delete(rows, report.spec.cluster, report.name)
        )
        return {}

    async def sweep(self, request: Request) -> Any:
        """Let the host list soon. With the digest of a plan, it deletes all orphans if they are still the same."""
        who, (link, report) = audit.get_actor(request), await self._find(request)
        body = await read_json(request)
        plan = body.get("plan", "") if isinstance(body, dict) else None
        if not isinstance(plan, str):
            raise RequestError(400, "plan must be `status.plan` of a report")
        order = wire.SweepLeaks(uid=_uid(report.name), name=report.name, plan=plan)
        if plan:
            # Also the versions that were published since the check was applied may be needed.
            check = LeakCheck(name=report.name, spec=report.spec)
            target, org = link.compile_target().publisher, self._store.for_org(who.org)
            with contextlib.suppress(SpecError):
                compiled = await org.read(lambda rows: _compile(rows, check, target))
                order = msgspec.structs.replace(order, spec=report.spec, deletes=compiled.deletes)

            def record(rows: Rows) -> None:
                audit.append(rows, who, "delete-leaks", f"leakchecks/{report.name}", plan)
                author, digest = Author(who.key, who.name), plan[:MAX_PLAN_LENGTH]
                leak_records.apply_plan(rows, report.spec.cluster, report.name, author, digest, now_ms())

            await self._sync.sync(link)  # what has been deleted before may belong to another plan
            await org.write(record)
        await self._order(link, order)
        return await self._find_described(request)

    async def _find_described(self, request: Request) -> dict[str, Any]:
        return (await self._describe(request, (await self._find(request))[1]))[0]

    async def _describe(self, request: Request, *reports: LeakReport) -> list[dict[str, Any]]:
        """Return checks in the API, with the sandboxes of their findings."""
        findings = [each for report in reports for each in report.findings]
        ids = {each.id for each in findings if not each.sandbox_uid} - {""}
        uids = {each.sandbox_uid for each in findings} - {""}

        def read(rows: Rows) -> Mapping[str, ResourceOwner]:
            return {**resource_records.find_owners(rows, ids), **resource_records.find_sandboxes(rows, uids)}

        org = self._store.for_org(callers.get_caller(request).org)
        owners = await org.read(read) if findings else {}
        now = now_ms()
        return [describe_report(report, owners, now) for report in reports]

    async def _drop(self, link: Link, report: LeakReport) -> None:
        """Let a host delete a check, with which it forgets its deletions, once all of them are in the audit log."""
        cluster, name = report.spec.cluster, report.name
        for _ in range(MAX_DROPS):
            await self._sync.sync(link)
            record = await self._store.for_org(link.org).read(lambda rows: leak_records.find(rows, cluster, name))
            after = record.last_deletion if record is not None else 0
            answer = await link.order(wire.DropLeakCheck(uid=_uid(name), name=name, after=after))
            if not isinstance(answer, wire.Reply) or answer.verdict is not wire.Verdict.CLOSED:
                return _require_taken(answer)
        problem = f"leak check {quote(name)} has deletions that are not in the audit log yet; nothing was changed"
        raise RequestError(503, f"{problem}; try again")

    async def _order(self, link: Link, order: wire.LeakOrder) -> None:
        _require_taken(await link.order(order))

    async def _find(self, request: Request) -> tuple[Link, LeakReport]:
        name = request.path_params["name"]
        found, silent = await self._find_all(request, name)
        if name not in found and silent:
            stored = (await self._read_stored(request, silent)).get(name)
            cluster, verb = (stored.spec.cluster, "has") if stored is not None else (min(silent), "may have")
            why = silent.get(cluster, "")
            raise RequestError(503, f"the cluster {cluster} {verb} this leak check, and cannot be reached: {why}")
        if name not in found:
            raise RequestError(404, "leak check not found")
        link = self._links.get(callers.get_caller(request).org, found[name].spec.cluster)
        if link is None:
            raise RequestError(503, f"no host serves the cluster {found[name].spec.cluster} now")
        return link, found[name]

    async def _find_all(self, request: Request, name: str = "", *, is_brief: bool = False) -> _Found:
        """Return the checks of all hosts, or those with a name."""
        org = callers.get_caller(request).org
        clusters = list({id(self._links.get(org, each)): each for each in sorted(self._links.clusters(org))}.values())
        query = wire.LeaksQuery(brief=is_brief, names=(name,) if name else ())
        answers = await asyncio.gather(*(self._query(org, each, query) for each in clusters))
        reports: dict[str, list[LeakReport]] = {}
        silent: dict[str, str] = {}
        for cluster, answer in zip(clusters, answers, strict=True):
            if isinstance(answer, str):
                silent[cluster] = answer
            else:
                for each in answer:
                    reports.setdefault(each.name, []).append(each)
        return _Found(await self._choose(org, reports), silent)

    async def _choose(self, org: str, reports: Mapping[str, list[LeakReport]]) -> dict[str, LeakReport]:
        """Return one report for each name: a host cannot take over the name of a check that was known before."""
        known: dict[tuple[str, str], int] = {}
        if any(len(each) > 1 for each in reports.values()):
            records = await self._store.for_org(org).read(leak_records.read_all)
            known = {(each.cluster, each.name): each.created_at for each in records}
        return {
            name: min(each, key=lambda report: known.get((report.spec.cluster, report.name), MAX_INTEGER))
            for name, each in reports.items()
        }

    async def _query(self, org: str, cluster: str, query: wire.LeaksQuery) -> tuple[LeakReport, ...] | str:
        """Return the checks of a host, or why it does not answer. An older or new operator has none."""
        link = self._links.get(org, cluster)
        if link is None:
            return "no host serves it now"
        try:
            reports = (await link.query(query, wire.Leaks)).reports
        except (DocumentsRefusedError, HostNeverConnectedError):
            return ()
        except (HostUnavailableError, HostFailedError) as fault:
            return str(fault)
        # A host reports only about its own clusters.
        named = (with_cluster(each, cluster) for each in reports)
        return tuple(each for each in named if self._links.get(org, each.spec.cluster) is link)

    async def _read_stored(self, request: Request, silent: Mapping[str, str]) -> dict[str, LeakReport]:
        """Return the last reports of clusters that do not answer, by name, with the reason as their errors."""
        if not silent:
            return {}
        org = callers.get_caller(request).org
        # A link may serve several clusters, and is named by the first one.
        whys = {id(self._links.get(org, each)): why for each, why in silent.items()}
        found = {}
        for record in await self._store.for_org(org).read(leak_records.read_all):
            report, why = record.decoded_report, whys.get(id(self._links.get(org, record.cluster)))
            if report is not None and why is not None:
                error = f"this is the last report of the cluster, which cannot be reached: {why}"
                error = f"{error}; before, {report.error}" if report.error else error
                found[record.name] = msgspec.structs.replace(report, error=error, plan="")
        return found


def _refuse_scope(request: Request) -> None:
    scope = callers.get_caller(request).scope
    if not scope.is_whole:
        raise out_of_scope(scope, "a leak check, which lists items of all sandboxes,")


def _require_taken(answer: wire.Reply | wire.RunEnded) -> None:
    if not isinstance(answer, wire.Reply) or answer.verdict is not wire.Verdict.TAKEN:
        raise RequestError(404, "leak check not found")


def _uid(name: str) -> str:
    return f"leakcheck/{name}"


def _compile(rows: Rows, check: LeakCheck, publisher: str) -> wire.PutLeakCheck:
    """Return the order for a check, with the delete steps of all versions of its plugin that can be used.

    Raises:
        SpecError: the plugin is not published, or see `compile.compile_leak_check`.
    """
    plugin = plugins.resolve(rows, check.spec.plugin)
    if plugin is None:
        problem = f"no plugin {quote(check.spec.plugin)} is published; apply it first"
        raise SpecError(problem, ("spec", "plugin"))
    made = compiler.compile_leak_check(check, plugin, publisher=publisher)
    deletes: dict[str, Lifecycle] = {}
    undeletable: list[str] = []
    size = 0
    versions = [plugin.version, *plugins.versions(rows).get(plugin.name, [])]
    for version in dict.fromkeys(versions[: MAX_VERSIONS + 1]):
        name = semver.join_name(plugin.name, version)
        document = _compile_deletion(rows, check, plugin if version == plugin.version else name, publisher)
        size += len(canonical(document)) if document is not None else 0
        if document is None:
            undeletable.append(name)
        elif size <= MAX_DELETE_BYTES:
            deletes[name] = document
    return wire.PutLeakCheck(
        uid=_uid(check.name),
        name=check.name,
        spec=check.spec,
        plugin=plugin.wire_name,
        inventory=made.inventory,
        deletes=deletes,
        undeletable=tuple(undeletable),
    )


def _compile_deletion(rows: Rows, check: LeakCheck, plugin: Plugin | str, publisher: str) -> Lifecycle | None:
    """Return the document that deletes with a plugin, or with that of a name; None if none can run for the check."""
    with contextlib.suppress(SpecError, UnreadableError):
        found = plugins.resolve(rows, plugin) if isinstance(plugin, str) else plugin
        return compiler.compile_leak_check(check, found, publisher=publisher).delete if found is not None else None
    return None
