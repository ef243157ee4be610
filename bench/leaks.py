"""(y) A leak check over ten thousand items: `dayfly leaks --check` with the latest list, and with a new one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench.rows import Row, folder, median, show, spread
from bench.servers import running

if TYPE_CHECKING:
    from pathlib import Path

    from bench.servers import Server

ITEMS = 10_000
ROUNDS = 9
AIM_S = 1.0
COMMAND = (sys.executable, "-m", "dayfly", "leaks", "--check")
CASES = (
    ("with the latest list", COMMAND),
    ("with a new list, from a script that prints a file", (*COMMAND, "--sweep")),
)


def measure(items: int = ITEMS) -> list[Row]:
    """Measure both commands in turns, while a server has a check whose items are of other owners."""
    found: dict[str, list[float]] = {name: [] for name, _ in CASES}
    with folder() as place, running(place / "home") as server:
        _create_check(server, _write_list(place, items), items)
        for _ in range(ROUNDS):
            for name, command in CASES:
                began = time.perf_counter()
                subprocess.run(command, env=server.environment, check=True, capture_output=True)
                found[name].append(time.perf_counter() - began)
    return [
        Row(
            f"(y) `dayfly leaks --check` over {items:,} items, {name}",
            f"{median(times):.2f} s ({spread(times)})",
            "-",
            f"{median(times):.2f} s",
            f"{AIM_S:g} s",
            median(times) <= AIM_S,
        )
        for name, times in found.items()
    ]


def _write_list(place: Path, items: int) -> Path:
    """Write a list whose items have tokens of another home, so that each signature must be checked."""
    rows = [
        {"id": f"{number:026x}", "name": f"item-{number:026x}", "created": 1_700_000_000, "token": "host." + "0" * 32}
        for number in range(items)
    ]
    target = place / "list"
    target.write_text("".join(f"{json.dumps(each)}\n" for each in (*rows, {"complete": True, "count": items})))
    return target


def _create_check(server: Server, listing: Path, items: int) -> None:
    """Create the plugin and the check, and wait for its first list."""
    client = server.client()
    steps = {"create": "true", "delete": "true", "inventory": f"cat '{listing}'"}
    spec = {kind: [{"name": kind, "script": f"#!/bin/sh\n{script}\n"}] for kind, script in steps.items()}
    client.put("resource-plugins", "item", body={"name": "item@1.0.0", "spec": spec})
    client.put("leakchecks", "items", body={"spec": {"cluster": "local", "plugin": "item", "grace": "1s"}})
    while client.get("leakchecks", "items")["status"]["counts"] != {"foreign": items}:
        time.sleep(0.1)


if __name__ == "__main__":
    show(measure)
