"""Secrets in the body of a PUT: the host has them before the sandbox is written, and they are in no other place."""

from __future__ import annotations

import copy
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.server import specs
from tests.server.client import serving

from dayfly.server.db.store import OrgStore, StoreError
from dayfly.server.http.route_table import ROUTES
from dayfly.server.runs import run_secrets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from tests.server.client import Client
    from tests.server.fake_host import FakeHost

CANARY = "canary-9c41-of-the-mine"
GIVEN = {("mydb", "key"): CANARY.encode()}


class Kept(dict[str, dict[tuple[str, str], bytes]]):
    """A secret store in memory; `ever` counts calls of `keep`."""

    ever = 0

    async def keep(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> None:
        self.ever += 1
        self[uid] = dict(values)

    async def drop(self, uid: str) -> None:
        self.pop(uid, None)

    async def drop_all_but(self, wished: Collection[str]) -> None:
        for uid in self.keys() - wished:
            del self[uid]

    def match(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> bool:
        return self.get(uid) == values

    __hash__ = object.__hash__  # type: ignore[assignment] # stores are compared by identity


@pytest.fixture
def store() -> Kept:
    return Kept(left={("gone", "key"): b"of a server that was killed"})


@pytest.fixture
def client(tmp_path: Path, blank: Path, host: FakeHost, store: Kept) -> Iterator[Client]:
    with serving(shutil.copy(blank, tmp_path), {"local": host}, secret_stores={"local": store}) as found:
        yield found


def sandbox_body(given: Any = None) -> dict[str, Any]:
    """A sandbox whose plugin, in place, takes the secret `key`."""
    spec = specs.plugin()["spec"]
    spec["create"][0]["inputs"].append({"name": "key", "valueFromSandbox": True, "secret": True})
    resource = {"name": "mydb", "spec": spec, "params": {"size": "small"}}
    found = {"spec": {"cluster": "local", "resources": [resource]}}
    return found if given is None else {**found, "secrets": given}


WISH = sandbox_body({"mydb": {"key": CANARY}})


def test_secrets_reach_the_host_and_no_answer_or_file(client: Client, host: FakeHost, store: Kept, tmp_path):
    assert store == {}, "secrets without a sandbox are deleted at the start of a server"
    made = client.call("PUT", "sandboxes/sb1", WISH)
    assert made.status == 200, made.body
    assert list(store.values()) == [GIVEN]
    (offer,) = host.offers.values()
    assert list(store) == [offer.uid], "they are the run's own"
    told = [str(offer), made.body.decode()]
    for path, methods in ROUTES.items():
        streams = path.endswith(("/changes", "/log"))
        if "GET" in methods and path.startswith("/orgs/{org}") and not streams:
            at = path.removeprefix("/orgs/{org}").format(name="sb1", id="1", namespace="x", org="local").lstrip("/")
            told.append(client.call("GET", at).body.decode())
    assert len(told) > 20
    assert "sb1" in "".join(told)
    told += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir() if path.is_file()]
    assert not any(CANARY in each for each in told)


def test_the_same_wish_again_is_taken_and_other_secrets_are_not(client: Client, store: Kept):
    for _ in range(2):
        client.put("sandboxes/sb1", WISH)
    client.put("sandboxes/sb1", sandbox_body())
    other = client.call("PUT", "sandboxes/sb1", sandbox_body({"mydb": {"key": "canary-other"}}))
    assert (other.status, "canary" in str(other.body)) == (409, False)
    assert "cannot change while it lives" in other.json["error"]
    assert (list(store.values()), store.ever) == ([GIVEN], 1)


def test_refused_sandbox_leaves_no_secret(client: Client, host: FakeHost, store: Kept):
    host.refuse = "not here"
    assert client.call("PUT", "sandboxes/sb1", WISH).status == 400
    assert (store, store.ever) == ({}, 1)


@pytest.mark.parametrize("times", [1, 3])
def test_failed_write_leaves_no_secret(client: Client, store: Kept, monkeypatch: pytest.MonkeyPatch, times: int):
    """The secret is removed even if the check whether the sandbox was written fails at first."""
    write, failed = OrgStore.write, []
    monkeypatch.setattr(run_secrets, "RETRY_DELAY_S", 0.01)

    async def full(org_store: OrgStore, work: Any) -> Any:
        if len(failed) < times:
            failed.append(1)
            raise StoreError("the disk is full")
        return await write(org_store, work)

    monkeypatch.setattr(OrgStore, "write", full)
    assert client.call("PUT", "sandboxes/sb1", WISH).status >= 500
    assert (store, store.ever) == ({}, 1)
    assert client.get("sandboxes") == []


def test_write_with_a_lost_answer_keeps_its_secrets(client: Client, store: Kept, monkeypatch: pytest.MonkeyPatch):
    """The run will start, and needs its secrets."""
    write, failed = OrgStore.write, []

    async def unsure(org_store: OrgStore, work: Any) -> Any:
        found = await write(org_store, work)
        if not failed:
            failed.append(1)
            raise StoreError("the connection broke")
        return found

    monkeypatch.setattr(OrgStore, "write", unsure)
    assert client.call("PUT", "sandboxes/sb1", WISH).status >= 500
    assert list(store.values()) == [GIVEN]


def test_missing_and_unknown_secrets_are_refused(client: Client, store: Kept):
    two = copy.deepcopy(WISH)
    inputs = two["spec"]["resources"][0]["spec"]["create"][0]["inputs"]
    inputs.append({"name": "pin", "valueFromSandbox": True, "secret": True})
    for given, said in (
        (
            {},
            "spec.resources[0]: key and pin are secrets that were not given; --secrets-file FILE gives them, or in Python secrets=",
        ),
        ({"mydb": {"key": CANARY}}, "pin is a secret that was not given"),
        ({"mydb": {"key": CANARY, "pin": CANARY, "pim": CANARY}}, 'secrets.mydb.pim: "mydb" takes no secret of this'),
        ({"mydb": {"key": CANARY, "pin": CANARY}, "x": {"y": CANARY}}, 'secrets.x.y: "x" takes no secret'),
    ):
        answer = client.call("PUT", "sandboxes/sb1", {**two, "secrets": given})
        assert (answer.status, CANARY in str(answer.body)) == (400, False)
        assert said in answer.json["error"]
    assert (store, store.ever) == ({}, 0)


@pytest.mark.parametrize(
    "given",
    [
        CANARY,
        [CANARY],
        {"mydb": CANARY},
        {"mydb": {"key": [CANARY]}},
        {"mydb": {"key": ""}},
        {"mydb": {"key": f"{CANARY}\0"}},
        {"mydb": {"key": CANARY * 4000}},
        {"mydb": {str(number): CANARY for number in range(65)}},
    ],
)
def test_malformed_secret_is_refused_without_its_value(client: Client, store: Kept, given: Any):
    answer = client.call("PUT", "sandboxes/sb1", sandbox_body(given))
    assert (answer.status, CANARY in str(answer.body)) == (400, False), answer.body
    assert "secrets" in answer.json["error"]
    assert store.ever == 0


@pytest.mark.parametrize("more", [{}, {"loopback": False}])
def test_server_with_remote_clients_refuses_secrets(
    tmp_path: Path, blank: Path, host: FakeHost, store: Kept, more: dict[str, Any]
):
    kept = {"secret_stores": {"local": store}} if more else {}
    with serving(shutil.copy(blank, tmp_path), {"local": host}, **kept, **more) as client:
        for body in (WISH, sandbox_body()):
            answer = client.call("PUT", "sandboxes/sb1", body)
            assert answer.status == 400, answer.body
            assert "key is a secret, and --secrets-file can set it only on a developer's own" in answer.json["error"]
    assert (host.offers, store.ever) == ({}, 0)


def test_document_with_a_secret_is_refused(client: Client):
    body = sandbox_body()
    body["spec"]["resources"][0]["params"]["key"] = CANARY
    answer = client.call("PUT", "sandboxes/sb1", body)
    assert (answer.status, CANARY in str(answer.body)) == (400, False)
    assert 'spec.resources[0].params.key: "key" is a secret, which must not be in a document' in answer.json["error"]
