"""Live changes: everything as it stands, then each change, and for who comes back what it has missed."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil

import pytest

from control import wishes
from control.client import KEY, ORG
from dayfly.control import changes, exchange, group_changes, group_forms, records
from dayfly.control.host_sync import HostSync
from dayfly.control.link import Links
from dayfly.control.route_groups import RouteGroups
from dayfly.control.sandboxes import Sandboxes
from dayfly.control.store import Store
from dayfly.control.vault import Vaults
from dayfly.plan.reasons import Reason
from dayfly.spec.sandbox import SandboxSpec


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(changes, "LOOK_S", 0.02)


class Listener:
    """Reads one event after the other."""

    def __init__(self, response):
        self.response = response

    def next(self):
        """The id, kind and data of the next one."""
        found = {}
        while line := self.response.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = value
        if not found:
            return None
        return found.get("id", ""), found.get("event"), json.loads(found.get("data", "null"))

    def until(self, kind):
        """The next of that kind; what comes before is passed over."""
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


def test_everything_and_then_each_change(client, host):
    client.put("sandboxes/sb1", wishes.empty())
    with listening(client) as listener:
        _, kind, data = listener.next()
        assert (kind, data["name"], data["status"]["ready"]) == ("changed", "sb1", True)
        assert listener.next()[1:] == ("group-synced", {})
        assert listener.next()[1:] == ("synced", {})
        client.put("sandboxes/sb2", wishes.empty(labels={"a": "b"}))
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


def test_one_sandboxs_changes_are_its_own(client, host):
    client.put("sandboxes/sb1", wishes.empty())
    client.put("sandboxes/sb2", wishes.empty())
    assert client.call("GET", "sandboxes/none/changes").status == 404
    with listening(client, "sandboxes/sb2/changes") as listener:
        assert listener.next()[2]["name"] == "sb2"
        assert listener.next()[1] == "synced"
        client.put("sandboxes/sb1", wishes.empty(labels={"a": "b"}))
        client.put("sandboxes/sb2", wishes.empty(labels={"a": "c"}))
        assert listener.next()[2]["spec"]["labels"] == {"a": "c"}


async def _nothing(_stream):
    """Nobody looks."""


def test_one_sandboxs_stream_begins_with_its_newest_form_while_another_listens(client, host, monkeypatch):
    client.put("sandboxes/sb1", wishes.empty())
    client.put("sandboxes/sb2", wishes.empty())
    with listening(client) as another:
        another.until("synced")
        monkeypatch.setattr(changes.Stream, "look", _nothing)
        client.put("sandboxes/sb2", wishes.empty(labels={"a": "b"}))
        host.say(uid_of(host, "sb1"), ready=False, reason=Reason.RESOURCES_PENDING, message="db/make runs")
        with listening(client, "sandboxes/sb2/changes") as listener:
            assert listener.next()[2]["spec"]["labels"] == {"a": "b"}
            assert listener.next()[1] == "synced"
        with listening(client, "sandboxes/sb1/changes") as listener:
            assert listener.next()[2]["status"]["message"] == "db/make runs"


@pytest.fixture
def stream(blank, tmp_path):
    """One that looks when it is told to, over a store that is written by the test."""
    store, links = Store.open(shutil.copy(blank, tmp_path)), Links()
    sync = HostSync(store, links)
    boxes = Sandboxes(store, links, sync, Vaults(store, "local", {}))
    yield changes.Stream(store, links, boxes, RouteGroups(store, links, sync), "local")
    store.close()


def record(uid, name="sb1"):
    spec = SandboxSpec(cluster="local", labels={"of": uid})
    return records.Record(
        org="local", uid=uid, name=name, routing_key=uid, spec=spec, created_at=1, updated_at=1, revision=0
    )


def told(stream):
    """Kind and label of what was told of `sb1` since it was asked last."""
    found = [(each.kind, json.loads(each.data).get("spec", {}).get("labels", {}).get("of")) for each in stream.events]
    stream.events.clear()
    return found


async def test_what_is_made_anew_under_its_name_is_told_as_it_is_and_not_as_deleted(stream, monkeypatch):
    def anew(rows, before, after):
        records.archive(rows, record(before), 2)
        records.save(rows, record(after))

    await stream._shelf.write(lambda rows: records.save(rows, record("1")))
    await stream.look()
    assert told(stream) == [("changed", "1")]
    await stream._shelf.write(lambda rows: anew(rows, "1", "2"))
    await stream.look()
    assert told(stream) == [("changed", "2")]
    # Of the next one it is not known when it is looked for who is gone; it is when that is told.
    await stream._shelf.write(lambda rows: anew(rows, "2", "3"))
    monkeypatch.setattr(records, "forms", lambda _rows, before: (set(), set(), set(before)))
    await stream.look()
    assert told(stream) == []
    monkeypatch.undo()
    await stream._shelf.write(lambda rows: records.save(rows, record("another", "sb2")))
    await stream.look()
    assert sorted(told(stream)) == [("changed", "3"), ("changed", "another")]
    await stream._shelf.write(lambda rows: records.archive(rows, record("3"), 3))
    await stream.look()
    assert told(stream) == [("deleted", None)]


def test_who_comes_back_is_given_what_it_has_missed(client):
    client.put("sandboxes/sb1", wishes.empty())
    client.put("sandboxes/sb2", wishes.empty())
    with listening(client) as listener:
        last, _, _ = listener.until("synced")
    client.put("sandboxes/sb2", wishes.empty(labels={"a": "b"}))
    with listening(client, last=last) as listener:
        _, kind, data = listener.next()
        assert (kind, data["name"], data["spec"]["labels"]) == ("changed", "sb2", {"a": "b"})
    for unknown in ("elsewhere-7", "x", last.rpartition("-")[0] + "-99", last.rpartition("-")[0] + "-" + "9" * 5000):
        with listening(client, last=unknown) as listener:
            assert listener.next()[1:] == ("reset", {})
            assert [listener.next()[2]["name"] for _ in range(2)] == ["sb1", "sb2"]


def test_who_asks_for_the_head_of_a_stream_is_answered_and_goes_on(client):
    """Its connection is free for the next request: a stream that nobody sees would hold it for ever."""
    client.put("sandboxes/sb1", wishes.empty())
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=5)
    for path in ("changes", "sandboxes/sb1/changes"):
        connection.request("HEAD", f"{ORG}/{path}", headers={"signadot-api-key": KEY})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        assert answer.headers["content-type"].startswith("text/event-stream")
        connection.request("GET", f"{ORG}/sandboxes/sb1", headers={"signadot-api-key": KEY})
        assert b'"sb1"' in connection.getresponse().read()
    connection.close()


def test_a_stream_ends_once_its_key_is_revoked(client, monkeypatch):
    monkeypatch.setattr(exchange, "LOOK_AGAIN_S", 0.05)
    made = client.call("POST", "keys", {"name": "a", "role": "viewer"}).json
    with listening(client, key=made["key"]) as listener:
        assert listener.until("synced")
        client.delete(f"keys/{made['id']}")
        with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
            assert listener.next() is None


def group(value="a", **more):
    return {"spec": {"cluster": "local", "match": {"label": {"key": "team", "value": value}}, **more}}


def test_route_groups_stand_beside_with_words_of_their_own(client, host):
    client.put("sandboxes/sb1", wishes.empty(labels={"team": "a"}))
    client.put("routegroups/sb1", group())
    with listening(client) as listener:
        said = [listener.next()[1] for _ in range(4)]
        assert (said[2:], set(said[:2])) == (["group-synced", "synced"], {"changed", "group-changed"})
    with listening(client, "sandboxes/sb1/changes") as listener:
        assert [listener.next()[1] for _ in range(2)] == ["changed", "synced"]
    assert client.call("GET", "routegroups/none/changes").status == 404
    with listening(client, "routegroups/sb1/changes") as listener:
        last, _, data = listener.until("group-changed")
        assert (last, data["status"]["matchedSandboxes"]) == ("", ["sb1"]), "the end alone has an id"
        assert data == client.get("routegroups/sb1")
        last, *_ = listener.until("synced")
        # Nobody has changed the group: its sandboxes come and go, and stand otherwise.
        client.put("sandboxes/sb2", wishes.empty(labels={"team": "a"}))
        matched = []
        while matched != ["sb1", "sb2"]:
            matched = listener.until("group-changed")[2]["status"]["matchedSandboxes"]
        host.say(uid_of(host, "sb2"), ready=False, reason=Reason.RESOURCES_PENDING, message="db/make runs")
        while "not ready: sb2" not in listener.until("group-changed")[2]["status"]["message"]:
            pass
        client.put("sandboxes/sb2", wishes.empty(labels={"team": "b"}))
        while matched != ["sb1"]:
            matched = listener.until("group-changed")[2]["status"]["matchedSandboxes"]
        uid = client.get("routegroups/sb1/report")["uid"]
        client.delete("routegroups/sb1")
        host.finish(uid)
        client.call("GET", "routegroups/sb1")
        assert listener.until("group-deleted")[2] == {"name": "sb1"}


def test_of_many_sandboxes_a_stream_names_the_first_and_counts_all(client, monkeypatch):
    monkeypatch.setattr(group_forms, "LISTED", 2)
    client.put("routegroups/all", group())
    for n in range(3):
        client.put(f"sandboxes/sb{n}", wishes.empty(labels={"team": "a"}))
    with listening(client) as listener:
        status = listener.until("group-changed")[2]["status"]
    assert (status["matchedSandboxes"], status["matched"]) == (["sb0", "sb1"], 3)
    assert len(client.get("routegroups/all")["status"]["matchedSandboxes"]) == 3


def test_whom_the_beginning_did_not_reach_whole_begins_anew(client):
    client.put("sandboxes/sb1", wishes.empty())
    client.put("sandboxes/sb2", wishes.empty())
    with listening(client) as listener:
        last, _, data = listener.next()
        assert (last, data["name"]) == ("", "sb1"), "with an id it would never be told of sb2"


def test_what_happens_in_this_process_is_told_without_looking_for_what_others_write(client, host, monkeypatch):
    monkeypatch.setattr(changes, "REST_S", 3600.0)
    monkeypatch.setattr(group_changes, "LONGEST_PAUSE_S", 0.0)  # nothing is left for a next look
    client.put("sandboxes/sb1", wishes.empty())
    uid = uid_of(host, "sb1")
    with listening(client) as listener:
        assert listener.until("synced")
        client.put("sandboxes/sb1", wishes.empty(labels={"a": "b"}))  # a write
        while listener.until("changed")[2]["spec"]["labels"] != {"a": "b"}:
            pass
        host.say(uid, ready=False, reason=Reason.RESOURCES_PENDING, message="db/make runs")  # a host's word
        while listener.until("changed")[2]["status"]["message"] != "db/make runs":
            pass
