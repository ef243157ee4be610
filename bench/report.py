"""Runs every bench and writes what they found into the page that keeps it, with the machine and the day.

Usage: `python -m bench.report PAGE`; the page's text between the two marks is replaced, all else stays.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import bulk, deciding, memory, quiet, start, step

if TYPE_CHECKING:
    from bench.rows import Row

BENCHES = (step, bulk, start, deciding, memory)
BEGIN = "<!-- written by `make bench` -->\n"
END = "<!-- until here -->\n"
HEADER = "| what, and against what | ours | yardstick | apart | aim | met |\n|---|---|---|---|---|---|\n"


def main(page: Path) -> None:
    """Measure all, telling each figure as it comes, then write the table."""
    before, _, after = _parts(page)
    quiet.own_tmp()
    about = machine()
    lines = []
    for bench in BENCHES:
        for row in bench.measure():
            lines.append(line(row))
            sys.stdout.write(lines[-1])
            sys.stdout.flush()
    page.write_text(f"{before}{BEGIN}{about}\n{HEADER}{''.join(lines)}{END}{after}", encoding="utf-8")


def _parts(page: Path) -> tuple[str, str, str]:
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    table, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"{page}: has no lines {BEGIN.strip()} and {END.strip()}; put them where the table belongs")
    return before, table, after


def line(row: Row) -> str:
    """One line of the table."""
    met = "yes" if row.met else "**no**"
    return f"| {row.what} | {row.ours} | {row.yardstick} | {row.value} | {row.aim} | {met} |\n"


def machine() -> str:
    """What was measured on, in two lines: what else it was doing matters as much as what it is."""
    cpu = next(
        (text.partition(":")[2].strip() for text in _lines("/proc/cpuinfo") if text.startswith("model name")),
        platform.machine(),
    )
    memory_gib = int(_lines("/proc/meminfo")[0].split()[1]) / (1 << 20)
    load = os.getloadavg()[0]
    entries = len(list(Path("/tmp").iterdir()))
    return (
        f"{time.strftime('%Y-%m-%d')}: {os.cpu_count()} cores ({cpu}), {memory_gib:.0f} GiB, Linux "
        f"{platform.release()}, Python {platform.python_version()}.\n"
        f"Load average at the beginning {load:.1f}, {entries} entries in the benches' /tmp.\n"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
