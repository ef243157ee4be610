"""Sandboxes from creation to end: stored records, orders to the host, and permitted changes."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.server import specs
from tests.server.client import parsed, wait_for
from tests.server.fake_host import uid_of

from dayfly.plan.reasons import Reason
from dayfly.server.db.store import WriteConflictError
from dayfly.server.records import run_records
from dayfly.spec.lifecycle import digest
from dayfly.spec.run import EndRequest


def test_sandbox_is_stored_and_offered_to_its_host(db, host):
    made = db.put("sandboxes/sb1", specs.sandbox())
    offer = host.offers[uid_of(host)]
    assert (offer.name, offer.uid, offer.target.name) == ("sb1", offer.target.uid, "sb1")
    assert [document.resource for document in offer.documents] == ["mydb", ""]
    assert offer.documents[0].pre_start[0].inputs[0].value == "small"
    assert (offer.expires_at, offer.lease_until) == (0, 0)
    assert re.fullmatch("[0-9a-z]{13}", made["routingKey"])
    assert abs(parsed(made["createdAt"]) - time.time()) < 30
    assert made["createdAt"] == made["updatedAt"]
    assert made["status"]["ready"] is True
    assert made["status"]["reason"] == "AllDesiredWorkloadsReady"
    assert made["spec"]["resources"] == [{"name": "mydb", "plugin": "db", "params": {"size": "small"}}]
    for field in ("forks", "local", "virtual", "middleware", "endpoints"):
        assert made["spec"][field] == []
    del made["warnings"]
    assert db.get("sandboxes/sb1") == made
    assert db.get("sandboxes") == [made]


def test_status_is_taken_from_the_host_report(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    host.say(uid_of(host), ready=False, reason=Reason.RESOURCE_FAILED, message="mydb/provision: ended with code 3")
    assert db.get("sandboxes/sb1")["status"] == {
        "ready": False,
        "reason": "ResourceFailed",
        "message": "mydb/provision: ended with code 3",
    }


def test_sandbox_keeps_the_plugin_version_of_its_creation(db, host):
    db.put("resource-plugins/db", specs.plugin("db@1.0"))
    one = db.put("sandboxes/sb1", specs.sandbox())
    assert one["spec"]["resources"][0]["plugin"] == "db@1.0.0"
    db.put("resource-plugins/db", specs.plugin("db@2.0"))
    for again in (specs.sandbox(), {"spec": one["spec"]}):
        assert db.put("sandboxes/sb1", again)["spec"] == one["spec"]
    latest = specs.sandbox()
    latest["spec"]["resources"][0]["plugin"] = "db@latest"
    assert db.put("sandboxes/sb1", latest)["updatedAt"] == one["updatedAt"]
    assert db.put("sandboxes/sb2", latest)["spec"]["resources"][0]["plugin"] == "db@2.0.0"
    latest["spec"]["resources"][0]["plugin"] = "db@2.0"
    answer = db.call("PUT", "sandboxes/sb1", latest)
    assert answer.status == 400
    assert answer.error.startswith("spec.resources[0].plugin: cannot change")


def test_two_versions_of_a_plugin_side_by_side(db, host):
    db.put("resource-plugins/db", specs.plugin("db@1.0", create=[], delete=[{"name": "drop", "script": "#!/bin/sh\n"}]))
    both = specs.empty(resources=[{"name": "a", "plugin": "db@0.0.0"}, {"name": "b", "plugin": "db@1"}])
    made = db.put("sandboxes/sb1", both)
    assert [resource["plugin"] for resource in made["spec"]["resources"]] == ["db", "db@1.0.0"]
    first, second, _ = host.offers[uid_of(host)].documents
    assert (len(first.pre_start), len(second.pre_start)) == (1, 0)


def test_same_spec_again_changes_nothing(db, host):
    made = db.put("sandboxes/sb1", specs.sandbox())
    calls = list(host.calls)
    time.sleep(0.01)
    for _ in range(10):
        assert db.put("sandboxes/sb1", specs.sandbox()) == made
    assert host.calls == calls


def test_concurrent_puts_create_one_sandbox(db, host):
    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda _: db.put("sandboxes/sb1", specs.sandbox()), range(20)))
    assert len({answer["routingKey"] for answer in made}) == 1
    assert host.calls == [("offer", uid_of(host))]


def test_concurrent_requests_leave_a_consistent_state(db, host):
    def cycle(number):
        name = f"sandboxes/sb{number % 4}"
        put = db.call("PUT", name, specs.sandbox(labels={"n": str(number)}))
        got = db.call("GET", name)
        gone = db.call("DELETE", name) if number % 3 == 0 else None
        return put.status, got.status, gone.status if gone else 200

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(cycle, range(60)))
    assert {status for answer in answers for status in answer} <= {200, 409}
    living = {sandbox["name"] for sandbox in db.get("sandboxes")}
    assert living == {offer.name for offer in host.offers.values()}


def test_mutable_sandbox_fields_reach_the_host(client, host):
    client.put("workloads/default/shop", specs.baseline())
    client.put("workloads/default/cart", specs.baseline("cart"))
    made = client.put("sandboxes/sb1", specs.empty(forks=[specs.fork()]))
    uid = uid_of(host)
    before = host.offers[uid]
    time.sleep(0.01)
    changes = {
        "labels": {"team/x": "a/b"},
        "description": "new",
        "ttl": {"duration": "2h", "offsetFrom": ""},
        "endpoints": [{"name": "web", "host": "shop.default.svc", "port": 80}],
        "defaultRouteGroup": {"endpoints": [{"name": "other", "target": "http://shop.default.svc:8080"}]},
        "forks": [specs.fork(), specs.fork("cart")],
    }
    changed = client.put("sandboxes/sb1", specs.empty(**changes))
    assert changed["updatedAt"] > made["updatedAt"]
    assert (changed["createdAt"], changed["routingKey"]) == (made["createdAt"], made["routingKey"])
    assert changed["spec"]["labels"] == {"team/x": "a/b"}
    assert changed["spec"]["ttl"] == {"duration": "2h", "offsetFrom": "createdAt"}
    scheduled = parsed(changed["status"]["scheduledDeleteTime"])
    assert scheduled == pytest.approx(parsed(made["createdAt"]) + 7200)
    after = host.offers[uid]
    assert after.expires_at == pytest.approx(scheduled * 1000, abs=1)
    assert len(after.forks) == 2
    assert digest(after.documents) == digest(before.documents)


def test_change_cannot_fork_an_undeclared_baseline(client, host):
    """A fork in a change has the same checks as a fork in a new sandbox."""
    made = client.put("sandboxes/sb1", specs.empty())
    answer = client.call("PUT", "sandboxes/sb1", specs.empty(forks=[specs.fork()]))
    assert answer.status == 400
    assert 'spec.forks[0].forkOf: no baseline Deployment "default/shop" is declared' in answer.error
    assert client.get("sandboxes/sb1")["updatedAt"] == made["updatedAt"]
    assert host.offers[uid_of(host)].forks == ()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"cluster": "other"}, "spec.cluster"),
        ({"resources": []}, "spec.resources"),
        ({"resources": [{"name": "mydb", "plugin": "db", "params": {"size": "big"}}]}, "spec.resources[0].params.size"),
        (
            {"resources": [{"name": "mydb", "plugin": "db", "params": {"size": "small", "x": "y"}}]},
            "spec.resources[0].params.x",
        ),
        ({"resources": [{"name": "other", "plugin": "db", "params": {"size": "small"}}]}, "spec.resources[0].name"),
        ({"hooks": {"preStart": [{"name": "a", "script": "#!/bin/sh\n"}]}}, "spec.hooks"),
        ({"runner": {"image": "other"}}, "spec.runner"),
        ({"routing": {"forwards": []}}, "spec.routing"),
    ],
)
def test_immutable_sandbox_fields_are_named_in_the_refusal(db, host, change, path):
    made = db.put("sandboxes/sb1", specs.sandbox(labels={"a": "b"}))
    answer = db.call("PUT", "sandboxes/sb1", specs.sandbox(labels={"a": "c"}, **change))
    assert answer.status == 400
    assert answer.error.startswith(path + ": cannot change")
    assert "labels, description, ttl" in answer.error
    del made["warnings"]
    assert db.get("sandboxes/sb1") == made
    assert len(host.calls) == 1


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (
            specs.empty(cluster="other"),
            'spec.cluster: no cluster "other"; this server has local; one machine can be several: dayfly up --cluster NAME',
        ),
        (specs.empty(cluster=""), "spec: sandbox spec must specify cluster"),
        (specs.empty(bogus=1), 'spec.bogus: unknown field "bogus"'),
        (specs.empty(forks=[{"forkOf": {"kind": "Deployment", "name": "x"}}]), "spec.forks[0].forkOf"),
        (
            specs.empty(forks=[specs.fork()]),
            'spec.forks[0].forkOf: no baseline Deployment "default/shop" is declared',
        ),
        (specs.empty(ttl={"duration": "1y"}), 'spec.ttl.duration: "1y" is not a time to live'),
        (specs.empty(resources=[{"name": "a", "plugin": "none"}]), 'spec.resources[0].plugin: no plugin "none"'),
        (specs.empty(resources=[{"name": "a", "plugin": "db@9"}]), 'spec.resources[0].plugin: no plugin "db@9"'),
        (
            specs.empty(resources=[{"name": "a", "plugin": "db", "params": {"size": 1}}]),
            "spec.resources[0].params.size",
        ),
        (specs.empty() | {"lease": {"seconds": 0}}, "lease.seconds: must be a whole number from 1"),
        (specs.empty() | {"lease": {"seconds": True}}, "lease.seconds"),
        (specs.empty() | {"lease": {"seconds": 5, "x": 1}}, "lease: "),
        (specs.empty() | {"lease": 5}, "lease: "),
    ],
)
def test_malformed_spec_is_refused_with_its_place(db, host, wish, says):
    answer = db.call("PUT", "sandboxes/sb1", wish)
    assert answer.status == 400
    assert answer.error.startswith(says)
    assert db.get("sandboxes") == []
    assert host.calls == []


def test_all_errors_of_a_spec_have_a_line_each(db, host):
    """First the errors of its form, then references to missing objects, then changes of immutable fields."""
    steps = [{"name": "one", "script": "#!/bin/sh\n", "bogus": 1}, {"name": "two", "script": 5}]
    answer = db.call("PUT", "resource-plugins/p", specs.plugin("p", create=steps))
    assert (answer.status, [line.partition(":")[0] for line in answer.error.split("\n")]) == (
        400,
        ["spec.create[0].bogus", "spec.create[1].script"],
    )
    resources = [{"name": name, "plugin": name} for name in ("a", "b")]
    answer = db.call("PUT", "sandboxes/sb1", specs.empty(resources=resources, forks=[specs.fork()]))
    assert [line.partition(":")[0] for line in answer.error.split("\n")] == [
        "spec.resources[0].plugin",
        "spec.resources[1].plugin",
        "spec.forks[0].forkOf",
    ]
    db.put("sandboxes/sb1", specs.empty())
    answer = db.call("PUT", "sandboxes/sb1", specs.empty(cluster="x", hooks={"preStart": [steps[0] | {"bogus": None}]}))
    assert [line.partition(": cannot")[0] for line in answer.error.split("\n")] == ["spec.cluster", "spec.hooks"]
    answer = db.call("PUT", "resource-plugins/p", specs.plugin("p", create=[{"name": "a", "x": 1}] * 30))
    lines = answer.error.split("\n")
    assert (len(lines), lines[-1]) == (21, "and 10 more like these")


@pytest.mark.parametrize("name", ["1a", "a" * 31, "a-", "a_b", "%2e%2e", "a%00b", "%c3%bc", "a%20b"])
def test_invalid_name_is_refused(client, host, name):
    answer = client.call("PUT", f"sandboxes/{name}", specs.empty())
    assert answer.status == 400
    assert ("the path or query contains a NUL character" if "%00" in name else "name: ") in answer.error
    assert host.calls == []


def test_sandbox_its_host_cannot_run_is_not_stored(db, host):
    host.refuse = "mydb/provision: this host has no helm"
    answer = db.call("PUT", "sandboxes/sb1", specs.sandbox())
    assert answer.status == 400
    assert "this host has no helm" in answer.error
    assert db.get("sandboxes") == []
    host.refuse = ""
    made = db.put("sandboxes/sb1", specs.sandbox())
    host.refuse = "no more"
    assert db.call("PUT", "sandboxes/sb1", specs.sandbox(labels={"a": "b"})).status == 400
    assert db.get("sandboxes/sb1")["updatedAt"] == made["updatedAt"]


def test_unused_param_is_refused_before_the_sandbox_exists(db):
    odd = specs.empty(resources=[{"name": "mydb", "plugin": "db", "params": {"sise": "small"}}])
    answer = db.call("PUT", "sandboxes/sb1", odd)
    assert answer.status == 400
    assert answer.error.startswith("spec.resources[0].params.sise: ")
    assert db.get("sandboxes") == []


def test_deletion_is_visible_until_the_run_has_ended(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    uid = uid_of(host)
    for _ in range(3):
        assert db.delete("sandboxes/sb1?force=False") == {}
    assert host.calls == [("offer", uid), ("stop", uid)]
    assert host.closed[uid].reason == "Deleted"
    message = "db/drop: attempt 1 has been running for 4 s"
    assert db.get("sandboxes/sb1")["status"] == {"ready": False, "reason": "Deleting", "message": message}
    answer = db.call("PUT", "sandboxes/sb1", specs.sandbox())
    assert answer.status == 409
    assert "db/drop: attempt 1 has been running for 4 s" in answer.error
    host.finish(uid)
    assert db.get("sandboxes") == []
    answer = db.call("GET", "sandboxes/sb1")
    assert (answer.status, answer.error) == (404, "can't get sandbox: not found")
    assert db.delete("sandboxes/sb1") == {}
    again = db.put("sandboxes/sb1", specs.sandbox())
    assert uid_of(host) != uid
    assert again["status"]["ready"] is True


def test_sandbox_that_never_existed_is_not_found(client):
    for method, path in (("GET", ""), ("DELETE", ""), ("DELETE", "?force=true"), ("GET", "/report"), ("GET", "/log")):
        answer = client.call(method, f"sandboxes/none{path}")
        assert (answer.status, answer.error) == (404, "can't get sandbox: not found")
    assert client.call("PUT", "sandboxes/none/lease", {"seconds": 5}).status == 404
    assert client.call("POST", "sandboxes/none/abandon", {"reason": "x"}).status == 404


@pytest.mark.parametrize("force", ["True", "true", "TRUE", "1"])
def test_forced_delete_records_the_caller(db, host, force):
    db.put("sandboxes/sb1", specs.sandbox())
    uid = uid_of(host)
    answer = db.call("DELETE", f"sandboxes/sb1?force={force}", headers={"User-Agent": "signadot-cli:1.7\x85"})
    assert (answer.status, answer.json) == (200, {})
    request = host.abandoned[uid]
    assert request.reason == "Abandoned"
    assert re.fullmatch(r"signadot-cli:1\.7, key [0-9a-f]{8}", request.by)
    assert "secret" not in request.by
    assert db.call("GET", "sandboxes/sb1").status == 404


def test_stuck_deletion_can_be_abandoned_with_a_reason(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    uid = uid_of(host)
    db.delete("sandboxes/sb1")
    for body in ({}, {"reason": ""}, {"reason": " "}, {"reason": 5}, {"reason": "a\nb"}, {"reason": "x" * 1001}, []):
        answer = db.call("POST", "sandboxes/sb1/abandon", body)
        assert answer.status == 400
        assert answer.error.startswith("reason: ")
    assert db.call("POST", "sandboxes/sb1/abandon", {"reason": "x", "force": "yes"}).error.startswith("force: ")
    assert host.abandoned == {}
    assert db.call("POST", "sandboxes/sb1/abandon", {"reason": "dropped by hand"}).json == {}
    assert host.abandoned[uid].message == "dropped by hand"


def test_abandoning_ready_sandbox_is_refused_without_force(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    uid = uid_of(host)
    answer = db.call("POST", "sandboxes/sb1/abandon", {"reason": "not needed", "force": False})
    assert answer.status == 409
    assert 'sandbox "sb1" is not being deleted' in answer.error
    assert 'delete it first, or send "force": true' in answer.error
    assert host.abandoned == {}
    assert db.get("sandboxes/sb1/report")["phase"] == "open"
    assert db.call("POST", "sandboxes/sb1/abandon", {"reason": "not needed", "force": True}).status == 200
    assert host.abandoned[uid].message == "not needed"


def test_abandoning_sandbox_that_its_host_closed_is_accepted(db, host):
    """The host closed it at the end of its time to live."""
    db.put("sandboxes/sb1", specs.sandbox())
    uid = uid_of(host)
    host.closed[uid] = EndRequest(at=1, reason=Reason.EXPIRED, message="its time to live has ended")
    host.say(uid, ready=False, reason=Reason.DELETING, message="is being cleaned up")
    wait_for(lambda: db.get("sandboxes/sb1/report")["phase"] == "closed")
    assert db.call("POST", "sandboxes/sb1/abandon", {"reason": "dropped by hand"}).status == 200
    assert host.abandoned[uid].message == "dropped by hand"


def test_first_abandon_request_is_recorded(db, host):
    """The host has not received it yet, and the second request finds it abandoned."""
    db.put("sandboxes/sb1", specs.sandbox())
    uid = uid_of(host)
    host.down = True
    for reason, who in (("dropped by hand", "ann:1"), ("me too", "bob:1")):
        body = {"reason": reason, "force": True}
        answer = db.call("POST", "sandboxes/sb1/abandon", body, headers={"User-Agent": who})
        assert answer.status == 200
    host.down = False
    wait_for(lambda: uid in host.abandoned)
    request = host.abandoned[uid]
    assert request.message == "dropped by hand"
    assert request.by.startswith("ann:1")


def test_force_must_be_true_or_false(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    assert db.call("DELETE", "sandboxes/sb1?force=maybe").status == 400
    assert [call for call, _ in host.calls] == ["offer"]


def test_list_is_filtered_by_labels(db):
    for name, label in (("one", "pay"), ("two", "ship")):
        wish = specs.sandbox()
        wish["spec"]["labels"] = {"team": label}
        db.put(f"sandboxes/{name}", wish)
    assert [each["name"] for each in db.get("sandboxes?label=team=pay")] == ["one"]
    assert [each["name"] for each in db.get("sandboxes?label=team&label=team!%3Dpay")] == ["two"]
    assert db.get("sandboxes?label=team=pay,none") == []
    assert 'query parameter label: "=x" is not a label selector' in db.call("GET", "sandboxes?label==x").error


@pytest.mark.parametrize("named", ["bd", "db@7.7.7", "db@1.0.1"])
def test_suggested_plugin_is_accepted_in_its_place(db, named):
    wish = specs.sandbox()
    wish["spec"]["resources"][0]["plugin"] = named
    error = db.call("PUT", "sandboxes/sb1", wish).error
    wish["spec"]["resources"][0]["plugin"] = re.search('(?:did you mean|there is) "([^"]+)"', error)[1]
    db.put("sandboxes/sb1", wish)


def test_lease_renewal_is_retried_after_a_conflict(client, host, monkeypatch):
    """`dayfly with` takes 409 for the end of its sandbox."""
    client.put("sandboxes/sb1", {**specs.empty(), "lease": {"seconds": 30}})
    times, save = [], run_records.save

    def quicker(rows, record, **more):
        times.append(record)
        if len(times) == 1:
            raise WriteConflictError("another request has changed it")
        return save(rows, record, **more)

    monkeypatch.setattr(run_records, "save", quicker)
    assert client.put("sandboxes/sb1/lease", {"seconds": 86_400})["seconds"] == 86_400
    assert [each.lease_seconds for each in times] == [86_400] * 2
