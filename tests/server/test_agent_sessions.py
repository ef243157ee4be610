"""Sessions of agents: a session reaches only its own sandboxes, and its end deletes them."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.server import specs
from tests.server.agents import TTL, create_agent, delete, prefix, start_session
from tests.server.client import Client, serving, wait_for
from tests.server.fake_host import FakeHost


@pytest.fixture
def agent(db: Client) -> Client:
    return create_agent(db)


def closed(client: Client, name: str) -> bool:
    """Return whether a sandbox is being deleted."""
    return client.get(f"sandboxes/{name}")["status"]["reason"] == "Deleting"


def test_session_creates_sandboxes_with_its_name_and_label(db: Client, agent: Client):
    session, name = start_session(agent)
    made = session.put(f"sandboxes/{name}-a", specs.sandbox())
    assert made["spec"]["labels"] == {"dayfly.dev/owner": "alice", "dayfly.dev/session": name}
    assert made["spec"]["ttl"] == {"duration": "8h", "offsetFrom": "createdAt"}, "the longest one by default"
    assert session.get("/api/v2/orgs")["user"]["agent"] | {"limits": 0, "hoursLeft": 0} == {
        "limits": 0,
        "sandboxes": 1,
        "hoursLeft": 0,
        "prefix": f"{name}-",
        "session": name,
    }
    (shown,) = db.get("sessions")
    assert (shown["name"], shown["keyName"], shown["sandboxes"]) == (name, "bot", 1)
    assert "key" not in shown


def test_session_needs_its_name_as_prefix(agent: Client):
    session, name = start_session(agent)
    other = start_session(agent)[1]
    for wrong in ("a", f"{name}a", f"{other}-a", prefix(agent) + "a"):
        answer = session.call("PUT", f"sandboxes/{wrong}", specs.sandbox(ttl=TTL))
        assert (answer.status, f"name:{name}-*" in answer.error) == (403, True)


def test_sessions_of_one_key_cannot_reach_each_other(db: Client, agent: Client):
    session, name = start_session(agent)
    session.put(f"sandboxes/{name}-a", specs.sandbox())
    hostile, _ = start_session(agent)
    for one in (hostile, agent):
        for path in ("", "/report", "/outputs", "/why", "/history"):
            assert one.call("GET", f"sandboxes/{name}-a{path}").status == 404
        assert one.call("DELETE", f"sandboxes/{name}-a").status == 404
        assert one.call("PUT", f"sandboxes/{name}-a", specs.sandbox()).status in (400, 403)
        assert one.call("PUT", f"sandboxes/{name}-a/lease", {"seconds": 1}).status == 404
        assert one.call("POST", f"sandboxes/{name}-a/reset", {"resource": "mydb"}).status == 404
        assert one.call("DELETE", f"sessions/{name}").status == 404
        assert one.call("PUT", f"sessions/{name}/lease", {"seconds": 1}).status == 404
        assert one.get("sandboxes") == []
    assert session.get(f"sandboxes/{name}-a")["name"] == f"{name}-a"
    assert not closed(db, f"{name}-a")


def test_session_sees_the_end_of_its_sandbox_but_others_do_not(agent: Client, host: FakeHost):
    session, name = start_session(agent)
    session.put(f"sandboxes/{name}-a", specs.sandbox())
    delete(session, host, f"{name}-a")
    assert session.call("GET", f"sandboxes/{name}-a/report").status == 200
    assert start_session(agent)[0].call("GET", f"sandboxes/{name}-a/report").status == 404
    assert agent.call("GET", f"sandboxes/{name}-a/report").status == 404


def test_budget_is_common_to_all_sessions_of_a_key(db: Client):
    agent = create_agent(db, budgetHours=8)
    (first, one), (second, two) = start_session(agent), start_session(agent)
    first.put(f"sandboxes/{one}-a", specs.sandbox())
    assert second.call("PUT", f"sandboxes/{two}-a", specs.sandbox()).status == 409
    assert create_agent(db).get("/api/v2/orgs")["user"]["agent"]["hoursLeft"] == 24


def test_sandboxes_of_a_dead_agent_are_deleted_after_its_lease(db: Client, agent: Client, host: FakeHost):
    session, name = start_session(agent, seconds=1)
    kept, other = start_session(agent)
    session.put(f"sandboxes/{name}-a", specs.sandbox())
    session.put(f"sandboxes/{name}-b", specs.sandbox())
    kept.put(f"sandboxes/{other}-a", specs.sandbox())
    wait_for(lambda: closed(db, f"{name}-a") and closed(db, f"{name}-b"))
    assert session.call("GET", "sandboxes").status == 401
    assert session.call("PUT", f"sessions/{name}/lease", {"seconds": 60}).status == 401
    assert not closed(db, f"{other}-a")
    assert name in [each["name"] for each in db.get("sessions")], "until its sandboxes are gone"
    for sandbox in (f"{name}-a", f"{name}-b"):
        host.finish(db.get(f"sandboxes/{sandbox}/report")["uid"])
    wait_for(lambda: [each["name"] for each in db.get("sessions")] == [other])


def test_renewed_lease_keeps_the_sandboxes(db: Client, agent: Client):
    session, name = start_session(agent, seconds=2)
    session.put(f"sandboxes/{name}-a", specs.sandbox())
    assert session.put(f"sessions/{name}/lease", {"seconds": 60})["seconds"] == 60
    short, ended = start_session(agent, seconds=2)
    short.put(f"sandboxes/{ended}-a", specs.sandbox())
    wait_for(lambda: closed(db, f"{ended}-a"))
    assert not closed(db, f"{name}-a")


def test_long_poll_lasts_while_the_session_lives(agent: Client):
    session, name = start_session(agent)
    session.put(f"sandboxes/{name}-a", specs.sandbox())
    version = session.get(f"sandboxes/{name}-a/report")["version"]
    poll = f"sandboxes/{name}-a/report?after={version + 1000}&wait="
    assert session.call("GET", f"{poll}3").status == 200
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(session.call, "GET", f"{poll}20")
        session.delete(f"sessions/{name}")
        assert waiting.result().status == 401


def test_end_of_a_session_deletes_its_sandboxes(db: Client, agent: Client):
    session, name = start_session(agent)
    session.put(f"sandboxes/{name}-a", specs.sandbox())
    session.delete(f"sessions/{name}")
    assert session.call("PUT", f"sandboxes/{name}-b", specs.sandbox()).status == 401
    wait_for(lambda: closed(db, f"{name}-a"))


def test_administrator_ends_a_session_or_revokes_its_key(db: Client, agent: Client):
    session, name = start_session(agent)
    session.put(f"sandboxes/{name}-a", specs.sandbox())
    db.delete(f"sessions/{name}")
    wait_for(lambda: closed(db, f"{name}-a"))
    again, later = start_session(agent)
    again.put(f"sandboxes/{later}-a", specs.sandbox())
    db.delete(f"keys/{agent.key.split('_')[1]}")
    assert again.call("GET", "sandboxes").status == 401
    wait_for(lambda: closed(db, f"{later}-a"))


def test_only_agents_start_sessions_and_a_session_starts_none(db: Client, agent: Client):
    session, _ = start_session(agent)
    for one in (db, session):
        assert one.call("POST", "sessions", {}).status == 400
    for body in ([], {"seconds": 5}, {"lease": {"seconds": 0}}, {"lease": {"seconds": 90_000}}):
        assert agent.call("POST", "sessions", body).status == 400


def test_number_of_sessions_of_a_key_is_limited(db: Client, agent: Client):
    for _ in range(100):
        start_session(agent)
    assert agent.call("POST", "sessions", {}).status == 409
    start_session(create_agent(db))


def test_expired_sessions_end_after_a_restart_of_the_server(place):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(serving(place, {"local": FakeHost()}))
        first.put("resource-plugins/db", specs.plugin())
        session, name = start_session(create_agent(first), seconds=1)
        session.put(f"sandboxes/{name}-a", specs.sandbox())
    with serving(place, {"local": FakeHost()}) as second:
        wait_for(lambda: closed(second, f"{name}-a"))
