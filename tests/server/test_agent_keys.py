"""Keys for agents: their limits hold for every client, also for concurrent requests."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.server import databases, specs
from tests.server.agents import LIMITS, TTL, create_agent, delete, prefix
from tests.server.client import Client, serving
from tests.server.fake_host import FakeHost

from dayfly.link.wire import Verdict
from dayfly.server.http.route_table import ROUTES, is_for_agents
from dayfly.spec.report import UnitReport

if TYPE_CHECKING:
    from collections.abc import Callable

RESOURCE = {"name": "mydb", "plugin": "db", "params": {"size": "small"}}
HOOK = {"name": "h", "script": "#!/bin/sh\n"}


@pytest.fixture
def agent(db: Client) -> Client:
    return create_agent(db)


def test_agent_creates_a_sandbox_with_labels_of_the_server(host: FakeHost, agent: Client):
    name = prefix(agent) + "a"
    made = agent.put(f"sandboxes/{name}", specs.sandbox(ttl=TTL))
    assert made["spec"]["labels"] == {"dayfly.dev/owner": "alice"}
    assert made["createdBy"] == "bot"
    assert agent.put(f"sandboxes/{name}", made) == {**made, "warnings": []}
    assert [each["name"] for each in agent.get("sandboxes")] == [name]
    assert agent.get(f"sandboxes/{name}/report")["name"] == name
    delete(agent, host, name)
    assert agent.get("sandboxes") == []
    assert agent.get(f"sandboxes/{name}/history") == []


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"ttl": None}, "spec.ttl", "required"),
        ({"ttl": {"duration": "9h"}}, "spec.ttl.duration", "at most 8h"),
        ({"ttl": {"duration": "1h", "offsetFrom": "updatedAt"}}, "spec.ttl.offsetFrom", "createdAt"),
        ({"resources": [{**RESOURCE, "name": f"r{n}"} for n in range(5)]}, "spec.resources", "allows 4 resource(s)"),
        ({"hooks": {"preStart": [HOOK]}}, "spec.hooks", "cannot use this field"),
        ({"runner": {"image": "busybox"}}, "spec.runner", "cannot use this field"),
        ({"forks": [specs.fork()]}, "spec.forks", "cannot use this field"),
        ({"local": [{"name": "x"}]}, "spec.local", "cannot use this field"),
        ({"endpoints": [{"name": "e", "host": "h", "port": 1}]}, "spec.endpoints", "cannot use this field"),
        ({"labels": {"team": "pay"}}, "spec.labels", "cannot set labels"),
        ({"labels": {"dayfly.dev/owner": "bob"}}, "spec.labels", "cannot set labels"),
        ({"resources": [{"name": "r", "spec": specs.plugin()["spec"]}]}, "spec.resources[0].spec", "cannot use"),
        ({"resources": [{**RESOURCE, "plugin": "other"}]}, "spec.resources[0].plugin", "only db"),
        ({"resources": [{**RESOURCE, "plugin": "db@9.9.9"}]}, "spec.resources[0].plugin", "no plugin"),
        ({"resources": [{**RESOURCE, "params": {"size": "huge"}}]}, "spec.resources[0].params.size", "small, m*"),
        (
            {"resources": [{**RESOURCE, "params": {"x": "1"}}]},
            "spec.resources[0].params.x",
            "does not allow this param",
        ),
        (
            {
                "resources": [
                    {**RESOURCE, "params": {"size": {"valueFrom": {"resource": {"name": "o", "outputKey": "p.q"}}}}}
                ]
            },
            "spec.resources[0].params.size",
            "valueFrom",
        ),
    ],
)
def test_agent_cannot_exceed_the_limits_of_its_key(agent: Client, changes: dict, field: str, problem: str):
    name = prefix(agent) + "a"
    answer = agent.call("PUT", f"sandboxes/{name}", specs.sandbox(**{"ttl": TTL, **changes}))
    assert answer.status == 400
    assert field in answer.error
    assert problem in answer.error
    assert agent.get("sandboxes") == []


def test_agent_sends_no_secrets_and_abandons_no_cleanup(agent: Client):
    name = prefix(agent) + "a"
    body = {**specs.sandbox(ttl=TTL), "secrets": {"mydb": {"size": "small"}}}
    assert agent.call("PUT", f"sandboxes/{name}", body).status == 403
    agent.put(f"sandboxes/{name}", specs.sandbox(ttl=TTL))
    assert agent.call("DELETE", f"sandboxes/{name}?force=true").status == 403
    assert agent.call("POST", f"sandboxes/{name}/abandon", {"reason": "r", "force": True}).status == 403
    assert agent.get(f"sandboxes/{name}")["name"] == name


def test_version_pattern_limits_the_version_that_latest_means(db: Client):
    db.put("resource-plugins/db", specs.plugin("db@2.0.0"))
    for pattern, used in (("db@2.*", "db@2.0.0"), ("db@0.*", "db"), ("db", "db@2.0.0")):
        agent = create_agent(db, plugins=[{"plugin": pattern, "params": {"size": ["*"]}}])
        made = agent.put(f"sandboxes/{prefix(agent)}a", specs.sandbox(ttl=TTL))
        assert [each["plugin"] for each in made["spec"]["resources"]] == [used]


def test_error_names_no_version_or_plugin_outside_the_limits(db: Client):
    for name in ("db@1.0.0", "db@2.7.0", "dbs", "dx@1.7.0"):
        db.put(f"resource-plugins/{name.partition('@')[0]}", specs.plugin(name))
    agent = create_agent(db, plugins=[{"plugin": "db@1.*"}, {"plugin": "dx@3.*"}])
    for wanted in ("dx", "db@1.9.0", "dx@3.1.0"):
        resources = [{"name": "mydb", "plugin": wanted}]
        answer = agent.call("PUT", f"sandboxes/{prefix(agent)}a", specs.sandbox(ttl=TTL, resources=resources))
        assert (answer.status, "that your key allows is published" in answer.error) == (400, True)
        assert not any(word in answer.error for word in ("2.7.0", "dbs", "1.7.0"))
        assert ("db@1.0.0" in answer.error) == (wanted == "db@1.9.0")


def test_agent_sees_only_plugins_that_it_may_use(db: Client, agent: Client):
    db.put("resource-plugins/hidden", specs.plugin("hidden"))
    assert [each["name"] for each in agent.get("resource-plugins")] == ["db"]
    assert agent.get("resource-plugins/hidden/versions") == []
    answer = agent.call("GET", "resource-plugins/hidden")
    assert (answer.status, answer.error) == (
        404,
        agent.call("GET", "resource-plugins/none").error.replace("none", "hidden"),
    )
    db.put("sandboxes/foreign", specs.sandbox())
    assert "foreign" not in str(agent.get("resource-plugins/db"))


def test_agent_cannot_reach_sandboxes_of_others(db: Client, agent: Client):
    other = create_agent(db)
    foreign = [prefix(other) + "a", "plain"]
    other.put(f"sandboxes/{foreign[0]}", specs.sandbox(ttl=TTL))
    db.put("sandboxes/plain", specs.sandbox())
    for name in foreign:
        for path in ("", "/report", "/why", "/outputs", "/attempts", "/history", "/plan"):
            assert agent.call("GET", f"sandboxes/{name}{path}").status == 404
        assert agent.call("DELETE", f"sandboxes/{name}").status == 404
        assert agent.call("POST", f"sandboxes/{name}/extend", {}).status == 404
        assert agent.call("PUT", f"sandboxes/{name}", specs.sandbox(ttl=TTL)).status == 403
    assert agent.get("sandboxes") == []
    assert [each["name"] for each in db.get("sandboxes")] == sorted(foreign)


def test_agent_cannot_change_a_persons_sandbox_with_its_prefix(db: Client, agent: Client):
    name = prefix(agent) + "a"
    db.put(f"sandboxes/{name}", specs.sandbox(ttl=TTL))
    assert agent.call("PUT", f"sandboxes/{name}", specs.sandbox(ttl={"duration": "2h"})).status == 403
    assert agent.call("GET", f"sandboxes/{name}").status == 404
    assert agent.call("DELETE", f"sandboxes/{name}").status == 404
    assert db.get(f"sandboxes/{name}")["spec"]["ttl"]["duration"] == "1h"


def test_every_other_operation_is_refused_to_an_agent(db: Client, agent: Client):
    db.put("sandboxes/plain", specs.sandbox())
    names = {"{org}": "local", "{name}": "plain", "{namespace}": "default", "{id}": "x"}
    refused = 0
    for path, operations in ROUTES.items():
        for method, operation in operations.items():
            if operation.role is None or is_for_agents(path, method):
                continue
            at = path
            for word, value in names.items():
                at = at.replace(word, value)
            answer = agent.call(method, f"/api/v2{at}", {})
            assert answer.status == 403, (method, path, answer.body)
            refused += 1
    assert refused > 40


def test_number_of_sandboxes_is_limited_until_one_is_gone(agent: Client, host: FakeHost):
    start = prefix(agent)
    for number in range(3):
        agent.put(f"sandboxes/{start}{number}", specs.sandbox(ttl=TTL))
    answer = agent.call("PUT", f"sandboxes/{start}x", specs.sandbox(ttl=TTL))
    assert (answer.status, "allows 3 sandbox(es)" in answer.error) == (409, True)
    delete(agent, host, f"{start}0")
    agent.put(f"sandboxes/{start}x", specs.sandbox(ttl=TTL))


def test_end_returns_the_unused_part_of_the_budget(db: Client, host: FakeHost):
    agent = create_agent(db, budgetHours=2)
    start = prefix(agent)
    agent.put(f"sandboxes/{start}a", specs.sandbox(ttl={"duration": "2h"}))
    assert agent.get("/api/v2/orgs")["user"]["agent"]["hoursLeft"] == 0
    answer = agent.call("PUT", f"sandboxes/{start}b", specs.sandbox(ttl={"duration": "1m"}))
    assert (answer.status, "0.0 of 2 h left" in answer.error) == (409, True)
    delete(agent, host, f"{start}a")
    assert 1.9 < agent.get("/api/v2/orgs")["user"]["agent"]["hoursLeft"] <= 2
    agent.put(f"sandboxes/{start}b", specs.sandbox(ttl={"duration": "90m"}))
    (key,) = db.get("keys")
    assert 0 <= key["usedHours"] < 0.1


def hours_left(agent: Client) -> float:
    return agent.get("/api/v2/orgs")["user"]["agent"]["hoursLeft"]


def test_repeated_creations_use_a_minute_of_the_budget_each(db: Client, host: FakeHost):
    agent = create_agent(db, budgetHours=1)
    name = prefix(agent) + "a"
    for number in range(1, 4):
        agent.put(f"sandboxes/{name}", specs.sandbox(ttl={"duration": "10m"}))
        delete(agent, host, name)
        assert hours_left(agent) == round((3600 - 60 * number) / 3600, 2)


def say_ready_from_pool(host: FakeHost, uid: str) -> None:
    """Report that a sandbox is ready with a member of a pool."""
    unit = UnitReport(
        id="mydb/provision", resource="mydb", name="provision", event="preStart", kind="acquire", state="succeeded",
        pool="small", member="small-1", hit=True,
    )  # fmt: skip
    host.say(uid, ready=True, reason="Ready", message="", units=(unit,))


def test_resets_use_the_budget_until_nothing_is_left(db: Client, host: FakeHost):
    agent = create_agent(db, budgetHours=1)
    name = prefix(agent) + "a"
    agent.put(f"sandboxes/{name}", specs.sandbox(ttl={"duration": "58m"}))
    say_ready_from_pool(host, agent.get(f"sandboxes/{name}/report")["uid"])
    answers = [agent.call("POST", f"sandboxes/{name}/reset", {"resource": "mydb"}) for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 409]
    assert "0.0 of 1 h left, and this needs 0.02 h; keep the data of the resource" in answers[2].error
    assert len(host.resets) == 2, "a reset without budget reaches no host"
    assert db.call("POST", f"sandboxes/{name}/reset", {"resource": "mydb"}).status == 200, "a person has no budget"


@pytest.mark.parametrize(("verdict", "status"), [("closed", 409), ("unknown", 409), ("unavailable", 503)])
def test_reset_that_its_host_does_not_accept_uses_no_budget(db: Client, host: FakeHost, verdict: str, status: int):
    agent = create_agent(db, budgetHours=1)
    name = prefix(agent) + "a"
    agent.put(f"sandboxes/{name}", specs.sandbox(ttl={"duration": "10m"}))
    say_ready_from_pool(host, agent.get(f"sandboxes/{name}/report")["uid"])
    before = hours_left(agent)
    host.down = verdict == "unavailable"
    host.verdict_of_reset = Verdict(verdict)
    assert agent.call("POST", f"sandboxes/{name}/reset", {"resource": "mydb"}).status == status
    assert hours_left(agent) == before


def test_concurrent_resets_use_each_minute_once(db: Client, host: FakeHost):
    agent = create_agent(db, budgetHours=1)
    name = prefix(agent) + "a"
    agent.put(f"sandboxes/{name}", specs.sandbox(ttl={"duration": "56m"}))
    say_ready_from_pool(host, agent.get(f"sandboxes/{name}/report")["uid"])
    with ThreadPoolExecutor(8) as threads:
        asked = threads.map(lambda _: agent.call("POST", f"sandboxes/{name}/reset", {"resource": "mydb"}), range(16))
        statuses = sorted(each.status for each in asked)
    assert statuses == [200] * 4 + [409] * 12
    assert len(host.resets) == 4


def test_extension_reserves_budget_up_to_the_longest_ttl(db: Client):
    agent = create_agent(db, budgetHours=3)
    name = prefix(agent) + "a"
    agent.put(f"sandboxes/{name}", specs.sandbox(ttl=TTL))
    agent.call("POST", f"sandboxes/{name}/extend", {"seconds": 7200})
    assert agent.get("/api/v2/orgs")["user"]["agent"]["hoursLeft"] <= 1
    assert agent.call("POST", f"sandboxes/{name}/extend", {"seconds": 4 * 3600}).status == 409
    assert agent.call("POST", f"sandboxes/{name}/extend", {"seconds": 9 * 3600}).status == 400
    assert 7200 <= _ttl_seconds(agent.get(f"sandboxes/{name}")) <= 7320


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that moves the server's clock forward by hours."""

    def move_on(hours: float) -> None:
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + round(hours * 3_600 * 1_000_000_000))

    return move_on


def used_hours(db: Client) -> float:
    """Return the hours that the ended sandboxes of the only key lived."""
    (key,) = db.get("keys")
    return key["usedHours"]


def test_agent_cannot_set_an_end_in_the_past(agent: Client, pass_time):
    name = prefix(agent) + "a"
    agent.put(f"sandboxes/{name}", specs.sandbox(ttl={"duration": "8h"}))
    pass_time(7.9)
    answer = agent.call("PUT", f"sandboxes/{name}", specs.sandbox(ttl={"duration": "1m"}))
    assert (answer.status, "1m after the creation is in the past" in answer.error) == (400, True)
    create = {"If-None-Match": "*"}
    repeated = agent.call("PUT", f"sandboxes/{name}", specs.sandbox(ttl={"duration": "1m"}), create)
    assert repeated.status == 412, "a repeated create learns that the sandbox exists"
    assert agent.get(f"sandboxes/{name}")["spec"]["ttl"]["duration"] == "8h"


@pytest.mark.parametrize("end", ["DELETE FROM api_keys", "UPDATE api_keys SET expires_at = 1"])
def test_request_of_a_revoked_key_stores_nothing(db: Client, agent: Client, host: FakeHost, end: str):
    name = prefix(agent) + "a"
    assert databases.sql(db.store, "SELECT name FROM api_keys") == [("bot",)]
    host.on_admit = lambda: databases.sql(db.store, end)
    answer = agent.call("PUT", f"sandboxes/{name}", specs.sandbox(ttl=TTL))
    assert (answer.status, "revoked or has expired" in answer.error) == (401, True)
    assert db.get("sandboxes") == []


def test_spec_without_ttl_keeps_the_stored_ttl(agent: Client):
    name = prefix(agent) + "a"
    agent.put(f"sandboxes/{name}", specs.sandbox(ttl=TTL))
    assert agent.put(f"sandboxes/{name}", specs.sandbox())["spec"]["ttl"]["duration"] == "1h"
    assert 22.9 < agent.get("/api/v2/orgs")["user"]["agent"]["hoursLeft"] <= 23


@pytest.mark.parametrize("ttl", [{"duration": "1m"}, {"duration": "1m", "offsetFrom": "updatedAt"}])
def test_ttl_shortened_by_an_administrator_keeps_used_budget(
    db: Client, agent: Client, host: FakeHost, pass_time, ttl: dict
):
    name = prefix(agent) + "a"
    agent.put(f"sandboxes/{name}", specs.sandbox(ttl={"duration": "8h"}))
    pass_time(7.9)
    db.put(f"sandboxes/{name}", specs.sandbox(ttl=ttl))
    delete(db, host, name)
    assert 7.9 <= used_hours(db) < 8


def _ttl_seconds(sandbox: dict) -> int:
    return int(sandbox["spec"]["ttl"]["duration"].removesuffix("m")) * 60


def test_concurrent_creates_cannot_exceed_the_budget(place):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serving(place, {"local": FakeHost()}))]
        if servers[0].store.is_sqlite:
            servers *= 2
        else:
            servers.append(stack.enter_context(serving(place, {"local": FakeHost()})))
        servers[0].put("resource-plugins/db", specs.plugin())
        for limits, most in (({"budgetHours": 2}, 2), ({"maxSandboxes": 1}, 1)):
            agent = create_agent(servers[0], **limits)
            start = prefix(agent)
            clients = [Client(each.port, each.store, agent.key) for each in servers]
            put = lambda number, of=clients, start=start: of[number % 2].call(  # noqa: E731
                "PUT", f"sandboxes/{start}{number}", specs.sandbox(ttl=TTL)
            )
            with ThreadPoolExecutor(8) as threads:
                statuses = sorted(answer.status for answer in threads.map(put, range(8)))
            assert statuses == [200] * most + [409] * (8 - most)
            assert len(agent.get("sandboxes")) == most


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"owner": "a b"}, "limits.owner"),
        ({"owner": ""}, "limits.owner"),
        ({"plugins": []}, "limits.plugins"),
        ({"plugins": [{"plugin": "d b"}]}, "limits.plugins[0].plugin"),
        ({"plugins": [{"plugin": "db", "params": {"size": []}}]}, "limits.plugins[0].params.size"),
        ({"plugins": [{"plugin": "db", "params": {"size": ["[a"]}}]}, "limits.plugins[0].params.size"),
        ({"maxSandboxes": 0}, "limits.maxSandboxes"),
        ({"maxResources": 99}, "limits.maxResources"),
        ({"maxTtl": "1y"}, "limits.maxTtl"),
        ({"budgetHours": -1}, "limits.budgetHours"),
        ({"budgetHours": "9"}, "limits.budgetHours"),
        ({"unknown": 1}, "limits.unknown"),
    ],
)
def test_invalid_limits_create_no_key(client: Client, limits: dict, field: str):
    answer = client.call("POST", "keys", {"name": "bot", "role": "agent", "limits": LIMITS | limits})
    assert answer.status == 400
    assert field in answer.error
    assert client.get("keys") == []


def test_only_keys_for_agents_have_limits(client: Client):
    for body in ({"role": "agent"}, {"role": "member", "limits": LIMITS}):
        assert client.call("POST", "keys", {"name": "bot", **body}).status == 400
    scoped = {"name": "bot", "role": "agent", "limits": LIMITS, "scope": ["name:a-*"]}
    assert client.call("POST", "keys", scoped).status == 400


def test_audit_log_has_the_limits_of_a_new_key(db: Client):
    found = []
    for limits in ({}, {}, {"maxTtl": "4h"}):
        agent = create_agent(db, **limits)
        entry = db.get("audit")["entries"][-1]
        assert (entry["action"], entry["object"]) == (
            "create",
            f"keys/{agent.key.split('_')[1]} for agents of alice, 24 h",
        )
        found.append(entry["spec"])
    assert found[0] == found[1] != found[2], "the digest contains all limits"


def test_cluster_scope_limits_an_agent(db: Client):
    answer = db.call("POST", "keys", {"name": "b", "role": "agent", "limits": LIMITS, "scope": ["cluster:far*"]})
    agent = Client(db.port, db.store, answer.json["key"])
    assert answer.json["scope"] == ["cluster:far*"]
    assert agent.get("clusters") == []
    assert agent.call("PUT", f"sandboxes/{prefix(agent)}a", specs.sandbox(ttl=TTL)).status == 403


def test_only_the_server_writes_labels_of_dayfly(db: Client, agent: Client):
    for key in ("dayfly.dev/owner", "x.dayfly.dev/y"):
        answer = db.call("PUT", "sandboxes/plain", specs.sandbox(labels={key: "alice"}))
        assert (answer.status, "written by the server" in answer.error) == (400, True)
    db.put("sandboxes/plain", specs.sandbox(labels={"dayfly": "a", "notdayfly.dev/x": "b"}))
    name = prefix(agent) + "a"
    agent.put(f"sandboxes/{name}", specs.sandbox(ttl=TTL))
    changed = db.put(f"sandboxes/{name}", specs.sandbox(ttl=TTL, labels={"team": "pay"}))
    assert changed["spec"]["labels"] == {"team": "pay", "dayfly.dev/owner": "alice"}
    assert agent.put(f"sandboxes/{name}", specs.sandbox(ttl=TTL))["spec"]["labels"] == changed["spec"]["labels"]
