"""Rows of a newer Dayfly, as in a rolling update: they do not affect other objects, and they are not changed."""

from __future__ import annotations

import json
import secrets
import shutil

import pytest
import sqlalchemy as sa
from tests.server import specs, stored_records

from dayfly.link.server_end import Links
from dayfly.server.api import group_changes
from dayfly.server.api.group_changes import GroupChanges
from dayfly.server.db.store import Store
from dayfly.server.db.tables import plugins, route_groups, sandboxes
from dayfly.server.records import run_records
from dayfly.server.records.unreadable_rows import UnreadableError
from dayfly.server.runs.group_strategy import GroupStrategy
from dayfly.server.sync.host_sync import HostSync
from dayfly.spec.route_group import GroupTtl
from dayfly.spec.sandbox import Fork
from dayfly.spec.steps.value_from import WorkloadRef

NEWER = {
    "field": {"ofANewerOne": 7},
    "type": {"labels": 7},
    "unit": {"ttl": {"duration": "1y", "offsetFrom": "createdAt"}},
}
LABELS = {"team": "pay"}
RULES = "/api/v2/workloads/routing-rules"


async def change(store, table, name, more):
    """Add fields to a stored spec as another server would, or restore it for `{}`."""

    def work(rows):
        row = rows.execute(rows.select(table).where(table.c.name == name)).one()
        spec = json.loads(row.spec)
        was = {key: value for key, value in spec.items() if key != "ofANewerOne"}
        new = {"spec": json.dumps(was | more), "updated_at": row.updated_at + 1, "revision": row.revision + 1}
        rows.execute(rows.update(table).where(table.c.uid == row.uid).values(new))

    await store.all_orgs().write(work)


@pytest.fixture(params=[("sandboxes", sandboxes), ("routegroups", route_groups)], ids=["sandbox", "group"])
def kind(request):
    """The path of the kind, and its table."""
    return request.param


@pytest.fixture
def gone():
    """The name of an object that becomes unreadable. The log has each name once in a process."""
    return f"gone-{secrets.token_hex(4)}"


@pytest.fixture
def made(client, kind, gone):
    """Create two objects of each kind."""
    wish = {"spec": {"cluster": "local", "match": {"label": {"key": "team", "value": "*"}}}}
    for name in (gone, "left"):
        client.put(f"sandboxes/{name}", specs.empty(labels=LABELS))
        client.put(f"routegroups/{name}", wish)
    return client


@pytest.mark.parametrize("newer", NEWER.values(), ids=NEWER)
async def test_unreadable_object_is_logged_once_and_hides_no_other(made, kind, gone, newer, caplog):
    plural, table = kind
    await change(made.store, table, gone, newer)
    for _ in range(3):
        assert [each["name"] for each in made.get(plural)] == ["left"]
        assert [each["name"] for each in made.get(f"{plural}?limit=1")][:1] == ["left"]
        assert "left" in made.get("routegroups/left")["status"]["matchedSandboxes"]
        assert made.call("GET", "attention").status == 200
    one = made.call("GET", f"{plural}/{gone}")
    which = f"sandbox {gone}" if table is sandboxes else f"route group {gone}"
    said = f"{which} is stored in a form that this server does not know"
    assert (one.status, one.error.startswith(said)) == (503, True)
    assert caplog.text.count(said) == 1


async def test_unreadable_object_is_neither_changed_nor_deleted(made, kind, gone):
    plural, table = kind
    await change(made.store, table, gone, NEWER["field"])

    async def stored():
        mine = table.c.name == gone
        return await made.store.for_org("local").read(lambda rows: rows.execute(rows.select(table).where(mine)).one())

    before, wish = await stored(), {"cluster": "local", "labels": {"team": "x"}}
    if table is route_groups:
        wish["match"] = {"label": {"key": "team", "value": "x"}}
    assert made.call("PUT", f"{plural}/{gone}", {"spec": wish}).status == 503
    assert made.call("DELETE", f"{plural}/{gone}?force=true").status == 503
    assert made.call("POST", f"{plural}/{gone}/abandon", {"reason": "why"}).status == 503
    assert await stored() == before


async def test_unreadable_plugin_version_is_not_replaced_by_older(client):
    """Otherwise a deletion of the newest version would delete the older one."""
    for name in ("db@1.0.0", "db@2.0.0", "queue@1.0.0"):
        client.put(f"resource-plugins/{name.partition('@')[0]}", specs.plugin(name))
    client.put("sandboxes/left", specs.sandbox())
    this = sa.update(plugins).where(plugins.c.name == "db", plugins.c.version == "2.0.0")
    await client.store.all_orgs().write(lambda rows: rows.execute(this.values(spec='{"ofANewerOne": 7}')))
    assert [each["name"] for each in client.get("resource-plugins")] == ["queue@1.0.0"]
    assert [each["name"] for each in client.get("resource-plugins?version=all")] == ["db@1.0.0", "queue@1.0.0"]
    assert [each["name"] for each in client.get("resource-plugins/db/versions")] == ["db@1.0.0"]
    assert client.get("resource-plugins/db?version=1.0.0")["name"] == "db@1.0.0"
    assert client.call("PUT", "sandboxes/new", specs.sandbox()).status == 503
    assert client.call("GET", "sandboxes/left").status == 200
    for method in ("GET", "DELETE"):
        assert client.call(method, "resource-plugins/db").status == 503


async def test_routing_rules_fail_if_a_sandbox_is_unreadable(made, gone):
    """Clients keep their rules, instead of sending requests to the baseline."""
    assert made.call("GET", RULES).status == 200
    await change(made.store, sandboxes, gone, NEWER["field"])
    assert made.call("GET", RULES).status == 503


class TestGroups:
    """No run ends and no route changes because of an incomplete group membership."""

    @pytest.fixture
    async def store(self, blank, tmp_path):
        """A group with the fork of its only sandbox."""
        opened = Store.open(shutil.copy(blank, tmp_path))
        fork = Fork(fork_of=WorkloadRef(kind="Deployment", namespace="shop", name="web"))
        match = {"label": {"key": "team", "value": "pay"}}
        await stored_records.write(opened, stored_records.sandbox("u", name="box", labels=LABELS, forks=(fork,)))
        await stored_records.write(
            opened, stored_records.group("k", name="all", match=match, ttl=GroupTtl(duration="1h"))
        )
        yield opened
        opened.close()

    def server(self, store):
        sync = HostSync(store, Links())
        return stored_records.group_sweep(store, sync), sync

    @pytest.mark.parametrize("table", [sandboxes, route_groups], ids=["sandbox", "group"])
    async def test_unreadable_row_ends_no_group_and_keeps_routes(self, store, table):
        org_store, (groups, sync) = store.for_org("acme"), self.server(store)
        await groups.sweep()
        assert sync.routing_keys("acme", "u") == {"shop/web": ("k",)}
        name = "box" if table is sandboxes else "all"
        await change(store, table, name, NEWER["field"])
        await groups.sweep()
        assert sync.routing_keys("acme", "u") == {"shop/web": ("k",)}
        row = await org_store.read(lambda rows: rows.execute(rows.select(route_groups)).one())
        assert (row.unmatched_since, row.stop) == (0, None)
        fresh, sync = self.server(store)
        await fresh.sweep()
        with pytest.raises(UnreadableError):
            await sync.load_routing_keys("acme")
        await change(store, table, name, {})
        await fresh.sweep()
        assert sync.routing_keys("acme", "u") == {"shop/web": ("k",)}

    async def test_group_with_unknown_match_is_unreadable(self, store):
        await change(store, route_groups, "all", {"match": {"none": []}})
        groups, sync = self.server(store)
        await groups.sweep()
        with pytest.raises(UnreadableError):
            await sync.load_routing_keys("acme")

    async def test_unreadable_group_is_not_streamed_as_deleted(self, store, monkeypatch):
        monkeypatch.setattr(group_changes, "PAUSE_PER_WORK", 0)
        strategy = GroupStrategy(store, Links(), HostSync(store, Links()))
        changes = GroupChanges(strategy, Links(), "acme")

        async def poll(marker):
            return [(name, bool(data)) async for name, data, _ in changes.poll(marker)]

        assert await poll(1) == [("all", True)]
        await change(store, route_groups, "all", NEWER["field"])
        assert await poll(2) == []
        await change(store, route_groups, "all", {})
        assert await poll(3) == [("all", True)]
        await store.for_org("acme").write(lambda rows: rows.execute(rows.delete(route_groups)))
        assert await poll(4) == [("all", False)]

    @pytest.mark.parametrize(("table", "uid"), [(sandboxes, "u"), (route_groups, "k")], ids=["sandbox", "group"])
    async def test_query_for_unexpired_runs_fails_if_one_is_unreadable(self, store, table, uid):
        """A run that is missing in the answer would never start."""

        async def query():
            return await store.for_org("acme").read(lambda rows: run_records.read_unexpired(rows, [uid], 2))

        assert await query() == [uid]
        await change(store, table, "box" if table is sandboxes else "all", NEWER["field"])
        with pytest.raises(UnreadableError):
            await query()
