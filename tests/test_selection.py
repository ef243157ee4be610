"""The selection of tests: a random sample of exhaustive families, a slice of the long stories, and all others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.proof import BEGIN, END
from tests.run_summary import RunSummary
from tests.selection import SEED_VARIABLE, SELECTION, SLICE_VARIABLE, SLICES, Selection

ROOT = Path(__file__).parents[1]


class TestSample:
    @pytest.mark.parametrize(("size", "one_in", "expected"), [(42, 8, 5), (20_000, 10, 2_000), (6, 6, 1), (3, 8, 1)])
    def test_sample_has_one_in_so_many_and_at_least_one(self, size: int, one_in: int, expected: int):
        sample = Selection(seed=1).sample(range(size), one_in, "a family")
        assert len(sample) == expected
        assert sample == sorted(set(sample))

    def test_same_seed_gives_the_same_sample(self):
        assert Selection(seed=7).sample(range(100), 20, "a") == Selection(seed=7).sample(range(100), 20, "a")

    def test_many_seeds_reach_every_member(self):
        samples = [Selection(seed).sample(range(20), 10, "a family") for seed in range(200)]
        assert set().union(*samples) == set(range(20))

    def test_samples_of_two_families_are_independent(self):
        pairs = {tuple(Selection(seed).sample(range(4), 4, name)[0] for name in "ab") for seed in range(500)}
        assert len(pairs) == 16

    def test_empty_family_has_an_empty_sample(self):
        assert Selection().sample([], 10, "nothing") == []

    def test_complete_selection_has_all_members(self):
        assert Selection(is_complete=True).sample(range(100), 10, "a family") == [*range(100)]


class TestSlices:
    def test_each_story_is_in_exactly_one_slice(self):
        for index in range(25):
            assert sum(Selection(0, part, 10).plays_story("tests/a.py", index) for part in range(1, 11)) == 1

    def test_successive_stories_of_a_file_are_in_successive_slices(self):
        parts = [
            next(p for p in range(1, 11) if Selection(0, p, 10).plays_story("tests/a.py", index)) for index in range(10)
        ]
        assert sorted(parts) == [*range(1, 11)]

    def test_complete_selection_plays_all_stories(self):
        assert all(Selection(is_complete=True).plays_story("tests/a.py", index) for index in range(25))


class TestEnvironment:
    def test_without_variables_chosen_values_are_stored(self):
        environment: dict[str, str] = {}
        selection = Selection.from_environment(environment)
        assert Selection.from_environment(environment) == selection
        assert selection.parts == SLICES
        assert environment == dict(each.split("=") for each in selection.variables().split())

    @pytest.mark.parametrize("slice_", ["3/10", "all"])
    def test_variables_repeat_the_selection(self, slice_: str):
        selection = Selection.from_environment({SEED_VARIABLE: "4711", SLICE_VARIABLE: slice_})
        assert selection.variables() == f"{SEED_VARIABLE}=4711 {SLICE_VARIABLE}={slice_}"

    @pytest.mark.parametrize(
        ("seed", "slice_"), [("x", "1/2"), ("-1", "1/2"), ("1", "0/2"), ("1", "3/2"), ("1", "2"), ("1", "a/b")]
    )
    def test_invalid_value_is_refused(self, seed: str, slice_: str):
        with pytest.raises(ValueError, match="give"):
            Selection.from_environment({SEED_VARIABLE: seed, SLICE_VARIABLE: slice_})

    def test_processes_of_this_run_play_the_same(self):
        assert Selection.from_environment(dict(os.environ)) == SELECTION


PROBE = """
import pytest
from tests.selection import SELECTION

@pytest.mark.parametrize("number", SELECTION.sample(range(40), 8, "probe"))
def test_member(number):
    assert number < 0, f"played {number}"

@pytest.mark.proof
def test_of_the_proof():
    assert not SELECTION.is_complete, "played the proof"

@pytest.mark.long_story
@pytest.mark.parametrize("number", range(100, 108))
def test_story(number):
    assert number < 0, f"played {number}"
"""
LAID_OUT = (
    "conftest.py",
    "fixture_release.py",
    "fork_server.py",
    "proof.py",
    "run_summary.py",
    "scopes.py",
    "selection.py",
)


def lay_out(folder: Path) -> None:
    """Write our conftest, and a file of probes beside it."""
    place = folder / "tests"
    place.mkdir(exist_ok=True)
    for name in LAID_OUT:
        (place / name).write_text((ROOT / "tests" / name).read_text())
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (place / "test_probe.py").write_text(PROBE)


def run(folder: Path, seed: str, slice_: str, *more: str) -> str:
    """Return what pytest prints about the probes."""
    lay_out(folder)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DAYFLY_TEST", "PYTEST"))}
    env |= {SEED_VARIABLE: seed, SLICE_VARIABLE: slice_}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *more]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True).stdout


def played(output: str) -> list[int]:
    return sorted({int(number) for number in re.findall(r"AssertionError: played (\d+)", output)})


@pytest.mark.slow
def test_failure_prints_a_command_that_repeats_it(tmp_path: Path):
    output = run(tmp_path, "4711", "2/4", "-n", "2")
    assert "selection of tests: DAYFLY_TEST_SEED=4711 DAYFLY_TEST_SLICE=2/4 " in output
    members = [number for number in played(output) if number < 100]
    stories = [number for number in played(output) if number >= 100]
    assert (len(members), len(stories)) == (5, 2)
    assert "played the proof" not in output
    commands = re.findall(
        r"DAYFLY_TEST_SEED=(\d+) DAYFLY_TEST_SLICE=(\S+) \S+ -m pytest '?(tests/test_probe.py::test_member\[\d+\])",
        output,
    )
    assert len(commands) == 5
    assert played(run(tmp_path, *commands[0][:2], *(test for *_, test in commands))) == members


@pytest.mark.slow
def test_slice_all_plays_everything_and_the_proof(tmp_path: Path):
    output = run(tmp_path, "1", "all")
    assert played(output) == [*range(40), *range(100, 108)]
    assert "played the proof" in output


@pytest.mark.slow
def test_test_named_on_the_command_line_is_always_played(tmp_path: Path):
    assert played(run(tmp_path, "1", "1/4", "tests/test_probe.py::test_story")) == [*range(100, 108)]
    assert "1 passed" in run(tmp_path, "1", "1/4", "-m", "proof")


@pytest.mark.slow
def test_stories_without_the_proof_are_those_of_the_slice(tmp_path: Path):
    output = run(tmp_path, "1", "2/4", "-m", "long_story and not proof")
    assert played(output) == played(run(tmp_path, "1", "2/4", "-m", "long_story"))
    assert len(played(output)) == 2


RESUMED_PROBE = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range(6))
def test_one(number, played):
    with pathlib.Path("log").open("a") as log:
        log.write(f"{number} ")
    played("numbers", 10)
    assert number != 3 or not pathlib.Path("bad").exists()
"""


@pytest.mark.slow
def test_proof_resumes_without_passed_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In each of its workers."""
    monkeypatch.setenv("DAYFLY_CACHE", str(tmp_path / "cache"))
    lay_out(tmp_path)
    (tmp_path / "tests" / "test_resumed.py").write_text(RESUMED_PROBE)
    page, bad, log = tmp_path / "page.md", tmp_path / "bad", tmp_path / "log"
    page.write_text(f"{BEGIN}{END}")
    bad.touch()
    proof = ("-n", "2", "--proof-page", str(page), "tests/test_resumed.py")
    run(tmp_path, "1", "all", *proof)
    assert "| numbers | 60 | **1 failed** |" in page.read_text()
    assert sorted(log.read_text().split()) == [*"012345"]
    bad.unlink()
    log.write_text("")
    assert "1 passed" in run(tmp_path, "1", "all", *proof)
    assert log.read_text().split() == ["3"]
    assert len(list((tmp_path / "cache" / "proof").iterdir())) == 1
    assert "| numbers | 60 | nothing |" in page.read_text()


class Report:
    """As pytest's."""

    def __init__(self, nodeid: str, duration: float, processor: str, *, failed: bool = False) -> None:
        self.nodeid, self.duration, self.failed = nodeid, duration, failed
        self.user_properties = [("CPU seconds", processor), ("other", "text")]


def test_slowest_files_are_added_up_over_tests_and_workers(pytestconfig: pytest.Config):
    summary = RunSummary(pytestconfig)
    for number in range(12):
        for phase in (0.5, 1.0):
            summary.pytest_runtest_logreport(Report(f"tests/a/test_{number}.py::test", number * phase, "0.25"))
    summary.pytest_runtest_logreport(Report("tests/b/test_b.py::test[x y]", 100.0, "2", failed=True))
    head, *files, folders = summary.slowest_files()
    assert head == "slowest files, in seconds (CPU seconds); all workers: 199 (8)"
    assert files[:2] == ["  100.0 (2.0)  tests/b/test_b.py", "   16.5 (0.5)  tests/a/test_11.py"]
    assert len(files) == 10
    assert folders == "folders: tests/b 100 (2), tests/a 99 (6)"
    assert summary.repeat_commands() == [
        "to repeat a failed test:",
        f"    {SELECTION.variables()} .venv/bin/python -m pytest 'tests/b/test_b.py::test[x y]'",
    ]
