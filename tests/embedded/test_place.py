"""The home stores the path of its work folder; after any kill of the server the file has a whole path or none."""

import errno
import fcntl
import hashlib
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.embedded.machine import work_of

from dayfly.execute.process import attempt_storage as process


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    yield home
    shutil.rmtree(work_of(home), ignore_errors=True)


@pytest.fixture
def shared(tmp_path):
    """A private folder instead of the shared memory, which hosts of other tests use."""
    (tmp_path / "shared").mkdir()
    return str(tmp_path / "shared")


def test_open_place_returns_the_same_place_each_time(home):
    first = process.open_storage(home)
    assert process.open_storage(home) == first
    assert Path(first.work) == work_of(home)
    folders = (first.work, first.logs, first.steps)
    assert {Path(each).stat().st_mode & 0o777 for each in folders} == {0o700}


@pytest.mark.parametrize("cut", ["", "dayfly-0", "."])
def test_a_memory_that_was_cut_short_names_no_folder(home, tmp_path, monkeypatch, cut):
    monkeypatch.chdir(tmp_path)
    (home / "place").write_text(cut)
    place = process.open_storage(home)
    assert work_of(home) == Path(place.work)
    process.remove_storage(place)
    assert [entry.name for entry in tmp_path.iterdir()] == ["home"]


def test_opening_a_known_place_writes_nothing(home, monkeypatch):
    """A server can start on a full disk."""
    before = process.open_storage(home)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert process.open_storage(home) == before


@pytest.mark.parametrize("number", range(2))
def test_note_survives_a_crash_during_its_write(home, monkeypatch, number):
    before = process.open_storage(home)
    replaced = []

    def die(draft, path):
        if len(replaced) == number:
            raise KeyboardInterrupt
        replaced.append(path)
        rename(draft, path)

    rename = os.replace
    for name in ("epoch", "home"):
        Path(before.work, name).unlink()
    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        process.open_storage(home)
    assert Path((home / "place").read_text()) == Path(before.work)
    monkeypatch.undo()
    after = process.open_storage(home)
    assert after.work == before.work
    assert after.ref != before.ref, "its epoch is lost, so its content proves nothing"


@pytest.mark.parametrize(
    ("flags", "free", "in_memory"),
    [(0, 64 << 20, True), (0, (64 << 20) - 1, False), (os.ST_NOEXEC, 1 << 30, False)],
)
def test_memory_is_used_if_it_has_room_and_allows_programs(home, monkeypatch, flags, free, in_memory):
    found = SimpleNamespace(f_flag=flags, f_bavail=free, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    before = {entry.name for entry in os.scandir("/dev/shm")}
    place = process.open_storage(home)
    assert (Path(place.work) != home / "attempts") is in_memory
    if not in_memory:
        own = f"dayfly-{os.geteuid()}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}"
        assert own not in before
        assert not Path("/dev/shm", own).exists(), "an unusable folder is not left behind"


@pytest.mark.parametrize("left", ["", "run.a.1", "cursor"])
def test_empty_place_is_removed(home, left):
    place = process.open_storage(home)
    if left:
        Path(place.work, left).mkdir()
    process.remove_storage(place)
    assert Path(place.work).exists() is bool(left)


def test_notes_last_as_long_as_the_place(home):
    place = process.open_storage(home)
    assert place.read_number("cursor") == 0
    place.write_number("cursor", 7)
    assert place.read_number("cursor") == 7
    shutil.rmtree(place.work)
    place.write_number("cursor", 8)
    assert (place.read_number("cursor"), Path(place.work).stat().st_mode & 0o777) == (8, 0o700)
    assert Path(place.work, "home").read_text() == str(home)
    assert process.open_storage(home).ref != place.ref, "the stored path is gone"


@pytest.mark.parametrize("rubbish", [b"", bytes(5), b"\xff", b"x", b"-7", b"7\n8", b"9" * 5_000])
def test_a_note_that_is_no_number_is_none(home, rubbish):
    """As after a crash of the machine: the path is chosen again, and the server starts."""
    place = process.open_storage(home)
    Path(place.work, "port").write_bytes(rubbish)
    assert place.read_number("port") == 0


@pytest.mark.parametrize(
    ("home_is_there", "held", "stays"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_place_of_a_deleted_home_is_removed_once_unused(shared, home, home_is_there, held, stays):
    place = process.open_storage(home, shared)
    attempt = Path(place.work, "run.a.1")
    attempt.mkdir()
    Path(attempt, "order").touch()
    if not home_is_there:
        shutil.rmtree(home)
    with Path(attempt, "lock").open("w") as lock:
        if held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        process.sweep_storage(shared)
    assert Path(place.work).exists() is stays
    shutil.rmtree(place.work, ignore_errors=True)
    home.mkdir(exist_ok=True)
    (home / "place").unlink(missing_ok=True)


def test_home_path_that_is_not_utf8_keeps_its_place(shared, tmp_path):
    home = tmp_path / os.fsdecode(b"caf\xe9")
    home.mkdir()
    place = process.open_storage(home, shared)
    process.sweep_storage(shared)
    assert Path(place.work).exists()
    assert process.open_storage(home, shared) == place


@pytest.mark.parametrize("how", ["others may write there", "it is a link"])
def test_work_folder_that_others_can_write_to_is_refused(home, tmp_path, how):
    """A user who can create a marker or receipt there could fake results."""
    place = process.open_storage(home)
    if how == "it is a link":
        shutil.rmtree(place.work)
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        Path(place.work).symlink_to(tmp_path / "elsewhere")
    else:
        Path(place.work).chmod(0o777)
    with pytest.raises(PermissionError, match="belongs to another user"):
        process.open_storage(home)
    if how == "it is a link":
        Path(place.work).unlink()
    else:
        Path(place.work).chmod(0o700)


def test_tests_remove_no_folder_but_dayflys_own(home):
    (home / "place").write_text("")
    with pytest.raises(AssertionError, match="place names"):
        work_of(home)
    (home / "place").unlink()


@pytest.mark.parametrize("moment", ["before it is checked", "before it is listed"])
def test_sweep_ignores_a_place_that_vanishes(home, monkeypatch, moment):
    """Servers of two homes, one of which ends while the other starts and cleans up."""
    other = process.open_storage(home)
    owner, look = (os, "lstat") if moment == "before it is checked" else (os, "scandir")
    real = getattr(owner, look)

    def leaving(path, **more):
        if path == other.work:
            monkeypatch.undo()
            shutil.rmtree(path)
        return real(path, **more)

    monkeypatch.setattr(owner, look, leaving)
    process.sweep_storage()
    assert not Path(other.work).exists()


def test_sweep_ignores_a_place_that_cannot_be_removed(shared, home, monkeypatch):
    """A process has its working directory in the folder, or something is mounted there."""

    def busy(path, **_):
        raise OSError(errno.EBUSY, "in use", path)

    place = process.open_storage(home, shared)
    shutil.rmtree(home)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", busy)
        process.sweep_storage(shared)
    assert Path(place.work).exists()
    shutil.rmtree(place.work)
    home.mkdir()


def test_sweep_keeps_the_place_of_an_unreachable_home(shared, home, monkeypatch):
    """The path is on a file server that is down, or in a folder without access."""

    def away(path):
        raise OSError(errno.ENOTCONN, "away", path)

    place = process.open_storage(home, shared)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_dir", away)
        process.sweep_storage(shared)
    assert Path(place.work).exists()


def test_disk_is_used_without_shared_memory(home, tmp_path):
    """As in a container with `--ipc=none`."""
    shared = str(tmp_path / "none")
    assert process.open_storage(home, shared).work == str(home / "attempts")
    process.sweep_storage(shared)
