"""(k) The time until a sandbox reaches an idle cluster through a server, and a report of the cluster reaches the
server.

If there are two replicas, the agent is connected to the one that does not get the request. Its host does no work
(`hosts`), and saving its cursor takes as long as a Secret of a small cluster.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

from bench.fleet import servers
from bench.fleet.hosts import IdleHost, Noted
from bench.fleet.load import PLUGIN
from bench.rows import Row, folder, median, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.fleet.servers import Server
    from dayfly.link import wire
    from dayfly.link.dialer import LastSeen
    from dayfly.link.wire import Verdict

ROUNDS = 20
# Pauses between rounds are random, so that rounds meet the server's periodic work at different moments.
IDLE_S = (0.5, 1.5)
SAVE_S = 0.02
AIMS_S = {"the PUT returns": 0.15, "the host has the sandbox": 0.1, "the server knows a report": 0.1}


class SlowCursor(Noted):
    """A cursor with the delay of a network write."""

    async def save(self, seen: LastSeen) -> None:
        await asyncio.sleep(SAVE_S)
        await super().save(seen)


class TimedHost(IdleHost):
    """Records when it is offered a sandbox."""

    cursor = SlowCursor
    offered_at = 0.0

    async def offer(self, offer: wire.Offer) -> Verdict:
        self.offered_at = time.perf_counter()
        return await super().offer(offer)


class Client:
    """Requests to one replica."""

    def __init__(self, session: aiohttp.ClientSession, server: Server) -> None:
        self._session, self._at = session, f"{server.url}/api/v2/orgs/{servers.ORG}/"
        self._headers = {"signadot-api-key": server.key}

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the response to one request."""
        async with self._session.request(method, self._at + path, json=body, headers=self._headers) as answer:
            answer.raise_for_status()
            return await answer.json()


class Found(NamedTuple):
    """Seconds by round, in the order of `AIMS_S`."""

    put: list[float]
    offered: list[float]
    reported: list[float]


def measure(rounds: int = ROUNDS) -> Iterator[Row]:
    """Measure one server on SQLite, and two replicas on PostgreSQL."""
    with folder() as place, servers.sqlite(place) as server:
        yield from _rows("one server, SQLite", asyncio.run(measure_server(server, server, rounds)))
    with folder() as place, servers.replicas(place, 2) as (first, second):
        yield from _rows("two replicas, PostgreSQL", asyncio.run(measure_server(first, second, rounds)))


async def measure_server(asked: Server, dialled: Server, rounds: int) -> Found:
    """Create sandboxes at one replica, while their cluster is connected to the other one."""
    asked.ask("PUT", "clusters/c", {})
    asked.ask("PUT", "resource-plugins/db", {"name": "db@1.0.0", "spec": PLUGIN})
    token = asked.ask("POST", "clusters/c/tokens", {})["token"]
    host = TimedHost(dialled.url, token, 1)
    works = [asyncio.create_task(host.dial.run()), asyncio.create_task(host.end.run())]
    found, chance = Found([], [], []), random.Random(7)
    try:
        async with aiohttp.ClientSession() as session:
            client = Client(session, asked)
            while not host.dial.session:  # noqa: ASYNC110 - once
                await asyncio.sleep(0.1)
            await _round(client, host, "warm")
            for number in range(rounds):
                await asyncio.sleep(chance.uniform(*IDLE_S))
                for each, took in zip(found, await _round(client, host, f"s{number}"), strict=True):
                    each.append(took)
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await host.connection.close()
    return found


async def _round(client: Client, host: TimedHost, name: str) -> tuple[float, float, float]:
    host.offered_at = 0.0
    began = time.perf_counter()
    spec = {"cluster": "c", "resources": [{"name": "db", "plugin": "db"}]}
    await client.ask("PUT", f"sandboxes/{name}", {"spec": spec})
    put = time.perf_counter() - began
    while not host.offered_at:  # noqa: ASYNC110 - the PUT may return before
        await asyncio.sleep(0.001)
    await asyncio.sleep(IDLE_S[1])
    before = await client.ask("GET", f"sandboxes/{name}/report")
    path = f"sandboxes/{name}/report?after={before['version']}&wait=20"
    waiting = asyncio.create_task(client.ask("GET", path))
    await asyncio.sleep(IDLE_S[0] / 2)
    changed = time.perf_counter()
    host.turn(before["uid"])
    await waiting
    return put, host.offered_at - began, time.perf_counter() - changed


def _rows(where: str, found: Found) -> Iterator[Row]:
    for (what, aim), took in zip(AIMS_S.items(), found, strict=True):
        yield Row(
            f"(k) {what}, {where}",
            f"{median(took) * 1e3:.0f} ms",
            "-",
            f"{min(took) * 1e3:.0f} to {max(took) * 1e3:.0f} ms",
            f"{aim * 1e3:.0f} ms",
            median(took) <= aim,
        )


if __name__ == "__main__":
    show(lambda: list(measure()))
