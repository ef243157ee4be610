"""Endpoints for organisations, clusters and their tokens, reasons, and the health of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dayfly.lib.clock import now_ms
from dayfly.plan.reason_catalog import CATALOGUE, SECTIONS
from dayfly.server.access import callers
from dayfly.server.access.agent_limits import HOUR_S
from dayfly.server.admin import audit, cluster_tokens
from dayfly.server.db.tables import clusters, organisations, resource_pools, route_groups, sandboxes
from dayfly.server.http import openapi, preconditions
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.preconditions import Tagged
from dayfly.server.http.request_data import apply_limit, rfc3339
from dayfly.server.records import agent_budget
from dayfly.spec.errors import SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sqlalchemy import Row
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.link.server_end import Link
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store

MAX_NAME_LENGTH = 255
# The tables whose records have runs, which could not end without their cluster.
_RUN_TABLES = {sandboxes: "sandbox(es)", route_groups: "route group(s)", resource_pools: "pool(s)"}


class Clusters:
    """The endpoints `/orgs`, `/meta` and below `/clusters`.

    Args:
        store: The store.
        own: The clusters of hosts in this process, by organisation. Other clusters have an agent.
        version: The version of the server.
    """

    def __init__(self, store: Store, own: Mapping[str, Collection[str]], version: str) -> None:
        self._store = store
        self._own = {org: frozenset(names) for org, names in own.items()}
        self._version = version

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        collection = "/orgs/{org}/clusters"
        one, tokens_ = collection + "/{name}", collection + "/{name}/tokens"
        return [
            serve("/orgs", GET=self.orgs),
            serve("/meta/health", GET=self.health),
            serve("/meta/reasons", GET=self.reasons),
            serve("/meta/openapi.json", GET=self.openapi),
            serve(collection, GET=self.list_all),
            serve(one, GET=self.get, PUT=self.put, DELETE=self.delete),
            serve(tokens_, GET=self.list_tokens, POST=self.create_token),
            serve(tokens_ + "/{id}", GET=self.get_token, DELETE=self.delete_token),
        ]

    async def orgs(self, request: Request) -> Any:
        caller = callers.get_caller(request)

        def name(rows: Rows) -> str:
            found = rows.execute(rows.select(organisations.c.display_name)).scalar_one_or_none()
            return caller.org if found is None else str(found)

        org = {"name": caller.org, "displayName": await self._store.for_org(caller.org).read(name)}
        user: dict[str, Any] = {"role": caller.role_name}
        if not caller.scope.is_whole:
            user["scope"] = caller.scope.terms
        if agent := caller.scope.agent:
            usage = await self._store.for_org(caller.org).read(lambda rows: agent_budget.read_usage(rows, agent.key))
            left = max(agent.limits.budget_seconds - usage.taken_seconds, 0)
            user["agent"] = {
                "limits": agent.limits,
                "sandboxes": usage.sandboxes,
                "hoursLeft": round(left / HOUR_S, 2),
                "prefix": caller.scope.names[0].prefix,
                **({"session": agent.session} if agent.session else {}),
            }
        return {"orgs": [org], "user": user, "featureFlags": {}}

    async def health(self, _request: Request) -> Any:
        await self._store.read(lambda connection: connection.execute(sa.select(sa.literal(1))).scalar())
        return {"version": self._version, "ok": True}

    async def openapi(self, _request: Request) -> Any:
        return openapi.document(self._version)

    async def reasons(self, _request: Request) -> Any:
        """Return the catalogue of reasons, which Signadot's API does not have."""
        return [
            {"reason": reason, "of": section.name.lower(), "severity": CATALOGUE[reason].severity.name.lower()}
            | {"meaning": CATALOGUE[reason].meaning}
            for section, found in SECTIONS.items()
            for reason in found
        ]

    async def list_all(self, request: Request) -> Any:
        who, after = callers.get_caller(request), request.query_params.get("after", "")
        found = [
            row for row in await self.list_known(who.org) if row.name > after and who.scope.includes_cluster(row.name)
        ]
        return apply_limit(request, [self._describe(who.org, row) for row in found])

    async def get(self, request: Request) -> Any:
        org, row = callers.get_caller(request).org, await self._find(request)
        return Tagged(self._describe(org, row), str(row.created_at))

    async def put(self, request: Request) -> Any:
        """Add a cluster for an agent to connect. An existing one is not changed."""
        who, name = audit.get_actor(request), request.path_params["name"]
        org, when = who.org, preconditions.read(request)
        if not 0 < len(name.encode()) <= MAX_NAME_LENGTH or not name.isprintable():
            raise SpecError(f"must be one line of at most {MAX_NAME_LENGTH} printable characters", ("name",))
        if name in (".", ".."):
            raise SpecError("is not allowed as a name, because it has a special meaning in paths", ("name",))
        await self.list_known(org)

        def work(rows: Rows) -> Row[Any]:
            found = find(rows, name)
            when.check(str(found.created_at) if found is not None else None)
            if found is None:
                rows.insert(clusters, {"name": name, "created_at": now_ms(), "agent": True})
                audit.append(rows, who, "create", f"clusters/{name}")
            elif not (found.agent or name in self._own.get(org, ())):
                # It was a local host of a server before.
                rows.execute(rows.update(clusters).where(clusters.c.name == name).values(agent=True))
                audit.append(rows, who, "create", f"clusters/{name}")
            row = find(rows, name)
            assert row is not None, "it was inserted above"
            return row

        return self._describe(org, await self._store.for_org(org).write(work))

    async def delete(self, request: Request) -> Any:
        row = await self._find_agent_cluster(request, "cannot be removed")
        name = row.name
        preconditions.read(request).check(str(row.created_at))

        def work(rows: Rows) -> None:
            for table, what in _RUN_TABLES.items():
                users = rows.execute(rows.select(table.c.name).where(table.c.cluster == name).limit(10)).scalars()
                if names_ := ", ".join(sorted(users)):
                    raise RequestError(400, f"cluster {quote(name)} is in use by {what}: {names_}; delete them first")
            rows.execute(rows.delete(clusters).where(clusters.c.name == name, clusters.c.agent))
            audit.append(rows, audit.get_actor(request), "delete", f"clusters/{name}")

        await self._store.for_org(callers.get_caller(request).org).write(work)
        return {}

    async def list_tokens(self, request: Request) -> Any:
        name = (await self._find(request)).name
        found = await self._store.for_org(callers.get_caller(request).org).read(
            lambda rows: cluster_tokens.list_for(rows, name)
        )
        return [cluster_tokens.describe(row) for row in found]

    async def create_token(self, request: Request) -> Any:
        name = (await self._find_agent_cluster(request, "nothing connects to it with a token")).name

        def work(rows: Rows) -> Any:
            token, row = cluster_tokens.create(rows, name)
            audit.append(rows, audit.get_actor(request), "create", f"clusters/{name}/tokens/{row.id}")
            return {**cluster_tokens.describe(row), "token": token}

        return await self._store.for_org(callers.get_caller(request).org).write(work)

    async def get_token(self, request: Request) -> Any:
        name, id_ = (await self._find(request)).name, request.path_params["id"]
        row = await self._store.for_org(callers.get_caller(request).org).read(
            lambda rows: cluster_tokens.find(rows, id_)
        )
        if row is None or row.cluster != name:
            raise RequestError(404, f"cluster {quote(name)} has no token {quote(id_)}")
        return cluster_tokens.describe(row)

    async def delete_token(self, request: Request) -> Any:
        name, id_ = (await self._find(request)).name, request.path_params["id"]

        def work(rows: Rows) -> None:
            if not cluster_tokens.delete(rows, name, id_):
                raise RequestError(404, f"cluster {quote(name)} has no token {quote(id_)}")
            audit.append(rows, audit.get_actor(request), "revoke", f"clusters/{name}/tokens/{id_}")

        await self._store.for_org(callers.get_caller(request).org).write(work)
        return {}

    async def list_known(self, org: str) -> list[Row[Any]]:
        """Return an organisation's clusters by name. The first call stores the clusters of local hosts."""
        own, org_store = self._own.get(org, frozenset()), self._store.for_org(org)

        def read(rows: Rows) -> list[Row[Any]]:
            found = (row for row in rows.execute(rows.select(clusters)) if row.agent or row.name in own)
            # Not sorted by the database, whose collation may differ: the next page starts after a name in this order.
            return sorted(found, key=lambda row: row.name)

        def write(rows: Rows) -> list[Row[Any]]:
            new = sorted(own - {row.name for row in read(rows)})
            rows.insert(clusters, [{"name": name, "created_at": now_ms()} for name in new])
            return read(rows)

        found = await org_store.read(read)
        return found if own <= {row.name for row in found} else await org_store.write(write)

    async def _find(self, request: Request) -> Row[Any]:
        who, name = callers.get_caller(request), request.path_params["name"]
        known = [row for row in await self.list_known(who.org) if who.scope.includes_cluster(row.name)]
        for row in known:
            if row.name == name:
                return row
        raise RequestError(404, f"no cluster {quote(name)}; there {_list([row.name for row in known])}")

    async def _find_agent_cluster(self, request: Request, why: str) -> Row[Any]:
        """Return a cluster that was added for an agent; refuse a local host with the reason `why`."""
        row = await self._find(request)
        if row.name in self._own.get(callers.get_caller(request).org, ()):
            text = f"cluster {quote(row.name)} is the server's own"
            raise RequestError(400, f"{text}; {why}" if why.startswith("nothing") else f"{text} and {why}")
        return row

    def _describe(self, org: str, row: Row[Any]) -> dict[str, Any]:
        version = self._version if row.name in self._own.get(org, ()) else row.operator_version
        head = {"name": row.name, "createdAt": rfc3339(row.created_at)}
        return {**head, "operator": {"version": version}, "clusterConfig": {}}


def find(rows: Rows, name: str) -> Row[Any] | None:
    """Return a cluster's row."""
    return rows.find(clusters, name=name)


def names(rows: Rows) -> set[str]:
    """Return the names of the clusters that were added for agents."""
    return set(rows.execute(rows.select(clusters.c.name).where(clusters.c.agent)).scalars())


def has_never_connected(rows: Rows, name: str, link: Link | None) -> bool:
    """Return whether a cluster was added for an agent and none has ever connected, so none of its runs has started.

    `link` is the link to its current host. A local host needs no agent and has received all orders.
    """
    row = find(rows, name)
    return row is not None and row.agent and row.connected_at is None and (link is None or link.shared)


def _list(known: list[str]) -> str:
    return f"is {', '.join(known)}" if known else "is none yet: add one with PUT"
