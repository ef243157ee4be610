"""Organisations, their clusters with the tokens of agents, and the server's own health."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dayfly.plan.reason_catalog import CATALOGUE, SECTIONS
from dayfly.server.access import callers
from dayfly.server.admin import audit, cluster_tokens
from dayfly.server.db.tables import clusters, organisations, route_groups, sandboxes
from dayfly.server.http import openapi, preconditions
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import page, rfc3339, serve
from dayfly.server.http.preconditions import Tagged
from dayfly.spec.errors import SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sqlalchemy import Row
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.link.server_end import Link
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

LONGEST_NAME = 255
# What has a run in a cluster, which nobody could end without it.
_LIVING = {sandboxes: "sandbox(es)", route_groups: "route group(s)"}


class Clusters:
    """`/orgs` and the addresses below `/clusters`: the server's own hosts, and what was added for agents to connect."""

    def __init__(self, store: Store, own: Mapping[str, Collection[str]], version: str) -> None:
        """`own` are the clusters that the server's own hosts stand for, by organisation."""
        self._store = store
        self._own = {org: frozenset(names) for org, names in own.items()}
        self._version = version

    def routes(self) -> list[Route]:
        """All of them."""
        at = "/orgs/{org}/clusters"
        one, tokens_ = at + "/{name}", at + "/{name}/tokens"
        return [
            serve("/orgs", GET=self.orgs),
            serve("/meta/health", GET=self.health),
            serve("/meta/reasons", GET=self.reasons),
            serve("/meta/openapi.json", GET=self.openapi),
            serve(at, GET=self.list_all),
            serve(one, GET=self.get, PUT=self.put, DELETE=self.delete),
            serve(tokens_, GET=self.list_tokens, POST=self.create_token),
            serve(tokens_ + "/{id}", GET=self.get_token, DELETE=self.delete_token),
        ]

    async def orgs(self, request: Request) -> Any:
        caller = callers.caller(request)

        def name(rows: Rows) -> str:
            found = rows.execute(rows.select(organisations.c.display_name)).scalar_one_or_none()
            return caller.org if found is None else str(found)

        org = {"name": caller.org, "displayName": await self._store.of(caller.org).read(name)}
        user: dict[str, Any] = {"role": caller.role.word}
        if not caller.scope.is_whole:
            user["scope"] = caller.scope.terms
        return {"orgs": [org], "user": user, "featureFlags": {}}

    async def health(self, _request: Request) -> Any:
        await self._store.read(lambda connection: connection.execute(sa.select(sa.literal(1))).scalar())
        return {"version": self._version, "ok": True}

    async def openapi(self, _request: Request) -> Any:
        return openapi.document(self._version)

    async def reasons(self, _request: Request) -> Any:
        """Our addition: the catalogue of reasons, for whoever shows or alerts on them."""
        return [
            {"reason": reason, "of": of.name.lower(), "tone": CATALOGUE[reason].severity.name.lower()}
            | {"meaning": CATALOGUE[reason].meaning}
            for of, found in SECTIONS.items()
            for reason in found
        ]

    async def list_all(self, request: Request) -> Any:
        who, after = callers.caller(request), request.query_params.get("after", "")
        found = [row for row in await self.known(who.org) if row.name > after and who.scope.takes_cluster(row.name)]
        return page(request, [self._wire(who.org, row) for row in found])

    async def get(self, request: Request) -> Any:
        org, row = callers.caller(request).org, await self._find(request)
        return Tagged(self._wire(org, row), str(row.created_at))

    async def put(self, request: Request) -> Any:
        """Add one for an agent to connect. One that is there stays as it is."""
        who, name = audit.who(request), request.path_params["name"]
        org, when = who.org, preconditions.read(request)
        if not 0 < len(name.encode()) <= LONGEST_NAME or not name.isprintable():
            raise SpecError(f"must be one line of at most {LONGEST_NAME} printable characters", ("name",))
        if name in (".", ".."):
            raise SpecError("is no name: in an address it means a folder or its parent", ("name",))
        await self.known(org)

        def work(rows: Rows) -> Row[Any]:
            found = find(rows, name)
            when.check(str(found.created_at) if found is not None else None)
            if found is None:
                rows.insert(clusters, {"name": name, "created_at": _now(), "agent": True})
                audit.note(rows, who, "create", f"clusters/{name}")
            elif not (found.agent or name in self._own.get(org, ())):
                # One that a server served once, and no longer does.
                rows.execute(rows.update(clusters).where(clusters.c.name == name).values(agent=True))
                audit.note(rows, who, "create", f"clusters/{name}")
            row = find(rows, name)
            assert row is not None, "it was just written"
            return row

        return self._wire(org, await self._store.of(org).write(work))

    async def delete(self, request: Request) -> Any:
        row = await self._agents(request, "cannot be removed")
        name = row.name
        preconditions.read(request).check(str(row.created_at))

        def work(rows: Rows) -> None:
            for table, what in _LIVING.items():
                users = rows.execute(rows.select(table.c.name).where(table.c.cluster == name).limit(10)).scalars()
                if living := ", ".join(sorted(users)):
                    raise RequestError(400, f"cluster {quote(name)} is in use by {what}: {living}; delete them first")
            rows.execute(rows.delete(clusters).where(clusters.c.name == name, clusters.c.agent))
            audit.note(rows, audit.who(request), "delete", f"clusters/{name}")

        await self._store.of(callers.caller(request).org).write(work)
        return {}

    async def list_tokens(self, request: Request) -> Any:
        name = (await self._find(request)).name
        found = await self._store.of(callers.caller(request).org).read(lambda rows: cluster_tokens.of(rows, name))
        return [cluster_tokens.wire(row) for row in found]

    async def create_token(self, request: Request) -> Any:
        name = (await self._agents(request, "nothing connects to it with a token")).name

        def work(rows: Rows) -> Any:
            token, row = cluster_tokens.create(rows, name)
            audit.note(rows, audit.who(request), "create", f"clusters/{name}/tokens/{row.id}")
            return {**cluster_tokens.wire(row), "token": token}

        return await self._store.of(callers.caller(request).org).write(work)

    async def get_token(self, request: Request) -> Any:
        name, id_ = (await self._find(request)).name, request.path_params["id"]
        row = await self._store.of(callers.caller(request).org).read(lambda rows: cluster_tokens.find(rows, id_))
        if row is None or row.cluster != name:
            raise RequestError(404, f"cluster {quote(name)} has no token {quote(id_)}")
        return cluster_tokens.wire(row)

    async def delete_token(self, request: Request) -> Any:
        name, id_ = (await self._find(request)).name, request.path_params["id"]

        def work(rows: Rows) -> None:
            if not cluster_tokens.delete(rows, name, id_):
                raise RequestError(404, f"cluster {quote(name)} has no token {quote(id_)}")
            audit.note(rows, audit.who(request), "revoke", f"clusters/{name}/tokens/{id_}")

        await self._store.of(callers.caller(request).org).write(work)
        return {}

    async def known(self, org: str) -> list[Row[Any]]:
        """An organisation's clusters, by name. Those of the server's own hosts are known from the first call on."""
        own, shelf = self._own.get(org, frozenset()), self._store.of(org)

        def read(rows: Rows) -> list[Row[Any]]:
            found = (row for row in rows.execute(rows.select(clusters)) if row.agent or row.name in own)
            # Not by the database, which has an order of its own: pages begin behind a name as we compare it.
            return sorted(found, key=lambda row: row.name)

        def write(rows: Rows) -> list[Row[Any]]:
            new = sorted(own - {row.name for row in read(rows)})
            rows.insert(clusters, [{"name": name, "created_at": _now()} for name in new])
            return read(rows)

        found = await shelf.read(read)
        return found if own <= {row.name for row in found} else await shelf.write(write)

    async def _find(self, request: Request) -> Row[Any]:
        who, name = callers.caller(request), request.path_params["name"]
        known = [row for row in await self.known(who.org) if who.scope.takes_cluster(row.name)]
        for row in known:
            if row.name == name:
                return row
        raise RequestError(404, f"no cluster {quote(name)}; there {_list([row.name for row in known])}")

    async def _agents(self, request: Request, why: str) -> Row[Any]:
        """One that was added for an agent; of the server's own it is said `why` not."""
        row = await self._find(request)
        if row.name in self._own.get(callers.caller(request).org, ()):
            text = f"cluster {quote(row.name)} is the server's own"
            raise RequestError(400, f"{text}; {why}" if why.startswith("nothing") else f"{text} and {why}")
        return row

    def _wire(self, org: str, row: Row[Any]) -> dict[str, Any]:
        version = self._version if row.name in self._own.get(org, ()) else row.operator_version
        head = {"name": row.name, "createdAt": rfc3339(row.created_at)}
        return {**head, "operator": {"version": version}, "clusterConfig": {}}


def find(rows: Rows, name: str) -> Row[Any] | None:
    """A cluster's row."""
    return rows.execute(rows.select(clusters).where(clusters.c.name == name)).one_or_none()


def names(rows: Rows) -> set[str]:
    """The clusters that were added for agents."""
    return set(rows.execute(rows.select(clusters.c.name).where(clusters.c.agent)).scalars())


def is_unheard(rows: Rows, name: str, link: Link | None) -> bool:
    """Whether a cluster was added for an agent and none has ever connected: nothing that is for it has begun.

    `link` leads to whoever serves it now. A host of this server's own needs no agent: it has heard of everything.
    """
    row = find(rows, name)
    return row is not None and row.agent and row.connected_at is None and (link is None or link.shared)


def _list(known: list[str]) -> str:
    return f"is {', '.join(known)}" if known else "is none yet: add one with PUT"


def _now() -> int:
    return time.time_ns() // 1_000_000
