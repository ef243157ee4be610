"""Many sandboxes on one server that is killed again and again: none is left, nothing ran twice, and nothing grows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from bench.memory import resident
from tests.examples.home import Home
from tests.selection import SELECTION

ROUNDS = 300 if SELECTION.is_complete else 3
# after these rounds the server is no longer killed, and its memory is measured
KILLS = ROUNDS - 150 if SELECTION.is_complete else ROUNDS
WARM = 50  # rounds after which everything that is loaded once has been loaded
GROWTH_MB = 15.0

PLUGIN = """
name: soak@1.0.0
spec:
  runner: {image: "busybox:1"}
  create:
  - name: make
    inputs: [{name: journal, valueFromSandbox: true, as: {env: JOURNAL}}]
    outputs: [{name: id, valueFromPath: /tmp/id}]
    script: |
      #!/bin/sh
      echo "+ $DAYFLY_RESOURCE_ID" >>"$JOURNAL"
      printf %s "$DAYFLY_RESOURCE_ID" >/tmp/id
  delete:
  - name: drop
    inputs: [{name: journal, valueFromSandbox: true, as: {env: JOURNAL}}]
    script: |
      #!/bin/sh
      echo "- $DAYFLY_RESOURCE_ID" >>"$JOURNAL"
"""
SANDBOX = """
name: {name}
spec:
  cluster: local
  resources: [{{name: db, plugin: soak@1.0.0, params: {{journal: "{journal}"}}}}]
"""


@pytest.fixture
def home(tmp_path: Path):
    home = Home(tmp_path / "home", {})
    home.up()
    try:
        yield home
    finally:
        home.down()


def memory(home: Home) -> float:
    """Return the memory of the running server in MB."""
    return resident(int((home.path / "lock").read_text()))


@pytest.mark.long_story
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_left_of_many_lives(home: Home, tmp_path: Path, played):
    """In each third of the first rounds the server is killed while a sandbox comes or goes. Then it serves the others."""
    played("sandboxes one after the other on a server that is killed, or grows old", ROUNDS)
    dice, journal, heights = random.Random(SELECTION.seed), tmp_path / "journal", []
    (tmp_path / "plugin.yaml").write_text(PLUGIN)
    home.dayfly("plugin", "apply", "-f", str(tmp_path / "plugin.yaml"))
    for number in range(ROUNDS):
        file, killed = tmp_path / "sandbox.yaml", ""
        if number % 3 == 2 and number < KILLS:
            killed = dice.choice(("coming", "going"))
        file.write_text(SANDBOX.format(name=f"s{number}", journal=journal))
        home.dayfly("apply", "-f", str(file), "--wait=false")
        if killed == "coming":
            home.kill()
            home.up()
        home.dayfly("apply", "-f", str(file))
        home.dayfly("sandbox", "delete", f"s{number}", "--wait=false")
        if killed == "going":
            home.kill()
            home.up()
        home.dayfly("sandbox", "delete", f"s{number}", code=(0, 3))  # 3: it has ended since
        if number >= KILLS:
            heights.append(memory(home))
    assert home.json("sandbox", "list") == []
    assert list((home.path / "steps").glob("[!.]*")) == []
    lives: dict[str, str] = {}
    for line in journal.read_text().splitlines():
        sign, resource = line.split()
        lives[resource] = lives.get(resource, "") + sign
    told = Counter(life.rstrip("-") for life in lives.values())
    assert told == {"+": ROUNDS}, "each was made once, before whatever removed it"
    assert all(life.endswith("-") for life in lives.values())
    assert not heights or heights[-1] - heights[WARM] < GROWTH_MB, heights
