"""Usage: how long sandboxes lived, by label, within a period and the scope of a key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.server import specs
from tests.server.agents import create_agent, delete, start_session
from tests.server.client import Client
from tests.server.fake_host import FakeHost

from dayfly.server.records.usage import HOUR_MS, SandboxLifetime, add_up

H = HOUR_MS


def life(begin: int, end: int, **labels: str) -> SandboxLifetime:
    return SandboxLifetime("s", "local", "alice", labels, begin, end)


def test_hours_are_added_up_by_label_within_the_period():
    lives = [life(0, 4 * H, team="pay"), life(H, 2 * H, team="shop"), life(3 * H, 9 * H), life(0, H, team="old")]
    assert add_up(lives, "team", 2 * H, 5 * H) == [
        {"value": "", "sandboxes": 1, "hours": 2},
        {"value": "pay", "sandboxes": 1, "hours": 2},
    ]
    assert add_up(lives, "createdBy", 0, 9 * H) == [{"value": "alice", "sandboxes": 4, "hours": 12}]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.sampled_from("abc")), max_size=8), st.integers())
def test_consecutive_periods_add_up_to_the_whole(parts: list[tuple[int, int, str]], cut: int):
    lives = [life(min(a, b) * H, max(a, b) * H, team=team) for a, b, team in parts]
    cut = max(min(cut, 100), 0) * H
    whole = sum(each["hours"] for each in add_up(lives, "team", 0, 100 * H))
    halves = [each for period in ((0, cut), (cut, 100 * H)) for each in add_up(lives, "team", *period)]
    assert sum(each["hours"] for each in halves) == whole


def test_usage_includes_ended_and_living_sandboxes(db: Client, host: FakeHost):
    session, name = start_session(create_agent(db))
    for sandbox in (f"{name}-a", f"{name}-b"):
        session.put(f"sandboxes/{sandbox}", specs.sandbox())
    db.put("sandboxes/plain", specs.sandbox())
    delete(session, host, f"{name}-a")
    found = db.get("usage?by=dayfly.dev/owner")
    assert {each["value"]: each["sandboxes"] for each in found["sums"]} == {"alice": 2, "": 1}
    assert all(0 <= each["hours"] < 1 for each in found["sums"])
    assert {each["value"]: each["sandboxes"] for each in db.get("usage")["sums"]} == {"bot": 2, "this home": 1}
    assert db.get("usage?until=2026-01-01T00:00:00Z")["sums"] == []


def test_scoped_key_sees_only_its_usage_and_agents_none(db: Client):
    db.put("sandboxes/ci-1", specs.sandbox())
    db.put("sandboxes/secret", specs.sandbox())
    made = db.call("POST", "keys", {"name": "ci", "role": "viewer", "scope": ["name:ci-*"]}).json
    scoped = Client(db.port, db.store, made["key"])
    assert scoped.get("usage?by=cluster")["sums"][0]["sandboxes"] == 1
    assert create_agent(db).call("GET", "usage").status == 403


def test_invalid_period_is_refused(client: Client):
    for query in ("since=yesterday", "since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z"):
        assert client.call("GET", f"usage?{query}").status == 400
