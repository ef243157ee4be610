"""Mutants played: which test noticed each, remembered as long as its function is the same."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mutation.equivalent import EQUIVALENT
from mutation.inplace import Functions, NotInPlaceError
from mutation.mutants import Mutant, mutants
from mutation.plant import ROOT, SOURCE, End, plant
from mutation.player import Player
from mutation.reach import Reach

MEMORY = ROOT / ".cache" / "mutation" / "noticed.jsonl"
SECONDS = 30.0  # of quick tests, for each mutant
PATIENT_S = 300.0  # and for one that those do not notice
# The slow tests of `make test` that may notice what no quick one does, room by room, the likely ones first.
MATRIX = "tests/operator/test_matrix.py"
SLOW = {
    "plan": ("tests/simulator", MATRIX, "tests/embedded/test_crash.py"),
    "execute": (
        "tests/operator",
        "tests/policy",
        "tests/embedded/test_crash.py",
        "tests/embedded/test_container_crash.py",
    ),
    "operator": ("tests/operator",),
    "embedded": ("tests/embedded", "tests/cli"),
}
# Whatever else reaches a line, a package that is loaded anew for one mutant is asked by so many.
ANEW = 400
SCHEDULES = "tests/mutation/schedules.py"
TESTS = (
    *(f"tests/{room}" for room in ("plan", "execute", "operator", "embedded")),
    *(f"tests/{room}" for room in ("simulator", "policy", "conformance", "work", "webhook", "object")),
    *(f"tests/control/test_{end}.py" for end in ("host_end", "link", "port", "reports", "telling")),
    SCHEDULES,
)

# Plays one with a package that is loaded anew: the mutant, the tests, and which of them by their marks.
Anew = Callable[[Mutant, Sequence[str], str], str]


class Memory:
    """What was noticed, by change and function. What was not is played again once a test is another."""

    def __init__(self, tests: str = "", path: Path = MEMORY) -> None:
        """`tests` tells those that there are from all others."""
        self._path, self._tests = path, tests
        self._known: dict[str, str] = {}
        self.by_test: Counter[tuple[str, str]] = Counter()  # how many of a file a test has noticed, and a file of tests
        for line in map(json.loads, path.read_text().splitlines()) if path.exists() else ():
            self._remember(line["key"], line["noticed"], line["tests"], line["name"].partition(" ")[0])

    def noticed(self, mutant: Mutant) -> str | None:
        """The test that noticed it, empty if none did; None if that is not known."""
        return self._known.get(mutant.key)

    def note(self, mutant: Mutant, noticed: str) -> None:
        """Keep it at once: a run may be broken off."""
        self._remember(mutant.key, noticed, self._tests, mutant.file)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = {"key": mutant.key, "name": mutant.name, "noticed": noticed, "tests": self._tests}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _remember(self, key: str, noticed: str, tests: str, file: str) -> None:
        if noticed or tests == self._tests:
            self._known[key] = noticed
        if noticed:
            test = noticed.partition(" ")[0]
            self.by_test[file, test] += 1
            self.by_test[file, test.partition("::")[0]] += 1


def of(rooms: Sequence[str]) -> Iterator[Mutant]:
    """All mutants of these rooms, or files."""
    for room in rooms:
        place = SOURCE / room
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        for file in files:
            yield from mutants(str(file.relative_to(SOURCE)), file.read_text())


def sample(every: Sequence[Mutant], size: int, seed: str) -> list[Mutant]:
    """So many of them at random, in the order of the files; a size of nothing is all."""
    if not size or size >= len(every):
        return list(every)
    chosen = random.Random(f"{seed} mutants").sample(range(len(every)), size)
    return [every[at] for at in sorted(chosen)]


def fingerprint() -> str:
    """Of all tests that are asked, and of what they lean on."""
    found = hashlib.sha256()
    for place in TESTS:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


class Hunt:
    """Finds for each mutant a test that notices it."""

    def __init__(self, player: Player, reach: Reach, memory: Memory, anew: Anew, *, patient: bool) -> None:
        """Who is `patient` asks the slow tests as well: whatever `make test` plays without a cluster."""
        self._player, self._reach, self._memory, self._anew = player, reach, memory, anew
        self._functions, self._patient = Functions(), patient

    def notice(self, mutant: Mutant) -> str:
        """The first test that notices it; empty if none does."""
        likely = self._likely(mutant)
        first = self._within(likely, SECONDS)
        found = self._shown(mutant, first)
        if found or not self._patient:
            return found
        shown = set(first)
        rest = [test for test in likely if test not in shown]
        found = self._shown(mutant, self._within(rest, PATIENT_S))
        return found or self._anew(mutant, SLOW[mutant.file.split("/")[0]], "slow")

    def _shown(self, mutant: Mutant, tests: list[str]) -> str:
        """Which of these quick tests notices it."""
        if not tests:
            return ""
        try:
            mutate = self._functions.prepare(mutant)
        except NotInPlaceError:
            return self._anew(mutant, tests[:ANEW], "not slow")

        def before(home: Path) -> None:
            mutate()
            plant({mutant.file: mutant.text}, home)  # for the processes that a test starts

        verdict = self._player.play(tests, self._reach.seconds, before)
        if verdict.end is not End.SURVIVED:
            return f"{verdict.test} ({verdict.end.value})"
        return self._anew(mutant, tests[:ANEW], "not slow") if self._reach.loaded(mutant) else ""

    def _likely(self, mutant: Mutant) -> list[str]:
        """Those that come there: who noticed others of this file, they and their neighbours, and who is quick, goes

        first; of the cases of one test each later one behind others that are not much slower.
        """
        seconds, by_test = self._reach.seconds, self._memory.by_test
        cost = {
            test: (0.02 + seconds[test])
            / (1 + by_test[mutant.file, test] + by_test[mutant.file, test.partition("::")[0]])
            for test in self._reach.tests(mutant)
        }
        cases: Counter[str] = Counter()
        turns: dict[str, float] = {}
        for test in sorted(cost, key=lambda test: (cost[test], test)):
            name = test.partition("[")[0]
            turns[test] = cost[test] * (1 + cases[name]) ** 0.5
            cases[name] += 1
        return sorted(turns, key=lambda test: (turns[test], test))

    def _within(self, tests: Sequence[str], left: float) -> list[str]:
        """As many of them as so many seconds have room for: one at least."""
        chosen: list[str] = []
        for test in tests:
            if self._reach.seconds[test] <= left or not chosen:
                chosen.append(test)
                left -= self._reach.seconds[test]
        return chosen


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
