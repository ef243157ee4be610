"""Play the two lists; the exit code tells whether something is held by no test.

python -m mutation guards [NAME...]
python -m mutation mutants [--sample N] [--seed S] [--least N] [--quick] ROOM...    a room or a file: plan, operator/effects.py
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import re
import sys
from collections import Counter
from collections.abc import Sequence
from multiprocessing.pool import Pool
from typing import NamedTuple

from mutation.equivalent import EQUIVALENT
from mutation.guard import Guard
from mutation.guards import GUARDS
from mutation.mutants import Mutant
from mutation.plant import SOURCE, End, RunnerError, StaleError, edited, folder, play
from mutation.played import TESTS, Figures, Hunt, Memory, fingerprint, of, sample
from mutation.player import Player, serve
from share import SHARE

SECONDS = 300.0
ANEW_S = 1200.0
# Loaded once, before any process is forked for a play: none of them knows the package, or is a plugin of pytest.
COMMON = ("pytest", "msgspec", "aiohttp", "yaml", "sqlite3", "asyncio")


class Shown(NamedTuple):
    """Who has noticed, and how; and the test by itself, where it is known."""

    noticed: str
    test: str = ""


def missed(guards: list[Guard]) -> list[str]:
    """What is wrong with these guards, or with their tests."""
    found = []
    for guard in guards:
        with folder() as home:
            try:
                played = play(edited(guard.edits), [guard.test], home, seconds=SECONDS)
            except (RunnerError, StaleError) as fault:
                found.append(f"{guard.name}: {fault}")
                continue
        print(f"{played.seconds:5.1f} s  {played.end.value:8}  {guard.name}", flush=True)
        if played.end is End.SURVIVED:
            found.append(f"{guard.name}: {guard.test} does not notice")
    return found


def _unsound(tests: list[str]) -> list[str]:
    """What is wrong with the tests while nothing is changed; `make test` knows that by itself."""
    with folder() as home:
        played = play({}, tests, home, seconds=SECONDS * 4)
    return [] if played.end is End.SURVIVED else [f"the tests do not pass with everything in its place: {played.said}"]


def anew(texts: dict[str, str], tests: Sequence[str], only: str) -> Shown:
    """Shows a package that is loaded with these texts to such of these tests."""
    with folder() as home:
        try:
            played = play(texts, tests, home, seconds=ANEW_S, only=only)
        except RunnerError as fault:
            return Shown(f"loading ({fault!s:.80})")
    if played.end is End.SURVIVED:
        return Shown("")
    failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", played.said, re.MULTILINE)
    return Shown(f"{failed[1] if failed else tests[0]} ({played.end.value})", failed[1] if failed else "")


class Anew:
    """Plays mutants in a package that is loaded with each, in processes of `fresh`, which has nothing loaded yet."""

    def __init__(self, fresh: Pool) -> None:
        self._fresh = fresh
        self._sound: dict[str, bool] = {}

    def __call__(self, mutant: Mutant, tests: Sequence[str], only: str) -> str:
        """Who notices it. What a slow test says is believed if it passes without the mutant: it plays real programs."""
        shown = self._fresh.apply(anew, ({mutant.file: mutant.text}, tests, only))
        if only == "slow" and shown.test and not self._is_sound(shown.test):
            print(f"fails by itself, so it is not believed: {shown.test}", flush=True)
            return ""
        return shown.noticed

    def _is_sound(self, test: str) -> bool:
        if test not in self._sound:
            self._sound[test] = not self._fresh.apply(anew, ({}, [test], "")).noticed
        return self._sound[test]


def hunt(every: list[Mutant], chosen: list[Mutant], *, patient: bool) -> Figures:
    """Play these of all mutants; what is not noticed is printed with its line."""
    import coverage

    loading = coverage.Coverage(data_file=None, config_file=False, source=[str(SOURCE)])
    figures = Figures()

    def work(player: Player) -> None:
        from mutation.reach import learnt

        memory = Memory(f"{fingerprint()}{' and the slow ones' if patient else ''}")
        seeker = Hunt(player, learnt(player, loading), memory, afresh, patient=patient)
        for mutant in chosen:
            if mutant.name in EQUIVALENT:
                figures.count(mutant, "equivalent")
                continue
            noticed = memory.noticed(mutant)
            if noticed is None:
                noticed = seeker.notice(mutant)
                memory.note(mutant, noticed)
            figures.count(mutant, "noticed" if noticed else "survived")
            if not noticed:
                print(f"not noticed: line {mutant.line} of {mutant.name}", flush=True)

    # Forked here, where nothing of the package is loaded yet.
    with multiprocessing.get_context("fork").Pool(1) as fresh:
        afresh = Anew(fresh)
        loading.start()
        serve(TESTS, Player(work))
    whole = Counter(mutant.file.split("/")[0] for mutant in every)
    print("\n".join(figures.sentences(whole)), flush=True)
    return figures


def main(arguments: list[str]) -> int:
    """The exit code: whether something is held by nothing."""
    parser = argparse.ArgumentParser(prog="python -m mutation")
    lists = parser.add_subparsers(dest="list", required=True)
    lists.add_parser("guards").add_argument("names", nargs="*")
    played = lists.add_parser("mutants")
    played.add_argument("--sample", type=int, default=0, help="so many of each room, at random; 0: all")
    played.add_argument("--seed", default=SHARE.seed, help="of what is random: the commit, if nothing is said")
    played.add_argument("--least", type=float, default=100.0, help="so many in a hundred must be noticed")
    played.add_argument("--quick", action="store_true", help="show them to the quick tests alone")
    played.add_argument("rooms", nargs="+")
    options = parser.parse_args(arguments)
    for name in COMMON:
        importlib.import_module(name)
    if options.list == "guards":
        guards = [guard for guard in GUARDS if not options.names or guard.name in options.names]
        found = missed(guards) if options.names else _unsound(sorted({g.test for g in guards})) or missed(guards)
        print("\n".join(found))
        return bool(found)
    rooms = [list(of([room])) for room in options.rooms]
    chosen = [mutant for room in rooms for mutant in sample(room, options.sample, options.seed)]
    return bool(
        hunt([mutant for room in rooms for mutant in room], chosen, patient=not options.quick).below(options.least)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
