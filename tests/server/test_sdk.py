"""The unchanged Python SDK of the public API, in a separate environment."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import pytest
from tests.server import sdk_environment, specs
from tests.server.client import KEY
from tests.server.fake_host import uid_of

from dayfly.plan.reasons import Reason
from dayfly.spec.run_data import RunEndpoint

pytestmark = pytest.mark.builds("sdk")


@pytest.fixture(scope="session")
def sdk_python():
    return sdk_environment.python()


@pytest.fixture
def sdk(client, sdk_python, tmp_path):
    def run(what, key=KEY):
        session = Path(__file__).with_name("sdk_session.py")
        command = [sdk_python, session, str(client.port), key, what, tmp_path / "seen"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_sandbox_is_created_and_deleted(sdk, client, host, monkeypatch, tmp_path):
    client.put("resource-plugins/db", specs.plugin())
    take = host.offer

    async def take_and_begin(offer):
        host.say(offer.uid, ready=False, reason=Reason.RESOURCES_PENDING, message="mydb/provision: is starting")
        return await take(offer)

    monkeypatch.setattr(host, "offer", take_and_begin)

    def play():
        """Act as the host. Become ready after a while, and after a stop clean up until the session has seen it."""
        while not host.offers:
            time.sleep(0.01)
        uid = uid_of(host)
        time.sleep(0.3)
        host.say(uid, ready=True, reason=Reason.READY, message="All desired workloads are available.")
        while uid not in host.closed:
            time.sleep(0.01)
        host.reports.pop(uid)
        while not (tmp_path / "seen").exists():
            time.sleep(0.01)
        host.finish(uid)

    player = threading.Thread(target=play, daemon=True)  # a failed session would wait for it
    player.start()
    told = sdk("life")
    player.join()
    assert told["made"]["status"]["ready"] is False
    assert told["got"]["status"]["ready"] is True
    assert told["got"]["spec"]["ttl"] == {"duration": "2h", "offset_from": "createdAt"}
    assert told["got"]["spec"]["forks"] == []
    assert told["listed"] == ["sb1"]
    assert told["again"]["created_at"] == told["made"]["created_at"]
    assert told["again"]["routing_key"] == told["made"]["routing_key"]
    assert told["deleted"] == [{}, {}]
    assert told["last"] == [False, "Deleting", "db/drop: attempt 1 has been running for 4 s"]
    assert told["gone"] == [404, "can't get sandbox: not found"]
    assert [call for call, _ in host.calls] == ["offer", "stop"]


def test_fork_gets_values_of_a_resource(sdk, client, host, monkeypatch):
    client.put("resource-plugins/db", specs.plugin())
    client.put("workloads/default/shop", specs.baseline())
    where = (RunEndpoint(unit="fork:default/shop", host="127.0.0.1", port=4711),)
    standing = host.run_status
    monkeypatch.setattr(host, "run_status", lambda uid: msgspec.structs.replace(standing(uid), endpoints=where))
    told = sdk("forks")
    (endpoint,) = told["endpoints"]
    assert (endpoint["name"], endpoint["url"], endpoint["route_type"]) == ("web", "http://127.0.0.1:4711", "host")
    (offer,) = host.offers.values()
    (unit,) = offer.forks
    (fed,) = unit.inputs
    assert (fed.from_.resource, fed.from_.unit, fed.from_.output) == ("mydb", "provision", "host")
    assert {change.name for change in unit.fork.env} >= {"DB_HOST", "PLAIN", "SIGNADOT_SANDBOX_ROUTING_KEY"}


def test_route_group_is_created_and_deleted(sdk, client, host, tmp_path):
    client.put("sandboxes/sb1", specs.empty(labels={"team": "payments"}))
    sandbox = uid_of(host)

    def play():
        """Act as the host: the group's run is ready at once, and ends after a stop."""
        while not (new := host.offers.keys() - {sandbox}):
            time.sleep(0.01)
        (uid,) = new
        host.say(uid, ready=True, reason=Reason.READY, message="All desired workloads are available.")
        while uid not in host.closed or not (tmp_path / "seen").exists():
            time.sleep(0.01)
        host.finish(uid)

    player = threading.Thread(target=play, daemon=True)
    player.start()
    told = sdk("groups")
    player.join()
    assert len(told["made"]["routing_key"]) == 13
    assert [told["again"][field] for field in ("routing_key", "created_at", "spec")] == [
        told["made"][field] for field in ("routing_key", "created_at", "spec")
    ]
    assert told["changed"]["spec"]["match"]["any"][1]["label"]["value"] == "[^y]"
    assert told["got"]["status"]["matched_sandboxes"] == ["sb1"]
    assert told["got"]["endpoints"] == [{"name": "web", "target": "http://shop.default.svc:80", "url": ""}]
    assert (told["listed"], told["deleted"]) == (["rg1"], {})
    assert told["gone"] == [404, "unable to fetch routegroup: not found"]


def test_cluster_calls(sdk):
    told = sdk("clusters")
    assert [cluster["name"] for cluster in told["list"]] == ["local"]
    assert told["get"]["operator"]["version"] == "1.2.3"
    assert (told["tokens"], told["missing"], told["token"]) == ([], 404, 400)


def test_plugin_calls(sdk):
    assert sdk("plugins") == {"put": {}, "again": 409, "list": ["viasdk@1.0.0"], "delete": {}, "versions": []}


def test_errors_are_readable(sdk):
    status, body = sdk("denied", key="wrong")
    assert status == 401
    assert set(body) == {"error", "requestId"}
    status, body = sdk("wrong")
    assert status == 400
    assert body["error"].startswith('spec.bogus: unknown field "bogus"')
