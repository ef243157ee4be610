"""Leak checks in the REST API: orders to the host, refusals, plans, and hosts without leak checks."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.server import databases
from tests.server.agents import delete
from tests.server.client import Client
from tests.server.fake_host import FakeHost
from tests.server.test_organisations import key

from dayfly.lib.clock import now_ms
from dayfly.link import wire
from dayfly.link.wire import Verdict
from dayfly.server.leaks.leak_forms import describe_report
from dayfly.server.records import resource_records
from dayfly.spec.identity import resource_id
from dayfly.spec.leak_check import LeakCheckSpec
from dayfly.spec.leak_report import LeakFinding, LeakReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dayfly.spec.resource_token import ResourceToken

CHECK = "leakchecks/items"
STEP = {"name": "a", "script": "#!/bin/sh\n"}
SECRET = {"name": "region", "valueFromSandbox": True, "secret": True}
REGION = {"name": "region", "valueFromSandbox": True, "required": True}


class FakeChecks:
    """The leak checks of a fake host."""

    def __init__(self) -> None:
        self.orders: list[wire.LeakOrder] = []
        self.kept: dict[str, LeakReport] = {}
        self.states: dict[str, str] = {}
        self.on_order: Callable[[], object] = lambda: None

    async def execute(self, order: wire.LeakOrder) -> Verdict:
        self.on_order()
        self.orders.append(order)
        if isinstance(order, wire.PutLeakCheck):
            self.kept[order.name] = LeakReport(name=order.name, spec=order.spec, plugin=order.plugin)
        elif order.name not in self.kept:
            return Verdict.UNKNOWN
        elif isinstance(order, wire.DropLeakCheck):
            if any(each.sequence > (order.after or 0) for each in self.kept[order.name].deletions):
                return Verdict.CLOSED
            del self.kept[order.name]
        return Verdict.TAKEN

    def reports(self) -> tuple[LeakReport, ...]:
        return tuple(self.kept.values())

    async def resource_states(self, tokens: Sequence[ResourceToken]) -> dict[str, str]:
        return {each.id: self.states[each.id] for each in tokens if each.id in self.states}


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.leak_checks = FakeChecks()
    return host


def bucket(name: str = "bucket@1.0.0", **changes):
    """Return a plugin with an inventory."""
    step = {"inputs": [REGION]}
    spec = {
        "create": [STEP | {"name": "make"} | step],
        "delete": [STEP | {"name": "drop"} | step],
        "inventory": [STEP | {"name": "list", "inputs": [{"name": "region", "valueFromSandbox": True}]}],
    }
    return {"name": name, "spec": spec | changes}


def publish(db: Client, name: str = "bucket@1.0.0", **changes) -> None:
    db.put(f"resource-plugins/{name.partition('@')[0]}", bucket(name, **changes))


def check(**changes):
    spec = {"cluster": "local", "plugin": "bucket", "params": {"region": "west"}, "grace": "2h", **changes}
    return {"spec": spec}


def test_check_is_stored_at_its_host_with_the_delete_steps_of_each_version(db, host):
    publish(db)
    publish(db, "bucket@1.1.0")
    made = db.put(CHECK, check())
    (order,) = host.leak_checks.orders
    assert (order.name, order.plugin, set(order.deletes)) == (
        "items",
        "bucket@1.1.0",
        {"bucket@1.0.0", "bucket@1.1.0"},
    )
    assert order.inventory.resource_id == ""
    assert [unit.name for unit in order.inventory.pre_start] == ["list"]
    assert [unit.name for unit in order.deletes["bucket@1.0.0"].pre_start] == ["drop"]
    assert (made["name"], made["plugin"], made["spec"]["grace"]) == ("items", "bucket@1.1.0", "2h")
    assert db.get(CHECK) == made
    assert db.get("leakchecks") == [made]
    assert db.put(CHECK, made) == made, "an object can be sent as it was returned"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"plugin": "other"}, 'no plugin "other" is published'),
        ({"params": {}}, 'needs the param "region"'),
        ({"params": {"region": "west", "size": "1"}}, "no inventory or delete step of bucket@1.0.0 reads it"),
        ({"cluster": "moon"}, 'no host serves the cluster "moon"'),
        ({"cluster": ""}, "spec.cluster"),
        ({"every": "10s"}, "at most made once a minute"),
        ({"grace": "soon"}, "is not a duration"),
        ({"pricePerHour": "1 euro"}, "write a number and, if you like, a currency, like 0.05 EUR"),
        ({"action": "burn"}, "write one of report, delete"),
    ],
)
def test_invalid_check_is_refused_and_reaches_no_host(db, host, changes, problem):
    publish(db)
    answer = db.call("PUT", CHECK, check(**changes))
    assert (answer.status, host.leak_checks.orders) == (400, [])
    assert problem in answer.error


@pytest.mark.parametrize(
    ("changes", "action", "problem"),
    [
        ({"inventory": []}, "report", "has no inventory"),
        ({"delete": []}, "delete", "has no delete steps"),
        (
            {
                "create": [STEP | {"name": "make", "inputs": [SECRET]}],
                "delete": [STEP | {"name": "drop", "inputs": [SECRET]}],
            },
            "report",
            "secret param",
        ),
    ],
)
def test_plugin_that_cannot_be_checked_is_refused(db, host, changes, action, problem):
    publish(db, **changes)
    answer = db.call("PUT", CHECK, check(action=action))
    assert (answer.status, host.leak_checks.orders) == (400, [])
    assert problem in answer.error


def test_order_names_the_versions_that_no_check_can_delete(db, host):
    publish(db)
    publish(db, "bucket@1.1.0", delete=[])
    publish(db, "bucket@1.2.0", state=True)
    db.put(CHECK, check(plugin="bucket@1.0.0"))
    (order,) = host.leak_checks.orders
    assert (set(order.deletes), set(order.undeletable)) == ({"bucket@1.0.0"}, {"bucket@1.1.0", "bucket@1.2.0"})


def test_findings_have_their_verdicts_and_times(db, host):
    publish(db)
    db.put(CHECK, check())
    finding = LeakFinding(verdict="orphan", id="1", name="x", reason="its run has ended", created=1_000, deletable=True)
    checks = host.leak_checks
    checks.kept["items"] = msgspec.structs.replace(
        checks.kept["items"], number=2, listed_at=2_000, counts={"orphan": 1}, findings=(finding,), plan="w"
    )
    status = db.get(CHECK)["status"]
    assert (status["number"], status["listedAt"], status["counts"]) == (2, "1970-01-01T00:00:02.000Z", {"orphan": 1})
    assert status["findings"][0]["createdAt"] == "1970-01-01T00:00:01.000Z"
    publish(db, "bucket@1.1.0")
    assert db.call("POST", f"{CHECK}/sweep", {"plan": "w"}).status == 200
    put, sweep = checks.orders
    assert (sweep.plan, sweep.name, sweep.spec) == ("w", "items", put.spec)
    assert set(sweep.deletes) == {"bucket@1.0.0", "bucket@1.1.0"}, "also the version that was published later"
    assert db.get("audit")["entries"][-1]["action"] == "delete-leaks"


def find(host, *findings, **changes):
    """Let the fake host report findings."""
    kept = host.leak_checks.kept
    kept["items"] = msgspec.structs.replace(kept["items"], findings=findings, **changes)


def test_finding_has_its_sandbox_and_creator_also_after_its_end(db, host):
    publish(db)
    alice = Client(db.port, db.store, db.call("POST", "keys", {"name": "alice", "role": "member"}).json["key"])
    alice.put("sandboxes/box", {"spec": {"cluster": "local", "resources": [
        {"name": "r", "plugin": "bucket@1.0.0", "params": {"region": "west"}}
    ]}})  # fmt: skip
    (uid,) = host.offers
    orphan = LeakFinding(verdict="orphan", id=resource_id(uid, "r"), name="x")
    foreign = msgspec.structs.replace(orphan, verdict="foreign", reason="nothing proves it")
    db.put(CHECK, check())
    find(host, orphan, foreign)
    living, foreign_living = db.get(CHECK)["status"]["findings"]
    delete(alice, host, "box")
    ended, foreign_ended = db.get(CHECK)["status"]["findings"]
    assert living == ended
    of_whom = "nothing proves it, but it has the ID of a resource of the sandbox box in the cluster local, which "
    assert foreign_living["reason"] == of_whom + "exists"
    assert foreign_ended["reason"].startswith(of_whom + "ended at 20")
    assert (foreign_ended["verdict"], foreign_ended["deletable"]) == ("foreign", False)
    assert (ended["sandbox"], ended["cluster"], ended["createdBy"]) == ("box", "local", "alice")


def test_finding_of_a_cluster_has_the_sandbox_of_its_uid(db, host):
    """In a cluster, resource IDs are derived from the UID of the object, which the server does not know."""
    publish(db)
    alice = Client(db.port, db.store, db.call("POST", "keys", {"name": "alice", "role": "member"}).json["key"])
    alice.put("sandboxes/box", {"spec": {"cluster": "local", "resources": [
        {"name": "r", "plugin": "bucket@1.0.0", "params": {"region": "west"}}
    ]}})  # fmt: skip
    (uid,) = host.offers
    orphan = LeakFinding(verdict="orphan", id=resource_id("an object", "r"), name="x", sandbox_uid=uid)
    db.put(CHECK, check())
    find(host, orphan, *(msgspec.structs.replace(orphan, sandbox_uid=each) for each in ("\x00", "-" * 36, "x" * 1024)))
    living, *unknown = db.get(CHECK)["status"]["findings"]
    delete(alice, host, "box")
    ended = db.get(CHECK)["status"]["findings"][0]
    assert living == ended
    assert (ended["sandbox"], ended["cluster"], ended["createdBy"]) == ("box", "local", "alice")
    assert all("sandbox" not in each for each in unknown)


def test_cluster_cannot_name_a_sandbox_of_another_cluster():
    report = LeakReport(name="items", spec=LeakCheckSpec(plugin="bucket", cluster="east"), plugin="bucket@1.0.0")
    finding = LeakFinding(verdict="orphan", id="1", name="x", sandbox_uid="u")
    report = msgspec.structs.replace(report, findings=(finding,))
    for cluster, is_named in (("east", True), ("west", False)):
        owners = {"u": resource_records.ResourceOwner("box", cluster, "alice")}
        [found] = describe_report(report, owners, now_ms())["status"]["findings"]
        assert ("sandbox" in found) is is_named


def test_finding_of_another_organisation_has_no_owner(db, host):
    publish(db)
    db.put("sandboxes/box", {"spec": {"cluster": "local", "resources": [
        {"name": "r", "plugin": "bucket@1.0.0", "params": {"region": "west"}}
    ]}})  # fmt: skip
    (uid,) = host.offers
    for org, known in (("local", 1), ("rival", 0)):
        read = functools.partial(resource_records.find_owners, ids=[resource_id(uid, "r")])
        assert len(asyncio.run(db.store.for_org(org).read(read))) == known


def test_hostile_ids_of_findings_are_returned_without_an_owner(db, host):
    publish(db)
    db.put(CHECK, check())
    ids = ["\x00", "' OR 1=1", "\u202e", "x" * 1024]
    find(host, *(LeakFinding(verdict="foreign", id=each, name="x") for each in ids))
    found = db.get(CHECK)["status"]["findings"]
    assert [each["id"] for each in found] == ids
    assert all("sandbox" not in each for each in found)


def test_orphans_of_a_check_with_a_price_have_a_cost(db, host):
    publish(db)
    db.put(CHECK, check(pricePerHour="0.50 EUR"))
    hours = now_ms() - 10 * 3_600_000
    orphan = LeakFinding(verdict="orphan", id="1", name="x", created=hours)
    find(host, orphan, msgspec.structs.replace(orphan, verdict="foreign"))
    status = db.get(CHECK)["status"]
    assert [each.get("estimatedCost") for each in status["findings"]] == ["5.00 EUR", None]
    assert status["estimatedCost"] == "5.00 EUR"


def test_built_in_check_is_listed_with_its_cluster_and_kept(db, host):
    spec = LeakCheckSpec(plugin="terraform-states")
    host.leak_checks.kept["terraform-states"] = LeakReport(name="terraform-states", spec=spec, plugin=spec.plugin)
    assert [each["spec"]["cluster"] for each in db.get("leakchecks")] == ["local"]
    assert db.call("POST", "leakchecks/terraform-states/sweep", {}).status == 200
    assert "is a built-in check" in db.call("DELETE", "leakchecks/terraform-states").error
    publish(db)
    assert "use another name" in db.call("PUT", "leakchecks/terraform-states", check()).error


def test_deleted_check_is_gone_at_its_host(db, host):
    publish(db)
    db.put(CHECK, check())
    db.delete(CHECK)
    assert host.leak_checks.kept == {}
    assert db.call("GET", CHECK).status == 404
    assert db.call("DELETE", CHECK).status == 404
    assert db.call("POST", f"{CHECK}/sweep", {}).status == 404


def test_audit_log_has_an_order_before_the_host_receives_it(db, host):
    publish(db)
    found: list[tuple[str, str]] = []
    newest = "SELECT action, object FROM audit ORDER BY number DESC LIMIT 1"
    assert databases.sql(db.store, newest) == [("publish", "resource-plugins/bucket@1.0.0")]
    host.leak_checks.on_order = lambda: found.extend(databases.sql(db.store, newest))
    db.put(CHECK, check())
    db.delete(CHECK)
    assert found == [("put", CHECK), ("delete", CHECK)]


def test_host_without_leak_checks_refuses_them(db, host):
    publish(db)
    host.leak_checks = None
    answer = db.call("PUT", CHECK, check())
    assert answer.status == 400
    assert "this host has no leak checks" in answer.error
    assert db.get("leakchecks") == []


def test_key_with_a_scope_sees_and_changes_no_check(db, host):
    publish(db)
    db.put(CHECK, check())
    scoped = key(db, "member", scope=["name:ci-*"]).client
    for method, path, body in (
        ("GET", "leakchecks", None),
        ("GET", CHECK, None),
        ("PUT", CHECK, check()),
        ("DELETE", CHECK, None),
        ("POST", f"{CHECK}/sweep", {}),
    ):
        assert scoped.call(method, path, body).status == 403
    assert len(host.leak_checks.orders) == 1


def test_cluster_that_has_never_connected_has_no_checks(db, host):
    db.put("clusters/far", None)
    assert db.call("GET", CHECK).status == 404
    assert db.get("leakchecks") == []
