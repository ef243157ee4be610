"""The seeds of random schedules: a sample for `make test`, or the range in `DAYFLY_SEEDS`."""

import os

from tests.selection import SELECTION


def select_seeds(most: int, parts: int, family: str) -> list[int]:
    """Return a sample of the seeds 1 to `most`, or those of `DAYFLY_SEEDS=17-19`. `family` names the schedules."""
    if wanted := os.environ.get("DAYFLY_SEEDS"):
        first, last = map(int, wanted.split("-"))
        return list(range(first, last + 1))
    return SELECTION.sample(range(1, most + 1), parts, family)
