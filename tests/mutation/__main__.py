"""Play the two lists; the exit code tells whether something is held by no test.

python -m mutation guards [NAME...]
python -m mutation mutants [--sample N] [--seed S] [--least N] ROOM...    a room or a file: plan, operator/effects.py
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence

from mutation.equivalent import EQUIVALENT
from mutation.guard import Guard
from mutation.guards import GUARDS
from mutation.mutants import Mutant
from mutation.plant import SOURCE, End, RunnerError, StaleError, edited, folder, play
from mutation.played import TESTS, Anew, Figures, Hunt, Memory, fingerprint, of, sample
from mutation.player import Player, serve
from share import SHARE

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


def anew(mutant: Mutant, tests: Sequence[str]) -> str:
    """The file of tests that notices it in a package that is loaded with it; empty if none does."""
    with folder() as home:
        try:
            played = play({mutant.file: mutant.text}, tests, home, seconds=SECONDS)
        except RunnerError as fault:
            return f"loading ({fault!s:.80})"
    return "" if played.end is End.SURVIVED else f"{tests[0]} ({played.end.value})"


def hunt(every: list[Mutant], chosen: list[Mutant]) -> Figures:
    """Play these of all mutants; what is not noticed is printed with its line."""
    import coverage

    loading = coverage.Coverage(data_file=None, config_file=False, source=[str(SOURCE)])
    figures = Figures()

    def work(player: Player) -> None:
        from mutation.reach import learnt

        memory = Memory(fingerprint())
        seeker = Hunt(player, learnt(player, loading), memory, patiently)
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
        patiently: Anew = lambda mutant, tests: fresh.apply(anew, (mutant, list(tests)))  # noqa: E731 - has a type
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
    return bool(hunt([mutant for room in rooms for mutant in room], chosen).below(options.least))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
