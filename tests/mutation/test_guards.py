"""Each guard of the second line is held by a test; a share of them is taken out here, all of them in the proof."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from mutation.guard import Guard
from mutation.guards import GUARDS
from mutation.plant import ROOT, Edit, StaleError, edited
from share import SHARE, VARIABLE, commit

# The edits and tests that there are; each of the share costs about three seconds.
PARTS = 64
ROOMS = ("plan", "execute", "operator", "embedded")
SAMPLE = 120


@pytest.mark.slow
@pytest.mark.parametrize("guard", SHARE.of(GUARDS, PARTS, "guards"), ids=lambda guard: guard.name.replace(" ", "-"))
def test_a_guard_that_is_taken_out_is_noticed(guard: Guard, played):
    played("guards of the second line taken out, each to be missed by its test", 1)
    said = told("guards", guard.name)
    assert guard.name in said


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.timeout(12 * 3600, func_only=True)
@pytest.mark.parametrize("room", ROOMS)
def test_small_changes_for_the_worse_are_noticed(room: str, played):
    """Nearly all of those that could be, of so many that the commit picks. Each that is not is printed with its line."""
    said = told("mutants", "--least", "95", "--sample", str(SAMPLE), "--seed", commit(), room, share=commit())
    [(count, whole, figure)] = re.findall(rf"^{room}: (\d+) of (\d+) mutants played, (.*)$", said, re.MULTILINE)
    played(f"mutants of {room}, a sample", int(count), f"of {int(whole):,}: {figure}")


def told(*arguments: str, share: str = SHARE.seed) -> str:
    """What the player of the lists says; it must have found nothing wrong."""
    path = os.pathsep.join((str(ROOT / "tests"), str(ROOT / "src")))
    done = subprocess.run(
        [sys.executable, "-m", "mutation", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, VARIABLE: share},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_the_list_is_not_stale():
    for guard in GUARDS:
        texts = edited(guard.edits)
        for file, text in texts.items():
            ast.parse(text, file)


def test_a_stale_entry_is_refused():
    with pytest.raises(StaleError, match="no such text"):
        edited([Edit("plan/decide.py", "no such text", "")])


@functools.cache
def parsed(file: str) -> ast.Module:
    """Most files of tests hold several guards."""
    return ast.parse((ROOT / file).read_text())


def test_each_is_told_by_its_name_and_held_by_a_test_that_is_there():
    assert max(Counter(guard.name for guard in GUARDS).values()) == 1
    for guard in GUARDS:
        file, *names = guard.test.split("::")
        tree: ast.Module | ast.ClassDef = parsed(file)
        for name in names:
            plain = name.partition("[")[0]  # without the parameters that choose one of several
            [tree] = [node for node in tree.body if getattr(node, "name", "") == plain]
