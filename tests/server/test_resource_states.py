"""Questions of clusters about the resources of other clusters, and the keys of clusters for resource tokens."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import msgspec
import pytest
from tests.server.fake_host import FakeHost
from tests.server.test_agents import ORG, Replica
from tests.server.test_leak_checks import FakeChecks

from dayfly.link.envelope import MAX_TOKENS, SessionRequest, TokenKey
from dayfly.link.server_end import Link, Links
from dayfly.server.db.store import Store
from dayfly.server.db.tables import clusters
from dayfly.server.records import organisation_keys
from dayfly.server.sync.agents.resource_states import ResourceStates
from dayfly.spec.resource_token import KEY_BYTES, ResourceToken, derive_identity, derive_key, resource_token

ID, OTHER = "a" * 26, "b" * 26


async def connect(replica: Replica, cluster: str, uid: str, hosts: tuple[str, ...] = ("own",)) -> TokenKey | None:
    """Open the first session of a cluster. Return the key that it gets."""
    opening = SessionRequest(cluster_uid=uid, token_hosts=hosts)
    status, found, _ = await replica.ask(cluster, "POST", "session", opening)
    assert status == 200, found
    return msgspec.convert(found["tokenKey"], TokenKey) if found.get("tokenKey") else None


async def key_of(store: Store, org: str = ORG) -> bytes:
    found = await store.for_org(org).read(organisation_keys.find)
    assert found is not None
    return found


class Hosts:
    """Hosts of the organisation whose answers a test chooses, by cluster."""

    def __init__(self) -> None:
        self.links = Links()
        self.checks: dict[str, FakeChecks] = {}

    def add(self, cluster: str, *, shared: bool = True) -> FakeChecks:
        host = FakeHost()
        host.leak_checks = self.checks[cluster] = FakeChecks()
        self.links.add_link(cluster, Link(host.end, ORG, shared=shared))
        return self.checks[cluster]


@pytest.fixture
async def store(tmp_path, blank):
    found = Store.open(shutil.copy(blank, tmp_path))
    added = [{"name": name, "created_at": 1, "agent": True} for name in ("east", "west")]
    await found.for_org(ORG).write(lambda rows: rows.insert(clusters, added))
    yield found
    found.close()


@pytest.fixture
async def replica(store):
    return Replica(store)


@pytest.fixture
async def hosts():
    return Hosts()


@pytest.fixture
async def token(store: Store, replica: Replica) -> ResourceToken:
    """Connect both clusters. Return the token of an item of west."""
    await connect(replica, "east", "u-east")
    given = await connect(replica, "west", "u-west", ("own", "former"))
    assert given is not None
    return ResourceToken(ID, resource_token(given.key, given.host, ID))


async def states(store: Store, hosts: Hosts, *tokens: ResourceToken, asking: str = "east") -> dict[str, str]:
    return await ResourceStates(store).find(hosts.links, ORG, asking, tokens)


async def test_each_cluster_gets_its_own_derived_key(store, replica):
    east, west = await connect(replica, "east", "u-east"), await connect(replica, "west", "u-west")
    key = await key_of(store)
    assert east is not None
    assert west is not None
    assert (east.host, east.key) == derive_identity(key, "u-east")
    assert (west.host, west.key) == derive_identity(key, "u-west")
    assert len({east.key, west.key, key}) == 3
    assert east.check == east.compute_check()


async def test_operator_that_accepts_no_key_gets_none(replica):
    assert await connect(replica, "east", "u-east", ()) is None


async def test_organisations_have_different_keys(store):
    keys = [await store.for_org(org).write(lambda rows: organisation_keys.find_or_create(rows, 1)) for org in "abab"]
    assert (keys[0], keys[1]) == (keys[2], keys[3])
    assert keys[0] != keys[1]
    assert all(len(each) == KEY_BYTES for each in keys)


@pytest.mark.parametrize("answer", ["open", "closed", "none", "unanswered"])
async def test_state_is_that_of_the_named_host(store, hosts, token, answer):
    hosts.add("east").states[ID] = "none"
    hosts.add("west").states[ID] = answer
    assert await states(store, hosts, token) == {ID: answer}


async def test_nonsense_of_a_host_is_no_answer(store, hosts, token):
    hosts.add("west").states |= {ID: "gone\0", OTHER: "none"}
    assert await states(store, hosts, token) == {ID: "unanswered"}


@pytest.mark.parametrize("fault", ["no link", "no leak checks", "an error", "not recognised"])
async def test_verified_token_without_an_answer_is_unanswered(store, hosts, token, fault, monkeypatch):
    if fault != "no link":
        checks = hosts.add("west")
    if fault == "no leak checks":
        hosts.links.remove(ORG, "west")
        hosts.links.add_link("west", Link(FakeHost().end, ORG, shared=True))
    if fault == "an error":

        async def fail(_tokens: Any) -> dict[str, str]:
            raise ValueError

        monkeypatch.setattr(checks, "resource_states", fail)
    assert await states(store, hosts, token) == {ID: "unanswered"}


async def test_forged_token_is_left_out(store, hosts, token):
    hosts.add("west")
    forged = ResourceToken(ID, f"{token.host}.{'0' * 32}")
    copied = ResourceToken(OTHER, token.token)
    strange = ResourceToken("x" * 500, "\0" * 500)
    assert await states(store, hosts, forged, copied, strange) == {}


async def test_copied_token_cannot_hide_an_open_run(store, hosts, token):
    hosts.add("west").states[ID] = "open"
    removed = ResourceToken(ID, resource_token(derive_key(await key_of(store), "removed"), "removed", ID))
    assert await states(store, hosts, token, removed) == {ID: "open"}
    assert await states(store, hosts, removed, token) == {ID: "open"}


async def test_former_key_of_a_host_is_recognised_by_that_host_only(store, hosts, token):
    former = ResourceToken(OTHER, resource_token(b"f" * KEY_BYTES, "former", OTHER))
    west = hosts.add("west")
    assert await states(store, hosts, former) == {}
    west.states[OTHER] = "open"
    assert await states(store, hosts, former) == {OTHER: "open"}


async def test_removed_cluster_has_no_runs_once_all_others_connected(store, hosts, token):
    await store.for_org(ORG).write(lambda rows: rows.execute(rows.delete(clusters).where(clusters.c.name == "west")))
    assert await states(store, hosts, token) == {ID: "none"}
    added = {"name": "new", "created_at": 1, "agent": True}
    await store.for_org(ORG).write(lambda rows: rows.insert(clusters, added))
    assert await states(store, hosts, token) == {ID: "unanswered"}, "it may be the same cluster"


async def test_home_of_the_same_server_recognises_its_items(store, hosts, token):
    hosts.add("local", shared=False).states[OTHER] = "open"
    item = ResourceToken(OTHER, resource_token(b"h" * KEY_BYTES, "home", OTHER))
    assert await states(store, hosts, item) == {OTHER: "open"}


async def test_tokens_of_another_organisation_are_left_out(store, hosts, token):
    key = await store.for_org("other").write(lambda rows: organisation_keys.find_or_create(rows, 1))
    host, own = derive_identity(key, "u-west")
    hosts.add("west").states[OTHER] = "open"
    assert await states(store, hosts, ResourceToken(OTHER, resource_token(own, host, OTHER))) == {}


async def test_questions_of_a_cluster_are_limited(store, replica, token, monkeypatch):
    many = {"tokens": [{"id": ID, "token": "x"}] * (MAX_TOKENS + 1)}
    assert (await replica.ask("east", "POST", "resources", many))[0] == 413
    begun, done = asyncio.Event(), asyncio.Event()

    async def find(*_: Any) -> dict[str, str]:
        begun.set()
        await done.wait()
        return {}

    monkeypatch.setattr(replica.agents, "find_resources", find)
    first = asyncio.create_task(replica.ask("east", "POST", "resources", {"tokens": []}))
    await begun.wait()
    assert (await replica.ask("east", "POST", "resources", {"tokens": []}))[0] == 429
    done.set()
    assert (await first)[0] == 200
    assert (await replica.ask("west", "POST", "resources", {"tokens": []}))[0] == 200


async def test_question_needs_a_cluster_token(replica):
    assert (await replica.ask("", "POST", "resources", {"tokens": []}))[0] == 401
