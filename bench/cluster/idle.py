"""(e) An operator with ten thousand idle sandboxes: its memory, and the time until a new process is ready."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from bench.cluster import manifests
from bench.cluster.place import HOME, client, operator, place
from bench.cluster.watches import watching
from bench.memory import resident
from bench.rows import Row
from dayfly.kube.objects import KubeStruct, ObjectMeta
from dayfly.operator.cluster.objects import SANDBOXES

if TYPE_CHECKING:
    from bench.cluster.place import Operator, Place

SANDBOXES_IN_ALL = 10_000
POSTING = 16
AIM_MB, AIM_S = 150, 10
# One Sandbox, its sealed document, its Run.
OBJECTS = 3
# After this time without a turn the operator has visited all of them.
QUIET_S = 5.0


def measure(sandboxes: int = SANDBOXES_IN_ALL) -> list[Row]:
    """Create sandboxes without resources. When all are ready and the operator is idle, start a new operator process."""
    with place(kwok_nodes=1) as where:
        with operator(where) as first:
            empty = resident(first.pid)
            asyncio.run(_make(where, sandboxes))
            _wait_until_quiet(first)
            grown = resident(first.pid)
        with operator(where) as second:
            looked = _wait_until_quiet(second)
            full = resident(second.pid)
            assert second.figure("dayfly_runs", phase="open") == sandboxes, "each has its run"
    return [
        Row(
            f"(e) memory of the operator with {sandboxes:,} idle sandboxes ({OBJECTS * sandboxes:,} objects)",
            f"{max(grown, full):.0f} MB",
            f"{empty:.0f} MB with none",
            f"{grown:.0f} MB after it created them, {full:.0f} MB after a restart",
            f"{AIM_MB} MB",
            max(grown, full) <= AIM_MB,
        ),
        Row(
            f"(e) from the start of the operator until it is ready, with these {sandboxes:,}",
            f"{second.ready_after:.1f} s",
            f"{first.ready_after:.1f} s with none",
            f"{second.ready_after:.1f} s (and {looked:.0f} s more until it had examined each)",
            f"{AIM_S} s",
            second.ready_after <= AIM_S,
        ),
    ]


class Spoken(KubeStruct, frozen=True):
    """The fields of a Sandbox that its owner reads."""

    metadata: ObjectMeta
    status: dict[str, Any] = {}


async def _make(where: Place, sandboxes: int) -> None:
    """Create the sandboxes, some in parallel, and wait until all are ready."""
    names = [f"idle-{number}" for number in range(sandboxes)]
    left = iter(names)
    async with AsyncExitStack() as stack:
        asking = await stack.enter_async_context(client(where.cluster.kubeconfig))
        seen = await stack.enter_async_context(watching(asking, SANDBOXES.read_as(Spoken), HOME))

        async def some() -> None:
            for name in left:
                await asking.create(SANDBOXES, manifests.sandbox(name), HOME)

        await asyncio.gather(*(some() for _ in range(POSTING)))
        for name in names:
            await seen.until(name, lambda sandbox: sandbox is not None and bool(sandbox.status.get("ready")), HOME)


def _wait_until_quiet(running: Operator) -> float:
    """Wait until it leads and has taken no turn for a while. Return the seconds from the call to its last turn."""
    began = time.monotonic()
    while not running.figure("dayfly_leading"):
        time.sleep(0.25)
    last, turns = time.monotonic(), -1.0
    while time.monotonic() < last + QUIET_S:
        if (now := running.figure("dayfly_turn_seconds_count")) != turns:
            turns, last = now, time.monotonic()
        time.sleep(0.25)
    return last - began
