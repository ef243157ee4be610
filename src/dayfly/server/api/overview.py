"""What the page asks for beside what all clients do: what needs attention, what has ended, a sandbox's plan, an output.

Each is an address like any other, for whoever has the role.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import shlex
import time
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from dayfly import compile as compiler
from dayfly.link.server_end import NO_ANSWER
from dayfly.link.transport import HERE
from dayfly.server import attention
from dayfly.server.access import callers
from dayfly.server.admin import audit
from dayfly.server.api.reports import text_of
from dayfly.server.api.silent_units import Mute
from dayfly.server.attention import AttentionSubject, Concern, Quiet
from dayfly.server.catalog import run_specs
from dayfly.server.db.tables import agents, ended_route_groups, ended_sandboxes
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import read_json, rfc3339, serve, whole_number
from dayfly.server.records import tombstones
from dayfly.server.records.run_records import GROUPS, SANDBOXES, read_page
from dayfly.spec.errors import SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.compile import Compiled
    from dayfly.link.server_end import Links
    from dayfly.server.access.scopes import Scope
    from dayfly.server.api.silent_units import Ask
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.runs.group_strategy import GroupStrategy
    from dayfly.server.runs.run_service import RunService
    from dayfly.server.runs.run_states import RunState
    from dayfly.spec.report import RunReport
    from dayfly.spec.route_group import RouteGroupSpec
    from dayfly.spec.sandbox import SandboxSpec

PAGE = 200
# An agent asks at least every half a minute.
SILENT_MS = 90_000
# Of what ended without anybody's knowing whether it was given up, so many of the last are looked at.
LOOKED_AT = 200


class OverviewApi:
    """The addresses."""

    def __init__(
        self,
        store: Store,
        links: Links,
        sandboxes: RunService[SandboxSpec],
        groups: RunService[RouteGroupSpec],
        strategy: GroupStrategy,
    ) -> None:
        self._store, self._links, self._sandboxes, self._groups = store, links, sandboxes, groups
        self._strategy = strategy
        # By organisation and uid what is to be said of one that has ended: that does not change any more.
        self._over: dict[str, dict[str, Concern | None]] = {}
        self._mute = Mute()

    def routes(self) -> list[Route]:
        """All of them."""
        at = "/orgs/{org}"
        services: tuple[RunService[Any], ...] = (self._sandboxes, self._groups)
        found = [
            serve(at + "/attention", GET=self.attention),
            serve(at + "/ended-sandboxes", GET=self.ended),
        ]
        for service in services:
            one = f"{at}/{service.kind.plural}/{{name}}"
            found.append(serve(one + "/plan", GET=functools.partial(self.plan, service)))
            found.append(serve(one + "/reveal", POST=functools.partial(self.reveal, service)))
        return found

    async def attention(self, request: Request) -> Any:
        """What needs attention, the worst first."""
        who, now = callers.caller(request), time.time_ns() // 1_000_000
        org, scope = who.org, who.scope
        living, over, quiet = await self._store.for_org(org).read(
            lambda rows: (read_page(rows, SANDBOXES), _given_up(rows), _quiet(rows, now))
        )
        living = [each for each in living if scope.takes(each)]
        await self._learn(org, over)
        over = [
            (name, row)
            for name, row in over
            if scope.takes_name(row.name) and scope.takes_cluster(tombstones.scope_cluster(row))
        ]
        quiet = [each for each in quiet if scope.takes_cluster(each.name)]
        told = await self._sandboxes.states(living)
        _, groups = await self._strategy.refresh(org)
        groups = [each for each in groups if scope.takes(each)]
        told |= await self._strategy.states(groups, scope)
        mute = await self._mute.among(org, self._asked(org, (*living, *groups), told))
        boxes = [
            AttentionSubject(
                each.name, told[each.uid].report, each.life_begins_at, each.expires_at, mute.get(each.uid, ())
            )
            for each in living
        ]
        for group in groups:
            name, report = group.key, told[group.uid].report
            boxes.append(
                AttentionSubject(name, report, *self._strategy.current_lifetime(group), mute.get(group.uid, ()))
            )
        given_up = [each for name, row in over if (each := self._left(org, name, row)) is not None]
        return attention.ordered([*attention.concerns(boxes, (), quiet, now), *given_up], now)

    def _asked(
        self, org: str, runs: Iterable[RunRecord[Any]], told: dict[str, RunState]
    ) -> Iterator[tuple[RunReport, Ask]]:
        """Of each that has a host its report, and how its logs are asked for."""
        for each in runs:
            if (link := self._links.of(org, each.cluster)) is not None:
                yield told[each.uid].report, functools.partial(link.logs, each.uid)

    def _left(self, org: str, name: str, row: Any) -> Concern | None:
        """What is to be said of one that has ended, as far as that is known."""
        known = self._over.get(org, {})
        if row.uid not in known and row.given_up and self._links.of(org, row.cluster) is None:
            # As of a cluster that was removed. Should somebody serve it again, they are asked.
            return attention.forgotten(name, row.ended_at, row.uid, served=False)
        return known.get(row.uid)

    async def _learn(self, org: str, over: list[tuple[str, Any]]) -> None:
        """Ask the hosts, as far as they still know, about those that may have been given up and have ended."""
        last = self._over.get(org, {})
        known = self._over[org] = {row.uid: last[row.uid] for _, row in over if row.uid in last}
        by_cluster: dict[str, list[tuple[str, Any]]] = {}
        for name, row in over:
            if row.uid not in known:
                by_cluster.setdefault(row.cluster, []).append((name, row))
        looked = await self._links.look({(org, of): [row.uid for _, row in rows] for of, rows in by_cluster.items()})
        for cluster, rows in by_cluster.items():
            if (link := self._links.of(org, cluster)) is None:
                continue
            standings, silent = looked[org, cluster]
            for name, row in rows:
                if row.uid not in standings and row.given_up and not silent:
                    # As of a cluster with an agent, which lets go of what has ended once that is noted here.
                    known[row.uid] = attention.forgotten(name, row.ended_at, row.uid)
                if (standing := standings.get(row.uid)) is not None and standing.report is not None:
                    report = standing.report
                    # A host that does not say is asked again the next time; all else can be told.
                    with contextlib.suppress(*NO_ANSWER):
                        history = await link.history(row.uid) if report.abandon else ()
                        known[row.uid] = attention.given_up(name, report, history, row.uid) if report.abandon else None

    async def ended(self, request: Request) -> Any:
        """The traces, the last first; with `before` those that ended before then (unix milliseconds)."""
        before, limit = whole_number(request, "before", 0, least=1), whole_number(request, "limit", PAGE, least=1)
        who = callers.caller(request)
        found = await self._store.for_org(who.org).read(
            lambda rows: _ended(rows, ended_sandboxes, before, min(limit, 5 * PAGE), who.scope)
        )
        return [
            {
                "uid": row.uid,
                "name": row.name,
                "cluster": row.cluster,
                "routingKey": row.routing_key,
                "createdAt": rfc3339(row.created_at),
                "endedAt": rfc3339(row.ended_at),
            }
            for row in found
        ]

    async def plan(self, service: RunService[Any], request: Request) -> Any:
        """The units of one that lives, as `dayfly plan` has them."""
        record = await service.get_record(request)
        link = self._links.of(record.org, record.cluster)
        place = link.place() if link is not None else HERE
        return shown_plan(
            await self._store.for_org(record.org).read(lambda rows: run_specs.compile_run(rows, record, place, {}))
        )

    async def reveal(self, service: RunService[Any], request: Request) -> Any:
        """One output, sensitive or not. That somebody has looked is written down before it is shown."""
        record, body = await service.get_record(request), await read_json(request)
        unit, output = output_in(body)
        link = self._links.of(record.org, record.cluster)
        values = await link.values(record.uid) if link is not None else ()
        value = next((each for each in values if each.unit == unit and each.output == output), None)
        if value is None:
            raise RequestError(404, f"{quote(record.name)} has no output {quote(output)} of {quote(unit)} now")
        if value.sensitive and link is not None and link.shared:
            # What came instead is empty: nobody is to take it for the value, and nobody has seen that.
            where = f"its cluster {quote(record.cluster)}"
            raise RequestError(409, f"output {quote(output)} of {quote(unit)} is sensitive and never leaves {where}")
        what = f"{service.kind.plural}/{record.name}/outputs/{unit}.{output}"
        await self._store.for_org(record.org).write(lambda rows: audit.note(rows, audit.who(request), "reveal", what))
        resource, _, step = unit.rpartition("/")
        text, encoding = text_of(value.value)
        found = {"resource": resource, "step": step, "output": output, "value": text, "encoding": encoding}
        return {**found, "sensitive": value.sensitive}


def shown_plan(compiled: Compiled) -> dict[str, Any]:
    """What the documents of a sandbox would do, as the API has it."""
    found: dict[str, Any] = msgspec.to_builtins(compiler.preview(compiled))
    return {"events": [], "forks": [], "deletion": [], "warnings": [], **found}


def output_in(body: Any) -> tuple[str, str]:
    """The unit and the output that are asked for."""
    unit, output = (body.get(name) if isinstance(body, dict) else None for name in ("unit", "output"))
    if not isinstance(unit, str) or not isinstance(output, str):
        raise SpecError('must be {"unit": "RESOURCE/STEP", "output": "NAME"}', ())
    return unit, output


def _ended(rows: Rows, table: sa.Table, before: int, limit: int, scope: Scope) -> list[Any]:
    """The last of those in the scope."""
    query = rows.select(table).order_by(table.c.ended_at.desc(), table.c.uid)
    if before:
        query = query.where(table.c.ended_at < before)
    if scope.is_whole:
        return list(rows.execute(query.limit(limit)))
    ours = (row for row in rows.execute(query) if scope.takes_name(row.name) and scope.takes_cluster(row.cluster))
    return list(itertools.islice(ours, limit))


def _given_up(rows: Rows) -> list[tuple[str, Any]]:
    """All that was given up and has ended, and what may have been, sandboxes and route groups, by what it is called."""
    found = []
    for prefix, table in (("", ended_sandboxes), (GROUPS.prefix, ended_route_groups)):
        last_first = rows.select(table).order_by(table.c.ended_at.desc())
        found += [(f"{prefix}{row.name}", row) for row in rows.execute(last_first.where(table.c.given_up.is_(True)))]
        unknown = last_first.where(table.c.given_up.is_(None)).limit(LOOKED_AT)
        found += [(f"{prefix}{row.name}", row) for row in rows.execute(unknown)]
    return found


def _quiet(rows: Rows, now: int) -> list[Quiet]:
    """Clusters whose agents have come once, and are not heard of now or are frozen."""
    silent = sa.or_(agents.c.seen_at <= now - SILENT_MS, agents.c.frozen != "")
    query = rows.select(agents).where(agents.c.seen_at > 0, silent)
    return [
        Quiet(
            row.cluster,
            row.seen_at,
            f"it is frozen: dayfly cluster thaw {shlex.quote(row.cluster)}" if row.frozen else "",
        )
        for row in rows.execute(query)
    ]
