"""Resource pools in the REST API: orders, refusals, versions, matches and actions."""

from __future__ import annotations

import shutil

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server import specs
from tests.server.client import ORG, Client, serving, wait_for
from tests.server.fake_host import FakeHost
from tests.server.test_changes import listening, soon  # noqa: F401 # a fixture
from tests.server.test_organisations import key

from dayfly.link.transport import CompileTarget
from dayfly.server.api.pool_metrics import METRICS
from dayfly.server.catalog import run_specs
from dayfly.server.db import tables
from dayfly.server.db.store import Store
from dayfly.server.records import run_records
from dayfly.server.records.run_records import RunRecord
from dayfly.server.runs.pool_forms import HIDDEN_HOLDER
from dayfly.server.sync import host_sync
from dayfly.spec import documents
from dayfly.spec.lifecycle import MEMBER_TARGET, Kind, digest
from dayfly.spec.report import PoolReport, UnitReport
from dayfly.spec.resource_pool import ResourcePoolSpec

POOL = "resourcepools/small"
FIXED = {"size": "small"}
CHANGES = [
    ("PUT", ""),
    ("DELETE", ""),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/drain"),
    ("POST", "/abandon"),
]


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.pools = True
    return host


def pool(**changes):
    return {"spec": {"cluster": "local", "plugin": "db", "params": FIXED, "ready": 2, **changes}}


def offered(host, kind):
    (found,) = [offer for offer in host.offers.values() if offer.target.kind == kind]
    return found


def template_of(offer):
    """Return the digest of the template in the document of a sandbox's only resource."""
    return digest(offer.documents[0].template_documents())


def member(name, state, **more):
    return UnitReport(id=name, name=name, event="preStart", kind="member", state=state, **more)


NEWEST = 1 << 52


def report(host, uid, units, **numbers):
    """Set the report of a pool that is ready, and whose host has accepted the newest spec unless it says otherwise."""
    numbers = PoolReport(**{"generation": NEWEST, **numbers})
    host.say(uid, ready=True, reason="Ready", message="2 members are ready.", units=units, pool=numbers)


def test_pool_is_not_ready_before_its_host_has_the_newest_spec(db, host):
    db.put(POOL, pool())
    uid = offered(host, "ResourcePool").uid
    report(host, uid, (), wanted=2, ready=2, generation=1)
    status = db.get(POOL)["status"]
    assert (status["ready"], status["reason"]) == (False, "Filling")
    report(host, uid, (), wanted=2, ready=2)
    assert db.get(POOL)["status"]["ready"]


def test_pool_is_stored_and_offered_with_its_template(db, host):
    made = db.put(POOL, pool())
    assert (made["name"], made["spec"]["plugin"], made["spec"]["ready"]) == ("small", "db", 2)
    assert made == db.get(POOL)
    assert db.get("resourcepools") == [made]
    offer = offered(host, "ResourcePool")
    assert (offer.name, offer.target.name, offer.target.uid, offer.routing_key) == ("small", "small", offer.uid, "")
    assert offer.pool == ResourcePoolSpec(cluster="local", plugin="db", params=FIXED, ready=2)
    (template,) = offer.documents
    assert template.target == MEMBER_TARGET
    assert [unit.name for unit in template.pre_start] == ["provision"]
    assert (template.origin.publisher, template.origin.plugin) == ("local", "db")


def test_changed_size_is_offered_with_a_higher_generation(db, host):
    made, first = db.put(POOL, pool()), offered(host, "ResourcePool")
    calls = len(host.calls)
    assert db.put(POOL, pool())["updatedAt"] == made["updatedAt"]
    assert len(host.calls) == calls, "an unchanged pool needs no order"
    db.put(POOL, pool(ready=5))
    second = offered(host, "ResourcePool")
    assert (second.uid, second.pool.ready, second.documents) == (first.uid, 5, first.documents)
    assert second.generation > first.generation


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"plugin": "db@1.0.0"}, "spec.plugin"), ({"params": {}}, "spec.params"), ({"cluster": "x"}, "spec.cluster")],
)
def test_immutable_pool_fields_cannot_change(db, changes, field):
    db.put(POOL, pool())
    answer = db.call("PUT", POOL, pool(**changes))
    assert answer.status == 400
    assert answer.error.startswith(field)
    assert "cannot change while the pool lives" in answer.error


def test_etag_of_a_pool_guards_changes(db):
    db.put(POOL, pool())
    tag = db.call("GET", POOL).headers["etag"]
    assert db.call("PUT", POOL, pool(ready=3), {"If-Match": tag}).status == 200
    assert db.call("PUT", POOL, pool(ready=4), {"If-Match": tag}).status == 412
    assert db.call("DELETE", POOL, headers={"If-Match": tag}).status == 412
    assert db.call("PUT", POOL, pool(), {"If-None-Match": "*"}).status == 412


def test_deleted_pool_ends_when_its_host_says_so(db, host):
    db.put(POOL, pool())
    uid = offered(host, "ResourcePool").uid
    db.delete(POOL)
    assert host.closed[uid].reason == "Deleted"
    assert db.get(POOL)["status"]["reason"] == "Deleting"
    assert db.call("PUT", POOL, pool(ready=3)).status == 409
    db.delete(POOL)
    host.finish(uid)
    wait_for(lambda: db.call("GET", POOL).status == 404)
    db.delete(POOL)
    assert db.get("resourcepools") == []
    db.put(POOL, pool())
    assert offered(host, "ResourcePool").uid != uid


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"plugin": "nothing"}, "spec.plugin: no plugin"),
        ({"plugin": "db@9.0.0"}, "spec.plugin: no plugin"),
        ({"cluster": ""}, "spec.cluster: is required"),
        ({"cluster": "mars"}, "spec.cluster: no cluster"),
        ({"params": {}}, "provision"),
        ({"params": {"unknown": "x"}}, "unknown"),
        ({"ready": -1}, "spec.ready"),
        ({"size": 3}, "size"),
    ],
)
def test_invalid_pool_is_refused_with_its_place(db, host, changes, problem):
    answer = db.call("PUT", POOL, pool(**changes))
    assert (answer.status, problem in answer.error) == (400, True), answer.error
    assert (db.get("resourcepools"), host.offers) == ([], {})


@pytest.mark.parametrize("name", ["..", "a%2Fb", "a%00", "a%20b", "1a", "a" * 64, "%C3%A4", "-", "a%0Ab"])
def test_hostile_name_of_a_pool_is_refused(db, host, name):
    answer = db.call("PUT", f"resourcepools/{name}", pool())
    assert answer.status in (400, 404, 405)
    assert (db.get("resourcepools"), host.offers) == ([], {})


def test_second_pool_for_the_same_members_is_refused(db):
    db.put(POOL, pool())
    for reference in ("db", "db@latest", "db@0.0.0"):
        answer = db.call("PUT", "resourcepools/other", pool(plugin=reference))
        assert answer.status == 400
        assert answer.error.startswith('spec.plugin: the pool "small" already has')
    db.put("resourcepools/other", pool(params={"size": "large"}))
    db.delete("resourcepools/other")


def test_cluster_without_pools_refuses_a_pool(tmp_path, blank):
    with serving(shutil.copy(blank, tmp_path), {"local": FakeHost()}) as client:
        client.put("resource-plugins/db", specs.plugin())
        answer = client.call("PUT", POOL, pool())
        assert answer.status == 400
        assert "spec.cluster" in answer.error
        assert "no resource pools" in answer.error


@pytest.mark.usefixtures("soon")
def test_host_that_loses_its_pools_gets_no_pool_orders(db, host, monkeypatch):
    monkeypatch.setattr(host_sync, "ROUND_INTERVAL_S", 0.02)
    db.put(POOL, pool())
    host.pools, calls = False, len(host.calls)
    host.restart()
    wait_for(lambda: "no resource pools" in db.get(POOL)["status"]["message"])
    assert db.get(POOL)["status"]["reason"] == "Refused"
    db.put("sandboxes/sb1", specs.sandbox())
    assert offered(host, "Sandbox").documents[0].template == ()
    assert [call for call, _ in host.calls[calls:]] == ["offer"]


class TestVersions:
    """A pool without a version follows the newest one."""

    @pytest.fixture
    def published(self, client: Client) -> Client:
        client.put("resource-plugins/db", specs.plugin("db@1.0.0"))
        return client

    def publish(self, client, version, **changes):
        client.put("resource-plugins/db", specs.plugin(f"db@{version}", runner={"image": f"i:{version}"}, **changes))

    def image(self, host):
        return offered(host, "ResourcePool").documents[0].pre_start[0].exec.image

    def test_new_version_is_offered_with_a_new_generation(self, published, host):
        made = published.put(POOL, pool())
        before = offered(host, "ResourcePool")
        self.publish(published, "1.1.0")
        wait_for(lambda: self.image(host) == "i:1.1.0")
        after = offered(host, "ResourcePool")
        assert (after.uid, after.generation > before.generation) == (before.uid, True)
        assert published.get(POOL)["updatedAt"] > made["updatedAt"]
        self.publish(published, "1.0.5")
        assert published.put(POOL, pool(ready=3))["spec"]["plugin"] == "db"
        assert self.image(host) == "i:1.1.0"

    def test_pool_with_a_version_keeps_it(self, published, host):
        published.put(POOL, pool(plugin="db@1"))
        self.publish(published, "1.1.0")
        assert published.put(POOL, pool(plugin="db@1.0.0", ready=9))["spec"]["plugin"] == "db@1.0.0"
        assert self.image(host) == "busybox"

    def test_version_that_cannot_be_pooled_is_reported(self, published, host):
        published.put(POOL, pool())
        reading = {**specs.plugin()["spec"]["create"][0], "at": "claim"}
        self.publish(published, "1.1.0", create=[reading])
        wait_for(lambda: "no longer compiles" in published.get(POOL)["status"]["message"])
        assert self.image(host) == "busybox"
        published.put("sandboxes/sb1", specs.sandbox())
        assert offered(host, "Sandbox").documents[0].template == ()

    def test_version_of_a_pool_cannot_be_deleted(self, published, host):
        self.publish(published, "1.1.0")
        published.put(POOL, pool())
        answer = published.call("DELETE", "resource-plugins/db?version=1.1.0")
        assert answer.status == 400
        assert "is in use by pool(s): small" in answer.error
        published.put("sandboxes/sb1", specs.sandbox(resources=[{"name": "mydb", "plugin": "db", "params": FIXED}]))
        answer = published.call("DELETE", "resource-plugins/db?version=1.1.0")
        assert "is in use by sandbox(es): sb1 and pool(s): small" in answer.error
        published.delete("sandboxes/sb1")
        host.finish(offered(host, "Sandbox").uid)
        wait_for(lambda: published.call("GET", "sandboxes/sb1").status == 404)
        published.delete("resource-plugins/db?version=1.0.0")
        published.delete(POOL)
        host.finish(offered(host, "ResourcePool").uid)
        wait_for(lambda: published.call("GET", POOL).status == 404)
        published.delete("resource-plugins/db?version=1.1.0")


class TestSandboxes:
    """The resources that get a member of a pool."""

    def test_matching_resource_acquires_a_member(self, db, host):
        db.put(POOL, pool())
        db.put("sandboxes/sb1", specs.sandbox())
        offer = offered(host, "Sandbox")
        document = offer.documents[0]
        assert [(unit.name, unit.kind) for unit in document.pre_start] == [("provision", Kind.ACQUIRE)]
        assert template_of(offer) == digest(offered(host, "ResourcePool").documents)

    @pytest.mark.parametrize("changes", [{"params": {"size": "large"}}, {"pool": "never", "params": FIXED}])
    def test_other_resource_is_created_for_its_sandbox(self, db, host, changes):
        db.put(POOL, pool())
        db.put("sandboxes/sb1", specs.sandbox(resources=[{"name": "mydb", "plugin": "db", **changes}]))
        assert offered(host, "Sandbox").documents[0].template == ()

    @pytest.mark.parametrize(("changes", "matches"), [({}, True), ({"description": "another one"}, False)])
    def test_inline_plugin_of_the_same_content_matches(self, db, host, changes, matches):
        db.put(POOL, pool())
        inline = {**specs.plugin()["spec"], **changes}
        db.put("sandboxes/sb1", specs.sandbox(resources=[{"name": "mydb", "spec": inline, "params": FIXED}]))
        offer = offered(host, "Sandbox")
        assert bool(offer.documents[0].template) is matches
        if matches:
            assert template_of(offer) == digest(offered(host, "ResourcePool").documents)

    def test_sandbox_older_than_its_pool_stays_without_it(self, db, host):
        db.put("sandboxes/sb1", specs.sandbox())
        before = offered(host, "Sandbox")
        db.put(POOL, pool())
        db.put("sandboxes/sb1", specs.sandbox(labels={"a": "b"}))
        after = offered(host, "Sandbox")
        assert (after.documents, after.generation > before.generation) == (before.documents, True)

    def test_deleted_pool_serves_no_new_sandbox(self, db, host):
        db.put(POOL, pool())
        db.delete(POOL)
        db.put("sandboxes/sb1", specs.sandbox())
        assert offered(host, "Sandbox").documents[0].template == ()

    def test_pool_of_another_cluster_is_not_used(self, tmp_path, blank):
        hosts = {name: FakeHost() for name in ("local", "far")}
        for each in hosts.values():
            each.pools = True
        with serving(shutil.copy(blank, tmp_path), hosts) as client:
            client.put("resource-plugins/db", specs.plugin())
            client.put(POOL, pool(cluster="far"))
            client.put("sandboxes/sb1", specs.sandbox())
            client.put("resourcepools/same", pool())
        assert offered(hosts["local"], "Sandbox").documents[0].template == ()

    def test_status_names_member_and_pool_of_a_resource(self, db, host):
        db.put(POOL, pool())
        db.put("sandboxes/sb1", specs.sandbox())
        assert "resources" not in db.get("sandboxes/sb1")["status"]
        unit = {"event": "preStart", "kind": "acquire", "state": "succeeded"}
        units = (
            UnitReport(
                id="mydb/provision",
                resource="mydb",
                name="provision",
                pool="small",
                member="small-1",
                hit=True,
                **unit,
            ),
            UnitReport(id="new/provision", resource="new", name="provision", member="sb1-new", **unit),
            UnitReport(id="own/make", resource="own", name="make", **unit),
        )
        host.say(offered(host, "Sandbox").uid, ready=True, reason="Ready", message="", units=units)
        assert db.get("sandboxes/sb1")["status"]["resources"] == [
            {"name": "mydb", "member": "small-1", "pool": "small", "hit": True},
            {"name": "new", "member": "sb1-new", "hit": False},
        ]

    def test_plan_of_a_sandbox_shows_the_units(self, db):
        db.put(POOL, pool())
        db.put("sandboxes/sb1", specs.sandbox())
        assert "provision" in str(db.get("sandboxes/sb1/plan"))


class TestActions:
    """Pause, resume and drain."""

    @pytest.mark.parametrize("action", ["pause", "resume", "drain"])
    def test_action_reaches_the_host_and_the_audit_log(self, db, host, action):
        db.put(POOL, pool())
        assert db.call("POST", f"{POOL}/{action}").json["name"] == "small"
        (found,) = host.actions
        assert found[:2] == (offered(host, "ResourcePool").uid, action)
        last = db.get("audit")["entries"][-1]
        assert (last["action"], last["object"]) == (action, POOL)

    def test_action_that_the_host_does_not_record_fails(self, db, host):
        assert db.call("POST", f"{POOL}/pause").status == 404
        db.put(POOL, pool())
        host.down = True
        assert db.call("POST", f"{POOL}/pause").status == 503
        host.down = False
        db.delete(POOL)
        closed = db.call("POST", f"{POOL}/pause")
        assert (closed.status, "is being deleted" in closed.error) == (409, True)
        assert host.actions == []
        assert [each["action"] for each in db.get("audit")["entries"] if each["object"] == POOL] == ["create", "delete"]


class TestStatus:
    """The state of a pool as its host reports it."""

    def test_members_and_numbers_are_reported(self, db, host):
        db.put(POOL, pool())
        uid = offered(host, "ResourcePool").uid
        units = (
            member("small-1", "succeeded", started_at=1_000, holder="sb1/mydb"),
            member("small-2", "succeeded", started_at=2_000),
            member("small-3", "running", started_at=3_000),
            member("small-4", "waiting"),
            member("small-5", "failed", reason="StepFailed", message="exit code 1"),
            member("small-6", "stopped", holder="sb2/mydb"),
        )
        report(host, uid, units, wanted=2, ready=1, creating=2, held=2, failed=1, hits=7, misses=3, paused="by ann")
        status = db.get(POOL)["status"]
        assert [each["state"] for each in status["members"]] == [
            "held",
            "ready",
            "creating",
            "creating",
            "failed",
            "ending",
        ]
        assert status["members"][0] == {
            "name": "small-1",
            "state": "held",
            "createdAt": "1970-01-01T00:00:01.000Z",
            "reason": "",
            "message": "",
            "holder": "sb1/mydb",
        }
        assert status["counts"] == {"wanted": 2, "ready": 1, "creating": 2, "held": 2, "failed": 1}
        assert (status["hits"], status["misses"], status["paused"], status["ready"]) == (7, 3, "by ann", True)
        assert db.get(f"{POOL}/report")["units"][1]["name"] == "small-2"

    def test_failing_pool_needs_attention(self, db, host):
        db.put(POOL, pool())
        uid = offered(host, "ResourcePool").uid
        assert db.get("attention") == []
        host.say(uid, ready=False, reason="Failing", message="3 members failed in a row")
        (concern,) = db.get("attention")
        assert (concern["kind"], concern["subject"], concern["pool"]) == ("failed", "pool small", "small")
        assert "dayfly pool resume" in concern["next"]
        assert key(db, "viewer", scope=["name:ci-*"]).client.get("attention") == []

    def test_explanation_predicts_misses_for_other_sizes(self, db, host):
        db.put(POOL, pool())
        empty = db.get(f"{POOL}/explain")
        assert (empty["hits"], empty["load"], empty["sizes"]) == (0, 0, [])
        uid = offered(host, "ResourcePool").uid
        report(host, uid, (), wanted=5, hits=90, misses=10, rate=1200.0, refill_ms=6_000, spread=1.0, idle_ms=2_500)
        found = db.get(f"{POOL}/explain")
        assert (found["name"], found["wanted"], found["hits"], found["misses"]) == ("small", 5, 90, 10)
        assert (found["ratePerHour"], found["refillSeconds"], found["idleSeconds"]) == (1200, 6, 2.5)
        assert found["load"] == pytest.approx(2)
        ratios = {each["ready"]: each["missRatio"] for each in found["sizes"]}
        assert ratios[0] == 1
        assert ratios[7] < 0.01 < ratios[5] < 0.05, "Erlang B, as in tables"
        assert list(ratios) == list(range(11))

    def test_explanation_of_a_large_pool_has_few_sizes(self, db, host):
        db.put(POOL, pool(ready=997))
        uid = offered(host, "ResourcePool").uid
        report(host, uid, (), wanted=997, rate=36_000.0, refill_ms=60_000)
        sizes = [each["ready"] for each in db.get(f"{POOL}/explain")["sizes"]]
        assert (len(sizes) <= 23, 997 in sizes, sizes == sorted(sizes)) == (True, True, True)

    def test_pool_of_a_silent_host_is_not_ready(self, tmp_path, blank):
        with serving(shutil.copy(blank, tmp_path), {"local": FakeHost()}) as client:
            client.put("resource-plugins/db", specs.plugin())
            client.put("clusters/far", {})
            client.put(POOL, pool(cluster="far"))
            status = client.get(POOL)["status"]
            assert (status["ready"], status["members"]) == (False, [])
            assert "no host serves the cluster far" in status["message"]
            assert "pool(s): small" in client.call("DELETE", "clusters/far").error


@pytest.mark.usefixtures("soon")
class TestChanges:
    """The stream of changes."""

    def test_pool_is_streamed_with_separate_types(self, db, host):
        db.put(POOL, pool())
        uid = offered(host, "ResourcePool").uid
        with listening(db) as listener:
            assert listener.next()[1:] == ("pool-changed", db.get(POOL))
            assert [listener.next()[1] for _ in range(2)] == ["group-synced", "synced"]
            report(host, uid, (member("small-1", "succeeded"),), ready=1)
            while not (found := listener.until("pool-changed")[2]["status"]["members"]):
                pass
            assert found[0]["state"] == "ready"
            db.delete(POOL)
            host.finish(uid)
            db.call("GET", POOL)
            assert listener.until("pool-deleted")[2] == {"name": "small"}
        assert db.call("GET", f"{POOL}/changes").status == 404

    def test_key_with_a_scope_gets_only_what_it_may_see(self, db, host):
        db.put(POOL, pool())
        db.put("resourcepools/ci-1", pool(params={"size": "large"}))
        (uid,) = [uid for uid, offer in host.offers.items() if offer.name == "ci-1"]
        report(host, uid, (member("ci-1-1", "succeeded", holder="out7/mydb"),))
        scoped = key(db, "viewer", scope=["name:ci-*"])
        with listening(db, key=scoped.key) as listener:
            _, kind, data = listener.next()
            assert (kind, data["name"]) == ("pool-changed", "ci-1")
            assert data["status"]["members"][0]["holder"] == HIDDEN_HOLDER
            assert [listener.next()[1] for _ in range(2)] == ["group-synced", "synced"]
        with listening(db, "resourcepools/ci-1/changes", key=scoped.key) as listener:
            assert listener.next()[2]["name"] == "ci-1"


class TestAccess:
    """Keys with a scope change no pools, and organisations do not share them."""

    @pytest.mark.parametrize("scope", ["name:*", "cluster:local", "name:small", "plugin:db"])
    @pytest.mark.parametrize(("method", "path"), CHANGES)
    def test_key_with_a_scope_cannot_change_a_pool(self, db, host, scope, method, path):
        db.put(POOL, pool())
        calls = len(host.calls)
        scoped = key(db, "admin", scope=[scope]).client
        answer = scoped.call(method, POOL + path, pool(ready=9) if method == "PUT" else {})
        assert answer.status == 403
        assert scoped.call("PUT", "resourcepools/new", pool(params={"size": "x"})).status == 403
        assert (len(host.calls), host.actions, db.get(POOL)["spec"]["ready"]) == (calls, [], 2)

    def test_holder_outside_the_scope_is_not_named(self, db, host):
        db.put(POOL, pool())
        units = (member("small-1", "succeeded", holder="out7/mydb"), member("small-2", "succeeded", holder="small/db"))
        report(host, offered(host, "ResourcePool").uid, units)
        scoped = key(db, "viewer", scope=["name:small"]).client
        assert [each["holder"] for each in scoped.get(POOL)["status"]["members"]] == [HIDDEN_HOLDER, "small/db"]
        assert b"out7" not in scoped.call("GET", f"{POOL}/report").body
        assert key(db, "viewer", scope=["name:ci-*"]).client.call("GET", POOL).status == 404
        assert key(db, "viewer", scope=["name:ci-*"]).client.get("resourcepools") == []

    def test_viewer_cannot_change_a_pool(self, db):
        db.put(POOL, pool())
        viewer = key(db, "viewer").client
        assert viewer.get(POOL)["name"] == "small"
        for method, path in CHANGES:
            assert viewer.call(method, POOL + path, pool()).status == 403

    async def test_pool_serves_only_its_own_organisation(self, place):
        store = Store.open(place)
        spec = documents.from_wire(specs.plugin(), "ResourcePlugin").spec
        row = {"name": "db", "version": "0.0.0", "spec": msgspec.json.encode(spec).decode(), "created_at": 1}
        made = documents.from_wire({"name": "small", **pool()}, "ResourcePool").spec
        common = {"cluster": "local", "created_at": 1, "updated_at": 1}
        stored = RunRecord(org="ours", uid="p", name="small", spec=made, **common)
        wanted = documents.from_wire({"name": "sb1", **specs.sandbox()}, "Sandbox").spec
        found = {}
        for org in ("ours", "theirs"):
            rows_of = store.for_org(org)
            await rows_of.write(lambda rows: rows.insert(tables.plugins, row))
            if org == "ours":
                await rows_of.write(lambda rows: run_records.save(rows, stored))
            record = RunRecord(org=org, uid="s", name="sb1", routing_key="k", spec=wanted, **common)
            target = CompileTarget(publisher="same", pools=True)
            compiled = await rows_of.read(lambda rows, of=record, to=target: run_specs.compile_run(rows, of, to, {}))
            found[org] = bool(compiled.documents[0].template)
        store.close()
        assert found == {"ours": True, "theirs": False}

    def test_pool_of_another_organisation_does_not_exist(self, db):
        db.put(POOL, pool())
        for method, path in [("GET", ""), *CHANGES]:
            assert db.call(method, f"{ORG.replace('local', 'acme')}/{POOL}{path}", pool()).status == 404


class TestMetrics:
    """The metrics of pools for Prometheus."""

    def scrape(self, client, token=""):
        headers = {"signadot-api-key": token} if token else None
        answer = client.call("GET", "metrics", None, headers)
        assert answer.status == 200, answer.error
        text = answer.body.decode()
        families = {each.name: each for each in text_string_to_metric_families(text)}
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for each in families.values()
            for sample in each.samples
        }
        assert {each.documentation for each in families.values()} >= {metric.help for metric in METRICS}
        return samples

    def test_metrics_have_the_numbers_of_the_host(self, db, host):
        db.put(POOL, pool())
        assert self.scrape(db) == {}, "its host has not reported it"
        uid = offered(host, "ResourcePool").uid
        units = (
            member("small-1", "stopped", reason="CleanupStuck"),
            member("small-2", "unknown", reason="LedgerLost"),
            member("small-3", "stopped", reason="Deleting"),
        )
        numbers = {"wanted": 3, "ready": 1, "creating": 2, "held": 4, "failed": 1, "hits": 12_345_678, "misses": 2}
        report(host, uid, units, **numbers, refill_ms=1500, paused="by ann")
        found = self.scrape(db)
        assert {name.removeprefix("dayfly_pool_"): value for (name, *_), value in found.items() if "total" not in name} == {
            "wanted": 3, "ready": 1, "creating": 2, "held": 4, "failures": 1,
            "paused": 1, "failing": 0, "members_stuck": 2, "refill_seconds": 1.5,
        }  # fmt: skip
        assert found["dayfly_pool_requests_total", "local", "small", "hit"] == 12_345_678
        assert found["dayfly_pool_requests_total", "local", "small", "miss"] == 2
        failing = PoolReport(paused="3 members failed in a row", generation=NEWEST)
        host.say(uid, ready=False, reason="Failing", message="3 members failed in a row", pool=failing)
        assert self.scrape(db)["dayfly_pool_failing", "local", "small"] == 1

    def test_metrics_are_limited_to_the_scope_of_the_key(self, db, host):
        db.put("resourcepools/ci-1", pool())
        db.put("resourcepools/other", pool(params={"size": "large"}))
        for offer in list(host.offers.values()):
            report(host, offer.uid, (), wanted=1)
        scoped = key(db, "viewer", scope=["name:ci-*"])
        assert {pool for _, _, pool, *_ in self.scrape(db, scoped.key)} == {"ci-1"}
        assert {pool for _, _, pool, *_ in self.scrape(db)} == {"ci-1", "other"}
        publishing = key(db, "admin", scope=["plugin:db"])
        assert publishing.client.call("GET", "metrics").status == 403
        assert db.call("GET", "metrics", None, {"signadot-api-key": "wrong"}).status == 401
