"""Graphs of steps: a cycle of references, or the waves in which steps can start.

Steps are plain strings here; the caller knows their meaning.
"""

from __future__ import annotations

import itertools
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import msgspec

from dayfly.spec.errors import Path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class Edge(msgspec.Struct, frozen=True, gc=False):
    """One step reads an output of another. `keys` is the path to the reference."""

    reader: str
    producer: str
    output: str
    keys: Path = ()


def find_cycle(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Return the edges of one cycle, each read by the producer of the next; empty if there is none.

    The cycle begins with its first edge in the given order, so equal documents get equal messages.
    """
    given = list(edges)
    first: dict[tuple[str, str], int] = {}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for number, edge in enumerate(given):
        first.setdefault((edge.producer, edge.reader), number)
        sorter.add(edge.reader, edge.producer)
    try:
        sorter.prepare()
    except CycleError as fault:
        around: list[str] = fault.args[1]
        numbers = [first[pair] for pair in itertools.pairwise(around)]
        start = numbers.index(min(numbers))
        return tuple(given[number] for number in (*numbers[start:], *numbers[:start]))
    return ()


def describe(cycle: tuple[Edge, ...]) -> str:
    """Return the cycle as text, each step with the output that the next one reads: `a.x -> b.y -> a.x`."""
    stops = [f"{edge.producer}.{edge.output}" for edge in cycle]
    return " -> ".join([*stops, stops[0]])


def waves(steps: Collection[str], needs: Mapping[str, Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the steps by their earliest start if each took equally long, in the given order within a wave.

    `needs` may name steps outside `steps`; they count as done. There must be no cycle (see `find_cycle`).
    """
    inside = set(steps)
    sorter = TopologicalSorter({step: [name for name in needs.get(step, ()) if name in inside] for step in steps})
    place = {step: number for number, step in enumerate(steps)}
    sorter.prepare()
    found: list[tuple[str, ...]] = []
    while sorter.is_active():
        ready = sorter.get_ready()
        found.append(tuple(sorted(ready, key=place.__getitem__)))
        sorter.done(*ready)
    return tuple(found)
