"""The fleet as a process: 50 agents, whoever wishes for sandboxes in their clusters, and one who watches all changes.

It is told what to do on its input, a line each, and answers each with a line of JSON:
`fill N` (have so many sandboxes), `flow N` (N changes a second from now on), `still`, `settle` (until nobody has
anything to say any more), `count`, `publish N` (so many versions of a plugin that nobody uses).
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
# A change is one of these: a sandbox wished for, one deleted, or one that is no longer ready, or is so again.
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


class Crowd:
    """All of it. `tokens` are those of the clusters, by name."""

    def __init__(self, url: str, key: str, org: str, tokens: dict[str, str]) -> None:
        self._url, self._at = url, f"{url}/api/v2/orgs/{org}/"
        self._hosts = {name: IdleHost(url, token, number) for number, (name, token) in enumerate(tokens.items())}
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)  # the server keeps idle ones for five
        timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers={"signadot-api-key": key})
        self._chance = random.Random(12)
        self._names: list[str] = []
        self._made = self._events = self._changes = self._failed = 0
        self._flowing: asyncio.Task[None] | None = None
        self._works: list[asyncio.Task[Any]] = []

    async def begin(self) -> None:
        """Have all agents dial."""
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
            await host.way.close()
        await self._session.close()

    # --- what it is told ----------------------------------------------------------------------------------------------

    async def fill(self, sandboxes: int) -> None:
        """Have so many, all of them ready."""
        left = iter(range(self._made, sandboxes))

        async def write() -> None:
            for number in left:
                await self._create(number)

        await asyncio.gather(*(write() for _ in range(WRITERS)))
        self._made = sandboxes

    async def flow(self, per_second: int) -> None:
        """Changes from now on, whether or not the server keeps up."""
        self._flowing = asyncio.create_task(self._flow(per_second))

    async def still(self) -> None:
        """No more of them; what was begun is carried out."""
        if self._flowing is not None:
            self._flowing.cancel()
            await asyncio.gather(self._flowing, return_exceptions=True)
            self._flowing = None

    async def settle(self, quiet: float) -> None:
        """Return once nothing has been said to anybody for a while."""
        before, since = -1, time.monotonic()
        while time.monotonic() - since < quiet:
            if (now := sum(host.way.letters for host in self._hosts.values()) + self._events) != before:
                before, since = now, time.monotonic()
            await asyncio.sleep(0.1)

    async def publish(self, versions: int) -> None:
        """A plugin, and new versions of it, that nobody uses."""
        for number in range(versions):
            await self._publish("unused", f"0.{number}.0")

    async def count(self) -> dict[str, Any]:
        """What was seen until now."""
        ways = [host.way for host in self._hosts.values()]
        return {
            "letters": [way.letters for way in ways],
            "bytes": [way.bytes for way in ways],
            "polls": sum(way.polls for way in ways),
            "living": sum(len(host.living()) for host in self._hosts.values()),
            "names": self._names,
            "events": self._events,
            "changes": self._changes,
            "failed": self._failed,
        }

    # --- wishes -------------------------------------------------------------------------------------------------------

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
                if living := host.living():
                    host.turn(self._chance.choice(living))
            self._changes += 1
        except (aiohttp.ClientError, RuntimeError, TimeoutError) as fault:
            self._failed += 1
            sys.stderr.write(f"{what}: {fault}\n")

    async def _create(self, number: int) -> None:
        # The names are spread, so that a page of the list has those of all clusters.
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
        """All changes, as the page of a browser does."""
        while True:
            async with self._session.get(self._at + "changes") as answer:
                while line := await answer.content.readline():
                    self._events += line.startswith(b"event:")


async def main() -> None:
    """Read what to do until the input ends."""
    loop = asyncio.get_running_loop()
    config = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    crowd = Crowd(**config)
    try:
        await crowd.begin()
        sys.stdout.write("{}\n")
        sys.stdout.flush()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            word, *numbers = line.split()
            found = await getattr(crowd, word)(*map(int, numbers))
            sys.stdout.write(json.dumps(found or {}) + "\n")
            sys.stdout.flush()
    finally:
        await crowd.close()


if __name__ == "__main__":
    asyncio.run(main())
