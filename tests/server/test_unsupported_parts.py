"""No sandbox is reported as ready without a warning while fields of its spec are not supported."""

from __future__ import annotations

from tests.server import specs
from tests.server.fake_host import uid_of

from dayfly.plan.reasons import Reason

READY = "All desired workloads are available."
LOCAL = [{"name": "l", "from": {"kind": "Deployment", "namespace": "shop", "name": "web"}, "mappings": []}]
SAID = 'Not supported here: spec.local (it needs a host that routes: restart this server with dayfly up --routing) and spec.endpoints[0] (no fork answers for "web.shop.svc").'


def test_unsupported_fields_are_reported_while_they_remain(client, host):
    endpoints = [{"name": "e", "host": "web.shop.svc", "port": 80, "protocol": "http"}]
    client.put("sandboxes/sb1", specs.empty(local=LOCAL, endpoints=endpoints))
    uid = uid_of(host)
    host.say(uid, ready=True, reason=Reason.READY, message=READY)
    status = client.get("sandboxes/sb1")["status"]
    assert (status["ready"], status["message"]) == (True, f"{READY} {SAID}")
    assert [each.partition(" ")[0] for each in status["unsupported"]] == ["spec.local", "spec.endpoints[0]"]
    assert client.get("sandboxes")[0]["status"] == status
    report = client.get("sandboxes/sb1/report")
    assert (report["message"], report["unsupported"]) == (status["message"], status["unsupported"])
    why = client.get("sandboxes/sb1/why")
    assert (why["reason"], why["message"]) == ("Unsupported", SAID)
    host.say(uid, ready=False, reason=Reason.RESOURCES_PENDING, message="db/make runs")
    pending = client.get("sandboxes/sb1")["status"]
    assert (pending["message"], len(pending["unsupported"])) == ("db/make runs", 2)
    host.say(uid, ready=True, reason=Reason.READY, message=READY)
    client.put("sandboxes/sb1", specs.empty())
    status = client.get("sandboxes/sb1")["status"]
    assert status == {"ready": True, "reason": "AllDesiredWorkloadsReady", "message": READY}
    assert client.get("sandboxes/sb1/why") == {}
