"""The load as a process: 50 agents, clients that create sandboxes in their clusters, and one that watches all changes.

It reads a command from each input line, and answers each with a line of JSON:
`fill N` (create sandboxes until there are N), `flow N` (start N changes per second), `still` (stop them), `settle`
(wait until there are no more messages), `count`, `publish N` (publish N versions of an unused plugin).
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any

import aiohttp

from bench.fleet.hosts import IdleHost

WRITERS = 8
# The weights of changes: a sandbox is created or deleted, or a report changes its readiness.
CHANGES = {"create": 1, "delete": 1, "report": 2}
STEP = {"name": "provision", "script": "#!/bin/sh\necho host >/tmp/host\n"}
PLUGIN = {
    "runner": {"image": "busybox"},
    "create": [{**STEP, "outputs": [{"name": "host", "valueFromPath": "/tmp/host"}]}],
    "delete": [
        {
            "name": "drop",
            "script": "#!/bin/sh\n",
            "inputs": [{"name": "host", "valueFromStep": {"name": "provision", "output": "host"}}],
        }
    ],
}


class Load:
    """The clients of the load. `tokens` are those of the clusters, by name."""

    def __init__(self, url: str, key: str, org: str, tokens: dict[str, str]) -> None:
        self._url, self._at = url, f"{url}/api/v2/orgs/{org}/"
        self._hosts = {name: IdleHost(url, token, number) for number, (name, token) in enumerate(tokens.items())}
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)  # shorter than the server's five seconds
        timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers={"signadot-api-key": key})
        self._chance = random.Random(12)
        self._names: list[str] = []
        self._made = self._events = self._changes = self._failed = 0
        self._flowing: asyncio.Task[None] | None = None
        self._works: list[asyncio.Task[Any]] = []

    async def begin(self) -> None:
        """Connect all agents."""
        await self._publish("db")
        for host in self._hosts.values():
            self._works += [asyncio.create_task(host.dial.run()), asyncio.create_task(host.end.run())]
        while not all(host.dial.session for host in self._hosts.values()):  # noqa: ASYNC110 - once
            await asyncio.sleep(0.1)
        self._works.append(asyncio.create_task(self._watch()))

    async def close(self) -> None:
        await self.still()
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)
        for host in self._hosts.values():
            await host.connection.close()
        await self._session.close()

    # --- commands -----------------------------------------------------------------------------------------------------

    async def fill(self, sandboxes: int) -> None:
        """Create sandboxes until there are this many ones."""
        left = iter(range(self._made, sandboxes))

        async def write() -> None:
            for number in left:
                await self._create(number)

        await asyncio.gather(*(write() for _ in range(WRITERS)))
        self._made = sandboxes

    async def flow(self, per_second: int) -> None:
        """Start a constant rate of changes, even if the server does not keep up."""
        self._flowing = asyncio.create_task(self._flow(per_second))

    async def still(self) -> None:
        """Stop the changes, and finish those in progress."""
        if self._flowing is not None:
            self._flowing.cancel()
            await asyncio.gather(self._flowing, return_exceptions=True)
            self._flowing = None

    async def settle(self, quiet: float) -> None:
        """Return when there was no message to any client for `quiet` seconds."""
        before, since = -1, time.monotonic()
        while time.monotonic() - since < quiet:
            if (now := sum(host.connection.letters for host in self._hosts.values()) + self._events) != before:
                before, since = now, time.monotonic()
            await asyncio.sleep(0.1)

    async def publish(self, versions: int) -> None:
        """Publish an unused plugin, and new versions of it."""
        for number in range(versions):
            await self._publish("unused", f"0.{number}.0")

    async def count(self) -> dict[str, Any]:
        """Return the counters so far."""
        ways = [host.connection for host in self._hosts.values()]
        return {
            "letters": [way.letters for way in ways],
            "bytes": [way.bytes for way in ways],
            "polls": sum(way.polls for way in ways),
            "living": sum(len(host.living_runs()) for host in self._hosts.values()),
            "names": self._names,
            "events": self._events,
            "changes": self._changes,
            "failed": self._failed,
        }

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _flow(self, per_second: int) -> None:
        under_way: set[asyncio.Task[None]] = set()
        begin, number = time.monotonic(), 0
        try:
            while True:
                number += 1
                await asyncio.sleep(begin + number / per_second - time.monotonic())
                task = asyncio.create_task(self._change())
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        finally:
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _change(self) -> None:
        what = self._chance.choices(list(CHANGES), list(CHANGES.values()))[0]
        try:
            if what == "create":
                self._made += 1
                await self._create(self._made - 1)
            elif what == "delete" and self._names:
                await self._ask("DELETE", f"sandboxes/{self._names.pop(self._chance.randrange(len(self._names)))}")
            else:
                host = self._chance.choice(list(self._hosts.values()))
                if living := host.living_runs():
                    host.turn(self._chance.choice(living))
            self._changes += 1
        except (aiohttp.ClientError, RuntimeError, TimeoutError) as fault:
            self._failed += 1
            sys.stderr.write(f"{what}: {fault}\n")

    async def _create(self, number: int) -> None:
        # The names are spread, so that a page of the list has sandboxes of all clusters.
        name, clusters = f"box-{number * 7919 % 100_003:06d}", list(self._hosts)
        resources = [{"name": "db", "plugin": "db"}]
        spec = {"cluster": clusters[number % len(clusters)], "description": f"number {number}", "resources": resources}
        await self._ask("PUT", f"sandboxes/{name}", {"spec": {**spec, "labels": {"team": f"t{number % 20}"}}})
        self._names.append(name)

    async def _publish(self, name: str, version: str = "1.0.0") -> None:
        body = {"name": f"{name}@{version}", "spec": PLUGIN}
        await self._ask("PUT", f"resource-plugins/{name}", body)

    async def _ask(self, method: str, path: str, body: Any = None) -> None:
        async with self._session.request(method, self._at + path, json=body) as answer:
            said = await answer.text()
            if answer.status != 200:
                raise RuntimeError(f"{method} {path}: {answer.status} {said[:200]}")

    async def _watch(self) -> None:
        """Watch all changes, as the page in a browser does."""
        while True:
            async with self._session.get(self._at + "changes") as answer:
                while line := await answer.content.readline():
                    self._events += line.startswith(b"event:")


async def main() -> None:
    """Execute commands until the input ends."""
    loop = asyncio.get_running_loop()
    config = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    load = Load(**config)
    try:
        await load.begin()
        sys.stdout.write("{}\n")
        sys.stdout.flush()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            word, *numbers = line.split()
            found = await getattr(load, word)(*map(int, numbers))
            sys.stdout.write(json.dumps(found or {}) + "\n")
            sys.stdout.flush()
    finally:
        await load.close()


if __name__ == "__main__":
    asyncio.run(main())
