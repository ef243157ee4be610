"""Which share of what is exhaustive a run plays: `make test` one that the commit picks, `make proof` everything.

The commit's hash is the seed, so that successive commits play all of it. What a run has played is played again by its
seed, and what it has not is for another commit, or for the proof:

    DAYFLY_SHARE=3d94c1981e65 .venv/bin/python -m pytest tests/operator/test_matrix.py
    DAYFLY_SHARE=all .venv/bin/python -m pytest tests/operator/test_matrix.py
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[1]

VARIABLE = "DAYFLY_SHARE"
ALL = "all"
_NO_COMMIT = "unversioned"  # a checkout without its history always plays the same
# What comes with a change comes in so many commits, mostly.
NEWEST = 20
_FILE, _TEST = re.compile(r"\+\+\+ b/(tests/.*\.py)"), re.compile(r"\+\s*(?:async )?def (test_\w+)")


@dataclasses.dataclass(frozen=True)
class Share:
    """What one seed picks; the seed `all` picks everything."""

    seed: str

    @property
    def everything(self) -> bool:
        """Whether this is the proof."""
        return self.seed == ALL

    def of(self, whole: Iterable[T], parts: int, about: str) -> list[T]:
        """Every so manieth of the whole, from one on that depends on its name: never nothing, if there is anything.

        Seed after seed picks each of them equally often, and two wholes are picked from independently.
        """
        items = list(whole)
        if self.everything or not items:
            return items
        parts = min(parts, len(items))
        return items[self._draw(about, parts) :: parts]

    def again(self) -> str:
        """What has this share played again, before any command."""
        return f"{VARIABLE}={self.seed}"

    def _draw(self, about: str, below: int) -> int:
        digest = hashlib.sha256(f"{self.seed} {about}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % below


def in_time(took: float, within: float) -> bool:
    """Whether a promise in seconds is kept on this machine. Only the proof asks that: a change may land on a slow one."""
    return not SHARE.everything or took < within


def commit() -> str:
    """What is checked out here; where there is no git, or no history, a word in its place."""
    return git("rev-parse", "--short=12", "HEAD").strip() or _NO_COMMIT


def brought(seed: str) -> frozenset[tuple[str, str]]:
    """The tests that the commit `seed` and those before it have brought, by file and name: they are played whatever the
    share is, or a change could land before any run has played its own test.
    """
    found: set[tuple[str, str]] = set()
    file = ""
    for line in git("log", "--format=", "--unified=0", "--patch", f"-{NEWEST}", seed, "--", "tests").splitlines():
        if at := _FILE.fullmatch(line):
            file = at[1]
        elif test := _TEST.match(line):
            found.add((file, test[1]))
    return frozenset(found)


def git(*words: str) -> str:
    """What it says; nothing where there is none, or it cannot tell."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


# Set for the processes that this one starts, too: whatever is committed meanwhile, all of a run play the same share.
if VARIABLE not in os.environ:
    os.environ[VARIABLE] = commit()
SHARE = Share(os.environ[VARIABLE])
