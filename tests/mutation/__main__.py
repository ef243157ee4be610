"""`python -m mutation guards [NAME...]`: each guard taken out, and whether its test falls."""

from __future__ import annotations

import sys

from mutation.guards import GUARDS, Guard
from mutation.plant import End, RunnerError, StaleError, edited, folder, play

SECONDS = 300.0


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


def _unsound(guards: list[Guard]) -> list[str]:
    """What is wrong with the tests while every guard is in its place; `make test` knows that by itself."""
    with folder() as home:
        played = play({}, sorted({guard.test for guard in guards}), home, seconds=SECONDS * 4)
    return [] if played.end is End.SURVIVED else [f"the tests do not pass with every guard in its place: {played.said}"]


def main(arguments: list[str]) -> int:
    """The exit code: whether a guard is held by nothing."""
    wanted = arguments[1:]
    guards = [guard for guard in GUARDS if not wanted or guard.name in wanted]
    found = missed(guards) if wanted else _unsound(guards) or missed(guards)
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
