"""The shares of what is exhaustive: commit after commit plays all of it, and each of them can be played again."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from long import LONG
from minutes import Minutes
from proof import BEGIN, END
from share import NEWEST, SHARE, Share, commit

ROOT = Path(__file__).parents[1]
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@a.example"]
COMMITS = [hashlib.sha1(str(number).encode()).hexdigest()[:12] for number in range(1_000)]


@pytest.mark.parametrize(("size", "parts"), [(42, 8), (20_000, 10), (45, 45), (6, 6), (11, 3)])
def test_successive_commits_play_all_of_it(size: int, parts: int):
    """And soon: none is left after so many commits, and none is picked much more often than others."""
    picked = [Share(seed).of(range(size), parts, "a whole") for seed in COMMITS]
    assert {len(share) for share in picked} <= {size // parts, -(-size // parts)}
    assert set().union(*picked) == set(range(size))
    firsts = [share[0] for share in picked]
    assert min(firsts.count(first) for first in range(parts)) > len(COMMITS) / parts / 3


def test_a_commit_always_picks_the_same():
    assert Share("3d94c1981e65").of(range(100), 10, "a whole") == [*range(2, 100, 10)]


def test_two_wholes_are_picked_from_independently():
    """Else with each commit the same numbers would be met everywhere."""
    both = {(Share(seed).of(range(4), 4, "one")[0], Share(seed).of(range(4), 4, "other")[0]) for seed in COMMITS}
    assert len(both) == 16


def test_a_small_whole_is_never_passed_over():
    assert all(len(Share(seed).of("ab", 8, "small")) == 1 for seed in COMMITS)
    assert Share(COMMITS[0]).of([], 8, "empty") == []


def test_the_proof_plays_everything():
    assert Share("all").of(range(100), 10, "a whole") == [*range(100)]


PROBE = """
import pytest
from share import SHARE

@pytest.mark.parametrize("number", SHARE.of(range(40), 8, "probe"))
def test_one(number):
    assert number < 0, f"played {number}"

@pytest.mark.proof
def test_of_the_proof():
    assert not SHARE.everything, "played the proof"

@pytest.mark.rotates(4)
@pytest.mark.parametrize("number", range(100, 108))
def test_of_another_commit(number):
    assert number < 0, f"played {number}"
"""


LAID_OUT = {
    name: (ROOT / "tests" / name).read_text()
    for name in ("conftest.py", "idle.py", "long.py", "minutes.py", "proof.py", "scopes.py", "share.py")
}


def lay_out(folder: Path) -> None:
    """A file beside our conftest."""
    place = folder / "tests"
    place.mkdir(exist_ok=True)
    for name, text in LAID_OUT.items():
        (place / name).write_text(text)
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (place / "test_probe.py").write_text(PROBE)


def run(folder: Path, seed: str | None, *more: str) -> str:
    """What pytest says of that file."""
    lay_out(folder)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DAYFLY_SHARE", "PYTEST"))}
    env |= {"DAYFLY_SHARE": seed} if seed else {}
    env["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *more]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True).stdout


def played(said: str) -> list[int]:
    return sorted({int(number) for number in re.findall(r"AssertionError: played (\d+)", said)})


@pytest.mark.slow
def test_a_find_is_told_with_what_plays_it_again(tmp_path: Path):
    """All workers play the same share; the command at the end finds the same again, and so does the seed."""
    said = run(tmp_path, "abcdef", "-n", "2")
    assert "share of what is exhaustive: abcdef (DAYFLY_SHARE=abcdef plays it again" in said
    found = [number for number in played(said) if number < 100]
    assert len(found) == 5
    assert "played the proof" not in said
    again = re.findall(r"DAYFLY_SHARE=(\S+) \S+ -m pytest '?(tests/test_probe.py::test_one\[\d+\])", said)
    assert len(again) == 5
    assert played(run(tmp_path, again[0][0], *(test for _, test in again))) == found


@pytest.mark.slow
def test_the_proof_is_played_on_request_alone(tmp_path: Path):
    said = run(tmp_path, "all")
    assert "share of what is exhaustive: everything" in said
    assert played(said) == [*range(40), *range(100, 108)]
    assert "played the proof" in said
    assert "1 passed" in run(tmp_path, "abcdef", "-m", "proof")


LONG_PROBE = """
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
def test_a_proof_goes_on_from_what_has_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In each of its workers."""
    monkeypatch.setenv("DAYFLY_CACHE", str(tmp_path / "cache"))
    lay_out(tmp_path)
    (tmp_path / "tests" / "test_long.py").write_text(LONG_PROBE)
    page, bad, log = tmp_path / "page.md", tmp_path / "bad", tmp_path / "log"
    page.write_text(f"{BEGIN}{END}")
    bad.touch()
    proof = ("-n", "2", "--proof-page", str(page), "tests/test_long.py")
    run(tmp_path, "all", *proof)
    assert "| numbers | 60 | **1 failed** |" in page.read_text()
    assert sorted(log.read_text().split()) == [*"012345"]
    bad.unlink()
    log.write_text("")
    assert "1 passed" in run(tmp_path, "all", *proof)
    assert log.read_text().split() == ["3"]
    assert len(list((tmp_path / "cache" / "proof").iterdir())) == 1
    assert "| numbers | 60 | nothing |" in page.read_text()


@pytest.mark.slow
def test_what_rotates_is_played_by_one_commit_in_so_many(tmp_path: Path):
    """Whatever else it plays; and always where it is asked for by its name."""
    seeds = dict.fromkeys(COMMITS[:40])
    mine = next(seed for seed in seeds if 100 in Share(seed).of(range(100, 108), 4, "tests of tests/test_probe.py"))
    assert [number for number in played(run(tmp_path, mine)) if number >= 100] == [100, 104]
    assert played(run(tmp_path, mine, "tests/test_probe.py::test_of_another_commit")) == [*range(100, 108)]


@pytest.mark.slow
def test_of_long_ones_each_commit_plays_some_that_take_as_long_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whatever their order in the file."""
    seconds = dict(zip(range(200, 208), (5, 1, 8, 2, 7, 3, 6, 4), strict=True))
    tests = "".join(f"def test_{number}():\n    assert number < 0, 'played {number}'\n" for number in seconds)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_long.py").write_text(f"number = 0\n{tests}")
    table = {f"tests/test_long.py::test_{number}": took for number, took in seconds.items()}
    monkeypatch.setitem(LAID_OUT, "long.py", f"{LAID_OUT['long.py']}\nPARTS, LONG = 4, {table}\n")
    pairs = set()
    for seed in COMMITS[:4]:
        mine = [seconds[number] for number in played(run(tmp_path, seed, "tests/")) if number >= 200]
        pairs.add(tuple(sorted(mine)))
    assert pairs <= {(1, 5), (2, 6), (3, 7), (4, 8)}
    assert len(pairs) > 1


@pytest.mark.slow
def test_the_commit_is_the_seed(tmp_path: Path):
    assert re.fullmatch(r"[0-9a-f]{12}", commit())
    assert "DAYFLY_SHARE=unversioned plays it again" in run(tmp_path, None)
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*GIT, *command], cwd=tmp_path, check=True)
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tmp_path, text=True)[:12]
    assert f"DAYFLY_SHARE={head} plays it again" in run(tmp_path, None)


def test_this_run_tells_its_processes_what_it_plays():
    assert os.environ["DAYFLY_SHARE"] == SHARE.seed


class Report:
    """As pytest's."""

    def __init__(self, nodeid: str, duration: float, processor: str, *, failed: bool = False) -> None:
        self.nodeid, self.duration, self.failed = nodeid, duration, failed
        self.user_properties = [("seconds of processor", processor), ("other", "text")]


def test_the_slowest_files_are_summed_up(pytestconfig: pytest.Config):
    """Over all their tests and phases, in whichever worker."""
    minutes = Minutes(pytestconfig)
    for number in range(12):
        for phase in (0.5, 1.0):
            minutes.pytest_runtest_logreport(Report(f"tests/a/test_{number}.py::test", number * phase, "0.25"))
    minutes.pytest_runtest_logreport(Report("tests/b/test_b.py::test[x y]", 100.0, "2", failed=True))
    head, *files, rooms = minutes.slowest()
    assert head == "slowest files, in seconds of 199 in all workers (and of a processor, of 8):"
    assert files[:2] == ["  100.0 (2.0)  tests/b/test_b.py", "   16.5 (0.5)  tests/a/test_11.py"]
    assert len(files) == 10
    assert rooms == "folders: tests/b 100 (2), tests/a 99 (6)"
    assert minutes.again() == [
        "to play it again:",
        f"    DAYFLY_SHARE={SHARE.seed} .venv/bin/python -m pytest 'tests/b/test_b.py::test[x y]'",
    ]


@pytest.mark.slow
def test_a_test_that_is_new_is_played_by_the_commits_that_follow(tmp_path: Path):
    lay_out(tmp_path)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*GIT, *command], cwd=tmp_path, check=True)
    assert [number for number in played(run(tmp_path, None)) if number >= 100] == [*range(100, 108)]
    seed = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tmp_path, text=True).strip()
    place = tmp_path / "tests" / "test_probe.py"
    for number in range(NEWEST):
        place.write_text(f"{PROBE}# {number}\n")
        subprocess.run([*GIT, "commit", "-q", "-a", "-m", "later"], cwd=tmp_path, check=True)
    assert len([number for number in played(run(tmp_path, None)) if number >= 100]) == 2
    assert [number for number in played(run(tmp_path, seed)) if number >= 100] == [*range(100, 108)]


def test_each_long_one_is_there():
    for name in LONG:
        file, *rest = name.split("::")
        words = set(re.findall(r"\w+", (ROOT / file).read_text()))
        assert words.issuperset({*rest} - {"runTest"}), f"{name} is not there any more: tests/long.py"
