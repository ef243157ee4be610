"""Sandboxes: wished by PUT, ended by DELETE, told about by GET. All work goes on behind the answer."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.control import audit, auth, clusters, endpoints, lifetimes, lives, preconditions, records, vault, wishes
from dayfly.control.attention import tone
from dayfly.control.errors import SANDBOX_NOT_FOUND, ApiError
from dayfly.control.exchange import flag, labels_asked, read_json, rfc3339, serve, whole_number
from dayfly.control.lives import Told
from dayfly.control.preconditions import ANY, Tagged
from dayfly.control.records import Record
from dayfly.control.scopes import WHOLE
from dayfly.control.shelves import Meant
from dayfly.control.store import again
from dayfly.link.transport import HERE, Place
from dayfly.plan.reasons import Reason
from dayfly.plan.status import limited
from dayfly.spec import documents
from dayfly.spec.errors import Faults, SpecError, quote
from dayfly.spec.run import Phase
from dayfly.spec.sandbox import Sandbox
from dayfly.spec.scalars import label_selector
from dayfly.spec.unsupported_fields import unserved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.compile import Compiled
    from dayfly.control.audit import Who
    from dayfly.control.auth import Asking
    from dayfly.control.host_sync import HostSync
    from dayfly.control.preconditions import Preconditions
    from dayfly.control.rows import Rows
    from dayfly.control.scopes import Scope
    from dayfly.control.store import Store
    from dayfly.control.vault import Given, Vaults
    from dayfly.link.server_end import Links
    from dayfly.link.wire import Standing


class Sandboxes:
    """The addresses below `/sandboxes` that clients of the public API know, and those that change a sandbox."""

    def __init__(self, store: Store, links: Links, sync: HostSync, vaults: Vaults) -> None:
        self._store = store
        self._links = links
        self._sync = sync
        self._vaults = vaults

    def routes(self) -> list[Route]:
        """All of them."""
        at = "/orgs/{org}/sandboxes"
        one = at + "/{name}"
        return [
            serve(at, GET=self.list_all),
            serve(one, GET=self.get, PUT=self.put, DELETE=self.delete),
            serve(one + "/abandon", POST=self.abandon),
            serve(one + "/retry", POST=self.retry),
            serve(one + "/lease", PUT=self.lease),
            serve(one + "/extend", POST=self.extend),
            serve(one + "/status/explain", GET=self.explain),
        ]

    async def list_all(self, request: Request) -> Any:
        """All, or with `label` in the query those whose labels fulfil it."""
        terms, after, who = labels_asked(request), request.query_params.get("after", ""), auth.caller(request)
        limit, shelf = whole_number(request, "limit", 0, least=1), self._store.of(who.org)
        takes = None
        if terms or not who.scope.is_whole:
            takes = lambda record: label_selector.takes(terms, record.spec.labels) and auth.seen(who, record)  # noqa: E731
        found: list[Record] = []
        while True:
            most = limit - len(found) if limit else 0
            read = await shelf.read(lambda rows: records.living(rows, after, takes=takes, most=most))  # noqa: B023
            found += [record for record in read if not self._has_ended(record)]
            if not limit or len(found) == limit or len(read) < most:
                return list((await self.shown(found)).values())
            after = read[-1].name

    async def shown(self, records_: Sequence[Record]) -> dict[str, dict[str, Any]]:
        """Sandboxes as clients know them, by name."""
        told = await self.told(records_)
        return {record.name: self._wire(record, told[record.uid]) for record in records_}

    async def get(self, request: Request) -> Any:
        record = await self._get(request)
        return Tagged(await self._shown(record), record.version)

    async def put(self, request: Request) -> Any:
        name = request.path_params["name"]
        body = await read_json(request)
        given = vault.taken_out(body)
        wish = documents.from_wire(body, "Sandbox", name=name)
        assert isinstance(wish, Sandbox), "asked for by its kind"
        lease = lives.lease_seconds(body.get("lease"), ("lease",)) if body.get("lease") is not None else 0
        who, when = audit.who(request), preconditions.read(request)
        return await again(lambda: self._put(who, name, wish, lease, given, when))

    async def _put(self, who: Who, name: str, wish: Sandbox, lease: int, given: Given, when: Preconditions) -> Any:
        org = who.org
        async with self._sync.lock(org, name):
            record = await self._living(org, name)
            lives.refuse_elsewhere(who, "sandbox", wish.spec.cluster, record.where if record else None)
            when.check(record.version if record else None)
            if record is None:
                return await self._create(who, wish, lease, given)
            await self._refuse_if_ending(record)
            self._vaults.refuse_others(record, given)
            return await self._change(who, record, wish, lease)

    async def delete(self, request: Request) -> Any:
        who, name = audit.who(request), request.path_params["name"]
        give_up = lives.forced_deletion(who.words) if flag(request, "force") else None
        when = preconditions.read(request)
        await again(lambda: self._end(who, name, give_up, when))
        return {}

    async def abandon(self, request: Request) -> Any:
        who, name = audit.who(request), request.path_params["name"]
        give_up = lives.abandonment(await read_json(request), who.words)
        await again(lambda: self._end(who, name, give_up))
        return {}

    async def lease(self, request: Request) -> Any:
        who, name = audit.who(request), request.path_params["name"]
        seconds = lives.lease_seconds(await read_json(request), ())
        return await again(lambda: self._lease(who, name, seconds))

    async def _lease(self, who: Who, name: str, seconds: int) -> Any:
        async with self._sync.lock(who.org, name):
            record = auth.seen(who, await self._living(who.org, name))
            if record is None:
                raise ApiError(404, SANDBOX_NOT_FOUND)
            await self._refuse_if_ending(record)
            return {"seconds": seconds, "until": rfc3339(await self._renew(who, record, seconds))}

    async def extend(self, request: Request) -> Any:
        """Let it live until a moment at least; what lives longer anyway is left as it is."""
        who, name, body = audit.who(request), request.path_params["name"], await read_json(request)
        return await again(lambda: self._extend(who, name, body))

    async def _extend(self, who: Who, name: str, body: Any) -> Any:
        async with self._sync.lock(who.org, name):
            record = auth.seen(who, await self._living(who.org, name))
            if record is None:
                raise ApiError(404, SANDBOX_NOT_FOUND)
            await self._refuse_if_ending(record)
            if record.spec.ttl is None:
                raise lifetimes.refuse_endless(f"sandbox {quote(name)}")
            ttl, wanted = record.spec.ttl, lifetimes.until(body, record.spec.ttl.seconds)
            begin = _now() if ttl.offset_from == "updatedAt" else record.created_at
            if duration := lifetimes.longer(begin, record.expires_at, wanted):
                spec = msgspec.structs.replace(record.spec, ttl=msgspec.structs.replace(ttl, duration=duration))
                return await self._change(who, record, Sandbox(name=name, spec=spec), 0)
            return await self._shown(record)

    async def retry(self, request: Request) -> Any:
        """End the back-off of what waits to be tried again: of one unit, or of all."""
        who, body, record = audit.who(request), await read_json(request), await self._get(request)
        report = (await self.told([record]))[record.uid].report

        async def noted() -> None:
            what = f"sandboxes/{record.name}"
            await self._store.of(who.org).write(lambda rows: audit.note(rows, who, "retry", what))

        return await lives.retried(self._sync.link(record), report, body, who, noted, "sandbox", record.name)

    async def explain(self, request: Request) -> Any:
        name = (await self._get(request)).name
        text = f"there are no explanations at that address; GET .../sandboxes/{name}/why says what holds it up"
        raise ApiError(501, text)

    async def find(self, who: Asking, name: str) -> Record | None:
        """The living sandbox of that name, for whoever asks."""
        record = await self._store.of(who.org).read(lambda rows: records.find(rows, name))
        if record is not None and self._has_ended(record):
            async with self._sync.lock(who.org, name):
                record = await self._living(who.org, name)
        return auth.seen(who, record)

    async def told(self, records_: Sequence[Record], _scope: Scope = WHOLE) -> dict[str, Told]:
        """What the sandboxes' runs are doing, by uid, with what their hosts do not know yet, or never will."""
        by_cluster: dict[tuple[str, str], list[Record]] = {}
        for record in records_:
            by_cluster.setdefault((record.org, record.cluster), []).append(record)
        found: dict[str, Told] = {}
        asked = {
            where: [each.uid for each in ours if not self._sync.awaits_first_answer(each)]
            for where, ours in by_cluster.items()
        }
        looked = await self._links.look(asked)
        for where, ours in by_cluster.items():
            link, (standings, silent) = self._links.of(*where), looked[where]
            for record in ours:
                standing = standings.get(record.uid)
                stale = silent and not (link and standing and link.state.is_fresh(standing))
                found[record.uid] = self._told(record, standing, silent if stale else "")
        return found

    def _told(self, record: Record, standing: Standing | None, silent: str) -> Told:
        asked_in_vain = silent and f"the cluster cannot be asked at the moment: {silent}"
        trouble = self._sync.trouble(record.uid) or asked_in_vain
        report = standing.report if standing else None
        link = self._sync.link(record)
        place = link.place() if link is not None else HERE
        # What nobody has said of itself yet may lead requests.
        routes = place.routes or (link is not None and not link.has_met)
        spec = documents.export(record.sandbox)["spec"]
        in_vain = unserved(spec, by_name=place.declares, routes=routes, local=place.to_local)
        return Told(
            limited(lives.with_trouble(record, report, trouble, refused=self._sync.refuses(record.uid)), in_vain),
            endpoints.describe(record.spec, standing.endpoints if standing else (), routes=routes),
            standing.seq if standing else None,
        )

    async def _get(self, request: Request) -> Record:
        record = await self.find(auth.caller(request), request.path_params["name"])
        if record is None:
            raise ApiError(404, SANDBOX_NOT_FOUND)
        return record

    def _has_ended(self, record: Record) -> bool:
        link = self._sync.link(record)
        return link is not None and link.state.has_ended(record.uid)

    async def _living(self, org: str, name: str) -> Record | None:
        """The stored sandbox, unless its run is over: then it leaves the store. The caller holds the name's lock."""
        record = await self._store.of(org).read(lambda rows: records.find(rows, name))
        return None if record is None or await self._sync.is_over(record) else record

    async def _create(self, who: Who, wish: Sandbox, lease: int, given: Given) -> Any:
        org, cluster = who.org, wish.spec.cluster
        link = self._links.of(org, cluster)
        if link is None:
            await self._store.of(org).read(lambda rows: self._check_cluster(rows, who, cluster))
        now = _now()
        place = link.place() if link is not None else Place(publisher=org, declares=False)

        def understand(rows: Rows) -> tuple[Record, Compiled]:
            faults, spec = Faults(), wish.spec
            with faults:
                spec = wishes.resolve(rows, spec)
            with faults:
                if place.declares:
                    wishes.check_baselines(rows, spec)
            faults.settle()
            record = Record(
                org=org,
                uid=str(uuid.uuid4()),
                name=wish.name,
                routing_key=lives.new_routing_key(),
                spec=spec,
                created_at=now,
                updated_at=now,
                lease_seconds=lease,
            )
            return record, wishes.compiled(rows, record, place, {})

        record, compiled = await self._store.of(org).read(understand)

        def save(rows: Rows) -> Record:
            if link is None or link.shared:
                self._check_cluster(rows, who, cluster)  # it may have been removed meanwhile
            _note(rows, who, "create", record)
            return records.save(rows, record, declares=place.declares)

        async with self._vaults.kept(record, compiled, given):
            if link is not None:
                await link.admit(compiled.documents, compiled.forks)
            record = await self._store.of(org).write(save)
        await self._sync.tell_soon(record, Meant(compiled, place, {}))
        return await self._shown(record) | {"warnings": list(compiled.warnings)}

    def _check_cluster(self, rows: Rows, who: Who, cluster: str) -> None:
        """Refuse a cluster that nobody serves and nobody has added for an agent to connect."""
        added = clusters.names(rows)
        if cluster not in added:
            there = filter(who.scope.takes_cluster, (added | self._links.clusters(rows.org)) - {cluster})
            known = ", ".join(sorted(there)) or "none yet"
            how = "one machine can be several: dayfly up --cluster NAME; one with an agent: dayfly cluster add NAME"
            raise SpecError(f"no cluster {quote(cluster)}; this server has {known}; {how}", ("spec", "cluster"))

    async def _change(self, who: Who, record: Record, wish: Sandbox, lease: int) -> Any:
        spec = wishes.changed(record.spec, wish.spec)
        warnings: tuple[str, ...] = ()
        if spec != record.spec:
            # It rises also where the clock does not: of two forms of a wish it says which is newer.
            changed = msgspec.structs.replace(record, spec=spec, updated_at=max(_now(), record.updated_at + 1))
            link = self._sync.link(record)
            place = link.place() if link is not None else HERE
            if place.routes:
                await self._sync.grouped(record.org)
            keys = self._sync.routed(changed.org, changed.uid)

            def understand(rows: Rows) -> Compiled:
                if self._declares(rows, changed):
                    wishes.check_baselines(rows, spec)
                return wishes.compiled(rows, changed, place, keys)

            compiled = await self._store.of(record.org).read(understand)
            if link is not None:
                await link.admit(compiled.documents, compiled.forks)
            record = await self._store.of(changed.org).write(lambda rows: self._save(rows, who, changed))
            await self._sync.tell_soon(record, Meant(compiled, place, keys))
            warnings = compiled.warnings
        if lease:
            await self._renew(who, record, lease)
        return await self._shown(record) | {"warnings": list(warnings)}

    async def _renew(self, who: Who, record: Record, seconds: int) -> int:
        until = await self._sync.renew(record, seconds)
        if until is None:
            raise ApiError(
                409, f"sandbox {quote(record.name)} has no run that a lease could keep: {await self._words(record)}"
            )
        if record.lease_seconds != seconds:
            renewed = msgspec.structs.replace(record, lease_seconds=seconds)
            await self._store.of(renewed.org).write(lambda rows: self._save(rows, who, renewed))
        return until

    async def _end(self, who: Who, name: str, give_up: lives.Abandonment | None, when: Preconditions = ANY) -> None:
        """Mark a sandbox for its end and tell its host; what was asked for before stays as it was."""
        org = who.org
        async with self._sync.lock(org, name):
            record = auth.seen(who, await self._living(org, name))
            when.check(record.version if record else None)
            if record is None:
                # A request that is sent again because its answer was lost is answered as before.
                if auth.seen(who, await self._store.of(org).read(lambda rows: records.trace(rows, name))) is None:
                    raise ApiError(404, SANDBOX_NOT_FOUND)
                return
            if give_up is not None and not give_up.forced:
                lives.refuse_too_early(record, (await self.told([record]))[record.uid].report, "sandbox")
            stop = record.stop or lives.end_request(Reason.DELETED, "deleted", who.words)
            abandon = record.abandon or (give_up.request if give_up else None)
            marked = msgspec.structs.replace(record, stop=stop, abandon=abandon)
            if marked != record and (
                stored := await self._store.of(org).write(lambda rows: self._mark(rows, who, marked))
            ):
                await self._sync.tell_soon(stored)

    def _save(self, rows: Rows, who: Who, record: Record) -> Record:
        _note(rows, who, "change", record)
        return records.save(rows, record, declares=self._declares(rows, record))

    def _declares(self, rows: Rows, record: Record) -> bool:
        """Whether its forks derive from baselines that are declared here."""
        link = self._sync.link(record)
        return link.place().declares if link is not None else record.cluster not in clusters.names(rows)

    def _mark(self, rows: Rows, who: Who, marked: Record) -> Record | None:
        """Write down an end that is asked for. Nothing is left to tell of one that nobody has ever heard of."""
        stored = records.save(rows, marked, declares=self._declares(rows, marked))
        _note(rows, who, "abandon" if marked.abandon else "delete", marked)
        if not clusters.is_unheard(rows, marked.cluster, self._sync.link(marked)):
            return stored
        records.archive(rows, marked, _now())
        return None

    async def _refuse_if_ending(self, record: Record) -> None:
        report = (await self.told([record]))[record.uid].report
        if record.stop is not None or report.phase is not Phase.OPEN:
            text = f"sandbox {quote(record.name)} is being deleted and waits for: {report.message}"
            raise ApiError(409, f"{text}; apply it again once it is gone")

    async def _words(self, record: Record) -> str:
        return (await self.told([record]))[record.uid].report.message

    async def _shown(self, record: Record) -> dict[str, Any]:
        return self._wire(record, (await self.told([record]))[record.uid])

    def _wire(self, record: Record, told: Told) -> dict[str, Any]:
        report = told.report
        status: dict[str, Any] = {"ready": report.ready, "reason": report.reason, "message": report.message}
        if report.unserved:
            status["unserved"] = report.unserved
        if record.expires_at:
            status["scheduledDeleteTime"] = rfc3339(record.expires_at)
            if soon := lifetimes.conditions(record.life_begins_at, record.expires_at):
                status["conditions"] = soon
        return {
            "name": record.name,
            "routingKey": record.routing_key,
            "createdAt": rfc3339(record.created_at),
            "updatedAt": rfc3339(record.updated_at),
            "spec": wishes.with_bare_names(documents.export(record.sandbox)["spec"]),
            "endpoints": told.endpoints,
            "status": status,
            "progress": {
                "phase": report.phase.value,
                "done": report.done,
                "total": report.total,
                "tone": tone(report).name.lower(),
            },
        }


def _note(rows: Rows, who: Who, action: str, record: Record) -> None:
    audit.note(rows, who, action, f"sandboxes/{record.name}", msgspec.json.encode(record.spec))


def _now() -> int:
    return time.time_ns() // 1_000_000
