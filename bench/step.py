"""(a) One step on the embedded host with durable ledger writes, compared with a bare `subprocess.run` of its script."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import runs
from bench.rows import Row, cpu_seconds, folder, median, show, spread

if TYPE_CHECKING:
    from dayfly.embedded.host import EmbeddedHost

ROUNDS = 9
STEPS = 24
AIM_MS = 5.0
# The output is at a typical path. The bare process writes the same file.
OUTPUT = "/tmp/dayfly-bench-output"
SCRIPT = f"#!/bin/sh\necho x >{OUTPUT}\n"


def measure() -> list[Row]:
    """Measure chains of steps and bare processes in turns. Return the additional time and CPU time of a step."""
    with folder() as home:
        return asyncio.run(_measure(home))


async def _measure(home: Path) -> list[Row]:
    script = home / "script"
    script.write_text(SCRIPT, encoding="utf-8")
    script.chmod(0o755)
    bare, ours, bare_cpu, ours_cpu = [], [], [], []
    async with runs.host(home / "home") as host:
        host.start()
        await _chain(host, "warm-up")
        for number in range(ROUNDS):
            wall, used = _bare(script)
            bare.append(wall)
            bare_cpu.append(used)
            wall, used = await _chain(host, f"round-{number}")
            ours.append(wall)
            ours_cpu.append(used)
    more = [one - other for one, other in zip(ours, bare, strict=True)]
    more_cpu = median(ours_cpu) - median(bare_cpu)
    return [
        Row(
            "(a) one step with outputs and a durable commit (yardstick: `subprocess.run`)",
            f"{median(ours):.2f} ms",
            f"{median(bare):.2f} ms",
            f"+{median(more):.2f} ms ({spread(more)}; +{more_cpu:.2f} ms of CPU time)",
            f"+{AIM_MS:g} ms",
            median(more) <= AIM_MS,
        )
    ]


def _bare(script: Path) -> tuple[float, float]:
    used, begun = cpu_seconds(), time.perf_counter()
    for _ in range(STEPS):
        subprocess.run([script], check=True)
    wall, used = time.perf_counter() - begun, cpu_seconds() - used
    Path(OUTPUT).unlink()  # a step must find no file at the path of an output
    return wall / STEPS * 1e3, used / STEPS * 1e3


async def _chain(host: EmbeddedHost, uid: str) -> tuple[float, float]:
    """Return milliseconds for one step: by the ledger's clock from first claim to last record, and in CPU time."""
    offer = runs.chain(uid, SCRIPT, STEPS, OUTPUT)
    used = cpu_seconds()
    await host.offer(offer)
    await runs.all_ready(host, [offer])
    used = cpu_seconds() - used
    first, last = runs.times(host, [offer])
    return (last - first) / STEPS, used / STEPS * 1e3


if __name__ == "__main__":
    show(measure)
