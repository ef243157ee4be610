"""The organisation, the clusters that its hosts stand for, and the server's own health."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dayfly.control import auth
from dayfly.control.errors import ApiError
from dayfly.control.exchange import rfc3339, serve
from dayfly.control.tables import clusters
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.control.link import Links
    from dayfly.control.rows import Rows
    from dayfly.control.store import Store
from dayfly.plan.catalogue import CATALOGUE, SECTIONS


class Clusters:
    """`/orgs` and the addresses below `/clusters`. A cluster is there if a host serves it; nobody can add one."""

    def __init__(self, store: Store, links: Links, version: str) -> None:
        self._store = store
        self._links = links
        self._version = version

    def routes(self) -> list[Route]:
        """All of them."""
        at = "/orgs/{org}/clusters"
        return [
            serve("/orgs", GET=self.orgs),
            serve("/meta/health", GET=self.health),
            serve("/meta/reasons", GET=self.reasons),
            serve(at, GET=self.list_all),
            serve(at + "/{name}", GET=self.get, PUT=self.get, DELETE=self.delete),
            serve(at + "/{name}/tokens", GET=self.list_tokens, POST=self.create_token),
        ]

    async def orgs(self, request: Request) -> Any:
        org = auth.caller(request).org
        return {"orgs": [{"name": org, "displayName": org}], "user": {}, "featureFlags": {}}

    async def health(self, _request: Request) -> Any:
        await self._store.read(lambda connection: connection.execute(sa.select(sa.literal(1))).scalar())
        return {"version": self._version, "ok": True}

    async def reasons(self, _request: Request) -> Any:
        """Our addition: the catalogue of reasons, for whoever shows or alerts on them."""
        return [
            {"reason": reason, "of": of.name.lower(), "tone": CATALOGUE[reason].tone.name.lower()}
            | {"meaning": CATALOGUE[reason].meaning}
            for of, found in SECTIONS.items()
            for reason in found
        ]

    async def list_all(self, request: Request) -> Any:
        known = await self.known(auth.caller(request).org)
        return [self._wire(name, at) for name, at in sorted(known.items())]

    async def get(self, request: Request) -> Any:
        """Also what PUT does: to add a cluster that is there changes nothing."""
        name = request.path_params["name"]
        known = await self.known(auth.caller(request).org)
        if name in known:
            return self._wire(name, known[name])
        text = f"no cluster {quote(name)}; this server has {', '.join(sorted(known))}"
        if request.method == "PUT":
            raise ApiError(400, f"{text}, and others cannot be added")
        raise ApiError(404, text)

    async def delete(self, request: Request) -> Any:
        found = await self.get(request)
        raise ApiError(400, f"cluster {quote(found['name'])} is the server's own and cannot be removed")

    async def list_tokens(self, request: Request) -> Any:
        await self.get(request)
        return []

    async def create_token(self, request: Request) -> Any:
        found = await self.get(request)
        raise ApiError(400, f"cluster {quote(found['name'])} is the server's own; nothing connects to it with a token")

    async def known(self, org: str) -> dict[str, int]:
        """The hosts' clusters, and since when each is known: when a server began to serve it."""
        names, shelf = self._links.clusters(org), self._store.of(org)

        def read(rows: Rows) -> dict[str, int]:
            query = rows.select(clusters.c.name, clusters.c.created_at)
            return {row.name: row.created_at for row in rows.execute(query) if row.name in names}

        def write(rows: Rows) -> dict[str, int]:
            now = time.time_ns() // 1_000_000
            rows.insert(clusters, [{"name": name, "created_at": now} for name in sorted(names - read(rows).keys())])
            return read(rows)

        found = await shelf.read(read)
        return found if len(found) == len(names) else await shelf.write(write)

    def _wire(self, name: str, created_at: int) -> dict[str, Any]:
        operator = {"version": self._version}
        return {"name": name, "createdAt": rfc3339(created_at), "operator": operator, "clusterConfig": {}}
