"""Result rows, and measuring functions that several benchmarks share."""

from __future__ import annotations

import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Row(NamedTuple):
    """One line of the table: a figure, its yardstick from the same run, their ratio or difference, and the aim."""

    what: str
    ours: str
    yardstick: str
    value: str
    aim: str
    met: bool


class Table(NamedTuple):
    """A separate table below all lines, with its heading."""

    title: str
    text: str


@contextmanager
def folder() -> Iterator[Path]:
    """Provide a folder on the checkout's own disk, so that syncs have realistic costs; it is removed at the end."""
    place = ROOT / ".cache" / "bench"
    place.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def median(values: list[float]) -> float:
    """Return the median, which noise affects least."""
    return statistics.median(values)


def spread(values: list[float]) -> str:
    """Return the smallest and largest value, which show how quiet the machine was."""
    return f"{min(values):.2f} to {max(values):.2f}"


def cpu_seconds() -> float:
    """Return the CPU time of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def show(measure: Callable[[], list[Row]]) -> None:
    """Run one benchmark and print its lines."""
    for row in measure():
        verdict = "met" if row.met else "NOT MET"
        sys.stdout.write(f"{row.what}: {row.ours}, {row.yardstick}: {row.value}, target {row.aim}, {verdict}\n")
