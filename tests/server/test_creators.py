"""The creator of a sandbox: the name of the key that created it."""

from __future__ import annotations

import pytest
from tests.server import specs
from tests.server.client import Client, serving
from tests.server.fake_host import FakeHost

from dayfly.server.db.migrations import REVISIONS
from dayfly.server.db.store import Store


def create_client(admin: Client, name: str) -> Client:
    """Create a key with that name and return a client that uses it."""
    made = admin.call("POST", "keys", {"name": name, "role": "member"}).json
    return Client(admin.port, admin.store, made["key"])


def names(found: list[dict[str, object]]) -> list[object]:
    return [each["name"] for each in found]


def test_sandbox_has_the_name_of_the_creating_key(client: Client):
    alice, bob = create_client(client, "alice"), create_client(client, "bob")
    assert alice.put("sandboxes/a", specs.empty())["createdBy"] == "alice"
    assert bob.put("sandboxes/a", specs.empty(description="changed"))["createdBy"] == "alice"
    bob.put("sandboxes/b", specs.empty())
    assert [each["createdBy"] for each in client.get("sandboxes")] == ["alice", "bob"]
    assert client.get("sandboxes/b")["createdBy"] == "bob"


def test_mine_lists_sandboxes_of_keys_with_the_callers_name(client: Client):
    alice, bob = create_client(client, "alice"), create_client(client, "bob")
    for number, one in enumerate((alice, bob, alice)):
        one.put(f"sandboxes/s{number}", specs.empty())
    assert names(alice.get("sandboxes?mine=true")) == ["s0", "s2"]
    assert names(alice.get("sandboxes?mine=true&limit=1&after=s0")) == ["s2"]
    assert names(create_client(client, "alice").get("sandboxes?mine=true")) == ["s0", "s2"]
    assert names(client.get("sandboxes?mine=true")) == []
    assert names(client.get("sandboxes?mine=false")) == ["s0", "s1", "s2"]
    assert client.call("GET", "sandboxes?mine=maybe").status == 400


def test_route_group_has_no_creator(client: Client):
    group = client.put("routegroups/g", {"spec": {"cluster": "local", "match": {"label": {"key": "a", "value": "b"}}}})
    assert "createdBy" not in group


@pytest.mark.usefixtures("on_sqlite")
def test_sandbox_of_an_older_server_has_no_creator(client: Client, tmp_path):
    client.put("sandboxes/old", specs.empty())
    (path,) = tmp_path.glob("*.db")
    client.store.close()
    Store.migrate(path, REVISIONS[REVISIONS.index("0014") - 1])
    with serving(path, {"local": FakeHost()}) as later:
        assert "createdBy" not in later.get("sandboxes/old")
