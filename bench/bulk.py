"""(b) A thousand sandboxes of two chained steps, 16 steps at once, against a plain asyncio pool of the same scripts."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench import runs
from bench.rows import Row, cpu_seconds, folder, median, show, spread

SANDBOXES = 1000
PARALLEL = 16
ROUNDS = 3
AIM = 1.5
OUTPUT = "/tmp/dayfly-bench-output"
SCRIPT = f"#!/bin/sh\nsleep 0.02\necho x >{OUTPUT}\n"


def measure(rounds: int = ROUNDS) -> list[Row]:
    """Measure pool and host in turns, each in a fresh home, from the first claim to the last record."""
    pool, ours, used = [], [], []
    # The homes are removed at the end, because a disk is slow to create files after many were deleted.
    with folder() as place:
        for number in range(rounds):
            pool.append(asyncio.run(_pool(place)))
            Path(OUTPUT).unlink()  # a step must find no file at the path of an output
            seconds, cpu = asyncio.run(_host(place / f"home-{number}"))
            ours.append(seconds)
            used.append(cpu)
    ratios = [one / other for one, other in zip(ours, pool, strict=True)]
    per_step = median(used) / (2 * SANDBOXES) * 1e3
    return [
        Row(
            f"(b) {SANDBOXES:,} sandboxes of two chained steps of 20 ms, {PARALLEL} at once "
            "(yardstick: a process pool)",
            f"{median(ours):.2f} s",
            f"{median(pool):.2f} s",
            f"{median(ratios):.2f} x ({spread(ratios)}; {per_step:.1f} ms of CPU time a step in total)",
            f"{AIM:g} x",
            median(ratios) <= AIM,
        )
    ]


async def _pool(place: Path) -> float:
    """Run only the scripts: no ledger, no outputs, no separate folders."""
    script = place / "script"
    script.write_text(SCRIPT, encoding="utf-8")
    script.chmod(0o755)
    left = iter(range(2 * SANDBOXES))

    async def work() -> None:
        for _ in left:
            process = await asyncio.create_subprocess_exec(script)
            if await process.wait():
                raise RuntimeError("the bare script failed")

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(PARALLEL)))
    return time.perf_counter() - begun


async def _host(home: Path) -> tuple[float, float]:
    offers = [runs.chain(f"sandbox-{number}", SCRIPT, 2, OUTPUT) for number in range(SANDBOXES)]
    async with runs.host(home, parallel=PARALLEL) as host:
        await asyncio.gather(*(host.offer(offer) for offer in offers))
        used = cpu_seconds()
        host.start()
        await runs.all_ready(host, offers)
        used = cpu_seconds() - used
        first, last = runs.times(host, offers)
    return (last - first) / 1000, used


if __name__ == "__main__":
    show(measure)
