"""(c) Response time of the command line, compared with an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench.rows import ROOT, Row, folder, median, show
from bench.servers import running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROUNDS = 31
MODULE = (sys.executable, "-m", "dayfly")
CHECKOUT = (str(ROOT / "dayfly"),)
NOTHING = (sys.executable, "-c", "pass")
# The command's label, the command, and the maximum ratio to the empty program.
CASES = (
    ("`dayfly --version`, as `python -m dayfly`", (*MODULE, "--version"), 6),
    ("`dayfly --version`, as `./dayfly`", (*CHECKOUT, "--version"), 6),
    ("`dayfly sandbox list`, as `python -m dayfly`", (*MODULE, "sandbox", "list"), 12),
    ("`dayfly sandbox list`, as `./dayfly`", (*CHECKOUT, "sandbox", "list"), 12),
)
SANDBOXES = 3


def measure() -> list[Row]:
    """Measure each command and the empty program in turns, while a server with a few sandboxes runs."""
    nothing: list[float] = []
    found: dict[str, list[float]] = {name: [] for name, _, _ in CASES}
    with folder() as place, running(place / "home") as server:
        client = server.client()
        for number in range(SANDBOXES):
            client.put("sandboxes", f"idle-{number}", body={"spec": {"cluster": "local"}})
        for number in range(ROUNDS + 1):
            for name, command, _ in CASES:
                nothing_took, took = _took(NOTHING, server.environment), _took(command, server.environment)
                if number:  # the first round compiles, and fills caches
                    nothing.append(nothing_took)
                    found[name].append(took)
    rows = []
    for name, _, aim in CASES:
        ratio = median(found[name]) / median(nothing)
        rows.append(
            Row(
                f"(c) {name} (yardstick: `python -c pass`)",
                f"{median(found[name]):.1f} ms",
                f"{median(nothing):.1f} ms",
                f"{ratio:.1f} x",
                f"{aim} x",
                ratio <= aim,
            )
        )
    return rows


def _took(command: Sequence[str], environment: Mapping[str, str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - begun) * 1e3


if __name__ == "__main__":
    show(measure)
