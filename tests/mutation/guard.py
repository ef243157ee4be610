"""One guard of the second line: how the code would be without it, and the one test that must notice."""

from __future__ import annotations

from typing import NamedTuple

from mutation.plant import Edit


class Guard(NamedTuple):
    """A guard taken out, and the test that falls then."""

    name: str
    edits: tuple[Edit, ...]
    test: str


def guard(name: str, file: str, old: str, new: str, test: str) -> Guard:
    """One that is taken out in one place."""
    return Guard(name, (Edit(file, old, new),), f"tests/{test}")
