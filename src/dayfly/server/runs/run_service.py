"""Sandboxes and route groups in the API: create and change by PUT, end by DELETE. Hosts work behind the answer."""

from __future__ import annotations

import secrets
import string
import time
import uuid
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from dayfly.link.transport import CompileTarget
from dayfly.link.wire import Reply, Retry, Verdict
from dayfly.plan.reasons import Reason
from dayfly.plan.why import nothing_to_retry
from dayfly.server.access import callers
from dayfly.server.access.scopes import WHOLE
from dayfly.server.admin import audit, clusters
from dayfly.server.catalog import run_specs
from dayfly.server.catalog.run_specs import CompiledRun
from dayfly.server.db.store import again
from dayfly.server.http import preconditions
from dayfly.server.http.errors import RequestError, outside
from dayfly.server.http.handler import flag, labels_asked, read_json, rfc3339, serve, whole_number
from dayfly.server.http.preconditions import ANY, Tagged
from dayfly.server.records import run_records, tombstones
from dayfly.server.records.run_records import RunRecord, S
from dayfly.server.runs import lifetimes
from dayfly.server.runs.run_requests import (
    abandonment,
    end_request,
    forced_deletion,
    lease_seconds,
    refuse_too_early,
    unit_in,
)
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
    from dayfly.server.access.callers import Asking
    from dayfly.server.access.scopes import Scope
    from dayfly.server.admin.audit import Who
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
    """The addresses of sandboxes, or of route groups, that change them or list them."""

    def __init__(self, store: Store, links: Links, sync: HostSync, strategy: Strategy[S]) -> None:
        self._store = store
        self._links = links
        self._sync = sync
        self._strategy: Strategy[S] = strategy
        self.kind: RunKind[S] = strategy.kind

    def routes(self) -> list[Route]:
        """Return the routes of all addresses."""
        at = f"/orgs/{{org}}/{self.kind.plural}"
        one = at + "/{name}"
        found = [
            serve(at, GET=self.list_all),
            serve(one, GET=self.get, PUT=self.put, DELETE=self.delete),
            serve(one + "/abandon", POST=self.abandon),
            serve(one + "/retry", POST=self.retry),
            serve(one + "/extend", POST=self.extend),
        ]
        if self._strategy.has_leases:
            found.append(serve(one + "/lease", PUT=self.lease))
            found.append(serve(one + "/status/explain", GET=self.explain))
        return found

    async def list_all(self, request: Request) -> Any:
        """Return all, or those with the labels and other properties that the query asks for."""
        terms, after, who = labels_asked(request), request.query_params.get("after", ""), callers.caller(request)
        limit, shelf = whole_number(request, "limit", 0, least=1), self._store.of(who.org)
        is_selected = await self._strategy.selection(request)
        takes = None
        if terms or not who.scope.is_whole:
            takes = lambda record: label_selector.matches(terms, record.spec.labels) and callers.seen(who, record)  # noqa: E731
        found: list[RunRecord[S]] = []
        while True:
            most = limit - len(found) if limit else 0
            read = await shelf.read(lambda rows: run_records.read_page(rows, self.kind, after, takes=takes, limit=most))  # noqa: B023
            found += [record for record in read if is_selected(record) and not self._has_ended(record)]
            if not limit or len(found) == limit or len(read) < most:
                return await self.shown(found, who.scope)
            after = read[-1].name

    async def get(self, request: Request) -> Any:
        record = await self.get_record(request)
        return Tagged(await self._show(callers.caller(request), record), record.version)

    async def put(self, request: Request) -> Any:
        name = request.path_params["name"]
        wanted = self._strategy.parse(await read_json(request), name)
        who, when = audit.who(request), preconditions.read(request)
        return await again(lambda: self._put(who, name, wanted, when))

    async def _put(self, who: Who, name: str, wanted: Wanted[S], when: Preconditions) -> Any:
        async with self.lock(who.org, name):
            record = await self.current(who.org, name)
            self._refuse_elsewhere(who, wanted.spec.cluster, record)
            when.check(record.version if record else None)
            if record is None:
                return await self._create(who, name, wanted)
            await self._refuse_if_ending(record)
            self._strategy.check_secrets(record, wanted.secrets)
            return await self._change(who, record, wanted.spec, wanted.lease)

    async def delete(self, request: Request) -> Any:
        who, name = audit.who(request), request.path_params["name"]
        give_up = forced_deletion(who.words) if flag(request, "force") else None
        when = preconditions.read(request)
        await again(lambda: self._end(who, name, give_up, when))
        return {}

    async def abandon(self, request: Request) -> Any:
        who, name = audit.who(request), request.path_params["name"]
        give_up = abandonment(await read_json(request), who.words)
        await again(lambda: self._end(who, name, give_up))
        return {}

    async def lease(self, request: Request) -> Any:
        who, name = audit.who(request), request.path_params["name"]
        seconds = lease_seconds(await read_json(request), ())
        return await again(lambda: self._lease(who, name, seconds))

    async def _lease(self, who: Who, name: str, seconds: int) -> Any:
        async with self.lock(who.org, name):
            record = await self._open(who, name)
            return {"seconds": seconds, "until": rfc3339(await self._renew(who, record, seconds))}

    async def extend(self, request: Request) -> Any:
        """Move the end of its life to the requested moment, unless it lives longer anyway."""
        who, name, body = audit.who(request), request.path_params["name"], await read_json(request)
        return await again(lambda: self._extend(who, name, body))

    async def _extend(self, who: Who, name: str, body: Any) -> Any:
        async with self.lock(who.org, name):
            record = await self._open(who, name)
            ttl = record.spec.ttl
            if ttl is None:
                raise lifetimes.refuse_endless(f"{self.kind.noun} {quote(name)}")
            begin, end = await self._strategy.life(record)
            if ttl.offset_from == "updatedAt":
                begin = _now()  # a change of the spec begins such a life again
            if duration := lifetimes.longer(begin, end, lifetimes.until(body, ttl.seconds)):
                longer = msgspec.structs.replace(ttl, duration=duration)
                return await self._change(who, record, msgspec.structs.replace(record.spec, ttl=longer), 0)
            return await self._show(who, record)

    async def retry(self, request: Request) -> Any:
        """End the back-off of the unit that the body names, or of all units that wait."""
        who, body, record = audit.who(request), await read_json(request), await self.get_record(request)
        report = await self._report(record)
        wanted, whose = unit_in(body), f"{self.kind.noun} {quote(record.name)}"
        units = [unit for unit in report.units if wanted in ("", unit.id)]
        if wanted and not units:
            there = ", ".join(unit.id for unit in report.units) or "none yet"
            raise RequestError(404, f"{whose} has no unit {quote(wanted)}; it has {there}")
        attempts = {unit.id: unit.attempt for unit in units if unit.state == "retrying"}
        if not attempts:
            raise RequestError(409, nothing_to_retry(report, wanted, self.kind.noun))
        what, link = f"{self.kind.plural}/{record.name}", self._sync.link(record)
        await self._store.of(who.org).write(lambda rows: audit.note(rows, who, "retry", what))
        answer = await link.order(Retry(uid=report.uid, attempts=attempts, by=who.words)) if link else None
        if not isinstance(answer, Reply) or answer.verdict is not Verdict.TAKEN:
            raise RequestError(404, f"{whose} has ended")
        return {"retried": [{"unit": unit, "attempt": attempt} for unit, attempt in attempts.items()]}

    async def explain(self, request: Request) -> Any:
        name = (await self.get_record(request)).name
        text = f"there are no explanations at that address; GET .../{self.kind.plural}/{name}/why says what holds it up"
        raise RequestError(501, text)

    # --- for the other modules of the server --------------------------------------------------------------------------

    async def states(self, records: Sequence[RunRecord[S]], scope: Scope = WHOLE) -> dict[str, RunState]:
        """As `Strategy.states`."""
        return await self._strategy.states(records, scope)

    async def shown(self, records: Sequence[RunRecord[S]], scope: Scope = WHOLE) -> list[dict[str, Any]]:
        """As `Strategy.shown`."""
        return await self._strategy.shown(records, scope)

    async def find(self, who: Asking, name: str) -> RunRecord[S] | None:
        """Return the record of that name, unless its run is over or the caller's key leaves it out."""
        record = await self._store.of(who.org).read(lambda rows: run_records.find(rows, self.kind, name))
        if record is not None and self._has_ended(record):
            async with self.lock(who.org, name):
                record = await self.current(who.org, name)
        return callers.seen(who, record)

    async def get_record(self, request: Request) -> RunRecord[S]:
        """Return the record that the address of a request names.

        Raises:
            ApiError: 404.
        """
        record = await self.find(callers.caller(request), request.path_params["name"])
        if record is None:
            raise RequestError(404, self.kind.not_found)
        return record

    def lock(self, org: str, name: str) -> asyncio.Lock:
        """Return the lock to hold while the record of that name is changed."""
        return self._sync.lock(org, f"{self.kind.prefix}{name}")

    async def current(self, org: str, name: str) -> RunRecord[S] | None:
        """Return the stored record; archive it instead if its run is over. The caller holds its lock."""
        record = await self._store.of(org).read(lambda rows: run_records.find(rows, self.kind, name))
        return None if record is None or await self._sync.is_over(record) else record

    async def mark_ended(
        self, who: Who | None, record: RunRecord[S], stop: EndRequest, give_up: EndRequest | None = None
    ) -> None:
        """Store the request to end a run and inform its host; earlier requests stay. The caller holds its lock.

        Args:
            who: Who requests it; None for the server itself, which leaves no entry in the audit log.
            record: As it is stored.
            stop: The request to end it.
            give_up: The request to give up its cleanup.
        """
        marked = msgspec.structs.replace(record, stop=record.stop or stop, abandon=record.abandon or give_up)
        if marked == record:
            return

        def write(rows: Rows) -> tuple[RunRecord[S], bool]:
            stored = self._save(rows, who, "abandon" if marked.abandon else "delete", marked)
            # No host has ever received it: it is over already.
            over = clusters.is_unheard(rows, marked.cluster, self._sync.link(marked))
            if over:
                tombstones.archive(rows, stored, _now())
            return stored, over

        stored, over = await self._store.of(record.org).write(write)
        if not over:
            await self._sync.tell_soon(stored)

    # --- one run ------------------------------------------------------------------------------------------------------

    def _has_ended(self, record: RunRecord[S]) -> bool:
        link = self._sync.link(record)
        return link is not None and link.state.has_ended(record.uid)

    async def _report(self, record: RunRecord[S]) -> Any:
        return (await self.states([record]))[record.uid].report

    async def _show(self, who: Asking, record: RunRecord[S]) -> dict[str, Any]:
        return (await self.shown([record], who.scope))[0]

    def _answer(self, shown: dict[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
        return shown | ({"warnings": list(warnings)} if self._strategy.has_leases else {})

    async def _open(self, who: Who, name: str) -> RunRecord[S]:
        """Return the record of a run that is not being deleted. The caller holds its lock."""
        record = callers.seen(who, await self.current(who.org, name))
        if record is None:
            raise RequestError(404, self.kind.not_found)
        await self._refuse_if_ending(record)
        return record

    async def _create(self, who: Who, name: str, wanted: Wanted[S]) -> Any:
        shelf, now = self._store.of(who.org), _now()
        cluster = await self._strategy.cluster(who, wanted.spec)
        link = self._links.of(who.org, cluster)
        if link is None:
            await shelf.read(lambda rows: self._check_cluster(rows, who, cluster))
        place = link.place() if link is not None else CompileTarget(publisher=who.org, declares=False)

        def understand(rows: Rows) -> tuple[RunRecord[S], Compiled]:
            record = RunRecord(
                org=who.org,
                uid=str(uuid.uuid4()),
                name=name,
                routing_key="".join(secrets.choice(_KEY_LETTERS) for _ in range(ROUTING_KEY_LENGTH)),
                cluster=cluster,
                spec=self._strategy.resolve(rows, wanted.spec, place),
                created_at=now,
                updated_at=now,
                lease_seconds=wanted.lease,
                unmatched_since=now,
            )
            return record, run_specs.compiled(rows, record, place, {})

        record, compiled = await shelf.read(understand)

        def save(rows: Rows) -> RunRecord[S]:
            if link is None or link.shared:
                self._check_cluster(rows, who, cluster)  # it may have been removed since
            self._strategy.check_room(rows, record)
            return self._save(rows, who, "create", record)

        async with self._strategy.keep_secrets(record, compiled, wanted.secrets):
            if link is not None:
                await link.admit(compiled.documents, compiled.forks)
            record = await shelf.write(save)
        await self._sync.tell_soon(record, CompiledRun(compiled, place, {}))
        return self._answer(await self._show(who, record), compiled.warnings)

    async def _change(self, who: Who, record: RunRecord[S], wanted: S, lease: int) -> Any:
        spec = self._strategy.changed(record.spec, wanted)
        warnings: tuple[str, ...] = ()
        if spec != record.spec:
            # It rises also if the clock does not: it says which of two specs is newer.
            changed = msgspec.structs.replace(record, spec=spec, updated_at=max(_now(), record.updated_at + 1))
            compiled = await self._strategy.compile_change(changed)
            record = await self._store.of(record.org).write(lambda rows: self._save(rows, who, "change", changed))
            await self._sync.tell_soon(record, compiled)
            warnings = compiled.compiled.warnings if compiled else ()
        if lease:
            await self._renew(who, record, lease)
        return self._answer(await self._show(who, record), warnings)

    async def _renew(self, who: Who, record: RunRecord[S], seconds: int) -> int:
        until = await self._sync.renew(record, seconds)
        if until is None:
            message = (await self._report(record)).message
            text = f"{self.kind.noun} {quote(record.name)} has no run that a lease could keep: {message}"
            raise RequestError(409, text)
        if record.lease_seconds != seconds:
            renewed = msgspec.structs.replace(record, lease_seconds=seconds)
            await self._store.of(record.org).write(lambda rows: self._save(rows, who, "change", renewed))
        return until

    async def _end(self, who: Who, name: str, give_up: Abandonment | None, when: Preconditions = ANY) -> None:
        async with self.lock(who.org, name):
            record = callers.seen(who, await self.current(who.org, name))
            when.check(record.version if record else None)
            if record is None:
                # A request that is sent again because its answer was lost is answered as before.
                shelf = self._store.of(who.org)
                if callers.seen(who, await shelf.read(lambda rows: tombstones.find(rows, self.kind, name))) is None:
                    raise RequestError(404, self.kind.not_found)
                return
            if give_up is not None and not give_up.forced:
                refuse_too_early(record, await self._report(record))
            stop = end_request(Reason.DELETED, "deleted", who.words)
            await self.mark_ended(who, record, stop, give_up.request if give_up else None)

    def _save(self, rows: Rows, who: Who | None, action: str, record: RunRecord[S]) -> RunRecord[S]:
        if who is not None:
            audit.note(rows, who, action, f"{self.kind.plural}/{record.name}", msgspec.json.encode(record.spec))
        return run_records.save(rows, record, declares=self._strategy.declares(rows, record))

    def _check_cluster(self, rows: Rows, who: Who, cluster: str) -> None:
        """Refuse a cluster that no host serves and that was not added for an agent."""
        added = clusters.names(rows)
        if cluster not in added:
            there = filter(who.scope.takes_cluster, (added | self._links.clusters(rows.org)) - {cluster})
            known = ", ".join(sorted(there)) or "none yet"
            text = f"no cluster {quote(cluster)}; this server has {known}; {self._strategy.cluster_hint}"
            raise SpecError(text, ("spec", "cluster"))

    def _refuse_elsewhere(self, who: Who, cluster: str, record: RunRecord[S] | None) -> None:
        """Refuse a spec for a cluster outside the key's scope, or with the name of a run in such a cluster."""
        if record is not None and not who.scope.takes_cluster(record.where):
            raise outside(who.scope, f"a {self.kind.noun} of that name lives in another cluster, which")
        if not who.scope.takes_cluster(cluster):
            raise outside(who.scope, f"cluster {quote(cluster)}" if cluster else f"a {self.kind.noun} of all clusters")

    async def _refuse_if_ending(self, record: RunRecord[S]) -> None:
        report = await self._report(record)
        if record.stop is not None or report.phase is not Phase.OPEN:
            text = f"{self.kind.noun} {quote(record.name)} is being deleted and waits for: {report.message}"
            raise RequestError(409, f"{text}; apply it again once it is gone")


def _now() -> int:
    return time.time_ns() // 1_000_000
