"""Baselines: what the forks of this machine derive from. Kept here, and handed to the hosts when they change."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa
from starlette.routing import Route

from dayfly.control.baselines import decode
from dayfly.control.errors import ApiError
from dayfly.control.exchange import Address, read_json, rfc3339
from dayfly.control.tables import sandbox_baselines, sandboxes, workloads
from dayfly.spec import documents
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row
    from starlette.requests import Request

    from dayfly.control.host_sync import HostSync
    from dayfly.control.store import Store

READ_ONLY = ("createdAt", "updatedAt")


class Workloads:
    """The addresses below `/workloads`."""

    def __init__(self, store: Store, sync: HostSync, org: str) -> None:
        self._store = store
        self._sync = sync
        self._org = org

    def routes(self, root: str) -> list[Route]:
        """Under `root`, the organisation's address."""
        at = f"{root}/workloads"
        one = at + "/{namespace}/{name}"
        return [
            Route(at, Address(self._org, GET=self.list_all)),
            Route(one, Address(self._org, GET=self.get, PUT=self.put, DELETE=self.delete)),
        ]

    async def list_all(self, _request: Request) -> Any:
        def work(connection: Connection) -> Any:
            query = sa.select(workloads).where(workloads.c.org == self._org)
            return [_wire(row) for row in connection.execute(query.order_by(workloads.c.namespace, workloads.c.name))]

        return await self._store.read(work)

    async def get(self, request: Request) -> Any:
        return await self._store.read(lambda connection: _wire(self._find(connection, request)))

    async def put(self, request: Request) -> Any:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        body = await read_json(request)
        if isinstance(body, dict):
            # What GET gave may be put back as it is.
            body = {key: value for key, value in body.items() if key not in READ_ONLY}
        workload = documents.from_wire(body, "Deployment", name=name)
        assert isinstance(workload, Workload), "asked for by its kind"
        if workload.namespace != namespace:
            problem = f"{quote(workload.namespace)} is not the namespace in the address, {quote(namespace)}"
            raise SpecError(problem, ("namespace",))
        now = time.time_ns() // 1_000_000

        def work(connection: Connection) -> Any:
            document = msgspec.json.encode(workload).decode()
            old = connection.execute(self._query(namespace, name)).one_or_none()
            if old is None:
                row = {"org": self._org, "namespace": namespace, "name": name, "document": document}
                connection.execute(sa.insert(workloads), {**row, "created_at": now, "updated_at": now})
            elif decode(old.document) != workload:
                change = sa.update(workloads).where(self._is(namespace, name))
                connection.execute(change.values(document=document, updated_at=now))
            return _wire(connection.execute(self._query(namespace, name)).one())

        stored = await self._store.write(work)
        await self._sync.hand_over_baseline(namespace, name)
        return stored

    async def delete(self, request: Request) -> Any:
        def work(connection: Connection) -> None:
            row = self._find(connection, request)
            users = connection.execute(
                sa.select(sandboxes.c.name)
                .join(sandbox_baselines, sandbox_baselines.c.uid == sandboxes.c.uid)
                .where(
                    sandbox_baselines.c.org == self._org,
                    sandbox_baselines.c.namespace == row.namespace,
                    sandbox_baselines.c.name == row.name,
                )
                .order_by(sandboxes.c.name)
            )
            if forking := list(users.scalars()):
                text = f"workload {row.namespace}/{row.name} is in use by forks of sandbox(es): {', '.join(forking)}"
                raise ApiError(400, f"{text}; delete them first")
            connection.execute(sa.delete(workloads).where(self._is(row.namespace, row.name)))

        await self._store.write(work)
        return {}

    def _find(self, connection: Connection, request: Request) -> Row[Any]:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        row = connection.execute(self._query(namespace, name)).one_or_none()
        if row is None:
            raise ApiError(404, f"workload {quote(f'{namespace}/{name}')} not found")
        return row

    def _query(self, namespace: str, name: str) -> sa.Select[Any]:
        return sa.select(workloads).where(self._is(namespace, name))

    def _is(self, namespace: str, name: str) -> sa.ColumnElement[bool]:
        return sa.and_(workloads.c.org == self._org, workloads.c.namespace == namespace, workloads.c.name == name)


def _wire(row: Row[Any]) -> dict[str, Any]:
    times = {"createdAt": rfc3339(row.created_at), "updatedAt": rfc3339(row.updated_at)}
    return {**documents.export(decode(row.document)), **times}
