"""Route groups: wished by PUT, ended by DELETE, told about by GET. All work goes on behind the answer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.control import audit, auth, clusters, group_records, lifetimes, lives, preconditions, shelves
from dayfly.control.errors import GROUP_NOT_FOUND, ApiError
from dayfly.control.exchange import chosen, flag, labels_asked, page, read_json, serve
from dayfly.control.group_keys import GroupKeys
from dayfly.control.group_records import GroupRecord
from dayfly.control.group_standings import GroupStandings
from dayfly.control.lives import Told, end_request, new_routing_key, retried
from dayfly.control.preconditions import ANY, Tagged
from dayfly.control.scopes import WHOLE
from dayfly.control.store import StoreError, again
from dayfly.control.unreadable import UnreadableError
from dayfly.control.wishes import refuse_changes
from dayfly.control.worked import Worked
from dayfly.link.transport import HERE
from dayfly.plan.reasons import Reason
from dayfly.spec import documents
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.route_group import MAY_CHANGE, NO_MATCHED_SANDBOXES, RouteGroup
from dayfly.spec.run import Phase
from dayfly.spec.scalars import label_selector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.control.audit import Who
    from dayfly.control.auth import Asking
    from dayfly.control.host_sync import HostSync
    from dayfly.control.preconditions import Preconditions
    from dayfly.control.rows import Rows
    from dayfly.control.scopes import Scope
    from dayfly.control.store import Store
    from dayfly.link.server_end import Links
    from dayfly.spec.run import Request as EndRequest

MOST_GROUPS = 1_000
SWEEP_S, LONGEST_PAUSE_S, PAUSE_PER_WORK = 2.0, 30.0, 99
SOON_PER_WORK = 9

log = logging.getLogger(__name__)


class RouteGroups:
    """The addresses below `/routegroups`, and the end of groups for which nobody is left."""

    def __init__(self, store: Store, links: Links, sync: HostSync) -> None:
        self._store = store
        self._links = links
        self._sync = sync
        self.standings = GroupStandings(store, links, sync)
        self._crowd = self.standings.crowd
        self._keys = GroupKeys(store, sync, self._crowd)

    def routes(self) -> list[Route]:
        """All of them."""
        at = "/orgs/{org}/routegroups"
        one = at + "/{name}"
        return [
            serve(at, GET=self.list_all),
            serve(one, GET=self.get, PUT=self.put, DELETE=self.delete),
            serve(one + "/abandon", POST=self.abandon),
            serve(one + "/retry", POST=self.retry),
            serve(one + "/extend", POST=self.extend),
        ]

    async def list_all(self, request: Request) -> Any:
        """All, or with `label` those whose labels fulfil it, with `sandbox` those that have that sandbox now."""
        terms, after = labels_asked(request), request.query_params.get("after", "")
        who, has = auth.caller(request), chosen(request, "sandbox")
        found = await self._store.of(who.org).read(lambda rows: group_records.living(rows, after))
        ours = [record for record in found if auth.seen(who, record)]
        shown = [
            record for record in ours if label_selector.takes(terms, record.spec.labels) and not self._has_ended(record)
        ]
        if has:
            shown = (await self.standings.look(who.org))[0].having(has, shown) if who.scope.takes_name(has) else []
        return await self.standings.shown(page(request, shown), who.scope)

    async def get(self, request: Request) -> Any:
        record = await self._get(request)
        return Tagged(await self._shown(auth.caller(request), record), record.version)

    async def put(self, request: Request) -> Any:
        who, name = audit.who(request), request.path_params["name"]
        wish = documents.from_wire(await read_json(request), "RouteGroup", name=name)
        assert isinstance(wish, RouteGroup), "asked for by its kind"
        when = preconditions.read(request)
        return await again(lambda: self._put(who, wish, when))

    async def _put(self, who: Who, wish: RouteGroup, when: Preconditions) -> Any:
        async with self._lock(who.org, wish.name):
            record = await self._living(who.org, wish.name)
            lives.refuse_elsewhere(who, "route group", wish.spec.cluster, record.where if record else None)
            when.check(record.version if record else None)
            if record is None:
                return await self._create(who, wish)
            await self._refuse_if_ending(record)
            return await self._change(who, record, wish)

    async def delete(self, request: Request) -> Any:
        who, name = audit.who(request), request.path_params["name"]
        stop = end_request(Reason.DELETED, "deleted", who.words)
        give_up = lives.forced_deletion(who.words) if flag(request, "force") else None
        when = preconditions.read(request)
        await again(lambda: self._end(who, name, stop, give_up, when))
        return {}

    async def abandon(self, request: Request) -> Any:
        who, name = audit.who(request), request.path_params["name"]
        give_up = lives.abandonment(await read_json(request), who.words)
        stop = end_request(Reason.DELETED, "deleted", who.words)
        await again(lambda: self._end(who, name, stop, give_up))
        return {}

    async def retry(self, request: Request) -> Any:
        """End the back-off of what waits to be tried again: of one hook, or of all."""
        who, record, body = audit.who(request), await self._get(request), await read_json(request)
        report = (await self.told([record]))[record.uid].report

        async def noted() -> None:
            what = f"routegroups/{record.name}"
            await self._store.of(who.org).write(lambda rows: audit.note(rows, who, "retry", what))

        return await retried(self._sync.link(record), report, body, who, noted, "route group", record.name)

    async def extend(self, request: Request) -> Any:
        """Let it live until a moment at least; what lives longer anyway is left as it is."""
        who, name, body = audit.who(request), request.path_params["name"], await read_json(request)
        return await again(lambda: self._extend(who, name, body))

    async def _extend(self, who: Who, name: str, body: Any) -> Any:
        async with self._lock(who.org, name):
            record = auth.seen(who, await self._living(who.org, name))
            if record is None:
                raise ApiError(404, GROUP_NOT_FOUND)
            await self._refuse_if_ending(record)
            ttl = record.spec.ttl
            if ttl is None:
                raise lifetimes.refuse_endless(f"route group {quote(name)}")
            await self._crowd(who.org).refresh()
            begin, end = self.standings.life(record)
            if not end:
                text = f"route group {quote(name)} ends {ttl.duration} after its last sandbox, and it has sandboxes"
                raise ApiError(409, f"{text}: there is nothing to extend yet")
            if duration := lifetimes.longer(begin, end, lifetimes.until(body, ttl.seconds)):
                spec = msgspec.structs.replace(record.spec, ttl=msgspec.structs.replace(ttl, duration=duration))
                return await self._change(who, record, RouteGroup(name=name, spec=spec))
            return await self._shown(who, record)

    # --- what `Reports` asks ------------------------------------------------------------------------------------------

    async def find(self, who: Asking, name: str) -> GroupRecord | None:
        """The living route group of that name, for whoever asks."""
        record = await self._store.of(who.org).read(lambda rows: group_records.find(rows, name))
        if record is not None and self._has_ended(record):
            async with self._lock(who.org, name):
                record = await self._living(who.org, name)
        return auth.seen(who, record)

    async def told(self, records_: Sequence[GroupRecord], scope: Scope = WHOLE) -> dict[str, Told]:
        """As `GroupStandings.told`."""
        return await self.standings.told(records_, scope)

    # --- the server's own work ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Note who has nobody left, and end those whose time is over for that, until cancelled."""
        while True:
            round_ = Worked(self.sweep())
            try:
                await round_
            except StoreError as fault:
                log.warning("the store cannot be used now: %s", fault)
            except Exception:
                # One faulty round must not end all others.
                log.exception("a round over the route groups failed")
            await self._pause(round_.seconds)

    async def _pause(self, worked: float) -> None:
        """Until the next round: a while, or, where keys lead somewhere, soon after anything has changed."""
        self._sync.told.clear()
        pause = max(SWEEP_S, min(LONGEST_PAUSE_S, PAUSE_PER_WORK * worked))
        if not any(link.place().routes for link in self._links.each()):
            await asyncio.sleep(pause)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._sync.told.wait(), pause)
        await asyncio.sleep(min(pause, SOON_PER_WORK * worked))

    async def sweep(self) -> None:
        """One round."""
        there = {entry.org for entry in await self._store.everywhere().read(group_records.roll)}
        for org in sorted(there | self._keys.orgs()):
            try:
                await self._sweep(org)
            except StoreError:
                raise
            except UnreadableError as fault:
                fault.say()
            except Exception:
                # One organisation's fault must not stop the round over the others.
                log.exception("a round over the route groups of %s failed", org)

    async def _sweep(self, org: str) -> None:
        groups_ = await self._crowd(org).refresh()
        if not self._crowd(org).is_whole:
            return  # whoever seems to have nobody left may have one that cannot be read
        await self._keys.follow(org, groups_)
        for record in groups_:
            if record.stop is None and (self._is_unnoted(record) or self._is_over(record)):
                await again(functools.partial(self._settle, org, record.name))

    async def _settle(self, org: str, name: str) -> None:
        async with self._lock(org, name):
            record = await self._living(org, name)
            await self._crowd(org).refresh()
            if record is None or record.stop is not None or not self._crowd(org).is_whole:
                return
            if self._is_unnoted(record):
                since = 0 if self._crowd(org).of(record) else _now()
                noted = msgspec.structs.replace(record, unmatched_since=since)
                await self._store.of(org).write(lambda rows: group_records.save(rows, noted))
            elif self._is_over(record):
                await self._mark(None, record, end_request(Reason.EXPIRED, "its time to live is over", ""), None)

    def _is_unnoted(self, record: GroupRecord) -> bool:
        return bool(self._crowd(record.org).of(record)) != (record.unmatched_since == 0)

    def _is_over(self, record: GroupRecord) -> bool:
        """Whether nobody has matched for as long as it may live so; ends by the clock alone are its host's business."""
        counts = record.spec.ttl is not None and record.spec.ttl.offset_from == NO_MATCHED_SANDBOXES
        return counts and not self._crowd(record.org).of(record) and 0 < record.ends_at <= _now()

    # --- one group ----------------------------------------------------------------------------------------------------

    def _lock(self, org: str, name: str) -> asyncio.Lock:
        return self._sync.lock(org, f"{shelves.GROUP}{name}")

    async def _shown(self, who: Asking, record: GroupRecord) -> dict[str, Any]:
        return (await self.standings.shown([record], who.scope))[0]

    async def _get(self, request: Request) -> GroupRecord:
        record = await self.find(auth.caller(request), request.path_params["name"])
        if record is None:
            raise ApiError(404, GROUP_NOT_FOUND)
        return record

    def _has_ended(self, record: GroupRecord) -> bool:
        link = self._sync.link(record)
        return link is not None and link.state.has_ended(record.uid)

    async def _living(self, org: str, name: str) -> GroupRecord | None:
        """The stored group, unless its run is over: then it leaves the store. The caller holds the name's lock."""
        record = await self._store.of(org).read(lambda rows: group_records.find(rows, name))
        return None if record is None or await self._sync.is_over(record) else record

    async def _create(self, who: Who, wish: RouteGroup) -> Any:
        shelf, now = self._store.of(who.org), _now()
        added = await shelf.read(clusters.names)
        known = sorted(filter(who.scope.takes_cluster, added | self._links.clusters(who.org)))
        cluster = wish.spec.cluster or self._first_of(who.org, known)
        if cluster not in known:
            raise _no_cluster(cluster, known)
        record = GroupRecord(
            org=who.org,
            uid=str(uuid.uuid4()),
            name=wish.name,
            routing_key=new_routing_key(),
            cluster=cluster,
            spec=wish.spec,
            created_at=now,
            updated_at=now,
            unmatched_since=now,
        )
        link = self._sync.link(record)
        place = link.place() if link is not None else HERE
        compiled = await shelf.read(lambda rows: shelves.compiled(rows, record, place, {}))
        if link is not None:
            await link.admit(compiled.documents, compiled.forks)

        def save(rows: Rows) -> GroupRecord:
            if (link is None or link.shared) and cluster not in clusters.names(rows):
                raise _no_cluster(cluster, known)  # it was removed meanwhile
            there = sum(each.name != record.name for each in group_records.roll(rows))
            if there >= MOST_GROUPS:
                raise ApiError(409, f"there are {there} route groups, and more are not allowed: delete some first")
            return _save(rows, who, "create", record)

        stored = await shelf.write(save)
        await self._sync.tell_soon(stored, shelves.Meant(compiled, place, {}))
        return await self._shown(who, stored)

    def _first_of(self, org: str, known: list[str]) -> str:
        """Where a group has its run that names no cluster: the first connected one, or else the first."""
        met = [name for name in known if (link := self._links.of(org, name)) is not None and link.has_met]
        return next(iter(met or known), "")

    async def _change(self, who: Who, record: GroupRecord, wish: RouteGroup) -> Any:
        refuse_changes(record.spec, wish.spec, MAY_CHANGE, "route group")
        if wish.spec != record.spec:
            # It rises also where the clock does not: of two forms of a wish it says which is newer.
            at = max(_now(), record.updated_at + 1)
            changed = msgspec.structs.replace(record, spec=wish.spec, updated_at=at)
            record = await self._store.of(record.org).write(lambda rows: _save(rows, who, "change", changed))
            await self._sync.tell_soon(record)
        return await self._shown(who, record)

    async def _end(
        self, who: Who, name: str, stop: EndRequest, give_up: lives.Abandonment | None, when: Preconditions = ANY
    ) -> None:
        """Mark a group for its end and tell its host; what was asked for before stays as it was."""
        async with self._lock(who.org, name):
            record = auth.seen(who, await self._living(who.org, name))
            when.check(record.version if record else None)
            if record is not None:
                if give_up is not None and not give_up.forced:
                    lives.refuse_too_early(record, (await self.told([record]))[record.uid].report, "route group")
                await self._mark(who, record, stop, give_up.request if give_up else None)
            elif (
                auth.seen(who, await self._store.of(who.org).read(lambda rows: group_records.trace(rows, name))) is None
            ):
                # A request that is sent again because its answer was lost is answered as before.
                raise ApiError(404, GROUP_NOT_FOUND)

    async def _mark(self, who: Who | None, record: GroupRecord, stop: EndRequest, give_up: EndRequest | None) -> None:
        """`who` is None where it is the server's own doing."""
        marked = msgspec.structs.replace(record, stop=record.stop or stop, abandon=record.abandon or give_up)
        if marked == record:
            return

        def write(rows: Rows) -> tuple[GroupRecord, bool]:
            action = "abandon" if marked.abandon else "delete"
            stored = _save(rows, who, action, marked) if who is not None else group_records.save(rows, marked)
            # Nobody has ever heard of it: it is over already.
            over = clusters.is_unheard(rows, marked.cluster, self._sync.link(marked))
            if over:
                group_records.archive(rows, stored, _now())
            return stored, over

        stored, over = await self._store.of(record.org).write(write)
        if not over:
            await self._sync.tell_soon(stored)

    async def _refuse_if_ending(self, record: GroupRecord) -> None:
        report = (await self.told([record]))[record.uid].report
        if record.stop is not None or report.phase is not Phase.OPEN:
            text = f"route group {quote(record.name)} is being deleted and waits for: {report.message}"
            raise ApiError(409, f"{text}; apply it again once it is gone")


def _no_cluster(name: str, known: list[str]) -> SpecError:
    there = ", ".join(each for each in known if each != name) or "none yet"
    problem = f"no cluster {quote(name)}; this server has {there}; leave it out for sandboxes of any"
    return SpecError(problem, ("spec", "cluster"))


def _save(rows: Rows, who: Who, action: str, record: GroupRecord) -> GroupRecord:
    audit.note(rows, who, action, f"routegroups/{record.name}", msgspec.json.encode(record.spec))
    return group_records.save(rows, record)


def _now() -> int:
    return time.time_ns() // 1_000_000
