"""Mutants played: which tests noticed each, remembered as long as its file is the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mutation.equivalent import EQUIVALENT
from mutation.mutants import Mutant, mutants
from mutation.plant import ROOT, SOURCE, End, folder, play
from mutation.watch import stages

MEMORY = ROOT / ".cache" / "mutation.jsonl"
SECONDS = 120.0  # for each stage


class Memory:
    """What was noticed, by the text of the whole mutated file. What was not is played again: tests get better."""

    def __init__(self, path: Path = MEMORY) -> None:
        self._path = path
        self._known: dict[str, str] = {}
        if path.exists():
            lines = map(json.loads, path.read_text().splitlines())
            self._known = {line["key"]: line["noticed"] for line in lines}

    def noticed(self, mutant: Mutant) -> str:
        """The tests that noticed it, if any did."""
        return self._known.get(mutant.key, "")

    def note(self, mutant: Mutant, noticed: str) -> None:
        self._known[mutant.key] = noticed
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"key": mutant.key, "name": mutant.name, "noticed": noticed}) + "\n")


def of(rooms: list[str]) -> Iterator[Mutant]:
    """All mutants of these rooms, or files."""
    for room in rooms:
        place = SOURCE / room
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        for file in files:
            yield from mutants(str(file.relative_to(SOURCE)), file.read_text())


def notice(mutant: Mutant) -> str:
    """The first stage of tests that notices it; empty if none does."""
    for tests in stages(mutant.file):
        with folder() as home:
            end = play({mutant.file: mutant.text}, tests, home, seconds=SECONDS).end
        if end is not End.SURVIVED:
            return f"{tests[0]} ({end.value})"
    return ""


class Figures:
    """How many of a room were noticed, survived, or cannot be noticed."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}

    def count(self, mutant: Mutant, how: str) -> None:
        """One more: `how` is noticed, equivalent or survived."""
        self.counts.setdefault(mutant.file.split("/")[0], Counter())[how] += 1

    def percent(self, room: str) -> float:
        """How many in a hundred were noticed, of those that could be."""
        counts = self.counts[room]
        could = counts["noticed"] + counts["survived"]
        return 100 * counts["noticed"] / could if could else 100.0

    def below(self, least: float) -> list[str]:
        """The rooms in which fewer were noticed."""
        return [room for room in self.counts if self.percent(room) < least]

    def sentences(self, whole: dict[str, int]) -> Iterator[str]:
        """A line for each room; `whole` is how many mutants each has."""
        for room, counts in self.counts.items():
            yield (
                f"{room}: {counts.total()} of {whole[room]} mutants played, {counts['noticed']} noticed, "
                f"{counts['equivalent']} equivalent, {counts['survived']} not noticed: {self.percent(room):.1f} %"
            )


def stale() -> list[str]:
    """Names in the list of the equivalent that no mutant has."""
    files = sorted({name.split(" ", 1)[0] for name in EQUIVALENT})
    names = {mutant.name for mutant in of(files)}
    return sorted(EQUIVALENT.keys() - names)
