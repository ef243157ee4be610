"""Keys for agents and their sessions."""

from __future__ import annotations

from typing import Any

from tests.server.client import Client, wait_for
from tests.server.fake_host import FakeHost

LIMITS = {
    "owner": "alice",
    "plugins": [{"plugin": "db", "params": {"size": ["small", "m*"]}}],
    "maxSandboxes": 3,
    "maxTtl": "8h",
    "budgetHours": 24,
}
TTL = {"duration": "1h"}


def create_agent(admin: Client, **limits: Any) -> Client:
    """Create a key for agents and return a client that uses it."""
    answer = admin.call("POST", "keys", {"name": "bot", "role": "agent", "limits": LIMITS | limits})
    assert answer.status == 200, answer.body
    return Client(admin.port, admin.store, answer.json["key"])


def start_session(agent: Client, seconds: int = 60) -> tuple[Client, str]:
    """Start a session and return a client that uses its key, and its name."""
    answer = agent.call("POST", "sessions", {"lease": {"seconds": seconds}})
    assert answer.status == 200, answer.body
    return Client(agent.port, agent.store, answer.json["key"]), answer.json["name"]


def prefix(agent: Client) -> str:
    """Return the start of the names of an agent's sandboxes."""
    return agent.get("/api/v2/orgs")["user"]["agent"]["prefix"]


def delete(agent: Client, host: FakeHost, name: str) -> None:
    """Delete a sandbox and wait until it is gone."""
    uid = agent.get(f"sandboxes/{name}/report")["uid"]
    agent.delete(f"sandboxes/{name}")
    wait_for(lambda: host.report(uid) is not None)
    host.finish(uid)
    wait_for(lambda: agent.call("GET", f"sandboxes/{name}").status == 404)
