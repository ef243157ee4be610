"""Route groups in the REST API: matches, changes of their fields, and their end."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.server import specs, stored_records
from tests.server.client import parsed, serving, wait_for
from tests.server.fake_host import FakeHost

from dayfly.link.server_end import Links
from dayfly.link.wire import Inventory, RunStatus
from dayfly.plan.reasons import Reason
from dayfly.server.db.store import Store
from dayfly.server.db.tables import route_groups as groups_table
from dayfly.server.db.tables import sandboxes
from dayfly.server.records.group_membership import GroupMembership
from dayfly.server.records.run_records import GROUPS
from dayfly.server.runs import group_strategy, group_sweep
from dayfly.server.sync import host_sync
from dayfly.spec.report import UnitReport
from dayfly.spec.route_group import GroupTtl

GROUP = "routegroups/pay"
ROUTED = "no data plane routes requests by their key: they reach the baselines"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    for each in (group_sweep, host_sync):
        monkeypatch.setattr(each, "ROUND_INTERVAL_S", 0.02)


def group(value="pay*", **more):
    return {"spec": {"cluster": "local", "match": {"label": {"key": "team", "value": value}}, **more}}


def ready(host, client, name="pay"):
    uid = client.get(f"routegroups/{name}/report")["uid"]
    host.say(uid, ready=True, reason=Reason.READY, message="All desired workloads are available.")
    return uid


def labelled(**labels):
    return specs.empty(labels=labels)


def matched(client, name="pay"):
    return client.get(f"routegroups/{name}")["status"]["matchedSandboxes"]


def test_group_is_created_and_its_status_reported(client, host):
    made = client.put(GROUP, group(endpoints=[{"name": "web", "target": "http://shop.default.svc:80"}]))
    assert len(made["routingKey"]) == 13
    uid = client.get(f"{GROUP}/report")["uid"]
    host.say(uid, ready=False, reason=Reason.HOOKS_PENDING, message="a: is starting")
    pending = client.get(GROUP)["status"]
    assert [pending[field] for field in ("ready", "reason", "message")] == [False, "HooksPending", "a: is starting"]
    ready(host, client)
    got = client.get(GROUP)
    assert (got["status"]["ready"], got["status"]["reason"]) == (True, "NoMatchedSandboxes")
    assert got["status"]["message"] == (
        f"No live sandbox matches. Not supported here: spec.match and spec.endpoints[0] ({ROUTED})."
    )
    assert got["endpoints"] == [{"name": "web", "target": "http://shop.default.svc:80", "url": ""}]
    assert client.get("routegroups") == [got]
    assert client.get(f"{GROUP}/why")["subject"] == "routegroup/pay"
    (offer,) = host.offers.values()
    assert (offer.target.kind, offer.target.name, offer.forks) == ("RouteGroup", "pay", ())


def test_sandboxes_join_and_leave(client, host):
    client.put(GROUP, group())
    ready(host, client)
    assert matched(client) == []
    client.put("sandboxes/sb1", labelled(team="payments"))
    client.put("sandboxes/sb2", labelled(team="shipping"))
    assert matched(client) == ["sb1"]
    uid = client.get("sandboxes/sb1/report")["uid"]
    host.say(uid, ready=False, reason=Reason.RESOURCE_FAILED, message="db/make: failed")
    assert client.get(GROUP)["status"]["message"].startswith("1 sandbox matches: sb1; not ready: sb1.")
    assert client.get(GROUP)["status"]["ready"], "a new sandbox cannot make it unready"
    client.put("sandboxes/sb2", labelled(team="pay"))
    assert matched(client) == ["sb1", "sb2"]
    client.put("sandboxes/sb1", labelled(team="x"))
    assert matched(client) == ["sb2"]


def test_deleting_sandbox_is_not_listed(client, host):
    client.put(GROUP, group())
    client.put("sandboxes/sb1", labelled(team="pay"))
    assert matched(client) == ["sb1"]
    client.delete("sandboxes/sb1")
    assert client.get("sandboxes/sb1")["status"]["reason"] == "Deleting"
    assert matched(client) == []


def test_expired_sandbox_leaves_its_groups(client, host, monkeypatch):
    client.put(GROUP, group())
    client.put("sandboxes/sb1", specs.empty(labels={"team": "pay"}, ttl={"duration": "1m"}))
    assert matched(client) == ["sb1"]
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 61 * 10**9)
    assert matched(client) == []


def test_unchanged_put_changes_nothing(client, host):
    made = client.put(GROUP, group())
    offers = len(host.calls)
    again = client.put(GROUP, {"name": "pay", **group(), "endpoints": None})
    assert (again["updatedAt"], again["routingKey"]) == (made["updatedAt"], made["routingKey"])
    assert len(host.calls) == offers


@pytest.mark.parametrize(
    "changes",
    [
        {"match": {"any": [{"label": {"key": "x", "value": "y"}}]}},
        {"labels": {"a": "b"}},
        {"ttl": {"duration": "1h"}},
        {"endpoints": [{"name": "e", "target": "http://w:80"}]},
    ],
)
def test_mutable_group_fields_can_change(client, host, changes):
    made = client.put(GROUP, group())
    body = group()
    body["spec"] |= changes
    changed = client.put(GROUP, body)
    assert parsed(changed["updatedAt"]) > parsed(made["updatedAt"])
    assert changed["routingKey"] == made["routingKey"]


@pytest.mark.parametrize(
    "changes", [{"description": "x"}, {"cluster": ""}, {"hooks": {"preStart": [{"name": "a", "script": "#!/bin/sh"}]}}]
)
def test_immutable_group_fields_cannot_change(client, host, changes):
    client.put(GROUP, group())
    body = group()
    body["spec"] |= changes
    answer = client.call("PUT", GROUP, body)
    assert answer.status == 400
    assert "cannot change while the route group lives" in answer.error
    assert "Only labels, match, ttl, endpoints may change" in answer.error


def test_invalid_pattern_is_refused_with_its_place(client, host):
    answer = client.call("PUT", GROUP, group("[a"))
    assert answer.status == 400
    assert answer.error.startswith('spec.match.label.value: "[a" is not a pattern: at character 1')
    assert host.calls == []


def test_unknown_cluster_is_refused(client):
    answer = client.call("PUT", GROUP, {"spec": {**group()["spec"], "cluster": "other"}})
    assert answer.status == 400
    assert 'no cluster "other"; this server has local; leave it out for sandboxes of any' in answer.error


def test_oldest_of_two_forks_wins_and_conflict_is_shown(client, host):
    client.put("workloads/default/shop", specs.baseline())
    for name in ("zz", "aa"):
        client.put(f"sandboxes/{name}", specs.empty(labels={"team": "pay"}, forks=[specs.fork()]))
        uid = client.get(f"sandboxes/{name}/report")["uid"]
        host.say(uid, ready=True, reason=Reason.READY, message="m")
    client.put(GROUP, group())
    ready(host, client)
    status = client.get(GROUP)["status"]
    assert status["matchedSandboxes"] == ["zz", "aa"]
    assert status["conflicts"] == [{"baseline": "default/shop", "sandbox": "zz", "others": ["aa"]}]
    assert status["conditions"] == [
        {
            "type": "ForkConflict",
            "status": "True",
            "reason": "ForkConflict",
            "message": "default/shop is forked by several sandboxes: zz takes precedence over aa.",
        }
    ]
    assert (
        "2 sandboxes match: zz and aa. default/shop is forked by several sandboxes: zz takes precedence over aa."
        in status["message"]
    )


def test_group_of_a_cluster_ignores_other_clusters(tmp_path, blank):
    path, one, two = shutil.copy(blank, tmp_path), FakeHost(), FakeHost()
    with serving(path, {"one": one, "two": two}) as client:
        for cluster in ("one", "two"):
            client.put(f"sandboxes/in-{cluster}", {"spec": {"cluster": cluster, "labels": {"team": "pay"}}})
        spec = group()["spec"]
        client.put("routegroups/here", {"spec": {**spec, "cluster": "two"}})
        client.put("routegroups/both", {"spec": {**spec, "cluster": ""}})
        assert matched(client, "here") == ["in-two"]
        assert sorted(matched(client, "both")) == ["in-one", "in-two"]


def test_group_is_deleted_like_a_sandbox(client, host):
    client.put(GROUP, group())
    uid = ready(host, client)
    client.delete(GROUP)
    last = client.get(GROUP)
    assert (last["status"]["ready"], last["status"]["reason"], last["status"]["matchedSandboxes"]) == (
        False,
        "Deleting",
        [],
    )
    refused = client.call("PUT", GROUP, group("x"))
    assert (refused.status, "apply it again once it is gone" in refused.error) == (409, True)
    host.finish(uid)
    wait_for(lambda: client.call("GET", GROUP).status == 404)
    assert client.call("GET", GROUP).error == "unable to fetch routegroup: not found"
    wait_for(lambda: uid in host.acknowledged)
    assert client.delete(GROUP) == {}  # repeated, because its answer was lost
    assert client.get(f"{GROUP}/report")["uid"] == uid
    assert client.call("DELETE", "routegroups/never").status == 404


def test_end_of_group_is_acknowledged_after_archiving(client, host):
    """Only ends of known runs are acknowledged, and ends of groups are not taken for ends of sandboxes."""
    client.put(GROUP, group())
    uid = ready(host, client)
    client.delete(GROUP)
    host.finish(uid)
    wait_for(lambda: uid in host.acknowledged)
    assert client.call("GET", GROUP).status == 404


def test_retry_of_failed_group_hook_advises_new_group(client, host):
    client.put(GROUP, group())
    uid = client.get(f"{GROUP}/report")["uid"]
    hook = UnitReport(id="make", resource="", name="make", event="preStart", kind="exec", state="failed", attempt=1)
    host.say(uid, ready=False, reason=Reason.HOOK_FAILED, message="make: exit code 1", units=(hook,))
    refused = client.call("POST", f"{GROUP}/retry", {"unit": "make"})
    assert (refused.status, refused.error.partition("; ")[2]) == (409, "delete the route group and apply it again")


def test_group_is_abandoned_with_a_reason(client, host):
    client.put(GROUP, group())
    uid = client.get(f"{GROUP}/report")["uid"]
    assert client.call("POST", f"{GROUP}/abandon", {"reason": " "}).status == 400
    early = client.call("POST", f"{GROUP}/abandon", {"reason": "its hook is wrong"})
    assert early.status == 409
    assert (
        'is not being deleted, so there is no cleanup to abandon: delete it first, or send "force": true' in early.error
    )
    assert host.abandoned == {}
    client.delete(GROUP)
    assert client.call("POST", f"{GROUP}/abandon", {"reason": "its hook is wrong"}).status == 200
    assert host.abandoned[uid].message == "its hook is wrong"


def test_group_expires_after_its_ttl_without_sandboxes(client, host, monkeypatch):
    client.put("sandboxes/sb1", labelled(team="pay"))
    made = client.put(GROUP, group(ttl={"duration": "1m", "offsetFrom": ""}))
    assert made["spec"]["ttl"]["offsetFrom"] == "noMatchedSandboxes"
    uid = ready(host, client)
    now, ahead, sweeps = time.time_ns, [0], []
    sweep = group_sweep.GroupSweep.sweep
    monkeypatch.setattr(group_sweep.GroupSweep, "sweep", lambda of: sweeps.append(1) or sweep(of))
    monkeypatch.setattr(time, "time_ns", lambda: now() + ahead[0] * 10**9)

    def a_round() -> None:
        """A sweep stores whether the group has sandboxes, and since when not."""
        before = len(sweeps)
        wait_for(lambda: len(sweeps) > before + 2)

    ahead[0] = 3_600  # it lives as long as a sandbox matches
    a_round()
    assert "scheduledDeleteTime" not in client.get(GROUP)["status"]
    assert uid not in host.closed
    client.put("sandboxes/sb1", labelled(team="x"))
    wait_for(lambda: "scheduledDeleteTime" in client.get(GROUP)["status"])
    left = parsed(client.get(GROUP)["status"]["scheduledDeleteTime"]) - (time.time_ns() / 10**9)
    assert 50 < left <= 60
    client.put("sandboxes/sb1", labelled(team="pay"))  # a sandbox joins in time
    wait_for(lambda: "scheduledDeleteTime" not in client.get(GROUP)["status"])
    a_round()
    ahead[0] += 3_600
    assert uid not in host.closed
    client.delete("sandboxes/sb1")
    wait_for(lambda: "scheduledDeleteTime" in client.get(GROUP)["status"])
    a_round()
    ahead[0] += 59
    assert uid not in host.closed
    ahead[0] += 2
    wait_for(lambda: uid in host.closed)
    assert host.closed[uid].reason == "Expired"


def test_host_handles_ends_by_the_clock(client, host):
    made = client.put(GROUP, group(ttl={"duration": "1h", "offsetFrom": "createdAt"}))
    (offer,) = host.offers.values()
    assert offer.expires_at == round(parsed(made["createdAt"]) * 1000) + 3_600_000
    client.put("routegroups/other", group(ttl={"duration": "1h"}))
    assert [each.expires_at for each in host.offers.values()][1:] == [0]


def test_groups_beyond_the_limit_are_refused(client, monkeypatch):
    monkeypatch.setattr(group_strategy, "MAX_GROUPS", 1)
    client.put(GROUP, group())
    client.put(GROUP, group("x"))
    answer = client.call("PUT", "routegroups/other", group())
    assert (answer.status, "there are 1 route groups, the maximum of an organisation" in answer.error) == (409, True)


def test_group_limit_holds_for_concurrent_requests(client, monkeypatch):
    monkeypatch.setattr(group_strategy, "MAX_GROUPS", 2)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: client.call("PUT", f"routegroups/rg{number}", group()), range(8)))
    assert sorted(answer.status for answer in answers) == [200] * 2 + [409] * 6
    assert len(client.get("routegroups")) == 2


def test_restarted_server_keeps_groups(tmp_path, blank):
    path, host = shutil.copy(blank, tmp_path), FakeHost()
    with serving(path, {"local": host}) as client:
        client.put("sandboxes/sb1", labelled(team="pay"))
        made = client.put(GROUP, group())
    with serving(path, {"local": host}) as client:
        got = client.get(GROUP)
        assert (got["routingKey"], got["spec"]) == (made["routingKey"], made["spec"])
        assert matched(client) == ["sb1"]


def test_groups_are_found_by_their_labels(client, host):
    client.put(GROUP, group(labels={"of": "us"}))
    client.put("routegroups/other", group())
    assert [each["name"] for each in client.get("routegroups?label=of=us")] == ["pay"]


@pytest.mark.parametrize("family", ["sandboxes/sb1", GROUP])
class TestExtending:
    def spec(self, family, **ttl):
        return specs.empty(ttl=ttl) if family.startswith("s") else group(ttl={"offsetFrom": "createdAt", **ttl})

    def ends(self, client, family):
        return parsed(client.get(family)["status"]["scheduledDeleteTime"])

    def test_extension_counts_from_now(self, client, host, family):
        client.put(family, self.spec(family, duration="10m"))
        answer = client.call("POST", f"{family}/extend", {"seconds": 7_200})
        assert answer.status == 200
        assert 7_200 <= self.ends(client, family) - time.time() + 5 < 7_270
        assert next(iter(host.offers.values())).expires_at == round(self.ends(client, family) * 1000)

    def test_extension_until_a_time(self, client, host, family):
        client.put(family, self.spec(family, duration="10m"))
        assert client.call("POST", f"{family}/extend", {"until": "2030-01-02T03:04:05Z"}).status == 200
        assert 0 <= self.ends(client, family) - parsed("2030-01-02T03:04:05Z") < 60

    def test_extension_never_shortens_the_ttl(self, client, host, family):
        made = client.put(family, self.spec(family, duration="5h"))
        again = client.call("POST", f"{family}/extend", {"seconds": 60}).json
        assert (again["spec"]["ttl"], again["updatedAt"]) == (made["spec"]["ttl"], made["updatedAt"])

    def test_extension_by_the_current_duration(self, client, host, family):
        client.put(family, self.spec(family, duration="5h", offsetFrom="updatedAt"))
        assert client.call("POST", f"{family}/extend", {}).status == 200
        assert self.ends(client, family) - time.time() > 5 * 3_600 - 5

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("body", "sentence"),
        [
            ({"seconds": 0}, "seconds: must be a whole number from 1"),
            ({"seconds": True}, "seconds: must be a whole number from 1"),
            ({"until": "2001-01-01T00:00:00Z"}, 'until: "2001-01-01T00:00:00Z" is in the past'),
            ({"until": "2099-01-01T00:00:00Z"}, "is more than ten years away"),
            ({"until": "2030-01-01"}, "until: must be a time with its zone"),
            ({"until": 5}, "until: must be a time with its zone"),
            ({"seconds": 5, "until": "2030-01-01T00:00:00Z"}, "and nothing else"),
            ({"for": 5}, "and nothing else"),
        ],
    )
    def test_invalid_extension_is_refused(self, client, host, family, body, sentence):
        client.put(family, self.spec(family, duration="1h"))
        answer = client.call("POST", f"{family}/extend", body)
        assert answer.status == 400
        assert sentence in answer.error

    def test_object_without_ttl_cannot_be_extended(self, client, host, family):
        client.put(family, specs.empty() if family.startswith("s") else group())
        answer = client.call("POST", f"{family}/extend", {"seconds": 60})
        assert (answer.status, "has no time to live" in answer.error) == (409, True)

    def test_condition_warns_before_the_end(self, client, host, family, monkeypatch):
        client.put(family, self.spec(family, duration="1h"))

        def warned():
            said = client.get(family)["status"].get("conditions", [])
            return [each["message"] for each in said if each["type"] == "ExpiresSoon"]

        assert warned() == []
        now = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now() + 55 * 60 * 10**9)
        end = client.get(family)["status"]["scheduledDeleteTime"]
        assert warned() == [f"Its time to live ends at {end}; extend it if you still need it."]
        client.call("POST", f"{family}/extend", {})
        assert warned() == []


def test_group_with_sandboxes_has_no_end_to_extend(client, host):
    client.put("sandboxes/sb1", labelled(team="pay"))
    client.put(GROUP, group(ttl={"duration": "1h"}))
    answer = client.call("POST", f"{GROUP}/extend", {"seconds": 60})
    assert (answer.status, "ends 1h after its last sandbox, and it has sandboxes" in answer.error) == (409, True)


def test_groups_of_a_sandbox_are_listed(client):
    client.put("sandboxes/sb1", labelled(team="pay", feature="x"))
    client.put(GROUP, group())
    client.put("routegroups/x", group(match={"label": {"key": "feature", "value": "x"}}))
    client.put("routegroups/y", group(match={"label": {"key": "feature", "value": "y"}}))
    assert [each["name"] for each in client.get("routegroups?sandbox=sb1")] == ["pay", "x"]
    assert client.get("routegroups?sandbox=sb") == []
    client.put("sandboxes/sb1", labelled(feature="y"))
    assert [each["name"] for each in client.get("routegroups?sandbox=sb1")] == ["y"]
    assert [each["name"] for each in client.get("routegroups?sandbox=sb1&after=y")] == []


@pytest.mark.parametrize("table", [sandboxes, groups_table], ids=["sandbox", "group"])
async def test_unreadable_row_blocks_no_other_organisations_groups(blank, tmp_path, table):
    """A newer Dayfly may have stored it."""
    store = Store.open(shutil.copy(blank, tmp_path))
    ttl = GroupTtl(duration="1h")
    try:
        for org in ("acme", "zeta"):
            await stored_records.write(
                store, stored_records.group(f"g-{org}", org=org, name="all", unmatched_since=1, ttl=ttl)
            )
        await stored_records.write(store, stored_records.sandbox())
        await store.for_org("acme").write(
            lambda rows: rows.execute(rows.update(table).values(spec='{"ofANewerOne": 7}'))
        )
        sync = host_sync.HostSync(store, Links())
        await stored_records.group_sweep(store, sync).sweep()
        assert (await stored_records.read(store, "zeta", "all", GROUPS)).stop is not None
    finally:
        store.close()


@pytest.fixture
def routing(host, monkeypatch):
    """Make the host route requests by key. No round of the sync resends offers."""
    host.routes = True
    monkeypatch.setattr(host_sync, "ROUND_INTERVAL_S", 3600)


def test_host_receives_group_keys_as_sandboxes_join_and_leave(routing, client, host):
    def keys(name):
        (offer,) = [offer for offer in host.offers.values() if offer.name == name]
        (route,) = [unit.route for unit in offer.forks if unit.route]
        return set(route.keys) - {offer.routing_key}

    client.put("workloads/default/shop", specs.baseline())
    for name in ("sb1", "sb2"):
        client.put(f"sandboxes/{name}", specs.empty(labels={"team": "pay"}, forks=[specs.fork()]))
    key = client.put(GROUP, group())["routingKey"]
    wait_for(lambda: (keys("sb1"), keys("sb2")) == ({key}, set()))
    other = client.put("routegroups/another", group())["routingKey"]
    wait_for(lambda: keys("sb1") == {key, other})
    client.delete(GROUP)
    wait_for(lambda: keys("sb1") == {other})
    client.put("sandboxes/sb1", specs.empty(labels={"team": "x"}, forks=[specs.fork()]))
    wait_for(lambda: (keys("sb1"), keys("sb2")) == (set(), {other}))


async def test_group_loses_sandbox_that_ended_before_first_inventory(blank, tmp_path):
    """The first inventory of a host names ended runs without their reports."""
    store, links = Store.open(shutil.copy(blank, tmp_path)), Links()
    links.add("acme", {"east": FakeHost().end})
    try:
        await stored_records.write(
            store, stored_records.group(cluster="east", match={"label": {"key": "team", "value": "a"}})
        )
        for uid in ("u", "v"):
            await stored_records.write(store, stored_records.sandbox(uid, cluster="east", labels={"team": "a"}))
        membership = GroupMembership(store, links, "acme")
        (found,) = await membership.refresh()
        assert set(membership.members_of(found)) == {"u", "v"}
        runs = {"runs": (RunStatus(uid="u", seq=1),), "ended": (RunStatus(uid="v", seq=1),)}
        links.get("acme", "east").state.apply_inventory(Inventory(session=1, **runs))
        assert set(membership.members_of(found)) == {"u"}
    finally:
        store.close()
