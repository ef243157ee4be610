"""Folders in which steps begin: one that a step has touched in any way is nobody else's."""

import errno
import os
from pathlib import Path

import pytest

from dayfly.execute.process.attempt_folders import Beginnings, clear
from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.run import Folder


@pytest.fixture
def place(tmp_path):
    (tmp_path / "steps").mkdir()
    return AttemptStorage(str(tmp_path), str(tmp_path / "logs"), "boot", "boot 1", str(tmp_path / "steps"))


@pytest.fixture
def beginnings(place):
    return Beginnings(place)


def attempt(place, number):
    return Folder(place, "run", "r/a", number)


def inode(path):
    return Path(path).stat().st_ino


def steps(place):
    return sorted(entry.name for entry in Path(place.steps).iterdir())


def test_one_that_was_not_touched_is_the_next_ones(place, beginnings):
    first = inode(beginnings.make(attempt(place, 1)))
    assert beginnings.leave(attempt(place, 1), again=True)
    assert not Path(attempt(place, 1).begins).exists()
    again = beginnings.make(attempt(place, 2))
    assert again == attempt(place, 2).begins
    assert inode(again) == first
    assert inode(beginnings.make(attempt(place, 3))) != first, "that one is at work"


def test_all_that_were_not_touched_wait_for_the_next(place, beginnings):
    first = {inode(beginnings.make(attempt(place, number))) for number in (1, 2)}
    for number in (1, 2):
        assert beginnings.leave(attempt(place, number), again=True)
    assert len(steps(place)) == 2
    assert {inode(beginnings.make(attempt(place, number))) for number in (3, 4)} == first


def test_they_are_nobody_elses_even_where_their_folder_is_made_anew(place, beginnings):
    Path(place.steps).rmdir()
    path = Path(beginnings.make(attempt(place, 1)))
    assert {each.stat().st_mode & 0o777 for each in (path, path.parent)} == {0o700}


def test_no_more_wait_than_a_few_steps_at_once_could_use(place, beginnings):
    for number in range(1, 67):
        beginnings.make(attempt(place, number))
    for number in range(1, 67):
        assert beginnings.leave(attempt(place, number), again=True)
    assert len(steps(place)) == 64


def test_one_that_is_gone_already_is_no_trouble(place, beginnings):
    Path(beginnings.make(attempt(place, 1))).rmdir()
    assert beginnings.leave(attempt(place, 1), again=True)
    assert beginnings.leave(attempt(place, 2), again=False)
    assert steps(place) == []


def come_and_gone(path):
    (path / "file").touch()
    (path / "file").unlink()


@pytest.mark.parametrize(
    "touch",
    [
        come_and_gone,
        lambda path: path.chmod(0o755),
        lambda path: os.utime(path, (1, 1)),
        lambda path: (path.rmdir(), path.mkdir(mode=0o700)),
    ],
    ids=["an entry come and gone", "its mode", "its times", "another in its place"],
)
def test_one_that_was_touched_goes(place, beginnings, touch):
    path = Path(beginnings.make(attempt(place, 1)))
    before = path.stat().st_ctime_ns
    # Times of files stand still for some milliseconds on older kernels.
    while path.stat().st_ctime_ns == before:
        touch(path)
    assert beginnings.leave(attempt(place, 1), again=True)
    assert steps(place) == []


def test_one_in_which_something_was_left_is_told(place, beginnings):
    (Path(beginnings.make(attempt(place, 1))) / "file").touch()
    assert not beginnings.leave(attempt(place, 1), again=True)
    assert steps(place) == ["run.r.a.1"]


@pytest.mark.parametrize("again", [True, False])
def test_one_that_cannot_be_removed_is_told(place, beginnings, monkeypatch, again):
    """A step may have mounted something there."""

    def refuse(*_):
        raise OSError(errno.EBUSY, "busy")

    beginnings.make(attempt(place, 1))
    monkeypatch.setattr("os.rmdir", refuse)
    monkeypatch.setattr("os.rename", refuse)
    assert not beginnings.leave(attempt(place, 1), again=again)
    monkeypatch.undo()
    assert steps(place) == ["run.r.a.1"]


def test_one_whose_step_may_have_left_a_process_goes(place, beginnings):
    beginnings.make(attempt(place, 1))
    assert beginnings.leave(attempt(place, 1), again=False)
    assert steps(place) == []


def test_one_of_which_another_server_knew_goes(place, beginnings):
    beginnings.make(attempt(place, 1))
    assert Beginnings(place).leave(attempt(place, 1), again=True)
    assert steps(place) == []


def test_one_that_is_there_already_is_left_to_whoever_may_be_at_work_in_it(place, beginnings):
    beginnings.make(attempt(place, 1))
    beginnings.leave(attempt(place, 1), again=True)
    Path(attempt(place, 2).begins).mkdir()
    there = inode(attempt(place, 2).begins)
    assert inode(beginnings.make(attempt(place, 2))) == there


def test_spare_ones_go_with_the_server_and_those_of_a_killed_one_with_the_next(place, beginnings):
    for last in (beginnings.close, lambda: Beginnings(place)):
        beginnings.make(attempt(place, 1))
        beginnings.leave(attempt(place, 1), again=True)
        assert len(steps(place)) == 1
        last()
        assert steps(place) == []


def test_a_spare_one_that_somebody_removed_is_made_anew(place, beginnings):
    beginnings.make(attempt(place, 1))
    beginnings.leave(attempt(place, 1), again=True)
    for name in steps(place):
        (Path(place.steps) / name).rmdir()
    assert Path(beginnings.make(attempt(place, 2))).is_dir()


def test_what_is_in_one_goes_however_deep_it_is(place, beginnings):
    """As of a script whose loop makes a folder and enters it, and does not end."""
    path = beginnings.make(attempt(place, 1))
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(2_500):  # deeper than calls go, and than a path can be long
        os.mkdir("in", dir_fd=descriptor)
        inner = os.open("in", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=descriptor))
    os.close(descriptor)
    clear(attempt(place, 1))
    assert steps(place) == []
