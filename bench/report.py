"""Run the benchmarks of one `make` target and write the results to a page, with machine and date.

Usage: `python -m bench.report PAGE [TARGET]`. It replaces the text between that target's two marks.
stays.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bench import bulk, deciding, memory, quiet, start, step, webhook
from bench.rows import Row, Table

END = "<!-- until here -->\n"
HEADER = "| what, and against what | ours | yardstick | apart | aim | met |\n|---|---|---|---|---|---|\n"


def _machine_alone() -> Iterator[Row | Table]:
    for bench in (step, bulk, start, deciding, memory, webhook):
        yield from bench.measure()


def _cluster() -> Iterable[Row | Table]:
    from bench.cluster import suite  # its imports are not installed for the other benchmarks

    return suite.measure()


def _server() -> Iterator[Row | Table]:
    from bench import route  # as above
    from bench.cluster import link
    from bench.cluster import route as in_cluster
    from bench.fleet import latency, suite

    yield from route.measure()
    yield from in_cluster.measure()
    yield from suite.measure()
    yield from latency.measure()
    yield from link.measure()


TARGETS: dict[str, Callable[[], Iterable[Row | Table]]] = {
    "bench": _machine_alone,
    "bench-cluster": _cluster,
    "bench-server": _server,
}


def main(page: Path, target: str = "bench") -> None:
    """Measure everything, print each result, then write the tables."""
    begin = f"<!-- written by `make {target}` -->\n"
    _parts(page, begin)  # fails early if the page has no marks
    if target == "bench":
        quiet.own_tmp()
    about = machine()
    lines: list[str] = []
    tables: list[str] = []
    for found in TARGETS[target]():
        text = line(found) if isinstance(found, Row) else f"\n{found.title}\n\n{found.text}"
        (lines if isinstance(found, Row) else tables).append(text)
        sys.stdout.write(text)
        sys.stdout.flush()
    before, after = _parts(page, begin)
    written = [begin, about, "\n", HEADER, *lines, *tables, END]
    page.write_text(f"{before}{''.join(written)}{after}", encoding="utf-8")


def _parts(page: Path, begin: str) -> tuple[str, str]:
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"{page}: has no lines {begin.strip()} and {END.strip()}; put them where the table belongs")
    return before, after


def line(row: Row) -> str:
    """Return one line of the table."""
    met = "yes" if row.met else "**no**"
    return f"| {row.what} | {row.ours} | {row.yardstick} | {row.value} | {row.aim} | {met} |\n"


def machine() -> str:
    """Return machine and load in two lines. The load affects the results as much as the machine."""
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
        f"Load average at the start {load:.1f}, {entries} entries in the benchmarks' /tmp.\n"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
