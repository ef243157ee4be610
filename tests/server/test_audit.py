"""The audit log: one entry for each change, in the same transaction, and no unnoticed change of an entry."""

from __future__ import annotations

import asyncio
import hashlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server import specs
from tests.server.client import KEY, ORG, serving
from tests.server.databases import sql
from tests.server.fake_host import FakeHost
from tests.server.lossy_link import call

from dayfly.server.access import callers
from dayfly.server.admin.audit_chain import ChainEntry, ChainHead, find_fault, next_entry
from dayfly.server.app import create_app
from dayfly.server.db.store import Store
from dayfly.server.db.tables import audit as audit_table


def chain(client):
    """Return all entries and the head, read with pages of three."""
    found = []
    while True:
        page = client.get(f"audit?after={found[-1].number if found else 0}&limit=3")
        found += msgspec.convert(page["entries"], list[ChainEntry])
        if len(page["entries"]) < 3:
            return found, msgspec.convert(page["head"], ChainHead)


@pytest.mark.slow
def test_each_change_has_an_audit_entry_without_secrets(place):
    with serving(place, {"local": FakeHost()}) as client:
        client.put("workloads/default/shop", specs.baseline())
        client.put("resource-plugins/db", specs.plugin())
        client.put("sandboxes/sb1", specs.sandbox(labels={"a": "b"}))
        client.put("sandboxes/sb1", specs.sandbox(labels={"a": "c"}))
        client.put("clusters/far", None)
        token = client.call("POST", "clusters/far/tokens", {}).json
        key = client.call("POST", "keys", {"name": "ci", "role": "viewer"}).json
        before = client.get("sandboxes/sb1")
        same = (
            ("PUT", "workloads/default/shop", specs.baseline()),
            ("PUT", "sandboxes/sb1", specs.sandbox(labels={"a": "c"})),
            ("PUT", "clusters/far", None),
            ("PUT", "resource-plugins/db", specs.plugin()),
            ("PUT", "sandboxes/sb1", specs.sandbox(labels={"a": 7})),
            ("DELETE", "sandboxes/none", None),
            ("GET", "sandboxes", None),
        )
        for method, path, body in same:
            client.call(method, path, body)
        assert client.get("sandboxes/sb1") == before, "updatedAt does not change either"
        client.delete("sandboxes/sb1?force=true")
        client.delete(f"clusters/far/tokens/{token['id']}")
        client.delete("clusters/far")
        client.delete(f"keys/{key['id']}")
        client.delete("workloads/default/shop")
        entries, head = chain(client)
        assert [f"{entry.action} {entry.object}" for entry in entries] == [
            "put workloads/default/shop",
            "publish resource-plugins/db@0.0.0",
            "create sandboxes/sb1",
            "change sandboxes/sb1",
            "create clusters/far",
            f"create clusters/far/tokens/{token['id']}",
            f"create keys/{key['id']}",
            "abandon sandboxes/sb1",
            f"revoke clusters/far/tokens/{token['id']}",
            "delete clusters/far",
            f"revoke keys/{key['id']}",
            "delete workloads/default/shop",
        ]
        assert {(entry.name, entry.program) for entry in entries} == {("this home", "")}
        assert entries[2].spec != entries[3].spec
        assert find_fault("local", entries, head) == ""
        text = json.dumps(msgspec.to_builtins(entries))
        for secret in (token["token"], key["key"], KEY, "http.server"):
            assert secret not in text
            assert hashlib.sha256(secret.encode()).hexdigest() not in text


TAMPERING = {
    "was changed after it was written": "UPDATE audit SET name = 'somebody else' WHERE number = 2",
    "does not match the digest": "UPDATE audit SET previous = digest WHERE number = 3",
    "is missing": "DELETE FROM audit WHERE number = 2",
    "the last entry is 3, but 4 were written": "DELETE FROM audit WHERE number = 4",
}


@pytest.mark.parametrize("says", TAMPERING)
def test_an_entry_that_is_altered_or_removed_is_noticed(tmp_path, says):
    with serving(tmp_path / "control.db", {"local": FakeHost()}) as client:
        for number in range(4):
            client.put(f"clusters/c{number}", None)
        entries, head = chain(client)
        assert find_fault("local", entries, head) == ""
        sql(client.store, TAMPERING[says])
        assert says in find_fault("local", *chain(client))


async def test_server_user_of_postgresql_cannot_alter_entries(postgres):
    store = Store.open(postgres.fresh())
    try:
        app = create_app(store, {}, keys=callers.single_key(KEY), version="1")
        await call(app, KEY, "PUT", f"{ORG}/clusters/far")
        for change in (audit_table.update().values(name="x"), audit_table.delete()):
            assert await store.for_org("local").write(lambda rows, change=change: rows.execute(change).rowcount) == 0
        assert len((await call(app, KEY, "GET", f"{ORG}/audit"))[1]["entries"]) == 1
    finally:
        store.close()


async def test_changes_of_several_servers_form_one_chain(place):
    """Also the first entries, which each server would number 1."""
    stores = [Store.open(place) for _ in range(2)]
    apps = [create_app(store, {}, keys=callers.single_key(KEY), version="1") for store in stores]
    try:
        asked = [call(apps[number % 2], KEY, "PUT", f"{ORG}/clusters/c{number}") for number in range(16)]
        assert {status for status, _ in await asyncio.gather(*asked)} == {200}
        found = (await call(apps[0], KEY, "GET", f"{ORG}/audit"))[1]
        entries = msgspec.convert(found["entries"], list[ChainEntry])
        assert len(entries) == 16
        assert find_fault("local", entries, msgspec.convert(found["head"], ChainHead)) == ""
    finally:
        for store in stores:
            store.close()


async def test_a_change_that_fails_leaves_no_entry(place):
    store = Store.open(place)
    try:
        app = create_app(store, {}, keys=callers.single_key(KEY), version="1")
        assert (await call(app, KEY, "PUT", f"{ORG}/resource-plugins/db", specs.plugin()))[0] == 200
        assert (await call(app, KEY, "PUT", f"{ORG}/resource-plugins/db", specs.plugin()))[0] == 409
        assert (await call(app, KEY, "GET", f"{ORG}/audit"))[1]["head"]["number"] == 1
    finally:
        store.close()


FIELDS = ("number", "at", "key", "name", "program", "action", "object", "spec", "previous", "digest")


@settings(max_examples=60)
@given(st.integers(1, 6), st.data())
def test_each_change_of_a_chain_is_noticed(length, data):
    entries, head = [], ChainHead()
    for number in range(length):
        new = ChainEntry(
            number=0, at=number, key="k", name="n", program="p", action="put", object=f"o{number}", spec="s"
        )
        entries.append(next_entry("org", head, new))
        head = ChainHead(entries[-1].number, entries[-1].digest)
    assert find_fault("org", entries, head) == ""
    assert find_fault("org", entries[length // 2 :], head, ChainHead(*_last(entries[: length // 2]))) == ""
    assert find_fault("other", entries, head)
    at = data.draw(st.integers(0, length - 1))
    field = data.draw(st.sampled_from(FIELDS))
    old = getattr(entries[at], field)
    changed = msgspec.structs.replace(entries[at], **{field: old + 1 if isinstance(old, int) else old + "x"})
    assert find_fault("org", [*entries[:at], changed, *entries[at + 1 :]], head)
    assert find_fault("org", [*entries[:at], *entries[at + 1 :]], head)
    assert find_fault("org", [*entries, next_entry("org", head, entries[0])], head)


def _last(entries):
    return (entries[-1].number, entries[-1].digest) if entries else (0, "0" * 64)
