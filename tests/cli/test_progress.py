"""Progress as people see it: in a terminal a picture that redraws itself, elsewhere one line for each change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs, terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Cli


def _steady(text: str) -> str:
    """Without durations, which are never the same."""
    return re.sub(r" +(\d+ (ms|s|min))+", " T", text)


@pytest.fixture
def files(served: Cli, journal: Path) -> Cli:
    served.write("p.yaml", sample_specs.plugin(journal, create="sleep 0.5"))
    served.write("s.yaml", sample_specs.sandbox())
    return served


@pytest.fixture
def gate(journal: Path) -> Path:
    """A step that has `sample_specs.waiting` for it goes on when this file is there."""
    return journal.with_name("gate")


def test_in_a_terminal_the_picture_is_redrawn_in_place(files: Cli, journal: Path, gate: Path):
    files.write("p.yaml", sample_specs.plugin(journal, create=sample_specs.waiting(gate)))
    code, screen, out = terminal.run(files, "apply", "-f", ".", gate=("running    db/provision", gate))
    assert (code, out) == (0, b"")
    assert _steady(screen.text()).splitlines()[2:] == [
        "demo   AllDesiredWorkloadsReady   2/2 T",
        "✓ succeeded  db/provision T",
        "✓ succeeded  db/seed T  reads db/provision",
        'Sandbox "demo" is ready.',
    ]
    assert any("● running    db/provision" in frame and "○ waiting    db/seed" in frame for frame in screen.frames)
    assert screen.styles - {"0"}


def test_the_deletion_is_drawn_too(files: Cli, journal: Path, gate: Path):
    files.write("p.yaml", sample_specs.plugin(journal, delete=sample_specs.waiting(gate)))
    assert files("apply", "-f", ".").code == 0
    code, screen, _ = terminal.run(files, "sandbox", "delete", "demo", gate=("running    db/drop", gate))
    assert code == 0
    assert any("● running    db/drop" in frame for frame in screen.frames)
    assert _steady(screen.text()).splitlines()[1:] == [
        "demo   Cleaned   1/1 T",
        "✓ succeeded  db/drop  reads db/provision",
        'Sandbox "demo" is gone.',
    ]


def test_no_color_leaves_the_words(files: Cli):
    code, screen, _ = terminal.run(files, "apply", "-f", ".", NO_COLOR="1")
    assert code == 0
    assert screen.styles == set()  # nothing bold or dim either
    assert "✓ succeeded  db/seed" in screen.text()


def test_small_terminal_is_neither_wrapped_nor_scrolled(files: Cli, journal: Path):
    steps = "".join(
        f"  - name: s{n}\n    script: |\n      #!/bin/sh\n      sleep 0.2; echo s{n} >> {journal}\n" for n in range(12)
    )
    files.write("p.yaml", f"name: many\nspec:\n  create:\n{steps}")
    files.write("s.yaml", sample_specs.sandbox(plugin="many").replace("{owner: me}", "{}"))
    code, screen, _ = terminal.run(files, "apply", "-f", ".", width=32, height=6)
    assert code == 0
    assert "✓ succeeded  12 units: db/s0..." in screen.text()


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(files: Cli, journal: Path, gate: Path):
    files.write("p.yaml", sample_specs.plugin(journal, create=sample_specs.waiting(gate)))
    code, screen, _ = terminal.run(files, "apply", "-f", ".", gate=("db/provision: running", gate), TERM="dumb")
    assert code == 0
    assert screen.styles == set()
    assert "demo: db/provision: succeeded after T" in _steady(screen.text()).replace("afterT", "after T")
    assert "demo: db/provision: running" in screen.text()


def test_terminal_shows_last_lines_of_a_running_step(files: Cli, journal: Path, gate: Path):
    chatty = f"seq 1 9; {sample_specs.waiting(gate)}"
    files.write("p.yaml", sample_specs.plugin(journal, create=chatty))
    code, screen, _ = terminal.run(files, "apply", "-f", ".", gate=("  | 9", gate))
    assert code == 0
    assert any("| 5\n  | 6\n  | 7\n  | 8\n  | 9" in frame and "| 4" not in frame for frame in screen.frames)
    assert "  | 9" not in screen.text()
