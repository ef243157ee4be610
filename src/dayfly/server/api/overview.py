"""Endpoints for the page: what needs attention, ended sandboxes, the plan of a sandbox, one output.

Other clients with the same role may use them, too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import shlex
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from dayfly import compile as compiler
from dayfly.lib.clock import now_ms
from dayfly.link.server_end import NO_ANSWER
from dayfly.link.transport import LOCAL_TARGET
from dayfly.server import attention
from dayfly.server.access import callers
from dayfly.server.admin import audit
from dayfly.server.api.attention_candidates import AttentionCandidates
from dayfly.server.api.reports import encode_text
from dayfly.server.api.silent_units import MuteUnits
from dayfly.server.attention import AttentionSubject, Concern, ReportedCheck, SilentCluster
from dayfly.server.catalog import run_specs
from dayfly.server.db.tables import agents, ended_route_groups, ended_sandboxes
from dayfly.server.http.errors import RequestError
from dayfly.server.http.forms import EndedRun
from dayfly.server.http.handler import serve
from dayfly.server.http.request_data import read_json, read_number, rfc3339
from dayfly.server.records import leak_records, resource_records, tombstones
from dayfly.server.records.run_records import GROUPS, POOLS, read_page
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.run import EndRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.compile import Compiled
    from dayfly.link.server_end import Links
    from dayfly.server.access.scopes import Scope
    from dayfly.server.api.silent_units import QueryLogs
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.runs.group_strategy import GroupStrategy
    from dayfly.server.runs.run_service import RunService
    from dayfly.server.runs.run_states import RunState
    from dayfly.spec.report import RunReport
    from dayfly.spec.resource_pool import ResourcePoolSpec
    from dayfly.spec.route_group import RouteGroupSpec
    from dayfly.spec.sandbox import SandboxSpec

PAGE_SIZE = 200
# An agent polls at least every 30 seconds; after this time its cluster counts as silent.
SILENT_MS = 90_000
# The newest tombstones without information about abandonment that are checked with the hosts.
MAX_UNKNOWN = 200


class OverviewApi:
    """The endpoints for the page."""

    def __init__(
        self,
        store: Store,
        links: Links,
        sandboxes: RunService[SandboxSpec],
        groups: RunService[RouteGroupSpec],
        pools: RunService[ResourcePoolSpec],
        strategy: GroupStrategy,
        problem: Callable[[str], str],
    ) -> None:
        """Create them; `problem` is as in `AttentionCandidates`."""
        self._store, self._links, self._sandboxes, self._groups = store, links, sandboxes, groups
        self._pools = pools
        self._strategy, self._problem = strategy, problem
        self._candidates: dict[str, AttentionCandidates] = {}
        # By organisation and UID: the concern about an ended run, or None if there is none. It never changes, unless
        # pool members of the run are still being cleaned up.
        self._ended: dict[str, dict[str, Concern | None]] = {}
        self._unfinished: set[str] = set()
        self._mute = MuteUnits()

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        org = "/orgs/{org}"
        services: tuple[RunService[Any], ...] = (self._sandboxes, self._groups)
        found = [
            serve(org + "/attention", GET=self.attention),
            serve(org + "/ended-sandboxes", GET=self.list_ended),
        ]
        for service in services:
            one = f"{org}/{service.kind.plural}/{{name}}"
            found.append(serve(one + "/plan", GET=functools.partial(self.plan, service)))
            found.append(serve(one + "/reveal", POST=functools.partial(self.reveal, service)))
        return found

    async def attention(self, request: Request) -> Any:
        """Return what needs attention, the most severe first."""
        who, now = callers.get_caller(request), now_ms()
        org, scope = who.org, who.scope
        candidates = self._candidates.setdefault(
            org, AttentionCandidates(self._store.for_org(org), self._links, self._problem)
        )
        marker, sandboxes = await candidates.read(now)
        pools, ended, silent, checks = await self._store.for_org(org).read(
            lambda rows: (
                read_page(rows, POOLS),
                _read_abandoned(rows),
                _read_silent_clusters(rows, now),
                leak_records.read_all(rows) if scope.is_whole else [],
            )
        )
        sandboxes = [each for each in sandboxes if scope.includes(each)]
        pools = [each for each in pools if scope.includes(each)]
        await self._query_ended(org, ended)
        ended = [
            (name, row)
            for name, row in ended
            if scope.includes_name(row.name) and scope.includes_cluster(tombstones.scope_cluster(row))
        ]
        silent = [each for each in silent if scope.includes_cluster(each.name)]
        states = await self._sandboxes.query_states(sandboxes)
        _, groups = await self._strategy.refresh(org)
        groups = [each for each in groups if scope.includes(each)]
        states |= await self._strategy.query_states(groups, scope)
        states |= await self._pools.query_states(pools, scope)
        mute = await self._mute.find(org, self._log_queries(org, (*sandboxes, *groups), states))
        subjects = [
            AttentionSubject(
                each.name, states[each.uid].report, each.life_begins_at, each.expires_at, mute.get(each.uid, ())
            )
            for each in sandboxes
        ]
        for group in groups:
            name, report = group.key, states[group.uid].report
            subjects.append(
                AttentionSubject(name, report, *self._strategy.current_lifetime(group), mute.get(group.uid, ()))
            )
        subjects += [AttentionSubject(each.key, states[each.uid].report, 0, 0) for each in pools]
        reported = [
            ReportedCheck(check, each.leaks_since) for each in checks if (check := each.decoded_report) is not None
        ]
        found = attention.find_concerns(subjects, now, silent, reported)
        candidates.dismiss(marker, sandboxes, {each.sandbox for each in found})
        abandoned = [each for name, row in ended if (each := self._describe_ended(org, name, row)) is not None]
        return attention.sort_concerns([*found, *abandoned], now)

    def _log_queries(
        self, org: str, runs: Iterable[RunRecord[Any]], states: dict[str, RunState]
    ) -> Iterator[tuple[RunReport, QueryLogs]]:
        """Yield for each run with a host its report and the function that queries its logs."""
        for each in runs:
            if (link := self._links.get(org, each.cluster)) is not None:
                yield states[each.uid].report, functools.partial(link.logs, each.uid)

    def _describe_ended(self, org: str, name: str, row: Any) -> Concern | None:
        """Return the concern about an ended run, as far as known."""
        known = self._ended.get(org, {})
        if row.uid not in known and row.abandoned and self._links.get(org, row.cluster) is None:
            # The cluster was removed, for example. If a host serves it again, it will be queried.
            return attention.describe_forgotten(name, row.ended_at, row.uid, served=False)
        return known.get(row.uid)

    async def _query_ended(self, org: str, ended: list[tuple[str, Any]]) -> None:
        """Query the hosts for ended runs whose cleanup was or may have been abandoned, and remember the concerns."""
        last = self._ended.get(org, {})
        known = self._ended[org] = {
            row.uid: last[row.uid] for _, row in ended if row.uid in last.keys() - self._unfinished
        }
        by_cluster: dict[str, list[tuple[str, Any]]] = {}
        for name, row in ended:
            if row.uid not in known:
                by_cluster.setdefault(row.cluster, []).append((name, row))
        answers = await self._links.query_statuses(
            {(org, key): [row.uid for _, row in rows] for key, rows in by_cluster.items()}
        )
        for cluster, rows in by_cluster.items():
            if (link := self._links.get(org, cluster)) is None:
                continue
            states, silence = answers[org, cluster]
            for name, row in rows:
                if row.uid not in states and row.abandoned and not silence:
                    # A cluster with an agent deletes its record of an ended run once this server has archived it.
                    known[row.uid] = attention.describe_forgotten(name, row.ended_at, row.uid)
                if (state := states.get(row.uid)) is None or (report := state.report) is None:
                    continue
                if report.abandon is None:
                    known[row.uid] = None
                    continue
                # A host that does not answer is queried again for the next request.
                with contextlib.suppress(*NO_ANSWER):
                    history = await link.history(row.uid)
                    known[row.uid] = attention.describe_abandoned(name, report, history, row.uid)
                    (self._unfinished.add if report.done < report.total else self._unfinished.discard)(row.uid)

    async def list_ended(self, request: Request) -> Any:
        """Return the tombstones, the newest first.

        `before` selects sandboxes that ended earlier (Unix milliseconds), and `plugin` those with a resource of that
        plugin.
        """
        before, limit = read_number(request, "before", 0, least=1), read_number(request, "limit", PAGE_SIZE, least=1)
        who = callers.get_caller(request)
        plugin = request.query_params.get("plugin", "")

        def read(rows: Rows) -> tuple[list[Any], dict[str, tuple[str, ...]], list[tuple[str, Any]]]:
            found = _read_ended(rows, before, plugin, min(limit, 5 * PAGE_SIZE), who.scope)
            plugins = resource_records.read_plugins(rows, {row.uid: row.ended_at for row in found})
            return found, plugins, _read_abandoned(rows)

        found, plugins, abandoned = await self._store.for_org(who.org).read(read)
        await self._query_ended(who.org, abandoned)
        return [
            describe_end(
                EndedRun(
                    uid=row.uid,
                    name=row.name,
                    cluster=row.cluster,
                    routing_key=row.routing_key,
                    created_at=rfc3339(row.created_at),
                    ended_at=rfc3339(row.ended_at),
                    failed=bool(row.failed),
                    abandoned=bool(row.abandoned),
                    plugins=plugins.get(row.uid, ()),
                ),
                msgspec.json.decode(row.stop, type=EndRequest) if row.stop else None,
                self._describe_ended(who.org, row.name, row),
            )
            for row in found
        ]

    async def plan(self, service: RunService[Any], request: Request) -> Any:
        """Return the units of a run, as `dayfly plan` shows them."""
        record = await service.get_record(request)
        link = self._links.get(record.org, record.cluster)
        target = link.compile_target() if link is not None else LOCAL_TARGET
        return describe_plan(
            await self._store.for_org(record.org).read(lambda rows: run_specs.compile_run(rows, record, target, {}))
        )

    async def reveal(self, service: RunService[Any], request: Request) -> Any:
        """Return one output, also a sensitive one, after writing this access to the audit log."""
        record, body = await service.get_record(request), await read_json(request)
        unit, output = parse_output(body)
        link = self._links.get(record.org, record.cluster)
        values = await link.values(record.uid) if link is not None else ()
        value = next((each for each in values if each.unit == unit and each.output == output), None)
        if value is None:
            raise RequestError(404, f"{quote(record.name)} has no output {quote(output)} of {quote(unit)} now")
        if value.sensitive and link is not None and link.shared:
            # The host has sent an empty value instead, which must not look like the output.
            text = f"output {quote(output)} of {quote(unit)} is sensitive and never leaves its cluster"
            raise RequestError(409, f"{text} {quote(record.cluster)}")
        what = f"{service.kind.plural}/{record.name}/outputs/{unit}.{output}"
        await self._store.for_org(record.org).write(
            lambda rows: audit.append(rows, audit.get_actor(request), "reveal", what)
        )
        resource, _, step = unit.rpartition("/")
        text, encoding = encode_text(value.value)
        found = {"resource": resource, "step": step, "output": output, "value": text, "encoding": encoding}
        return {**found, "sensitive": value.sensitive}


def describe_end(ended: EndedRun, stop: EndRequest | None, concern: Concern | None) -> EndedRun:
    """Return an ended run with the request that ended it and, if it was abandoned, what it may have left."""
    if stop is not None:
        ended = msgspec.structs.replace(ended, reason=stop.reason, message=stop.message, by=stop.by)
    return msgspec.structs.replace(ended, abandoned=True, units=concern.units) if concern is not None else ended


def describe_plan(compiled: Compiled) -> dict[str, Any]:
    """Return the plan of compiled documents in the API."""
    found: dict[str, Any] = msgspec.to_builtins(compiler.preview(compiled))
    return {"events": [], "forks": [], "deletion": [], "warnings": [], **found}


def parse_output(body: Any) -> tuple[str, str]:
    """Return the unit and the output in the body of a request."""
    unit, output = (body.get(name) if isinstance(body, dict) else None for name in ("unit", "output"))
    if not isinstance(unit, str) or not isinstance(output, str):
        raise SpecError('must be {"unit": "RESOURCE/STEP", "output": "NAME"}', ())
    return unit, output


def _read_ended(rows: Rows, before: int, plugin: str, limit: int, scope: Scope) -> list[Any]:
    """Return the newest tombstones in the scope, of all sandboxes or of those with a resource of a plugin."""
    table = ended_sandboxes
    query = rows.select(table).order_by(table.c.ended_at.desc(), table.c.uid)
    if before:
        query = query.where(table.c.ended_at < before)
    if plugin:
        since = now_ms() - tombstones.KEEP_MS
        query = query.where(table.c.uid.in_(resource_records.select_users(rows, plugin, since)))
    if scope.is_whole:
        return list(rows.execute(query.limit(limit)))
    visible = (
        row for row in rows.execute(query) if scope.includes_name(row.name) and scope.includes_cluster(row.cluster)
    )
    return list(itertools.islice(visible, limit))


def _read_abandoned(rows: Rows) -> list[tuple[str, Any]]:
    """Return the tombstones of runs whose cleanup was or may have been abandoned, with the keys of their records."""
    found = []
    for prefix, table in (("", ended_sandboxes), (GROUPS.prefix, ended_route_groups)):
        newest_first = rows.select(table).order_by(table.c.ended_at.desc())
        found += [(f"{prefix}{row.name}", row) for row in rows.execute(newest_first.where(table.c.abandoned.is_(True)))]
        unknown = newest_first.where(table.c.abandoned.is_(None)).limit(MAX_UNKNOWN)
        found += [(f"{prefix}{row.name}", row) for row in rows.execute(unknown)]
    return found


def _read_silent_clusters(rows: Rows, now: int) -> list[SilentCluster]:
    """Return the clusters whose agent has connected before, and is now silent or frozen."""
    silent = sa.or_(agents.c.seen_at <= now - SILENT_MS, agents.c.frozen != "")
    query = rows.select(agents).where(agents.c.seen_at > 0, silent)
    return [
        SilentCluster(
            row.cluster,
            row.seen_at,
            f"it is frozen: dayfly cluster thaw {shlex.quote(row.cluster)}" if row.frozen else "",
        )
        for row in rows.execute(query)
    ]
