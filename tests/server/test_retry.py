"""`POST .../retry` starts units that wait for a retry, and refuses other units with the reason."""

from __future__ import annotations

import msgspec
import pytest
from tests.server import specs
from tests.server.fake_host import uid_of

from dayfly.plan.reasons import Reason
from dayfly.spec.report import UnitReport

DROP = UnitReport(
    id="mydb/drop", resource="mydb", name="drop", event="postStop", kind="exec", state="retrying", attempt=3
)
MAKE = msgspec.structs.replace(DROP, id="mydb/make", name="make", event="preStart", state="failed", attempt=1)
OTHER = msgspec.structs.replace(DROP, id="mydb/other", name="other", state="running", attempt=1)
FORK = msgspec.structs.replace(DROP, id="fork:demo/app", name="app", event="start", kind="fork", attempt=7)
RETRY = "sandboxes/sb1/retry"


@pytest.fixture
def sb1(client, host):
    client.put("resource-plugins/db", specs.plugin())
    client.put("sandboxes/sb1", specs.sandbox())
    uid = uid_of(host)
    host.say(uid, ready=False, reason=Reason.DELETING, message="it goes", units=(MAKE, DROP, OTHER, FORK))
    return uid


def test_retry_of_one_unit_and_of_all(client, host, sb1):
    assert client.call("POST", RETRY, {"unit": "mydb/drop"}).json == {"retried": [{"unit": "mydb/drop", "attempt": 3}]}
    both = [{"unit": "mydb/drop", "attempt": 3}, {"unit": "fork:demo/app", "attempt": 7}]
    assert client.call("POST", RETRY, {}).json == {"retried": both}
    assert [attempts for attempts, _ in host.hurried] == [{"mydb/drop": 3}, {"mydb/drop": 3, "fork:demo/app": 7}]
    assert all("key " in by for _, by in host.hurried), "the caller is recorded"


def test_retry_of_a_unit_that_does_not_wait_is_refused(client, host, sb1):
    failed = client.call("POST", RETRY, {"unit": "mydb/make"})
    assert failed.status == 409
    assert "never runs again in its sandbox; delete the sandbox and apply it again" in failed.error
    running = client.call("POST", RETRY, {"unit": "mydb/other"})
    assert (running.status, running.error) == (409, "mydb/other is not waiting for a retry: its state is running")
    host.say(sb1, ready=True, reason=Reason.READY, message="all is well", units=(OTHER,))
    nothing = client.call("POST", RETRY, {})
    assert (nothing.status, nothing.error) == (409, "nothing in it is waiting for a retry: all is well")
    assert host.hurried == []


def test_retry_of_a_missing_unit_lists_the_units(client, host, sb1):
    missing = client.call("POST", RETRY, {"unit": "mydb/dorp"})
    assert missing.status == 404
    assert "it has mydb/make, mydb/drop, mydb/other, fork:demo/app" in missing.error
    assert client.call("POST", "sandboxes/none/retry", {}).status == 404


@pytest.mark.parametrize("body", [[], {"units": "x"}, {"unit": 5}, "x"])
def test_malformed_body_is_refused(client, host, sb1, body):
    assert client.call("POST", RETRY, body).status == 400
    assert host.hurried == []
