"""Sandboxes, route groups and pools in the API: PUT creates and changes, DELETE ends. Hosts work after the answer."""

from __future__ import annotations

import functools
import secrets
import string
import uuid
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from dayfly.lib.clock import now_ms
from dayfly.link.host_state import NO_REPORT_VERSION
from dayfly.link.transport import CompileTarget
from dayfly.link.wire import Reply, Retry, Verdict
from dayfly.plan.reasons import Reason
from dayfly.plan.why import explain_no_retry
from dayfly.server.access import callers
from dayfly.server.access.scopes import WHOLE
from dayfly.server.admin import audit, clusters
from dayfly.server.catalog import run_specs
from dayfly.server.catalog.run_specs import CompiledRun
from dayfly.server.db.store import StoreError, retry_conflicts
from dayfly.server.http import preconditions
from dayfly.server.http.errors import RequestError, out_of_scope
from dayfly.server.http.handler import serve
from dayfly.server.http.preconditions import ANY, Tagged
from dayfly.server.http.request_data import read_flag, read_json, read_label_terms, read_number, rfc3339
from dayfly.server.records import run_records, tombstones
from dayfly.server.records.run_records import RunRecord, S
from dayfly.server.runs import ttl_extensions
from dayfly.server.runs.run_requests import (
    end_request,
    forced_deletion,
    parse_abandonment,
    parse_lease,
    parse_unit,
    refuse_too_early,
)
from dayfly.server.runs.run_states import report_form
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.run import Phase
from dayfly.spec.scalars import label_selector

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.compile import Compiled
    from dayfly.link.server_end import Links
    from dayfly.server.access.callers import Requester
    from dayfly.server.access.scopes import Scope
    from dayfly.server.admin.audit import Actor
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.http.preconditions import Preconditions
    from dayfly.server.records.run_records import RunKind
    from dayfly.server.runs.run_requests import Abandonment
    from dayfly.server.runs.run_states import RunState
    from dayfly.server.runs.run_strategy import Strategy, Wanted
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.run import EndRequest

ROUTING_KEY_LENGTH = 13

_KEY_LETTERS = string.digits + string.ascii_lowercase


class RunService(Generic[S]):
    """The endpoints of the API that list and change the runs of one kind: sandboxes, route groups or resource pools."""

    def __init__(self, store: Store, links: Links, sync: HostSync, strategy: Strategy[S]) -> None:
        self._store = store
        self._links = links
        self._sync = sync
        self._strategy: Strategy[S] = strategy
        self.kind: RunKind[S] = strategy.kind

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        collection = f"/orgs/{{org}}/{self.kind.plural}"
        one = collection + "/{name}"
        found = [
            serve(collection, GET=self.list_all),
            serve(one, GET=self.get, PUT=self.put, DELETE=self.delete),
            serve(one + "/abandon", POST=self.abandon),
        ]
        if self.kind.has_steps:
            found += [serve(one + "/retry", POST=self.retry), serve(one + "/extend", POST=self.extend)]
        if self._strategy.has_leases:
            found.append(serve(one + "/lease", PUT=self.lease))
            found.append(serve(one + "/status/explain", GET=self.explain))
        return found

    async def list_all(self, request: Request) -> Any:
        """Return all runs, or those that the query parameters select."""
        terms, after, who = (
            read_label_terms(request),
            request.query_params.get("after", ""),
            callers.get_caller(request),
        )
        limit, org_store = read_number(request, "limit", 0, least=1), self._store.for_org(who.org)
        with_reports = self.kind.has_steps and read_flag(request, "reports")
        is_selected = await self._strategy.read_selection(request)
        accepts = None
        if terms or not who.scope.is_whole:
            accepts = functools.partial(_is_selected, terms, who)
        found: list[RunRecord[S]] = []
        while True:
            most = limit - len(found) if limit else 0
            page = functools.partial(run_records.read_page, kind=self.kind, after=after, accepts=accepts, limit=most)
            read = await org_store.read(page)
            found += [record for record in read if is_selected(record) and not self._has_ended(record)]
            if not limit or len(found) == limit or len(read) < most:
                described = await self.describe_all(found, who.scope)
                return await self._add_reports(described, found, who) if with_reports else described
            after = read[-1].name

    async def _add_reports(
        self, described: list[dict[str, Any]], records: Sequence[RunRecord[S]], who: Requester
    ) -> list[dict[str, Any]]:
        """Return the API objects of runs with their reports."""
        states = await self.query_states(records, who.scope)
        for each, record in zip(described, records, strict=True):
            report, endpoints, version = states[record.uid]
            each["report"] = report_form(record, report, endpoints, version or NO_REPORT_VERSION)
        return described

    async def get(self, request: Request) -> Any:
        record = await self.get_record(request)
        return Tagged(await self._describe(callers.get_caller(request), record), record.version)

    async def put(self, request: Request) -> Any:
        name = request.path_params["name"]
        wanted = self._strategy.parse(await read_json(request), name)
        who, when = audit.get_actor(request), preconditions.read(request)
        return await retry_conflicts(lambda: self._put(who, name, wanted, when))

    async def _put(self, who: Actor, name: str, wanted: Wanted[S], when: Preconditions) -> Any:
        async with self.lock(who.org, name):
            record = await self.current(who.org, name)
            self._refuse_elsewhere(who, wanted.spec.cluster, record)
            if wanted.secrets and who.scope.agent:
                raise RequestError(403, "a key for agents cannot send secrets; leave them out")
            when.check(record.version if record else None)
            wanted = wanted._replace(spec=self._strategy.restrict(who, wanted.spec, record))
            if record is None:
                return await self._create(who, name, wanted)
            await self._refuse_if_ending(record)
            self._strategy.check_secrets(record, wanted.secrets)
            return await self._change(who, record, wanted.spec, wanted.lease)

    async def delete(self, request: Request) -> Any:
        who, name = audit.get_actor(request), request.path_params["name"]
        abandonment = forced_deletion(who.description) if read_flag(request, "force") else None
        if abandonment and who.scope.agent:
            raise RequestError(403, "a key for agents cannot abandon a cleanup; leave force out")
        when = preconditions.read(request)
        await retry_conflicts(lambda: self._end(who, name, abandonment, when))
        return {}

    async def abandon(self, request: Request) -> Any:
        who, name = audit.get_actor(request), request.path_params["name"]
        abandonment = parse_abandonment(await read_json(request), who.description)
        await retry_conflicts(lambda: self._end(who, name, abandonment))
        return {}

    async def lease(self, request: Request) -> Any:
        who, name = audit.get_actor(request), request.path_params["name"]
        seconds = parse_lease(await read_json(request), ())
        return await retry_conflicts(lambda: self._lease(who, name, seconds))

    async def _lease(self, who: Actor, name: str, seconds: int) -> Any:
        async with self.lock(who.org, name):
            record = await self._get_active(who, name)
            until = await self._renew(record, seconds)
            renewed = msgspec.structs.replace(record, lease_seconds=seconds)
            await self._store_change(who, record, renewed, lease=seconds)
            return {"seconds": seconds, "until": rfc3339(until)}

    async def extend(self, request: Request) -> Any:
        """Extend its time to live to the requested time; never shorten it."""
        who, name, body = audit.get_actor(request), request.path_params["name"], await read_json(request)
        return await retry_conflicts(lambda: self._extend(who, name, body))

    async def _extend(self, who: Actor, name: str, body: Any) -> Any:
        async with self.lock(who.org, name):
            record = await self._get_active(who, name)
            ttl = record.ttl
            if ttl is None:
                raise ttl_extensions.no_time_to_live(f"{self.kind.noun} {quote(name)}")
            begin, end = await self._strategy.read_lifetime(record)
            if ttl.offset_from == "updatedAt":
                begin = now_ms()  # this request changes the spec, which restarts such a time to live
            if duration := ttl_extensions.extended_duration(
                begin, end, ttl_extensions.parse_extension(body, ttl.seconds)
            ):
                extended = msgspec.structs.replace(record.spec, ttl=msgspec.structs.replace(ttl, duration=duration))
                return await self._change(who, record, self._strategy.restrict(who, extended, record), 0)
            return await self._describe(who, record)

    async def retry(self, request: Request) -> Any:
        """End the back-off of the unit in the body, or of all units that wait for a retry."""
        who, body, record = audit.get_actor(request), await read_json(request), await self.get_record(request)
        report = await self._report(record)
        wanted, subject = parse_unit(body), f"{self.kind.noun} {quote(record.name)}"
        units = [unit for unit in report.units if wanted in ("", unit.id)]
        if wanted and not units:
            known = ", ".join(unit.id for unit in report.units) or "none yet"
            raise RequestError(404, f"{subject} has no unit {quote(wanted)}; it has {known}")
        attempts = {unit.id: unit.attempt for unit in units if unit.state == "retrying"}
        if not attempts:
            raise RequestError(409, explain_no_retry(report, wanted, self.kind.noun))
        what, link = f"{self.kind.plural}/{record.name}", self._sync.link(record)
        await self._store.for_org(who.org).write(lambda rows: audit.append(rows, who, "retry", what))
        answer = await link.order(Retry(uid=report.uid, attempts=attempts, by=who.description)) if link else None
        if not isinstance(answer, Reply) or answer.verdict is not Verdict.TAKEN:
            raise RequestError(404, f"{subject} has ended")
        return {"retried": [{"unit": unit, "attempt": attempt} for unit, attempt in attempts.items()]}

    async def explain(self, request: Request) -> Any:
        name = (await self.get_record(request)).name
        path = f".../{self.kind.plural}/{name}/why"
        raise RequestError(501, f"this endpoint is not supported; GET {path} explains what blocks the {self.kind.noun}")

    # --- for the other modules of the server --------------------------------------------------------------------------

    async def query_states(self, records: Sequence[RunRecord[S]], scope: Scope = WHOLE) -> dict[str, RunState]:
        """See `Strategy.query_states`."""
        return await self._strategy.query_states(records, scope)

    async def describe_all(self, records: Sequence[RunRecord[S]], scope: Scope = WHOLE) -> list[dict[str, Any]]:
        """See `Strategy.describe_all`."""
        return await self._strategy.describe_all(records, scope)

    async def find(self, who: Requester, name: str) -> RunRecord[S] | None:
        """Return the record of that name; None if its run has ended or the key's scope excludes it."""
        record = await self._store.for_org(who.org).look_up(lambda rows: run_records.find(rows, self.kind, name))
        if record is not None and self._has_ended(record):
            async with self.lock(who.org, name):
                record = await self.current(who.org, name)
        return callers.keep_visible(who, record)

    async def get_record(self, request: Request) -> RunRecord[S]:
        """Return the record that the path of a request names.

        Raises:
            RequestError: 404.
        """
        record = await self.find(callers.get_caller(request), request.path_params["name"])
        if record is None:
            raise RequestError(404, self.kind.not_found)
        return record

    def lock(self, org: str, name: str) -> asyncio.Lock:
        """Return the lock to hold while the record of that name is changed."""
        return self._sync.lock(org, f"{self.kind.prefix}{name}")

    async def current(self, org: str, name: str) -> RunRecord[S] | None:
        """Return the stored record; None after archiving it if its run has ended. The caller holds its lock."""
        record = await self._store.for_org(org).look_up(lambda rows: run_records.find(rows, self.kind, name))
        return None if record is None or await self._sync.is_over(record) else record

    async def mark_ended(
        self, who: Actor | None, record: RunRecord[S], stop: EndRequest, abandon: EndRequest | None = None
    ) -> None:
        """Store the request to end a run and send the order; earlier requests remain. The caller holds its lock.

        Args:
            who: The caller; None for the server itself, which writes no entry to the audit log.
            record: As it is stored.
            stop: The request to end it.
            abandon: The request to abandon its cleanup.
        """
        marked = msgspec.structs.replace(record, stop=record.stop or stop, abandon=record.abandon or abandon)
        if marked == record:
            return

        def write(rows: Rows) -> tuple[RunRecord[S], bool]:
            stored = self._save(rows, who, "abandon" if marked.abandon else "delete", marked)
            # If no host has ever received an order for the cluster, the run has ended already.
            over = clusters.has_never_connected(rows, marked.cluster, self._sync.link(marked))
            if over:
                tombstones.archive(rows, stored, now_ms())
            return stored, over

        stored, over = await self._store.for_org(record.org).write(write)
        if not over:
            await self._sync.send_order_soon(stored)

    # --- one run ------------------------------------------------------------------------------------------------------

    def _has_ended(self, record: RunRecord[S]) -> bool:
        link = self._sync.link(record)
        return link is not None and link.state.has_ended(record.uid)

    async def _report(self, record: RunRecord[S]) -> Any:
        return (await self.query_states([record]))[record.uid].report

    async def _describe(self, who: Requester, record: RunRecord[S]) -> dict[str, Any]:
        return (await self.describe_all([record], who.scope))[0]

    def _answer(self, shown: dict[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
        return shown | ({"warnings": list(warnings)} if self._strategy.has_leases else {})

    async def _get_active(self, who: Actor, name: str) -> RunRecord[S]:
        """Return the record of a run that is not being deleted. The caller holds its lock."""
        record = callers.keep_visible(who, await self.current(who.org, name))
        if record is None:
            raise RequestError(404, self.kind.not_found)
        await self._refuse_if_ending(record)
        return record

    async def _create(self, who: Actor, name: str, wanted: Wanted[S]) -> Any:
        org_store, now = self._store.for_org(who.org), now_ms()
        cluster = await self._strategy.choose_cluster(who, wanted.spec)
        link = self._links.get(who.org, cluster)
        if link is None:
            await org_store.read(lambda rows: self._check_cluster(rows, who, cluster))
        target = link.compile_target() if link is not None else CompileTarget(publisher=who.org, declares=False)

        def compile_record(rows: Rows) -> tuple[RunRecord[S], Compiled]:
            spec = self._strategy.resolve(rows, who, wanted.spec, target)
            self._strategy.check_resolved(who, spec)
            record = RunRecord(
                org=who.org,
                uid=str(uuid.uuid4()),
                name=name,
                routing_key=_choose_routing_key() if self.kind.has_steps else "",
                cluster=cluster,
                spec=spec,
                created_at=now,
                updated_at=now,
                lease_seconds=wanted.lease,
                unmatched_since=now,
                created_by=who.name,
                creator_key=who.key,
                session=who.scope.agent.session if who.scope.agent else "",
            )
            return record, run_specs.compile_run(rows, record, target, {})

        record, compiled = await org_store.read(compile_record)

        def save(rows: Rows) -> RunRecord[S]:
            if link is None or link.shared:
                self._check_cluster(rows, who, cluster)  # another request may have removed it
            self._strategy.check_limit(rows, record)
            return self._save(rows, who, "create", self._strategy.reserve(rows, who, record))

        async with self._strategy.keep_secrets(record, compiled, wanted.secrets):
            if link is not None:
                await link.admit(compiled.documents, compiled.forks)
            record = await org_store.write(save)
        await self._sync.send_order_soon(record, CompiledRun(compiled, target, {}))
        return self._answer(await self._describe(who, record), compiled.warnings)

    async def _change(self, who: Actor, record: RunRecord[S], wanted: S, lease: int) -> Any:
        spec, changed, compiled = self._strategy.apply_change(record.spec, wanted), record, None
        if spec != record.spec:
            # Increased even if the clock goes back, because it determines which of two specs is newer.
            changed = msgspec.structs.replace(record, spec=spec, updated_at=max(now_ms(), record.updated_at + 1))
            compiled = await self._strategy.compile_change(changed)
        if lease:
            # The host decides whether a lease can be renewed, and if it refuses, nothing may have changed.
            await self._renew(record, lease)
            changed = msgspec.structs.replace(changed, lease_seconds=lease)
        stored = await self._store_change(who, record, changed, lease=lease)
        if spec != record.spec:
            await self._sync.send_order_soon(stored, compiled)
        return self._answer(await self._describe(who, stored), compiled.compiled.warnings if compiled else ())

    async def _renew(self, record: RunRecord[S], seconds: int) -> int:
        until = await self._sync.renew_lease(record, seconds)
        if until is None:
            message = (await self._report(record)).message
            text = f"{self.kind.noun} {quote(record.name)} has no run whose lease could be renewed: {message}"
            raise RequestError(409, text)
        return until

    async def _store_change(self, who: Actor, old: RunRecord[S], new: RunRecord[S], *, lease: int) -> RunRecord[S]:
        if new == old:
            return old

        def save(rows: Rows) -> RunRecord[S]:
            return self._save(rows, who, "change", self._strategy.reserve(rows, who, new))

        try:
            return await self._store.for_org(old.org).write(save)
        except StoreError as fault:
            if not lease:
                raise
            text = f"the lease is renewed, but the change may not be stored ({fault}); it is safe to retry"
            raise RequestError(503, text) from fault

    async def _end(self, who: Actor, name: str, abandonment: Abandonment | None, when: Preconditions = ANY) -> None:
        async with self.lock(who.org, name):
            record = callers.keep_visible(who, await self.current(who.org, name))
            when.check(record.version if record else None)
            if record is None:
                # A client repeats a request whose answer was lost, and must get the same answer.
                org_store = self._store.for_org(who.org)
                ended = await org_store.look_up(lambda rows: tombstones.find(rows, self.kind, name))
                if callers.keep_visible(who, ended) is None:
                    raise RequestError(404, self.kind.not_found)
                return
            if abandonment is not None and not abandonment.forced:
                refuse_too_early(record, await self._report(record))
            stop = end_request(Reason.DELETED, "deleted", who.description)
            await self.mark_ended(who, record, stop, abandonment.request if abandonment else None)

    def _save(self, rows: Rows, who: Actor | None, action: str, record: RunRecord[S]) -> RunRecord[S]:
        if who is not None:
            audit.append(rows, who, action, f"{self.kind.plural}/{record.name}", msgspec.json.encode(record.spec))
        return run_records.save(rows, record, declares=self._strategy.declares(rows, record))

    def _check_cluster(self, rows: Rows, who: Actor, cluster: str) -> None:
        """Refuse a cluster that no host serves and that was not added for an agent."""
        added = clusters.names(rows)
        if cluster not in added:
            visible = filter(who.scope.includes_cluster, (added | self._links.clusters(rows.org)) - {cluster})
            known = ", ".join(sorted(visible)) or "none yet"
            text = f"no cluster {quote(cluster)}; this server has {known}; {self._strategy.cluster_hint}"
            raise SpecError(text, ("spec", "cluster"))

    def _refuse_elsewhere(self, who: Actor, cluster: str, record: RunRecord[S] | None) -> None:
        """Refuse a spec for a cluster outside the key's scope, or the name of a run outside of it."""
        if record is not None and who.scope.agent and not who.scope.includes(record):
            raise out_of_scope(who.scope, f"the {self.kind.noun} {quote(record.name)}")
        if record is not None and not who.scope.includes_cluster(record.scope_cluster):
            raise out_of_scope(who.scope, f"a {self.kind.noun} of that name lives in another cluster, which")
        if not who.scope.includes_cluster(cluster):
            what = f"cluster {quote(cluster)}" if cluster else f"a {self.kind.noun} of all clusters"
            raise out_of_scope(who.scope, what)

    async def _refuse_if_ending(self, record: RunRecord[S]) -> None:
        report = await self._report(record)
        if record.stop is not None or report.phase is not Phase.OPEN:
            text = f"{self.kind.noun} {quote(record.name)} is being deleted and waits for: {report.message}"
            raise RequestError(409, f"{text}; apply it again once it is gone")


def _choose_routing_key() -> str:
    return "".join(secrets.choice(_KEY_LETTERS) for _ in range(ROUTING_KEY_LENGTH))


def _is_selected(terms: Sequence[label_selector.Term], who: Requester, record: RunRecord[Any]) -> bool:
    return label_selector.matches(terms, record.labels) and bool(callers.keep_visible(who, record))
