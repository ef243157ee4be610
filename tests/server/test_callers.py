"""Each path has a role, and each query is restricted to an organisation."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.server import specs
from tests.server.client import KEY, ORG
from tests.server.lossy_link import call

import dayfly.server
from dayfly.server.access import callers
from dayfly.server.app import create_app
from dayfly.server.db import tables
from dayfly.server.db.rows import ALL_ORGS, Rows
from dayfly.server.db.store import Store
from dayfly.server.http import route_table

ROOM = Path(dayfly.server.__file__).parent
# The module with the restriction, the connections, and notifications, which contain no rows.
MAY_QUERY = {"rows.py", "databases.py", "notifications.py"}
QUERIES = {"select", "insert", "update", "delete", "text"}


def test_all_queries_are_restricted_to_an_organisation():
    found = []
    for file in (each for each in ROOM.rglob("*.py") if "migrations" not in each.parts):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in QUERIES:
                of = node.func.value
                if isinstance(of, ast.Name) and of.id in ("sa", "sqlalchemy"):
                    found.append((file.name, ast.unparse(node)))
    assert {(name, query) for name, query in found if name not in MAY_QUERY} == {
        ("clusters.py", "sa.select(sa.literal(1))")
    }
    assert [name for name, _ in found if name == "rows.py"], "the test finds queries"


def test_rows_hide_other_organisations():
    engine = sa.create_engine("sqlite://")
    tables.metadata.create_all(engine)
    row = {"name": "c", "created_at": 1}
    with engine.begin() as connection:
        ours, theirs = Rows(connection, "ours"), Rows(connection, "theirs")
        ours.insert(tables.clusters, row)
        theirs.insert(tables.clusters, [row, {**row, "name": "d", "org": "ours"}])
        of = lambda rows: sorted(rows.execute(rows.select(tables.clusters.c.name)).scalars())  # noqa: E731
        assert (of(ours), of(theirs), of(Rows(connection, ALL_ORGS))) == (["c"], ["c", "d"], ["c", "c", "d"])
        assert ours.execute(ours.update(tables.clusters).values(created_at=2)).rowcount == 1
        assert ours.execute(ours.delete(tables.clusters)).rowcount == 1
        assert of(theirs) == ["c", "d"]
        pairs = theirs.select(tables.clusters.c.name, tables.plugins.c.name)
        assert [str(part).partition(" ")[0] for part in pairs.whereclause.clauses] == ["clusters.org", "plugins.org"]


QUERIED = {
    "columns": lambda: (tables.clusters.c.name, tables.plugins.c.name, tables.clusters.c.org),
    "a table": lambda: (tables.sandboxes,),
    "a table and another's column": lambda: (tables.agents, tables.sandboxes.c.uid),
    "an expression": lambda: (tables.clusters.c.name, (tables.plugins.c.name + "x").label("n")),
    "a count": lambda: (sa.func.count(tables.audit_heads.c.org),),
    "an alias": lambda: (tables.clusters.alias("c").c.name,),
    "an alias beside its table": lambda: (tables.clusters.c.name, tables.clusters.alias("c")),
}


@pytest.mark.parametrize("what", QUERIED)
def test_query_shows_only_own_rows_of_each_table(what):
    asked = QUERIED[what]()
    query = Rows(None, "ours").select(*asked)
    bound = {str(part.left) for part in getattr(query.whereclause, "clauses", [query.whereclause])}
    assert bound == {str(table.c.org) for table in sa.select(*asked).get_final_froms()}


@pytest.fixture
async def app(blank, tmp_path, host):
    store = Store.open(shutil.copy(blank, tmp_path))
    yield create_app(store, {"local": host.end}, keys=callers.single_key(KEY), version="1")
    store.close()


async def test_every_path_of_the_table_is_served(app):
    served = {route.path for route in app.routes}
    beside = {"/{path:path}", "/", "/page", "/page/{path:path}", "/api/v1/workloads/routing-rules"}
    beside |= {"/sandbox/name/{name}", "/page/sandbox/name/{name}"}
    assert served - beside == {route_table.API + path for path in route_table.ROUTES}


class Fixed:
    """Keys that are called like their roles."""

    async def caller(self, key):
        name, _, org = key.partition("@")
        return callers.Caller(org, callers.Role[name.upper()], "k", key) if org else None

    async def holder(self, key_id):
        return None


async def test_role_includes_rights_of_lower_roles_only(blank, tmp_path, host):
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=Fixed(), version="1")

        async def status(key, method, path, body=None):
            return (await call(app, key, method, path, body))[0]

        plugin, sandbox = f"{ORG}/resource-plugins/db", f"{ORG}/sandboxes/sb1"
        assert await status("viewer@local", "PUT", sandbox, specs.empty()) == 403
        assert await status("member@local", "PUT", plugin, specs.plugin()) == 403
        assert (await call(app, "member@local", "PUT", plugin, {}))[1]["error"] == (
            "PUT here needs the role admin, and your key has the role member"
        )
        assert await status("admin@local", "PUT", plugin, specs.plugin()) == 200
        assert await status("member@local", "PUT", sandbox, specs.empty()) == 200
        assert await status("viewer@local", "GET", sandbox) == 200
        assert await status("viewer@local", "GET", sandbox + "/outputs") == 403
        assert await status("admin@acme", "GET", sandbox) == 404
        assert await status("admin@acme", "GET", sandbox.replace("/local/", "/acme/")) == 404
        assert await status("admin@acme", "GET", "/api/v2/orgs/acme/sandboxes") == 200
        assert await status("nobody", "GET", sandbox) == 401
    finally:
        store.close()
