"""Baselines: declared before they are forked, and not deleted while forks use them."""

from __future__ import annotations

import asyncio
import time

import pytest
import sqlalchemy as sa
from tests.server import specs
from tests.server.client import parsed, serving, wait_for
from tests.server.fake_host import FakeHost

from dayfly.server.app import create_app, prepare
from dayfly.server.catalog import baselines
from dayfly.server.db.store import Store, StoreError
from dayfly.server.db.tables import workloads


def test_baseline_is_stored_and_sent_to_hosts(client, host):
    made = client.put("workloads/default/shop", specs.baseline())
    assert made["kind"] == "Deployment"
    assert made["command"] == ["python3", "-m", "http.server"]
    assert client.get("workloads/default/shop") == made
    assert client.get("workloads") == [made]
    assert host.baselines["default", "shop"].port == 8080
    time.sleep(0.01)
    assert client.put("workloads/default/shop", made) == made
    changed = client.put("workloads/default/shop", specs.baseline(port=9090))
    assert changed["createdAt"] == made["createdAt"]
    assert changed["updatedAt"] > made["updatedAt"]
    assert host.baselines["default", "shop"].port == 9090


def test_deployment_manifest_is_accepted_as_baseline(client, host):
    container = {"name": "main", "image": "x", "command": ["sleep", "9"], "ports": [{"containerPort": 80}]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop", "namespace": "prod"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    client.put("workloads/prod/shop", deployment)
    assert host.baselines["prod", "shop"].command == ("sleep", "9")


def test_forked_baseline_cannot_be_deleted(client, host):
    client.put("workloads/default/shop", specs.baseline())
    client.put("sandboxes/sb1", specs.empty(forks=[specs.fork()]))
    answer = client.call("DELETE", "workloads/default/shop")
    assert answer.status == 400
    assert "in use" in answer.error
    assert "sb1" in answer.error
    client.put("sandboxes/sb1", specs.empty())
    assert client.delete("workloads/default/shop") == {}
    assert client.call("GET", "workloads/default/shop").status == 404
    assert client.call("DELETE", "workloads/default/shop").status == 404


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("default/other", specs.baseline(), "name: "),
        ("prod/shop", specs.baseline(), "namespace: "),
        ("default/shop", specs.baseline(command=[]), "command: "),
        ("default/shop", specs.baseline(port="80"), "port: "),
        ("default/shop", specs.baseline(bogus=1), "bogus: "),
        ("default/shop", [], "the body must be a mapping"),
    ],
)
def test_malformed_baseline_is_refused_with_its_place(client, host, path, body, says):
    answer = client.call("PUT", f"workloads/{path}", body)
    assert answer.status == 400
    assert answer.error.startswith(says)
    assert client.get("workloads") == []
    assert host.calls == []


def test_host_forgets_removed_baseline(client, host):
    """Another baseline may use its port then."""
    for name in ("shop", "stays"):
        client.put(f"workloads/default/{name}", specs.baseline(name=name))
    client.delete("workloads/default/shop")
    assert list(host.baselines) == [("default", "stays")]


def test_baselines_are_sent_once_the_store_is_readable(client, host, monkeypatch):
    client.put("workloads/default/first", specs.baseline(name="first"))
    wait_for(lambda: len(host.baselines) == 1)
    monkeypatch.setattr(baselines, "RETRY_S", 0)
    full = StoreError("the disk is full")
    read, failures = baselines.read_all, iter([None, full, full])  # the request itself reads the baselines first

    def fails(rows):
        if (failure := next(failures, None)) is not None:
            raise failure
        return read(rows)

    monkeypatch.setattr(baselines, "read_all", fails)
    client.put("workloads/default/shop", specs.baseline())
    wait_for(lambda: len(host.baselines) == 2)


async def test_host_can_receive_baselines_before_it_starts(tmp_path):
    path, host = tmp_path / "control.db", FakeHost()
    with serving(path, {"local": FakeHost()}) as client:
        client.put("workloads/default/shop", specs.baseline())
    store = Store.open(path)
    try:
        app = create_app(store, {"local": host.end}, keys=bool, version="1", baseline_hosts=[host])
        await prepare(app)
        await prepare(app)
        assert host.calls == [("baseline", "default/shop")]
    finally:
        store.close()


@pytest.mark.parametrize(
    "document", ["", "{", '{"namespace": 1}', '{"namespace": "default", "name": "shop", "command": 2}']
)
async def test_unreadable_baseline_blocks_no_other(tmp_path, caplog, document):
    """A newer release may have written it, before this server was downgraded."""
    path, host = tmp_path / "control.db", FakeHost()
    with serving(path, {"local": FakeHost()}) as client:
        for name in ("other", "shop"):
            client.put(f"workloads/default/{name}", specs.baseline(name=name))
    store = Store.open(path)
    try:
        spoil = rows_of_shop().values(document=document)
        await store.for_org("local").write(lambda rows: rows.execute(spoil))
        app = create_app(store, {"local": host.end}, keys=bool, version="1", baseline_hosts=[host])
        await prepare(app)
        assert host.calls == [("baseline", "default/other")]
        assert "baseline default/shop cannot be read by this release" in caplog.text
    finally:
        store.close()
    with serving(path, {"local": FakeHost()}) as client:
        assert [each["name"] for each in client.get("workloads")] == ["other"]
        answer = client.call("GET", "workloads/default/shop")
        assert (answer.status, "cannot be read by this release" in str(answer.body)) == (500, True)
        client.put("workloads/default/third", specs.baseline(name="third"))
        client.put("workloads/default/shop", specs.baseline())
        assert [each["name"] for each in client.get("workloads")] == ["other", "shop", "third"]


def rows_of_shop():
    return sa.update(workloads).where(workloads.c.name == "shop")


def test_defect_of_a_baseline_blocks_no_sandbox(client, host, monkeypatch, caplog):
    async def fails(workload):
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setattr(host, "baseline", fails)
    client.put("workloads/default/shop", specs.baseline())
    assert "ZeroDivisionError: unforeseen" in caplog.text
    host.down = True
    client.put("sandboxes/sb1", specs.empty())
    host.down = False
    wait_for(lambda: host.offers)


def test_fork_of_another_kind_is_refused(client):
    client.put("workloads/default/shop", specs.baseline())
    fork = {"forkOf": {"kind": "Rollout", "namespace": "default", "name": "shop"}}
    answer = client.call("PUT", "sandboxes/sb1", specs.empty(forks=[fork]))
    assert answer.status == 400
    assert 'no baseline Rollout "default/shop"' in answer.error


async def test_local_cluster_exists_since_the_start_of_its_server(tmp_path):
    """Not since the first request for it."""
    path, host = tmp_path / "control.db", FakeHost()
    store = Store.open(path)
    await prepare(create_app(store, {"local": host.end}, keys=bool, version="1", baseline_hosts=[host]))
    store.close()
    served = int(time.time() * 1000)
    await asyncio.sleep(0.005)  # the API has milliseconds
    with serving(path, {"local": host}) as client:
        assert parsed(client.get("clusters/local")["createdAt"]) * 1000 <= served
