"""Working directories of steps: a folder that a step has changed is not reused."""

import errno
import os
from pathlib import Path

import pytest

from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.run import AttemptFolder
from dayfly.execute.process.step_folders import StepFolders, clear_step_folder


@pytest.fixture
def place(tmp_path):
    (tmp_path / "steps").mkdir()
    return AttemptStorage(str(tmp_path), str(tmp_path / "logs"), "boot", "boot 1", str(tmp_path / "steps"))


@pytest.fixture
def beginnings(place):
    return StepFolders(place)


def attempt(place, number):
    return AttemptFolder(place, "run", "r/a", number)


def inode(path):
    return Path(path).stat().st_ino


def steps(place):
    return sorted(entry.name for entry in Path(place.steps).iterdir())


def test_untouched_start_folder_is_reused(place, beginnings):
    first = inode(beginnings.make(attempt(place, 1)))
    assert beginnings.remove(attempt(place, 1), can_reuse=True)
    assert not Path(attempt(place, 1).step_folder).exists()
    again = beginnings.make(attempt(place, 2))
    assert again == attempt(place, 2).step_folder
    assert inode(again) == first
    assert inode(beginnings.make(attempt(place, 3))) != first, "that step is running"


def test_untouched_start_folders_become_spare(place, beginnings):
    first = {inode(beginnings.make(attempt(place, number))) for number in (1, 2)}
    for number in (1, 2):
        assert beginnings.remove(attempt(place, number), can_reuse=True)
    assert len(steps(place)) == 2
    assert {inode(beginnings.make(attempt(place, number))) for number in (3, 4)} == first


def test_start_folders_have_mode_0700_after_recreation(place, beginnings):
    Path(place.steps).rmdir()
    path = Path(beginnings.make(attempt(place, 1)))
    assert {each.stat().st_mode & 0o777 for each in (path, path.parent)} == {0o700}


def test_number_of_spare_start_folders_is_limited(place, beginnings):
    for number in range(1, 67):
        beginnings.make(attempt(place, number))
    for number in range(1, 67):
        assert beginnings.remove(attempt(place, number), can_reuse=True)
    assert len(steps(place)) == 64


def test_missing_start_folder_is_ignored(place, beginnings):
    Path(beginnings.make(attempt(place, 1))).rmdir()
    assert beginnings.remove(attempt(place, 1), can_reuse=True)
    assert beginnings.remove(attempt(place, 2), can_reuse=False)
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
def test_touched_start_folder_is_removed(place, beginnings, touch):
    path = Path(beginnings.make(attempt(place, 1)))
    before = path.stat().st_ctime_ns
    # On older kernels, file times have a resolution of some milliseconds.
    while path.stat().st_ctime_ns == before:
        touch(path)
    assert beginnings.remove(attempt(place, 1), can_reuse=True)
    assert steps(place) == []


def test_start_folder_with_content_is_reported(place, beginnings):
    (Path(beginnings.make(attempt(place, 1))) / "file").touch()
    assert not beginnings.remove(attempt(place, 1), can_reuse=True)
    assert steps(place) == ["run.r.a.1"]


@pytest.mark.parametrize("again", [True, False])
def test_unremovable_start_folder_is_reported(place, beginnings, monkeypatch, again):
    """A step may have mounted something there."""

    def refuse(*_):
        raise OSError(errno.EBUSY, "busy")

    beginnings.make(attempt(place, 1))
    monkeypatch.setattr("os.rmdir", refuse)
    monkeypatch.setattr("os.rename", refuse)
    assert not beginnings.remove(attempt(place, 1), can_reuse=again)
    monkeypatch.undo()
    assert steps(place) == ["run.r.a.1"]


def test_start_folder_of_a_step_with_processes_is_removed(place, beginnings):
    beginnings.make(attempt(place, 1))
    assert beginnings.remove(attempt(place, 1), can_reuse=False)
    assert steps(place) == []


def test_start_folder_of_another_server_is_removed(place, beginnings):
    beginnings.make(attempt(place, 1))
    assert StepFolders(place).remove(attempt(place, 1), can_reuse=True)
    assert steps(place) == []


def test_existing_start_folder_is_kept_for_its_step(place, beginnings):
    beginnings.make(attempt(place, 1))
    beginnings.remove(attempt(place, 1), can_reuse=True)
    Path(attempt(place, 2).step_folder).mkdir()
    there = inode(attempt(place, 2).step_folder)
    assert inode(beginnings.make(attempt(place, 2))) == there


def test_spare_start_folders_are_removed_on_close_or_next_start(place, beginnings):
    for last in (beginnings.close, lambda: StepFolders(place)):
        beginnings.make(attempt(place, 1))
        beginnings.remove(attempt(place, 1), can_reuse=True)
        assert len(steps(place)) == 1
        last()
        assert steps(place) == []


def test_missing_spare_start_folder_is_made_again(place, beginnings):
    beginnings.make(attempt(place, 1))
    beginnings.remove(attempt(place, 1), can_reuse=True)
    for name in steps(place):
        (Path(place.steps) / name).rmdir()
    assert Path(beginnings.make(attempt(place, 2))).is_dir()


def test_deeply_nested_content_is_removed(place, beginnings):
    """For example a script with an endless loop that creates and enters a folder."""
    path = beginnings.make(attempt(place, 1))
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(2_500):  # deeper than the recursion limit and the maximum path length
        os.mkdir("in", dir_fd=descriptor)
        inner = os.open("in", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=descriptor))
    os.close(descriptor)
    clear_step_folder(attempt(place, 1))
    assert steps(place) == []
