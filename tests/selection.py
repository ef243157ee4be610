"""The selection of tests that a run plays: members of exhaustive families, and long stories.

`make test` plays the same tests each time, with two exceptions:

- It plays a random sample of each exhaustive family (a fault matrix, schedules, long searches). A run prints its seed.
- It plays slice k of n of the tests marked `long_story` (clusters, browsers, containers, Terraform under kills). The day
  chooses k.

Both can be repeated at any commit, for all tests or for one:

    make test SEED=4711 SLICE=3/10
    DAYFLY_TEST_SEED=4711 DAYFLY_TEST_SLICE=3/10 .venv/bin/python -m pytest tests/operator/test_matrix.py

`SLICE=all` plays all stories, all members of all families, and the tests marked `proof`. `make proof` sets it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import random
import re
import zlib
from collections.abc import Iterable, MutableMapping
from typing import TypeVar

T = TypeVar("T")

SEED_VARIABLE, SLICE_VARIABLE = "DAYFLY_TEST_SEED", "DAYFLY_TEST_SLICE"
SLICES = 10
# Files that took more than a minute in whole runs, the longest first. They start first in a run: started last, they would
# keep one worker busy while the others are idle. They also begin at different slices, so that no day has most of them.
LONGEST = (
    "tests/cluster/test_trial.py",
    "tests/operator/test_matrix.py",
    "tests/model/test_model.py",
    "tests/simulator/test_bugs.py",
    "tests/cluster/test_forks.py",
    "tests/cluster/test_testcluster.py",
    "tests/cluster/test_server.py",
    "tests/operator/test_schedules.py",
    "tests/examples/test_pages.py",
    "tests/operator/test_proxied.py",
    "tests/embedded/test_container_crash.py",
    "tests/deploy/test_install.py",
    "tests/cluster/test_conformance.py",
    "tests/examples/test_lives.py",
    "tests/page/test_browser.py",
    "tests/cli/test_with.py",
    "tests/embedded/test_leaks.py",
    "tests/examples/test_terraform.py",
    "tests/operator/test_hostile_names.py",
    "tests/kube/test_against_real.py",
    "tests/cluster/test_object_examples.py",
    "tests/cli/test_plugin_test.py",
    "tests/docs/test_pages.py",
    "tests/deploy/test_chart.py",
    "tests/embedded/test_parent_crash.py",
)
_SLICE = re.compile(r"([1-9]\d*)/([1-9]\d*)")
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Selection:
    """The selection of one run: samples by `seed` and slice `part` of `parts`, or everything."""

    seed: int = 0
    part: int = 1
    parts: int = 1
    is_complete: bool = False

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Selection:
        """Return the selection that the environment names.

        Missing values are chosen and stored there, so that all processes of this run play the same.

        Raises:
            ValueError: a variable has no valid value.
        """
        seed = environment.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(1_000_000))
        today = dt.datetime.now(dt.UTC).date().toordinal()
        part = environment.get(SLICE_VARIABLE) or f"{today % SLICES + 1}/{SLICES}"
        environment |= {SEED_VARIABLE: seed, SLICE_VARIABLE: part}
        if not seed.isdecimal():
            raise ValueError(f"{SEED_VARIABLE} is {seed!r}: give a number")
        if part == ALL:
            return cls(int(seed), is_complete=True)
        if not (match := _SLICE.fullmatch(part)) or int(match[1]) > int(match[2]):
            raise ValueError(f"{SLICE_VARIABLE} is {part!r}: give K/N with 1 <= K <= N, or {ALL}")
        return cls(int(seed), int(match[1]), int(match[2]))

    def sample(self, members: Iterable[T], one_in: int, family: str) -> list[T]:
        """Return a random sample of every `one_in`th member on average, at least one, in their order.

        Samples of families with different names are independent.
        """
        items = list(members)
        if self.is_complete or not items:
            return items
        chosen = random.Random(f"{self.seed} {family}").sample(range(len(items)), max(1, len(items) // one_in))
        return [items[index] for index in sorted(chosen)]

    def plays_story(self, file: str, index: int) -> bool:
        """Return whether the long story with this index in its file is in the slice. Each file starts at another slice."""
        start = LONGEST.index(file) if file in LONGEST else zlib.crc32(file.encode())
        return self.is_complete or (start + index) % self.parts == self.part - 1

    def variables(self) -> str:
        """Return what repeats this selection, as assignments before a command."""
        part = ALL if self.is_complete else f"{self.part}/{self.parts}"
        return f"{SEED_VARIABLE}={self.seed} {SLICE_VARIABLE}={part}"


def in_time(took: float, within: float) -> bool:
    """Return whether a duration in seconds is within its limit. Only the proof checks it: CI may run on a slow machine."""
    return not SELECTION.is_complete or took < within


SELECTION = Selection.from_environment(os.environ)
