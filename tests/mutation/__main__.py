"""Play the two lists; the exit code tells whether something is held by no test.

python -m mutation guards [NAME...]
python -m mutation mutants [--part N/M] [--least N] ROOM...    a room or a file of the package: plan, operator/effects.py
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter

from mutation.equivalent import EQUIVALENT
from mutation.guards import GUARDS, Guard
from mutation.mutants import Mutant
from mutation.plant import End, RunnerError, StaleError, edited, folder, play
from mutation.played import Figures, Memory, notice, of

SECONDS = 300.0
# Loaded once, before any process is forked for a play: none of them knows the package, or is a plugin of pytest.
COMMON = ("pytest", "msgspec", "aiohttp", "yaml", "sqlite3", "asyncio")


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


def survivors(every: list[Mutant], part: tuple[int, int]) -> Figures:
    """Play the mutants of that part: every so manieth, so that a part holds some of each function."""
    memory, figures = Memory(), Figures()
    for mutant in every[part[0] - 1 :: part[1]]:
        if mutant.name in EQUIVALENT:
            figures.count(mutant, "equivalent")
            continue
        noticed = memory.noticed(mutant)
        if not noticed and (noticed := notice(mutant)):
            memory.note(mutant, noticed)
        figures.count(mutant, "noticed" if noticed else "survived")
        if not noticed:
            print(f"not noticed: line {mutant.line} of {mutant.name}", flush=True)
    whole = Counter(mutant.file.split("/")[0] for mutant in every)
    print("\n".join(figures.sentences(whole)), flush=True)
    return figures


def main(arguments: list[str]) -> int:
    """The exit code: whether something is held by nothing."""
    parser = argparse.ArgumentParser(prog="python -m mutation")
    lists = parser.add_subparsers(dest="list", required=True)
    lists.add_parser("guards").add_argument("names", nargs="*")
    played = lists.add_parser("mutants")
    played.add_argument("--part", default="1/1", help="N/M: the Nth of M parts")
    played.add_argument("--least", type=float, default=100.0, help="so many in a hundred must be noticed")
    played.add_argument("rooms", nargs="+")
    options = parser.parse_args(arguments)
    for name in COMMON:
        importlib.import_module(name)
    if options.list == "guards":
        guards = [guard for guard in GUARDS if not options.names or guard.name in options.names]
        found = missed(guards) if options.names else _unsound(sorted({g.test for g in guards})) or missed(guards)
        print("\n".join(found))
    else:
        which, _, parts = options.part.partition("/")
        found = survivors(list(of(options.rooms)), (int(which), int(parts))).below(options.least)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
