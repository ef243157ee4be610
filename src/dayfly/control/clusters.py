"""The organisation, the clusters that its hosts stand for, and the server's own health."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from starlette.routing import Route

from dayfly.control.errors import ApiError
from dayfly.control.exchange import Address, rfc3339
from dayfly.control.tables import clusters
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection
    from starlette.requests import Request

    from dayfly.control.store import Store
from dayfly.plan.catalogue import CATALOGUE, SECTIONS


class Clusters:
    """`/orgs` and the addresses below `/clusters`. A cluster is there if a host serves it; nobody can add one."""

    def __init__(self, store: Store, names: Collection[str], org: str, version: str) -> None:
        self._store = store
        self._names = names
        self._org = org
        self._version = version

    def routes(self, api: str, root: str) -> list[Route]:
        """Under `api`, the root of all, and `root`, the organisation's address."""
        at = f"{root}/clusters"
        tokens = at + "/{name}/tokens"
        return [
            Route(f"{api}/orgs", Address(self._org, GET=self.orgs)),
            Route(f"{api}/meta/health", Address(self._org, GET=self.health)),
            Route(f"{api}/meta/reasons", Address(self._org, GET=self.reasons)),
            Route(at, Address(self._org, GET=self.list_all)),
            Route(at + "/{name}", Address(self._org, GET=self.get, PUT=self.get, DELETE=self.delete)),
            Route(tokens, Address(self._org, GET=self.list_tokens, POST=self.create_token)),
        ]

    async def orgs(self, _request: Request) -> Any:
        return {"orgs": [{"name": self._org, "displayName": self._org}], "user": {}, "featureFlags": {}}

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

    async def list_all(self, _request: Request) -> Any:
        return [self._wire(name, at) for name, at in sorted((await self.known()).items())]

    async def get(self, request: Request) -> Any:
        """Also what PUT does: to add a cluster that is there changes nothing."""
        name = request.path_params["name"]
        known = await self.known()
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

    async def known(self) -> dict[str, int]:
        """The hosts' clusters, and since when each is known: when a server began to serve it."""

        def read(connection: Connection) -> dict[str, int]:
            query = sa.select(clusters.c.name, clusters.c.created_at).where(clusters.c.org == self._org)
            return {row.name: row.created_at for row in connection.execute(query) if row.name in self._names}

        def write(connection: Connection) -> dict[str, int]:
            new = sorted(set(self._names) - read(connection).keys())
            now = time.time_ns() // 1_000_000
            rows = [{"org": self._org, "name": name, "created_at": now} for name in new]
            if rows:
                connection.execute(sa.insert(clusters), rows)
            return read(connection)

        found = await self._store.read(read)
        return found if len(found) == len(self._names) else await self._store.write(write)

    def _wire(self, name: str, created_at: int) -> dict[str, Any]:
        operator = {"version": self._version}
        return {"name": name, "createdAt": rfc3339(created_at), "operator": operator, "clusterConfig": {}}
