"""(n) A sandbox that finds a ready member, created through a server, compared with the same sandbox of kubectl.

The server is one replica on SQLite, the operator a process on this machine, and the nodes are simulated by KWOK.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import aiohttp

from bench.cluster.claims import FILL_S, POOL, SETTLE_S, percentile, plugin, user
from bench.cluster.link import CLUSTER, connected, known_ready
from bench.cluster.place import place
from bench.fleet import servers
from bench.route import until
from bench.rows import Row, folder, median, show

if TYPE_CHECKING:
    from bench.cluster.place import Place
    from bench.fleet.servers import Server

HITS = 60
AIM_MS = 150.0
_POOL = f"resourcepools/{POOL}"


def measure(hits: int = HITS) -> list[Row]:
    """Measure both in turns. Each has a pool that is full before and does not refill."""
    with (
        folder() as here,
        place(kwok_nodes=1) as where,
        servers.sqlite(here) as server,
        connected(where, server, plugin()),
    ):
        pool = {"cluster": CLUSTER, "plugin": POOL, "ready": hits + 1}
        server.ask("PUT", _POOL, {"spec": pool})
        until(lambda: server.ask("GET", _POOL)["status"]["ready"], timeout_s=FILL_S)
        server.ask("POST", f"{_POOL}/pause")
        through, alone = asyncio.run(_rounds(where, server, hits))
        status = server.ask("GET", _POOL)["status"]
        assert (status["hits"], status["misses"]) == (hits + 1, 0), "each found a ready member"
    return [
        Row(
            "(n) the same through a server, from PUT to ready at the server (yardstick: POST to Ready with kubectl)",
            f"{median(through):.0f} ms",
            f"{median(alone):.0f} ms",
            f"{median(through) - median(alone):+.0f} ms, p99 {percentile(through):.0f} ms",
            f"{AIM_MS:g} ms",
            median(through) <= AIM_MS,
        )
    ]


async def _rounds(where: Place, server: Server, hits: int) -> tuple[list[float], list[float]]:
    through: list[float] = []
    alone: list[float] = []
    body = {"spec": {"cluster": CLUSTER, "resources": [{"name": "db", "plugin": POOL}]}}
    session = aiohttp.ClientSession(headers={"signadot-api-key": server.key})
    async with user(where) as person, session:
        await person.create_pool(hits + 1)
        await person.claim("first")
        await person.request("pause")
        await asyncio.sleep(SETTLE_S)
        for number in range(-1, hits):
            at = f"{server.url}/api/v2/orgs/{servers.ORG}/sandboxes/s{number + 1}"
            began = time.perf_counter()
            async with session.put(at, json=body) as answer:
                answer.raise_for_status()
            took = (await known_ready(session, at) - began) * 1e3
            if number >= 0:  # the first one labels the plugin and the namespace as used
                through.append(took)
                alone.append(await person.claim(f"s{number}"))
    return through, alone


if __name__ == "__main__":
    show(measure)
