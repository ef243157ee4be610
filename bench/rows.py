"""What a bench has to say, and the few ways of measuring that several of them share."""

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
    """One line of the table: a figure, its yardstick from the same run, and how far apart they may be."""

    what: str
    ours: str
    yardstick: str
    value: str
    aim: str
    met: bool


class Table(NamedTuple):
    """What is worth more than a line: a table that stands behind all lines, with a sentence above it."""

    title: str
    text: str


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on the checkout's own disk, where a sync costs what it costs; removed at the end."""
    place = ROOT / ".cache" / "bench"
    place.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def median(values: list[float]) -> float:
    """The middle one: a neighbour's noise moves it least."""
    return statistics.median(values)


def spread(values: list[float]) -> str:
    """The smallest and the largest, so that a reader sees how quiet the machine was."""
    return f"{min(values):.2f} to {max(values):.2f}"


def cpu_seconds() -> float:
    """Processor time of this process and of the children it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def show(measure: Callable[[], list[Row]]) -> None:
    """Run one bench alone and print its lines."""
    for row in measure():
        verdict = "met" if row.met else "NOT MET"
        sys.stdout.write(f"{row.what}: {row.ours} against {row.yardstick}: {row.value}, aim {row.aim}, {verdict}\n")
