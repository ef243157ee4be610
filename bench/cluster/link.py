"""(l) A sandbox with two steps created through a server, compared with the same sandbox created with kubectl.

The server is one replica on SQLite, the operator a process on this machine, the cluster real and otherwise idle.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

from bench.cluster import manifests
from bench.cluster.idle import Spoken
from bench.cluster.place import ACCOUNT, HOME, SYSTEM, client, operator, place
from bench.cluster.watches import watching
from bench.fleet import servers
from bench.route import until
from bench.rows import Row, folder, median, show, spread
from dayfly.operator.cluster.objects import PLUGINS, SANDBOXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster.place import Place
    from bench.cluster.watches import Watched
    from bench.fleet.servers import Server

ROUNDS = 8
CLUSTER, NAMESPACE = "bench", "shop"
AIMS_S = {"the PUT returns": 0.15, "the object exists": 0.1, "the server knows after the cluster": 0.1}


class Through(NamedTuple):
    """Seconds since the PUT of one sandbox, by event."""

    returned: float
    exists: float
    ready: float
    known: float


def measure(rounds: int = ROUNDS) -> Iterator[Row]:
    """Measure both in turns."""
    two = manifests.plugin("two", 2)
    with folder() as here, place() as where, servers.sqlite(here) as server, connected(where, server, two):
        found, alone = asyncio.run(_rounds(where, server, rounds))
    apart = [each.known - each.ready for each in found]
    columns = [each.returned for each in found], [each.exists for each in found], apart
    for (what, aim), took in zip(AIMS_S.items(), columns, strict=True):
        middle, aimed = f"{median(took) * 1e3:.0f} ms", f"{aim * 1e3:.0f} ms"
        yield Row(f"(l) {what}", middle, "-", f"{spread(took)} s", aimed, median(took) <= aim)
    ready = [each.known for each in found]
    yield Row(
        "(l) ready at the server (yardstick: ready with kubectl)",
        f"{median(ready):.2f} s ({spread(ready)})",
        f"{median(alone):.2f} s ({spread(alone)})",
        f"{median(ready) - median(alone):+.2f} s",
        "-",
        met=True,
    )


@contextmanager
def connected(where: Place, server: Server, plugin: dict[str, Any]) -> Iterator[None]:
    """Run an operator that is connected to the server, where the plugin is published."""
    token = _join(where, server, plugin)
    bound = f"{servers.ORG}={NAMESPACE}"
    dials = [f"--server-url={server.url}", f"--token-file={token}", f"--agent-namespace={bound}"]
    with operator(where, *dials) as running:
        until(lambda: running.figure("dayfly_server_connected") == 1)
        yield


def _join(where: Place, server: Server, plugin: dict[str, Any]) -> Any:
    where.cluster.kubectl("create", "namespace", NAMESPACE)
    grant = ["--clusterrole=dayfly-agent", f"--serviceaccount={SYSTEM}:{ACCOUNT}", f"--namespace={NAMESPACE}"]
    where.cluster.kubectl("create", "rolebinding", "dayfly-agent", *grant)
    server.ask("PUT", f"clusters/{CLUSTER}", {})
    name = plugin["spec"]["name"]
    server.ask("PUT", f"resource-plugins/{name.partition('@')[0]}", {"name": name, "spec": _spec(plugin)})
    token = where.cluster.folder / "token"
    token.write_text(server.ask("POST", f"clusters/{CLUSTER}/tokens", {})["token"], encoding="ascii")
    return token


def _spec(plugin: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plugin["spec"].items() if key != "name"}


async def _rounds(where: Place, server: Server, rounds: int) -> tuple[list[Through], list[float]]:
    through: list[Through] = []
    alone: list[float] = []
    async with AsyncExitStack() as stack:
        asking = await stack.enter_async_context(client(where.cluster.kubeconfig))
        session = await stack.enter_async_context(aiohttp.ClientSession(headers={"signadot-api-key": server.key}))
        kind = SANDBOXES.read_as(Spoken)
        ours = await stack.enter_async_context(watching(asking, kind, NAMESPACE))
        theirs = await stack.enter_async_context(watching(asking, kind, HOME))
        await asking.create(PLUGINS, manifests.plugin("two", 2))
        for number in range(-1, rounds):
            name = f"s{number + 1}"
            began = time.perf_counter()
            await asking.create(SANDBOXES, manifests.sandbox(name, "two"), HOME)
            took = await theirs.until(name, _is_ready, HOME) - began
            await asking.delete(SANDBOXES, name, HOME)
            await theirs.until_none()
            found = await _through(session, f"{server.url}/api/v2/orgs/{servers.ORG}/sandboxes/{name}", ours)
            if number >= 0:  # the first of each kind pulls the image
                alone.append(took)
                through.append(found)
    return through, alone


async def _through(session: aiohttp.ClientSession, at: str, seen: Watched[Spoken]) -> Through:
    spec = {"cluster": CLUSTER, "resources": [{"name": "db", "plugin": "two"}]}
    exists = asyncio.create_task(seen.until_many(lambda _: True, 1))
    ready = asyncio.create_task(seen.until_many(_is_ready, 1))
    began = time.perf_counter()
    async with session.put(at, json={"spec": spec}) as answer:
        answer.raise_for_status()
    returned = time.perf_counter()
    ended = await known_ready(session, at)
    moments = returned, await exists, await ready, ended
    async with session.delete(at) as answer:
        answer.raise_for_status()
    await seen.until_none()
    return Through(*(each - began for each in moments))


async def known_ready(session: aiohttp.ClientSession, at: str) -> float:
    """Long-poll the report of a sandbox until the server knows that it is ready. Return when."""
    version, known = 0, False
    while not known:
        async with session.get(f"{at}/report?after={version}&wait=20") as answer:
            report = await answer.json()
        version, known = report["version"], report.get("ready", False)
    return time.perf_counter()


def _is_ready(seen: Spoken | None) -> bool:
    return seen is not None and bool(seen.status.get("ready"))


if __name__ == "__main__":
    show(lambda: list(measure(*map(int, sys.argv[1:]))))
