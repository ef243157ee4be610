"""Event streams: all current objects, then each change, and after a reconnection the missed changes."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import shutil
import socket

import pytest
from tests.server import specs, stored_records
from tests.server.client import KEY, ORG

from dayfly.link.server_end import Links
from dayfly.plan.reasons import Reason
from dayfly.server.api import changes, group_changes
from dayfly.server.db.store import Store, StoreError
from dayfly.server.http import auth_middleware
from dayfly.server.records import run_records, tombstones
from dayfly.server.runs import group_forms
from dayfly.server.runs.group_strategy import GroupStrategy
from dayfly.server.runs.pool_strategy import PoolStrategy
from dayfly.server.runs.run_secrets import SecretStores
from dayfly.server.runs.run_service import RunService
from dayfly.server.runs.sandbox_strategy import SandboxStrategy
from dayfly.server.sync.host_sync import HostSync


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(changes, "POLL_INTERVAL_S", 0.02)


class Listener:
    """Reads events."""

    def __init__(self, response):
        self.response = response

    def next(self):
        """Return ID, type and data of the next event."""
        found = {}
        while line := self.response.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = value
        if not found:
            return None
        return found.get("id", ""), found.get("event"), json.loads(found.get("data", "null"))

    def until(self, kind):
        """Return the next event of that type, and ignore the events before it."""
        while (found := self.next()) is not None:
            if found[1] == kind:
                return found
        raise AssertionError("it has ended")


def uid_of(host, name):
    (uid,) = [uid for uid, offer in host.offers.items() if offer.name == name]
    return uid


@contextlib.contextmanager
def listening(client, path="changes", last="", key=KEY):
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=40)
    connection.request("GET", f"{ORG}/{path}", headers={"signadot-api-key": key, "Last-Event-ID": last})
    response = connection.getresponse()
    assert (response.status, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    try:
        yield Listener(response)
    finally:
        response.close()
        connection.close()


def test_stream_has_all_objects_and_then_changes(client, host):
    client.put("sandboxes/sb1", specs.empty())
    with listening(client) as listener:
        _, kind, data = listener.next()
        assert (kind, data["name"], data["status"]["ready"]) == ("changed", "sb1", True)
        assert listener.next()[1:] == ("group-synced", {})
        assert listener.next()[1:] == ("synced", {})
        client.put("sandboxes/sb2", specs.empty(labels={"a": "b"}))
        _, _, data = listener.until("changed")
        while data["status"]["ready"] is False:
            _, _, data = listener.until("changed")
        assert (data["name"], data["spec"]["labels"]) == ("sb2", {"a": "b"})
        assert data == client.get("sandboxes/sb2")
        host.say(uid_of(host, "sb1"), ready=False, reason=Reason.RESOURCES_PENDING, message="db/make runs")
        assert listener.until("changed")[2]["status"]["message"] == "db/make runs"
        uid = uid_of(host, "sb1")
        client.delete("sandboxes/sb1")
        host.finish(uid)
        client.call("GET", "sandboxes/sb1")
        assert listener.until("deleted")[2] == {"name": "sb1"}


def test_stream_of_one_sandbox_has_only_its_changes(client, host):
    client.put("sandboxes/sb1", specs.empty())
    client.put("sandboxes/sb2", specs.empty())
    assert client.call("GET", "sandboxes/none/changes").status == 404
    with listening(client, "sandboxes/sb2/changes") as listener:
        assert listener.next()[2]["name"] == "sb2"
        assert listener.next()[1] == "synced"
        client.put("sandboxes/sb1", specs.empty(labels={"a": "b"}))
        client.put("sandboxes/sb2", specs.empty(labels={"a": "c"}))
        assert listener.next()[2]["spec"]["labels"] == {"a": "c"}


async def _nothing(_stream):
    """Do not poll."""


def test_new_stream_begins_with_newest_state_beside_others(client, host, monkeypatch):
    client.put("sandboxes/sb1", specs.empty())
    client.put("sandboxes/sb2", specs.empty())
    with listening(client) as another:
        another.until("synced")
        monkeypatch.setattr(changes.OrganisationStream, "poll", _nothing)
        client.put("sandboxes/sb2", specs.empty(labels={"a": "b"}))
        host.say(uid_of(host, "sb1"), ready=False, reason=Reason.RESOURCES_PENDING, message="db/make runs")
        with listening(client, "sandboxes/sb2/changes") as listener:
            assert listener.next()[2]["spec"]["labels"] == {"a": "b"}
            assert listener.next()[1] == "synced"
        with listening(client, "sandboxes/sb1/changes") as listener:
            assert listener.next()[2]["status"]["message"] == "db/make runs"


@pytest.fixture
def store(blank, tmp_path):
    found = Store.open(shutil.copy(blank, tmp_path))
    yield found
    found.close()


@pytest.fixture
def stream(store):
    """A stream that polls on request, with a store that the test writes."""
    links = Links()
    sync = HostSync(store, links)
    strategy = SandboxStrategy(store, links, sync, SecretStores(store, "local", {}))
    boxes = RunService(store, links, sync, strategy)
    pools = RunService(store, links, sync, PoolStrategy(store, links, sync))
    return changes.OrganisationStream(store, links, boxes, GroupStrategy(store, links, sync), pools, "local")


def record(uid, name="sb1"):
    return stored_records.sandbox(uid, org="local", name=name, cluster="local", labels={"of": uid})


def read_new_events(stream):
    """Return type and labels of the new events of `sb1`."""
    found = [(each.kind, json.loads(each.data).get("spec", {}).get("labels", {}).get("of")) for each in stream.events]
    stream.events.clear()
    return found


async def test_recreated_sandbox_is_streamed_as_changed(stream, store, monkeypatch):
    org_store = store.for_org("local")

    def anew(rows, before, after):
        tombstones.archive(rows, record(before), 2)
        run_records.save(rows, record(after))

    await org_store.write(lambda rows: run_records.save(rows, record("1")))
    await stream.poll()
    assert read_new_events(stream) == [("changed", "1")]
    await org_store.write(lambda rows: anew(rows, "1", "2"))
    await stream.poll()
    assert read_new_events(stream) == [("changed", "2")]
    # A deletion is unknown when sandboxes are polled, and known when events are published.
    await org_store.write(lambda rows: anew(rows, "2", "3"))
    monkeypatch.setattr(run_records, "read_changes", lambda _rows, before: (set(), set(), set(before)))
    await stream.poll()
    assert read_new_events(stream) == []
    monkeypatch.undo()
    await org_store.write(lambda rows: run_records.save(rows, record("another", "sb2")))
    await stream.poll()
    assert sorted(read_new_events(stream)) == [("changed", "3"), ("changed", "another")]
    await org_store.write(lambda rows: tombstones.archive(rows, record("3"), 3))
    await stream.poll()
    assert read_new_events(stream) == [("deleted", None)]


def test_reconnected_stream_resumes_after_last_event_id(client):
    client.put("sandboxes/sb1", specs.empty())
    client.put("sandboxes/sb2", specs.empty())
    with listening(client) as listener:
        last, _, _ = listener.until("synced")
    client.put("sandboxes/sb2", specs.empty(labels={"a": "b"}))
    with listening(client, last=last) as listener:
        _, kind, data = listener.next()
        assert (kind, data["name"], data["spec"]["labels"]) == ("changed", "sb2", {"a": "b"})
    for unknown in ("elsewhere-7", "x", last.rpartition("-")[0] + "-99", last.rpartition("-")[0] + "-" + "9" * 5000):
        with listening(client, last=unknown) as listener:
            assert listener.next()[1:] == ("reset", {})
            assert [listener.next()[2]["name"] for _ in range(2)] == ["sb1", "sb2"]


def test_head_of_stream_keeps_the_connection_usable(client):
    """A stream for HEAD would occupy the connection forever."""
    client.put("sandboxes/sb1", specs.empty())
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=5)
    for path in ("changes", "sandboxes/sb1/changes"):
        connection.request("HEAD", f"{ORG}/{path}", headers={"signadot-api-key": KEY})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        assert answer.headers["content-type"].startswith("text/event-stream")
        connection.request("GET", f"{ORG}/sandboxes/sb1", headers={"signadot-api-key": KEY})
        assert b'"sb1"' in connection.getresponse().read()
    connection.close()


def test_stream_of_revoked_key_ends_whole_and_logs_no_error(client, monkeypatch, caplog):
    monkeypatch.setattr(auth_middleware, "KEY_CHECK_INTERVAL_S", 0.05)
    made = client.call("POST", "keys", {"name": "a", "role": "viewer"}).json
    with listening(client, key=made["key"]) as listener:
        assert listener.until("synced")
        client.delete(f"keys/{made['id']}")
        assert listener.next() is None
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_stream_ends_whole_when_the_store_fails(client, monkeypatch, caplog):
    made = client.call("POST", "keys", {"name": "a", "role": "viewer", "scope": ["name:sb*"]}).json

    async def away(*_args, **_more):
        raise StoreError("the disk is full")

    monkeypatch.setattr(changes.OrganisationStream, "encode_first", away)
    with listening(client, key=made["key"]) as listener:
        assert listener.next() is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the disk is full" in caplog.text


def test_slow_reader_of_a_list_has_all_of_it_after_revocation(client, monkeypatch):
    """The list was computed while the key was valid."""
    monkeypatch.setattr(auth_middleware, "KEY_CHECK_INTERVAL_S", 0.01)
    for number in range(4):
        client.put(f"sandboxes/sb{number}", specs.empty(description="x" * 900_000))
    made = client.call("POST", "keys", {"name": "a", "role": "viewer"}).json
    with socket.socket() as connection:
        connection.settimeout(20)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", client.port))
        request = f"GET {ORG}/sandboxes HTTP/1.1\r\nHost: localhost\r\nsignadot-api-key: {made['key']}\r\n\r\n"
        connection.sendall(request.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        client.delete(f"keys/{made['id']}")
        while client.call("GET", "sandboxes/sb0", headers={"signadot-api-key": made["key"]}).status != 401:
            pass
        assert len(json.loads(answer.read())) == 4


def group(value="a", **more):
    return {"spec": {"cluster": "local", "match": {"label": {"key": "team", "value": value}}, **more}}


def test_route_groups_are_streamed_with_separate_types(client, host):
    client.put("sandboxes/sb1", specs.empty(labels={"team": "a"}))
    client.put("routegroups/sb1", group())
    with listening(client) as listener:
        said = [listener.next()[1] for _ in range(4)]
        assert (said[2:], set(said[:2])) == (["group-synced", "synced"], {"changed", "group-changed"})
    with listening(client, "sandboxes/sb1/changes") as listener:
        assert [listener.next()[1] for _ in range(2)] == ["changed", "synced"]
    assert client.call("GET", "routegroups/none/changes").status == 404
    with listening(client, "routegroups/sb1/changes") as listener:
        last, _, data = listener.until("group-changed")
        assert (last, data["status"]["matchedSandboxes"]) == ("", ["sb1"]), "only the last event has an ID"
        assert data == client.get("routegroups/sb1")
        last, *_ = listener.until("synced")
        # The group's record does not change: its sandboxes and their states do.
        client.put("sandboxes/sb2", specs.empty(labels={"team": "a"}))
        matched = []
        while matched != ["sb1", "sb2"]:
            matched = listener.until("group-changed")[2]["status"]["matchedSandboxes"]
        host.say(uid_of(host, "sb2"), ready=False, reason=Reason.RESOURCES_PENDING, message="db/make runs")
        while "not ready: sb2" not in listener.until("group-changed")[2]["status"]["message"]:
            pass
        client.put("sandboxes/sb2", specs.empty(labels={"team": "b"}))
        while matched != ["sb1"]:
            matched = listener.until("group-changed")[2]["status"]["matchedSandboxes"]
        uid = client.get("routegroups/sb1/report")["uid"]
        client.delete("routegroups/sb1")
        host.finish(uid)
        client.call("GET", "routegroups/sb1")
        assert listener.until("group-deleted")[2] == {"name": "sb1"}


def test_stream_lists_first_sandboxes_of_group_and_counts_all(client, monkeypatch):
    monkeypatch.setattr(group_forms, "MAX_LISTED", 2)
    client.put("routegroups/all", group())
    for n in range(3):
        client.put(f"sandboxes/sb{n}", specs.empty(labels={"team": "a"}))
    with listening(client) as listener:
        status = listener.until("group-changed")[2]["status"]
    assert (status["matchedSandboxes"], status["matched"]) == (["sb0", "sb1"], 3)
    assert len(client.get("routegroups/all")["status"]["matchedSandboxes"]) == 3


def test_interrupted_initial_list_has_no_event_id(client):
    client.put("sandboxes/sb1", specs.empty())
    client.put("sandboxes/sb2", specs.empty())
    with listening(client) as listener:
        last, _, data = listener.next()
        assert (last, data["name"]) == ("", "sb1"), "with an ID it would never receive sb2"


def test_local_changes_are_streamed_without_polling(client, host, monkeypatch):
    monkeypatch.setattr(changes, "IDLE_POLL_INTERVAL_S", 3600.0)
    monkeypatch.setattr(group_changes, "MAX_PAUSE_S", 0.0)  # no change is left for a later poll
    client.put("sandboxes/sb1", specs.empty())
    uid = uid_of(host, "sb1")
    with listening(client) as listener:
        assert listener.until("synced")
        client.put("sandboxes/sb1", specs.empty(labels={"a": "b"}))  # a write to the store
        while listener.until("changed")[2]["spec"]["labels"] != {"a": "b"}:
            pass
        host.say(uid, ready=False, reason=Reason.RESOURCES_PENDING, message="db/make runs")  # a report of the host
        while listener.until("changed")[2]["status"]["message"] != "db/make runs":
            pass
