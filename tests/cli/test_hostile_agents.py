"""100 hostile or clumsy sessions of one agent key: none has an effect outside of itself, and none leaves anything.

The sessions use the tools of `dayfly mcp` in this process with the client of the `mcp` package, and REST with the same
key. Sessions over REST die: nothing renews or ends them.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client as McpClient
from tests.cli.command import Cli, until
from tests.cli.test_mcp import DB, INJECTION, PLUGIN, SECRET, create_key
from tests.selection import SELECTION
from tests.server.client import Client

from dayfly.cli.mcp.agent_api import ServedSession
from dayfly.cli.mcp.connection_files import ConnectionFiles
from dayfly.cli.mcp.server import build_server
from dayfly.client.address import Address

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SESSIONS, ONE_IN, AT_ONCE, ACTS = 100, 6, 6, 8
LIMITS = ("--max-sandboxes", "12", "--max-ttl", "1h", "--budget", "30")
VICTIM = """
kind: Sandbox
name: victim
spec: {cluster: local, resources: [{name: db, plugin: db}]}
"""
PRIVATE = PLUGIN.replace("name: db", "name: private", 1)
NAMES = ("a", "b", "../victim", "victim", f"x {INJECTION}", "a\n", "", "x" * 300, "%2e%2e%2fvictim", "a?force=true")


class World:
    """A server with a person's sandbox and another session of the same key, which must not change."""

    def __init__(self, served: Cli) -> None:
        for name, text in (("p.yaml", PLUGIN), ("private.yaml", PRIVATE), ("victim.yaml", VICTIM)):
            served.write(name, text)
        done = served("apply", "-f", "p.yaml", "-f", "private.yaml", "-f", "victim.yaml")
        assert done.code == 0, done.err
        key = create_key(served, *LIMITS)
        self.url, self.key = key["DAYFLY_URL"], key["DAYFLY_API_KEY"]
        self.admin = self.client((served.home / "key").read_text().strip())
        started = self.client(self.key).call("POST", "sessions", {"lease": {"seconds": 86_400}}).json
        self.other, self.other_session = self.client(started["key"]), started["name"]
        self.neighbour = f"{self.other_session}-db"
        self.other.put(f"sandboxes/{self.neighbour}", {"spec": {"cluster": "local", "resources": DB}})
        until(lambda: self.other.get(f"sandboxes/{self.neighbour}")["status"]["ready"])
        self.before = self.kept()
        self.first_entry = self.admin.get("audit?limit=1")["head"]["number"]

    def client(self, key: str) -> Client:
        return Client(int(self.url.rpartition(":")[2]), None, key)

    def kept(self) -> dict[str, Any]:
        """Return everything that sessions must not change."""
        found = {name: self.admin.get(f"sandboxes/{name}") for name in ("victim", self.neighbour)}
        found |= {
            path: self.admin.get(path) for path in ("resource-plugins", "resourcepools", "routegroups", "leakchecks")
        }
        found["keys"] = [
            {field: value for field, value in each.items() if field not in ("lastUsedAt", "usedHours")}
            for each in self.admin.get("keys")
        ]
        return found

    def check(self) -> None:
        """Check that nothing outside of the sessions has changed."""
        assert self.kept() == self.before
        assert SECRET in json.dumps(self.other.get(f"sandboxes/{self.neighbour}/outputs"))
        (key,) = (each for each in self.admin.get("keys") if each["id"] == self.key.split("_")[1])
        assert key["usedHours"] <= 30, "the budget was exceeded"

    def check_audit(self) -> None:
        """Check that the key has since changed only sandboxes and sessions, and none of others."""
        after, key = self.first_entry, self.key.split("_")[1]
        while entries := self.admin.get(f"audit?after={after}")["entries"]:
            after = entries[-1]["number"]
            for entry in (each for each in entries if each["key"] == key):
                kind, _, name = entry["object"].partition("/")
                assert kind in ("sandboxes", "sessions"), entry
                assert name.partition("/")[0] not in ("victim", self.neighbour, self.other_session), entry


class HostileTools:
    """A session over the tools."""

    def __init__(self, world: World, client: McpClient, dice: random.Random) -> None:
        self.world, self.client, self.dice = world, client, dice

    async def act(self) -> None:
        tool, arguments = self.dice.choice(self.acts())
        result = await self.client.call_tool(tool, arguments)
        text = "".join(part.text for part in result.content)
        assert SECRET not in text, (tool, arguments)
        if not result.is_error and "untrusted_data" in text:
            trusted = {**json.loads(text), "untrusted_data": ""}
            assert INJECTION not in json.dumps(trusted), (tool, arguments)

    def acts(self) -> list[tuple[str, dict[str, Any]]]:
        name, target = self.dice.choice(NAMES), self.dice.choice(("victim", self.world.neighbour, "a", *NAMES))
        wrong = self.dice.choice(
            (
                [{"name": "db", "plugin": "private"}],
                [{"name": "db", "plugin": "db", "params": {"size": INJECTION, "no": "x"}}],
                [{"name": INJECTION, "plugin": "db"}],
                [{"name": f"r{n}", "plugin": "db"} for n in range(40)],
            )
        )
        return [
            *[("create", {"name": self.dice.choice("ab"), "resources": DB})] * 4,
            ("create", {"name": name, "resources": DB}),
            ("create", {"name": "a", "resources": wrong}),
            ("create", {"name": "a", "resources": DB, "ttl": self.dice.choice(("9999h", "-1h", "0", INJECTION))}),
            ("create", {"name": "a", "resources": DB, "cluster": self.dice.choice(("other", "../x"))}),
            ("extend", {"sandbox": target, "minutes": self.dice.choice((10**9, -(10**9), 1))}),
            ("find", {"need": self.dice.choice(("password", INJECTION, ""))}),
            *((tool, {"sandbox": target}) for tool in ("delete", "why", "connect", "logs")),
            ("wait", {"sandbox": target, "seconds": self.dice.choice((-1, 1))}),
            ("logs", {"sandbox": target, "unit": self.dice.choice(("db/make", "../x", "")), "lines": 10**9}),
            ("reset", {"sandbox": target, "resource": self.dice.choice(("db", "..", INJECTION))}),
            ("list", {}),
        ]


class HostileRest:
    """A session over REST, with the key of a session and with the agent's own key."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world, self.dice = world, dice
        self.agent = world.client(world.key)
        started = self.agent.call("POST", "sessions", {"lease": {"seconds": dice.choice((1, 2, 3))}}).json
        self.session, self.name = world.client(started["key"]), started["name"]

    def act(self) -> None:
        method, path, body = self.dice.choice(self.acts())
        client = self.dice.choice((self.session, self.session, self.agent))
        answer = client.call(method, path, body)
        if answer.status < 400 and method != "GET":
            assert path.startswith((f"sandboxes/{self.name}-", f"sessions/{self.name}")), (method, path, body)

    def acts(self) -> list[tuple[str, str, Any]]:
        world, dice = self.world, self.dice
        victim = dice.choice(("victim", world.neighbour))
        own = f"sandboxes/{self.name}-{dice.choice('ab')}"
        spec: dict[str, Any] = {"cluster": "local", "resources": DB}
        wrong = dice.choice(
            (
                {"hooks": {"preStart": [{"name": "h", "script": "#!/bin/sh\n"}]}},
                {"labels": {"dayfly.dev/owner": "eve"}},
                {"labels": {"dayfly.dev/session": world.other_session}},
                {"resources": [{"name": "db", "plugin": "private"}]},
                {"resources": [{"name": "db", "spec": {"create": [{"name": "s", "script": "#!/bin/sh\n"}]}}]},
                {"runner": {"image": "busybox"}},
                {"local": [{"name": "x"}]},
                {"ttl": {"duration": "9999h"}},
                {"ttl": {"duration": "1h", "offsetFrom": "updatedAt"}},
            )
        )
        return [
            *[("PUT", own, {"spec": spec})] * 4,
            ("PUT", own, {"spec": {**spec, **wrong}}),
            ("PUT", f"sandboxes/{victim}", {"spec": spec}),
            ("PUT", f"sandboxes/{victim}-x", {"spec": spec}),
            ("DELETE", f"sandboxes/{victim}", None),
            ("DELETE", f"sandboxes/{victim}?force=true", None),
            ("DELETE", f"{own}?force=true", None),
            ("POST", f"{own}/abandon", {"reason": INJECTION}),
            ("POST", f"sandboxes/{victim}/abandon", {"reason": INJECTION}),
            *(("POST", f"sandboxes/{victim}/{verb}", {"resource": "db"}) for verb in ("reset", "retry", "reveal")),
            ("POST", f"sandboxes/{victim}/extend", {"seconds": 60}),
            ("PUT", f"sandboxes/{victim}/lease", {"seconds": 1}),
            ("DELETE", f"sessions/{world.other_session}", None),
            ("PUT", f"sessions/{world.other_session}/lease", {"seconds": 1}),
            ("PUT", f"sessions/{self.name}/lease", {"seconds": 0}),
            ("PUT", "resource-plugins/db@9.9.9", {"spec": {}}),
            ("DELETE", "resource-plugins/db@0.0.1", None),
            ("PUT", "resourcepools/p", {"spec": {"cluster": "local", "plugin": "db", "ready": 100}}),
            ("PUT", "leakchecks/p", {"spec": {"cluster": "local", "plugin": "db", "action": "delete"}}),
            ("POST", "keys", {"name": "mine", "role": "admin"}),
            ("DELETE", f"keys/{world.key.split('_')[1]}", None),
        ]

    def check_secrets(self) -> None:
        """Check that neither key reads what belongs to others."""
        for path in (*(f"sandboxes/{name}/outputs" for name in ("victim", self.world.neighbour)), "keys", "audit"):
            for client in (self.session, self.agent):
                answer = client.call("GET", path)
                assert answer.status in (401, 403, 404), (path, answer.status)
                assert SECRET.encode() not in answer.body


async def play_tools(world: World, dice: random.Random) -> None:
    """Play a session over the tools. Its end may come in the middle of a call."""
    session, files = ServedSession(Address(world.url, world.key), 30), ConnectionFiles()
    try:
        async with McpClient(build_server(session, files)) as client:
            agent = HostileTools(world, client, dice)
            for _ in range(ACTS):
                await agent.act()
            if dice.random() < 0.5:
                call = asyncio.create_task(client.call_tool("create", {"name": "late", "resources": DB}))
                await asyncio.sleep(0)
                await session.close()
                await asyncio.wait([call])
    finally:
        files.close()
        await session.close()


def play_rest(world: World, dice: random.Random) -> None:
    """Play a session over REST, and die: nothing renews or ends it."""
    agent = HostileRest(world, dice)
    for _ in range(ACTS):
        agent.act()
    agent.check_secrets()


async def play(world: World, seed: int, at_once: asyncio.Semaphore) -> None:
    dice = random.Random(f"{seed} hostile")
    async with at_once:
        try:
            if dice.random() < 0.5:
                await play_tools(world, dice)
            else:
                await asyncio.to_thread(play_rest, world, dice)
        except Exception as fault:
            raise AssertionError(f"session {seed}: {fault!r}") from fault


async def test_hostile_sessions_reach_nothing_else_and_leave_nothing(served: Cli, played: Callable[..., None]):
    world, at_once = World(served), asyncio.Semaphore(AT_ONCE)
    seeds = SELECTION.sample(range(SESSIONS), ONE_IN, "hostile sessions")
    await asyncio.gather(*(play(world, seed, at_once) for seed in seeds))
    await asyncio.to_thread(until, lambda: set(served.sandboxes()) == {"victim", world.neighbour}, 300)
    await asyncio.to_thread(until, lambda: len(world.admin.get("sessions")) == 1)
    world.check()
    world.check_audit()
    played("hostile sessions of agents", len(seeds), "effects outside, leftovers, secrets in answers of tools: 0")
