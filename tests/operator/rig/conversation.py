"""The recorded messages of a sandbox's life in the first version of protocol 2: `conversation-2.jsonl`.

PYTHONPATH=src python -m tests.operator.rig.conversation

records them again with today's messages. Do that only for a new protocol, because older versions keep sending the old ones.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.operator.rig import control_plane as planes
from tests.operator.rig.control_plane import ControlPlane
from tests.operator.rig.server_stories import gone, ready
from tests.operator.rig.world import World, live

from dayfly.link import wire
from dayfly.server.sync.agents import agent_service

FILE = Path(__file__).with_name(f"conversation-{wire.PROTOCOL}.jsonl")
TO_HOST, TO_CONTROL = "to the cluster", "to the server"
LATER = "fromALaterDayfly"


def read() -> list[tuple[str, dict[str, Any]]]:
    """Receiver and message."""
    return [(who, message) for who, message in map(json.loads, FILE.read_text().splitlines())]


def later(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message as a later version sends it: with more fields outside of sealed documents."""
    found = {**message, LATER: {"deep": [1, 2]}}
    for key in ("runs", "ended"):
        if key in found:
            found[key] = [{**each, LATER: 1} for each in found[key]]
    if "run" in found:
        found["run"] = {**found["run"], LATER: 1}
    return found


def unknown(**more: int) -> dict[str, Any]:
    """Return a message of an unknown kind."""
    return {"type": "Ponder", "about": "everything", **more}


async def tell(world: World, plane: ControlPlane) -> None:
    """Play the recorded story, in which each side sends all its requests."""
    await world.rest(60)  # it is connected, so the server lets it check the plan
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
    """Record what both sides send."""
    heard: list[tuple[str, Any]] = []
    agent_service.POLL_INTERVAL_S = 30.0

    def listen(plane: ControlPlane) -> None:
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
        time.time_ns = lambda: world.now() * 1_000_000  # like the fixture `story`
        with tempfile.TemporaryDirectory() as folder:
            plane = ControlPlane(world, Path(folder) / "control.db")
            planes.joined(world, plane)
            listen(plane)
            await plane.start()
            await plane.must("PUT", "clusters/east", {})
            await plane.agents.load_mailboxes()
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
