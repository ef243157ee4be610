"""A sandbox's life as it crossed the wire when protocol 1 began, in `conversation-1.jsonl`: what each side said, in order.

    cd tests/operator; PYTHONPATH=../../src:..:. python -m rig.conversation

records it anew with today's messages, which is for a new protocol alone: whoever has an older Dayfly says the old ones.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from dayfly.control import host_sync, sandboxes
from dayfly.control.agents import agents
from dayfly.operator.agent.dial import Dial
from dayfly.spec import wire
from rig import plane as planes
from rig.plane import Plane
from rig.served import gone, ready
from rig.world import World, live

FILE = Path(__file__).with_name(f"conversation-{wire.PROTOCOL}.jsonl")
TO_HOST, TO_CONTROL = "to the cluster", "to the server"
LATER = "fromALaterDayfly"


def read() -> list[tuple[str, dict[str, Any]]]:
    """To whom it was said, and the message."""
    return [(who, message) for who, message in map(json.loads, FILE.read_text().splitlines())]


def later(message: dict[str, Any]) -> dict[str, Any]:
    """As a later Dayfly says it: with more fields in all that is no sealed document."""
    found = {**message, LATER: {"deep": [1, 2]}}
    for key in ("runs", "ended"):
        if key in found:
            found[key] = [{**each, LATER: 1} for each in found[key]]
    if "run" in found:
        found["run"] = {**found["run"], LATER: 1}
    return found


def unknown(**more: int) -> dict[str, Any]:
    """A kind of message that nobody knows yet."""
    return {"type": "Ponder", "about": "everything", **more}


async def tell(world: World, plane: Plane) -> None:
    """What is recorded: a life in which each side asks the other whatever it may."""
    await world.rest(60)  # it has connected, so it is asked whether it could run this
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
    """Write down what was said, by listening at the cluster's end."""
    heard: list[tuple[str, Any]] = []
    carry_out, hear = Dial._carry_out, Dial._hear

    def listen_in(self: Dial, message: Any) -> None:
        heard.append((TO_HOST, json.loads(message.body)))
        carry_out(self, message)

    def listen_out(self: Dial, message: wire.AnyToControl) -> None:
        heard.append((TO_CONTROL, json.loads(wire.encode(message))))
        hear(self, message)

    Dial._carry_out, Dial._hear = listen_in, listen_out  # type: ignore[method-assign] # this process does nothing else
    agents.LOOK_S = 30.0

    async def told(world: World) -> None:
        for module in (host_sync, sandboxes):
            module._now = world.now  # type: ignore[attr-defined] # as the fixture `story` has it
        with tempfile.TemporaryDirectory() as folder:
            plane = Plane(world, Path(folder) / "control.db")
            planes.joined(world, plane)
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
