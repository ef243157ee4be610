"""Keys, and clusters with their tokens: created by an admin, shown once, revoked at once."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.server import databases, specs
from tests.server.client import Client, serving, wait_for
from tests.server.fake_host import FakeHost

from dayfly.link.host_state import HostState
from dayfly.link.server_end import Link
from dayfly.server.admin import cluster_tokens, clusters, keys
from dayfly.server.app import read_used_clusters
from dayfly.server.db import tables
from dayfly.server.db.store import Store, StoreError
from dayfly.server.http import auth_middleware
from dayfly.server.sync.agents import agent_service


@dataclasses.dataclass
class Made:
    client: Client
    id: str
    key: str


def key(client, role, **more) -> Made:
    answer = client.call("POST", "keys", {"name": f"my {role}", "role": role, **more})
    assert answer.status == 200, answer.body
    return Made(Client(client.port, client.store, answer.json["key"]), answer.json["id"], answer.json["key"])


def test_a_key_is_shown_once_and_has_its_role(client):
    member = key(client, "member")
    prefix, id_, secret = member.key.split("_", 2)
    assert (prefix, id_, len(secret)) == ("dfk", member.id, 43 + 6)
    assert keys.checksum(member.key[:-6]) == secret[-6:], "the checksum that scanners verify"
    assert keys.checksum(f"dfk_{member.id}_{'x' * 43}") != secret[-6:]
    assert keys.checksum("") == "000000"
    assert keys.checksum("123456789") == "3jZRME", "CRC-32 of the test vector"
    (shown,) = client.get("keys")
    assert shown.keys() == {"id", "name", "role", "createdAt", "createdBy"}
    assert (shown["name"], shown["role"]) == ("my member", "member")
    assert member.client.get("/api/v2/orgs/")["user"] == {"role": "member"}
    member.client.put("sandboxes/sb1", specs.empty())
    assert member.client.call("PUT", "resource-plugins/db", specs.plugin()).status == 403
    assert member.client.call("GET", "keys").status == 403
    viewer = key(client, "viewer")
    assert viewer.client.get("sandboxes/sb1")["name"] == "sb1"
    assert viewer.client.call("DELETE", "sandboxes/sb1").status == 403


@pytest.mark.usefixtures("on_sqlite")
def test_database_contains_no_key_and_no_token(client):
    made = key(client, "admin")
    client.put("clusters/far", None)
    token = client.call("POST", "clusters/far/tokens", {}).json["token"]
    dump = repr([databases.sql(client.store, f"SELECT * FROM {table.name}") for table in tables.metadata.sorted_tables])
    assert made.id in dump
    for secret in (made.key.split("_", 2)[2], token.partition(".")[2]):
        assert secret not in dump


@pytest.mark.parametrize(
    "change",
    [
        lambda key: key[:-1],
        lambda key: key + "x",
        lambda key: key.replace("dfk_", "dfx_"),
        lambda key: key.replace("dfk_", ""),
        lambda key: "dfk__" + key.split("_", 2)[2],
        lambda key: key[: key.index("_", 4) + 1],
        lambda key: key.replace("_", "-"),
    ],
)
def test_altered_key_is_refused(client, change):
    made = key(client, "admin")
    assert Client(client.port, client.store, change(made.key)).call("GET", "sandboxes").status == 401


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "mapping"),
        ({}, "name: must be"),
        ({"name": "a", "role": "root"}, "role: must be one of viewer, member, admin"),
        ({"name": "a\nb", "role": "viewer"}, "name: must be"),
        ({"name": "a", "role": "viewer", "org": "other"}, "org: unknown field"),
        ({"name": "a", "role": "viewer", "expiresInSeconds": -1}, "expiresInSeconds: must be"),
        ({"name": "a", "role": "viewer", "expiresInSeconds": 0}, "expiresInSeconds: must be"),
        ({"name": "a", "role": "viewer", "expiresInSeconds": False}, "expiresInSeconds: must be"),
        ({"name": "a", "role": "viewer", "scope": ""}, "scope: must be a list"),
        ({"name": "a", "role": "viewer", "scope": {}}, "scope: must be a list"),
        ({"name": "a", "role": ["viewer"]}, "role: must be"),
    ],
)
def test_malformed_request_creates_no_key(client, body, says):
    answer = client.call("POST", "keys", body)
    assert answer.status == 400
    assert says in answer.error
    assert client.get("keys") == []


def test_key_expires_and_last_use_is_stored_once_a_minute(client, monkeypatch):
    made = key(client, "viewer", expiresInSeconds=3600)
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)

    def used():
        return client.get("keys")[0].get("lastUsedAt")

    made.client.get("sandboxes")
    first = used()
    now += 59 * 10**9
    made.client.get("sandboxes")
    assert used() == first is not None
    now += 10**9
    made.client.get("sandboxes")
    assert used() > first
    now += 3_600 * 10**9
    assert made.client.call("GET", "sandboxes").status == 401


@contextlib.contextmanager
def waiting(client, made, monkeypatch):
    """Wait for a change of a sandbox with that key, which is checked frequently."""
    waits, changed = threading.Event(), HostState.wait_for_change

    def noted(self, uid, version, seconds):
        waits.set()
        return changed(self, uid, version, seconds)

    monkeypatch.setattr(HostState, "wait_for_change", noted)
    monkeypatch.setattr(auth_middleware, "KEY_CHECK_INTERVAL_S", 0.05)
    client.put("sandboxes/sb1", specs.empty())
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(made.client.call, "GET", "sandboxes/sb1/report?after=1&wait=30")
        assert waits.wait(20)
        yield asked


def test_revoked_key_ends_waiting_requests(client, monkeypatch):
    made = key(client, "viewer")
    with waiting(client, made, monkeypatch) as asked:
        began = time.monotonic()
        client.delete(f"keys/{made.id}")
        assert asked.result().status == 401
    assert time.monotonic() - began < 25
    assert made.client.call("GET", "sandboxes").status == 401
    assert client.call("DELETE", f"keys/{made.id}").status == 404


async def full(*_):
    """Replaces `Store.write`."""
    raise StoreError("the disk is full")


def test_key_reads_when_last_use_cannot_be_stored(client, monkeypatch):
    made = key(client, "member")
    monkeypatch.setattr(Store, "write", full)
    assert made.client.get("sandboxes") == []
    assert made.client.call("PUT", "sandboxes/sb1", specs.empty()).status == 503


def test_waiting_request_gets_503_while_store_is_away(client, monkeypatch):
    """Clients retry after 503, but look for another key after 401."""

    async def away(_self, _key):
        raise StoreError("the disk is full")

    made = key(client, "viewer")
    with waiting(client, made, monkeypatch) as asked:
        monkeypatch.setattr(keys.StoredKeys, "caller", away)
        answer = asked.result()
    assert (answer.status, "the disk is full" in answer.error) == (503, True)


def test_a_cluster_is_added_for_an_agent_and_removed(client):
    added = client.put("clusters/far/", None)
    assert added["operator"] == {"version": ""}
    assert client.put("clusters/far", {}) == added
    assert [cluster["name"] for cluster in client.get("clusters")] == ["far", "local"]
    client.put("sandboxes/sb1", specs.empty(cluster="far"))
    answer = client.call("DELETE", "clusters/far", {})
    assert answer.status == 400
    assert "in use by sandbox(es): sb1" in answer.error
    client.delete("sandboxes/sb1")
    assert client.call("GET", "sandboxes/sb1").status == 404, "no agent has ever connected"
    assert client.delete("clusters/far") == {}
    assert client.call("GET", "clusters/far").status == 404


def add_cluster(client):
    """Add the cluster `far` for an agent, and wait until the server has a link to it."""
    client.put("clusters/far", None)
    client.put("sandboxes/probe", specs.empty(cluster="far"))
    wait_for(lambda: "no operator has connected yet" in client.get("sandboxes/probe")["status"]["message"])
    client.delete("sandboxes/probe")


def group(**more):
    return {"spec": {"match": {"label": {"key": "team", "value": "a*"}}, **more}}


def test_cluster_with_run_of_route_group_is_not_deleted(client):
    """Without the cluster, the group could never end."""
    client.put("clusters/far", None)
    client.put("routegroups/rg1", group(cluster="far"))
    answer = client.call("DELETE", "clusters/far", {})
    assert answer.status == 400
    assert "in use by route group(s): rg1; delete" in answer.error
    client.delete("routegroups/rg1")
    wait_for(lambda: client.call("GET", "routegroups/rg1").status == 404)
    assert client.delete("clusters/far") == {}


def test_group_of_unconnected_cluster_ends_at_once(tmp_path, blank, monkeypatch):
    monkeypatch.setattr(agent_service, "IDLE_POLL_INTERVAL_S", 0.05)
    with serving(shutil.copy(blank, tmp_path), {"local": FakeHost()}) as client:
        add_cluster(client)
        client.put("routegroups/rg1", group(cluster="far"))
        client.delete("routegroups/rg1")
        assert client.call("GET", "routegroups/rg1").status == 404, "no agent has ever connected"


@pytest.mark.parametrize(("what", "wish"), [("sandboxes/sb1", specs.empty), ("routegroups/rg1", group)])
def test_put_for_concurrently_removed_cluster_stores_nothing(tmp_path, blank, monkeypatch, what, wish):
    monkeypatch.setattr(agent_service, "IDLE_POLL_INTERVAL_S", 0.05)
    with serving(shutil.copy(blank, tmp_path), {"local": FakeHost()}) as client:

        async def removed(*_):
            databases.sql(client.store, "DELETE FROM clusters WHERE name = 'far'")

        add_cluster(client)
        monkeypatch.setattr(Link, "admit", removed)
        answer = client.call("PUT", what, wish(cluster="far"))
        assert answer.status == 400
        assert 'no cluster "far"; this server has local;' in answer.error
        assert client.call("GET", what).status == 404


def test_agent_cluster_that_became_local_receives_ends(tmp_path, blank):
    where = shutil.copy(blank, tmp_path)
    host = FakeHost()
    with serving(where, {"local": host}) as client:
        client.put("clusters/far", None)
    with serving(where, {"local": host, "far": host}) as client:
        client.put("sandboxes/sb1", specs.empty(cluster="far"))
        [uid] = host.offers
        client.delete("sandboxes/sb1")
        assert host.closed[uid].reason == "Deleted"
        assert client.get("sandboxes/sb1")["status"]["reason"] == "Deleting"


async def test_local_server_does_not_take_over_agent_cluster(client):
    """At its next start the server finds sandboxes there, whose runs belong to the agent's cluster."""
    client.put("clusters/far", None)
    client.put("sandboxes/there", specs.empty(cluster="far"))
    assert await read_used_clusters(client.store, "local") == set()
    client.put("sandboxes/here", specs.empty())
    assert await read_used_clusters(client.store, "local") == {"local"}


def test_cluster_pages_are_complete_in_any_collation(postgres):
    """In English collation `a` comes before `B`, in ASCII after it."""
    settings = "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
    postgres.administrate(f"CREATE DATABASE in_english OWNER {databases.OWNER} {settings}")
    with serving(postgres.url("in_english"), {"local": FakeHost()}) as client:
        for name in ("B", "a", "Z"):
            client.put(f"clusters/{name}", None)
        found = [""]
        while page := client.get(f"clusters?limit=1&after={found[-1]}"):
            found.append(page[0]["name"])
    assert found[1:] == ["B", "Z", "a", "local"]


def test_sandbox_waits_for_the_first_agent(client):
    client.put("clusters/far", None)
    stored = client.put("sandboxes/sb1", specs.empty(cluster="far"))
    assert stored["status"]["ready"] is False
    assert "no host serves the cluster far now" in stored["status"]["message"]
    answer = client.call("PUT", "sandboxes/sb2", specs.empty(cluster="nowhere"))
    assert answer.status == 400
    assert "this server has far, local" in answer.error


def test_tokens_are_shown_once_and_known_until_they_are_revoked(client):
    client.put("clusters/far", None)
    made = client.call("POST", "clusters/far/tokens", {}).json
    assert made["token"].startswith(f"local@{made['id']}.")
    assert made["maskedValue"] == f"local@{made['id']}.***"
    shown = {name: value for name, value in made.items() if name != "token"}
    assert client.get("clusters/far/tokens/") == [shown]
    assert client.get(f"clusters/far/tokens/{made['id']}") == shown
    assert client.call("GET", f"clusters/local/tokens/{made['id']}").status == 404
    assert Client(client.port, client.store, made["token"]).call("GET", "sandboxes").status == 401

    assert whose(client, made["token"]) == ("local", "far", made["id"])
    assert client.get("clusters/far/tokens")[0]["status"]["lastConnectedIp"] == "10.0.0.7"
    for wrong in (made["token"] + "x", made["token"].replace("local@", "other@"), "local@x.y", "", "@"):
        assert whose(client, wrong) is None
    client.put("sandboxes/sb1", specs.empty(cluster="far"))
    client.delete("sandboxes/sb1")
    assert client.get("sandboxes/sb1")["status"]["ready"] is False, "its agent may have received it"
    assert client.call("DELETE", f"clusters/local/tokens/{made['id']}").status == 404
    assert client.delete(f"clusters/far/tokens/{made['id']}") == {}
    assert whose(client, made["token"]) is None
    wait_for(lambda: client.get("clusters/far/tokens") == [])


def test_token_works_when_its_use_cannot_be_stored(client, monkeypatch):
    """An agent uses it to check which runs may start, which only reads the store."""
    client.put("clusters/far", None)
    made = client.call("POST", "clusters/far/tokens", {}).json
    monkeypatch.setattr(Store, "write", full)
    assert whose(client, made["token"]) == ("local", "far", made["id"])
    assert client.get("clusters/far/tokens")[0]["status"] == {}


async def test_token_opens_only_its_own_organisation(place):
    """The name that selects the rows of all organisations is not valid in a token."""
    store = Store.open(place)
    try:
        made = {}
        for org in ("acme", "other"):

            def add(rows):
                rows.insert(tables.clusters, {"name": "far", "created_at": 1, "agent": True})
                return cluster_tokens.create(rows, "far")[0]

            made[org] = await store.for_org(org).write(add)
        for org in ("*", "", "other"):
            token = f"{org}@{made['acme'].partition('@')[2]}"
            assert await cluster_tokens.authenticate(store, token, "10.0.0.7") is None, org
        for org in made:
            assert await store.for_org(org).read(lambda rows: clusters.has_never_connected(rows, "far", None))
        assert (await cluster_tokens.authenticate(store, made["acme"], "10.0.0.7")).org == "acme"
        assert await store.for_org("other").read(lambda rows: clusters.has_never_connected(rows, "far", None))
    finally:
        store.close()


def whose(client, token):
    import asyncio

    return asyncio.run(cluster_tokens.authenticate(client.store, token, "10.0.0.7"))
