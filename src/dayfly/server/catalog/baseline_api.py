"""Endpoints for declared baselines, from which forks on local hosts derive. Changes are sent to these hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from dayfly.lib.clock import now_ms
from dayfly.server.access import callers
from dayfly.server.admin import audit
from dayfly.server.catalog import baselines
from dayfly.server.catalog.baselines import decode
from dayfly.server.db.tables import sandbox_baselines, sandboxes, workloads
from dayfly.server.http import preconditions
from dayfly.server.http.errors import RequestError
from dayfly.server.http.handler import serve
from dayfly.server.http.preconditions import Tagged
from dayfly.server.http.request_data import read_json, rfc3339
from dayfly.spec import documents
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Row
    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.server.catalog.baselines import LocalBaselines
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import OrgStore, Store

READ_ONLY = ("createdAt", "updatedAt")


class BaselineApi:
    """The endpoints below `/workloads`."""

    def __init__(self, store: Store, local: LocalBaselines) -> None:
        self._store = store
        self._local = local

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        collection = "/orgs/{org}/workloads"
        one = collection + "/{namespace}/{name}"
        return [serve(collection, GET=self.list_all), serve(one, GET=self.get, PUT=self.put, DELETE=self.delete)]

    def _org_store(self, request: Request) -> OrgStore:
        return self._store.for_org(callers.get_caller(request).org)

    async def list_all(self, request: Request) -> Any:
        def work(rows: Rows) -> Any:
            query = rows.select(workloads).order_by(workloads.c.namespace, workloads.c.name)
            return [_describe(row, workload) for row in rows.execute(query) if (workload := decode(row.document))]

        return await self._org_store(request).read(work)

    async def get(self, request: Request) -> Any:
        row = await self._org_store(request).read(lambda rows: _find(rows, request))
        if (workload := decode(row.document)) is None:
            subject = quote(f"{row.namespace}/{row.name}")
            raise RequestError(500, f"workload {subject} cannot be read by this release of the server: apply it again")
        return Tagged(_describe(row, workload), _tag(row))

    async def put(self, request: Request) -> Any:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        body = await read_json(request)
        if isinstance(body, dict):
            # Clients may PUT an object as GET has returned it.
            body = {key: value for key, value in body.items() if key not in READ_ONLY}
        workload = documents.from_wire(body, "Deployment", name=name)
        assert isinstance(workload, Workload), "the kind is given"
        if workload.namespace != namespace:
            problem = f"{quote(workload.namespace)} is not the namespace in the path, {quote(namespace)}"
            raise SpecError(problem, ("namespace",))
        now, when = now_ms(), preconditions.read(request)

        def work(rows: Rows) -> Any:
            document = msgspec.json.encode(workload).decode()
            _check_ports(workload, baselines.read_readable(rows))
            query = rows.select(workloads).where(_matches(namespace, name))
            old = rows.execute(query).one_or_none()
            when.check(_tag(old) if old is not None else None)
            if old is None or decode(old.document) != workload:
                audit.append(rows, audit.get_actor(request), "put", f"workloads/{namespace}/{name}", document)
            if old is None:
                row = {"namespace": namespace, "name": name, "document": document}
                rows.insert(workloads, {**row, "created_at": now, "updated_at": now})
            elif decode(old.document) != workload:
                change = rows.update(workloads).where(_matches(namespace, name))
                rows.execute(change.values(document=document, updated_at=max(now, old.updated_at + 1)))
            return _describe(rows.execute(query).one(), workload)

        stored = await self._org_store(request).write(work)
        await self._local.update(callers.get_caller(request).org, namespace, name)
        return stored

    async def delete(self, request: Request) -> Any:
        when = preconditions.read(request)

        def work(rows: Rows) -> None:
            row = _find(rows, request)
            when.check(_tag(row))
            users = (
                rows.select(sandboxes.c.name, sandbox_baselines.c.uid)
                .where(sandbox_baselines.c.uid == sandboxes.c.uid)
                .where(sandbox_baselines.c.namespace == row.namespace, sandbox_baselines.c.name == row.name)
                .order_by(sandboxes.c.name)
            )
            if forking := list(rows.execute(users).scalars()):
                text = f"workload {row.namespace}/{row.name} is in use by forks of sandbox(es): {', '.join(forking)}"
                raise RequestError(400, f"{text}; delete them first")
            rows.execute(rows.delete(workloads).where(_matches(row.namespace, row.name)))
            audit.append(rows, audit.get_actor(request), "delete", f"workloads/{row.namespace}/{row.name}")

        await self._org_store(request).write(work)
        await self._local.update(
            callers.get_caller(request).org, request.path_params["namespace"], request.path_params["name"]
        )
        return {}


def _check_ports(workload: Workload, known: Mapping[tuple[str, str], Workload]) -> None:
    """Refuse a routed port that another baseline uses, and a port that is another baseline's routed port.

    Requests would reach the wrong baseline. Two baselines may have the same port, because they need not run at once.

    Raises:
        SpecError: with the name of the other baseline.
    """
    for key, other in known.items():
        if key == (workload.namespace, workload.name):
            continue
        owner = quote(f"{other.namespace}/{other.name}")
        for field, port, taken in (
            ("routedPort", workload.routed_port, (other.routed_port, other.port)),
            ("port", workload.port, (other.routed_port,)),
        ):
            if port is not None and port in taken:
                raise SpecError(f"{port} is a port of the baseline {owner}; choose another", (field,))


def _find(rows: Rows, request: Request) -> Row[Any]:
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    row = rows.execute(rows.select(workloads).where(_matches(namespace, name))).one_or_none()
    if row is None:
        raise RequestError(404, f"workload {quote(f'{namespace}/{name}')} not found")
    return row


def _matches(namespace: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(workloads.c.namespace == namespace, workloads.c.name == name)


def _tag(row: Row[Any]) -> str:
    return f"{row.created_at}-{row.updated_at}"


def _describe(row: Row[Any], workload: Workload) -> dict[str, Any]:
    times = {"createdAt": rfc3339(row.created_at), "updatedAt": rfc3339(row.updated_at)}
    return {**documents.export(workload), **times}
