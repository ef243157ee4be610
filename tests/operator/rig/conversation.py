"""The life of a sandbox as it crossed the wire when protocol 2 began: `conversation-2.jsonl` has each side's messages
in order.

cd tests/operator; PYTHONPATH=../../src:..:. python -m rig.conversation

records it again with the messages of today. Do that only for a new protocol: older versions of Dayfly send the recorded
messages.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from dayfly.link import wire
from dayfly.server.sync.agents import agents
from rig import plane as planes
from rig.plane import Plane
from rig.served import gone, ready
from rig.world import World, live

FILE = Path(__file__).with_name(f"conversation-{wire.PROTOCOL}.jsonl")
TO_HOST, TO_CONTROL = "to the cluster", "to the server"
LATER = "fromALaterDayfly"


def read() -> list[tuple[str, dict[str, Any]]]:
    """The receiver and the message."""
    return [(who, message) for who, message in map(json.loads, FILE.read_text().splitlines())]


def later(message: dict[str, Any]) -> dict[str, Any]:
    """Add unknown fields to everything that is not a sealed document, like a later Dayfly."""
    found = {**message, LATER: {"deep": [1, 2]}}
    for key in ("runs", "ended"):
        if key in found:
            found[key] = [{**each, LATER: 1} for each in found[key]]
    if "run" in found:
        found["run"] = {**found["run"], LATER: 1}
    return found


def unknown(**more: int) -> dict[str, Any]:
    """A kind of message that does not exist yet."""
    return {"type": "Ponder", "about": "everything", **more}


async def tell(world: World, plane: Plane) -> None:
    """The recorded life, in which each side asks the other all kinds of questions."""
    await world.rest(60)  # after connecting, the server asks whether the cluster could run this
    await plane.must("PUT", "resource-plugins/pg", planes.PLUGIN)
    await plane.must("PUT", "sandboxes/shop", {**planes.wish(), "lease": {"seconds": 600}})
    await ready(world, plane)
    await plane.must("PUT", "sandboxes/shop/lease", {"seconds": 900})
    for what in ("outputs", "history", "attempts", "log?unit=db/make&timestamps=true", "report"):
        await plane.must("GET", f"sandboxes/shop/{what}")
    await plane.must("DELETE", "sandboxes/shop")
    await gone(world, plane)
    await world.rest(120)


def record() -> None:
    """Record what both sides send, as the server receives it."""
    heard: list[tuple[str, Any]] = []
    agents.POLL_INTERVAL_S = 30.0

    def listen(plane: Plane) -> None:
        reach = plane.reach

        async def listened(token: str, method: str, path: str, query: dict[str, str], body: bytes) -> Any:
            status, headers, answer = await reach(token, method, path, query, body)
            if (status, method, path) == (200, "GET", "messages"):
                heard.extend((TO_HOST, json.loads(each["body"])) for each in json.loads(answer)["messages"])
            if (status, method, path) == (200, "POST", "messages"):
                heard.extend((TO_CONTROL, json.loads(each)) for each in json.loads(body)["messages"])
            return status, headers, answer

        plane.reach = listened  # type: ignore[method-assign] # this process does nothing else

    async def told(world: World) -> None:
        time.time_ns = lambda: world.now() * 1_000_000  # as in the fixture `story`
        with tempfile.TemporaryDirectory() as folder:
            plane = Plane(world, Path(folder) / "control.db")
            planes.joined(world, plane)
            listen(plane)
            await plane.start()
            await plane.must("PUT", "clusters/east", {})
            await plane.agents.begin()
            world.start()
            await tell(world, plane)
            for process in world.processes:
                await process.end()
            world.processes.clear()
            await plane.end()

    live(planes.world, told)
    FILE.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in heard))


if __name__ == "__main__":
    record()
