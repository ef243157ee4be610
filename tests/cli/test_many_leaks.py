"""A leak check with 10,000 entries: `dayfly leaks --check` takes at most a second beside the script that lists."""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.selection import in_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.command import Cli

pytestmark = pytest.mark.slow
ENTRIES, TIMES, LONGEST_S = 10_000, 3, 1.0


def entries() -> str:
    """Return a list of items of other owners. Each has a token, whose signature must be checked."""
    rows = [
        {"id": f"{number:026x}", "name": f"item-{number:026x}", "created": 1_700_000_000, "token": "host." + "0" * 32}
        for number in range(ENTRIES)
    ]
    return "".join(json.dumps(row) + "\n" for row in (*rows, {"complete": True, "count": ENTRIES}))


def step(name: str, script: str) -> dict[str, str]:
    return {"name": name, "script": f"#!/bin/sh\n{script}\n"}


@pytest.fixture
def world(served: Cli) -> Cli:
    """A server with a check whose inventory prints a file."""
    listing = served.folder / served.write("list", entries())
    spec = {
        "create": [step("make", "true")],
        "delete": [step("drop", "true")],
        "inventory": [step("list", f"cat '{listing}'")],
    }
    served.write("plugin.json", json.dumps({"kind": "ResourcePlugin", "name": "item@1.0.0", "spec": spec}))
    check = {"cluster": "local", "plugin": "item", "every": "1h", "grace": "1s"}
    served.write("check.json", json.dumps({"kind": "LeakCheck", "name": "items", "spec": check}))
    done = served("apply", "-f", "plugin.json", "-f", "check.json")
    assert done.code == 0, done.err
    return served


def median_s(work: Callable[[], Any]) -> float:
    """Return the median time of some calls."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def test_check_over_ten_thousand_entries_takes_a_second(world: Cli, played: Callable[..., None]):
    (check,) = json.loads(world("leaks", "--sweep", "-o", "json").out)
    assert check["status"]["counts"] == {"foreign": ENTRIES}

    def run(*options: str) -> None:
        done = world("leaks", *options, "--check")
        assert done.code == 0, done.err

    report, sweep = median_s(run), median_s(lambda: run("--sweep"))
    played("entries of a leak check", ENTRIES, f"report {report:.2f} s, sweep and report {sweep:.2f} s")
    assert in_time(sweep, LONGEST_S), f"{sweep:.2f} s"
    assert world("leaks", "--delete-check", "items").code == 0
