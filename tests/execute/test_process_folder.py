"""The folder of an attempt: the first link of the marker wins."""

import errno
import fcntl
import functools
import hashlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.render import declared_paths, private_directories, usual_folders
from dayfly.execute.process.run import (
    MARGIN_MS,
    AttemptFolder,
    delete_logs,
    list_attempts,
    list_logs,
)
from dayfly.plan.world import Ended, NeverRan, Running, Stalled, Unclear
from dayfly.spec.lifecycle import As, Unit, UnitInput, UnitOutput, UnitTimeouts
from dayfly.spec.run import State, UnitRecord


@pytest.fixture
def place(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir(mode=0o700)
    return AttemptStorage(
        str(tmp_path / "work"), str(tmp_path / "home" / "logs"), "boot", "boot 1", str(tmp_path / "steps")
    )


@pytest.fixture
def folder(place):
    return AttemptFolder(place, "run", "a", 1)


def test_fenced_attempt_stays_fenced(folder):
    assert folder.fence()
    assert folder.fence()
    assert Path(folder.path, "marker").read_bytes() == b"void\n"
    record = UnitRecord(attempt=1, state=State.CLAIMED, ref="boot 1", claimed_at=3)
    fact = folder.observe(record, unit=Unit(name="a", kind="exec"), nonce="n", now=9)
    assert isinstance(fact, NeverRan)
    assert fact.reason == "NeverRan"


@pytest.mark.parametrize("fault", [0, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_order_leaves_a_trace_until_release_on_any_disk(folder, monkeypatch, fault):
    def refuse(*_):
        raise OSError(fault, "no second name")

    if fault:
        monkeypatch.setattr("os.link", refuse)
    traces = Path(folder.logs).parent / ".begun"
    folder.write_order(b"order")
    assert "run.a.1" in {entry.name for entry in traces.iterdir()}
    Path(folder.path, "order").unlink()
    assert folder.release()
    assert "run.a.1" not in {entry.name for entry in traces.iterdir()}


def test_started_attempt_is_not_fenced(folder):
    Path(folder.path).mkdir()
    Path(folder.path, "marker").write_bytes(b"started\n7\n8\nboot\n")
    assert not folder.fence()
    assert Path(folder.path, "marker").read_bytes().startswith(b"started")
    assert [entry.name for entry in Path(folder.path).iterdir()] == ["marker"]


def test_altered_output_bytes_are_rejected(folder):
    """A user has changed the bytes, or the disk has lost them. No other value than the step's is returned."""
    Path(folder.path).mkdir()
    Path(folder.path, "out.url").write_bytes(b"db://1")
    sealed = f"sha256:{hashlib.sha256(b'db://1').hexdigest()}"
    assert folder.read_output("url", sealed) == b"db://1"
    Path(folder.path, "out.url").write_bytes(b"db://2")
    with pytest.raises(ValueError, match="output url differ"):
        folder.read_output("url", sealed)
    Path(folder.path, "out.url").unlink()
    with pytest.raises(ValueError, match="output url differ"):
        folder.read_output("url", sealed)


def begun(folder, *, first="0", boot="boot", began=""):
    """Return the folder of a started attempt with this process as its runner."""
    Path(folder.path).mkdir()
    marker = ["started", str(os.getpid()), str(first), boot, "5", "", *([began] if began else [])]
    Path(folder.path, "marker").write_text("\n".join(marker))
    return folder


@pytest.fixture
def lock(folder):
    """Create the lock file without a lock."""
    Path(folder.path).mkdir(exist_ok=True)
    with Path(folder.path, "lock").open("w") as file:
        yield file


def ticks(pid):
    """Return the start time of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


@pytest.fixture
def child():
    """A process that waits until it is killed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_step_with_a_living_first_process_is_locked(folder, child):
    """The kernel releases the lock of a killed runner before it has ended the other processes."""
    assert begun(folder, first=child.pid, began=ticks(child.pid)).is_locked()


@pytest.mark.parametrize(
    "said",
    [
        {"began": "1"},  # the process ID was reused
        {"boot": "an earlier one"},
        {"began": ""},  # an older runner
        {"first": "0"},
    ],
)
def test_step_without_its_first_process_is_not_locked(folder, child, said):
    assert not begun(folder, **{"first": child.pid, "began": ticks(child.pid)} | said).is_locked()


@pytest.mark.parametrize("first", ["self", "0/../self", "-1", "\0"])
def test_first_process_is_identified_by_number_and_start(folder, first):
    """A step can change the marker."""
    assert not begun(folder, first=first, began=ticks("self")).is_locked()


def test_zombie_first_process_counts_as_ended(folder):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        began = ticks(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        assert not begun(folder, first=process.pid, began=began).is_locked()


def test_lock_holder_can_be_watched(folder, lock):
    begun_here(folder)
    assert folder.open_runner_pidfd() is None, "no process holds the lock"
    fcntl.flock(lock, fcntl.LOCK_EX)
    descriptor = folder.open_runner_pidfd()
    assert descriptor is not None
    os.close(descriptor)


@pytest.mark.parametrize(
    ("told", "since"), [("5", 5), ("", 3), ("0", 3), ("soon", 3), ("-1", 3), ("٣", 3), ("9" * 5000, 3)]
)
def test_start_is_from_the_marker_or_the_claim(folder, lock, told, since):
    Path(folder.path, "marker").write_text(f"started\n{os.getpid()}\n0\nboot\n{told}\n")
    fcntl.flock(lock, fcntl.LOCK_EX)
    record = UnitRecord(attempt=1, state=State.CLAIMED, ref="boot 1", claimed_at=3)
    fact = folder.observe(record, unit=Unit(name="a", kind="exec"), nonce="n", now=9)
    assert fact == Running(since=since)


@pytest.mark.parametrize("marker", ["started", "started\n7\n8\n", "started\n\n../../etc\nboot\n\n\n1\n"])
def test_damaged_marker_counts_as_started(folder, lock, marker):
    Path(folder.path, "marker").write_text(marker)
    record = UnitRecord(attempt=1, state=State.CLAIMED, ref="boot 1", claimed_at=3)
    look = functools.partial(folder.observe, record, unit=Unit(name="a", kind="exec"), nonce="n", now=9)
    assert isinstance(look(), Ended)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert look() == Running(since=3)


def begun_here(folder, runner=None, word="started"):
    Path(folder.path, "marker").write_text(f"{word}\n{runner or os.getpid()}\n0\nboot\n5\n")


def descriptors():
    """Return the number of open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("runner", ["", "none", "4194305", "1", "-1", "0", "9" * 30, "\u0661", " 1"])
def test_process_without_the_lock_is_not_watched(folder, lock, runner):
    """The process ID of an ended runner may have been reused."""
    before = descriptors()
    begun_here(folder, runner or os.getppid())
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert folder.open_runner_pidfd() is None
    assert descriptors() == before


def test_failed_watch_leaves_no_descriptor_open(folder, lock, monkeypatch):
    begun_here(folder)
    before = descriptors()

    def locked():
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(folder, "is_locked", locked)
    with pytest.raises(OSError, match="too many"):
        folder.open_runner_pidfd()
    assert descriptors() == before


def test_void_attempt_is_not_watched(folder, lock):
    begun_here(folder, word="void")
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert folder.open_runner_pidfd() is None


def test_unreadable_process_is_watched_as_the_noted_runner(folder, lock, monkeypatch):
    def refuse(path):
        raise PermissionError(path)

    begun_here(folder)
    fcntl.flock(lock, fcntl.LOCK_EX)
    monkeypatch.setattr(os, "listdir", refuse)
    descriptor = folder.open_runner_pidfd()
    assert descriptor is not None
    os.close(descriptor)


def test_only_lock_holders_are_killed(folder, lock, child):
    folder.kill_holders()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[lock.fileno()]) as holder:
        folder.kill_holders()
        assert holder.wait() == -signal.SIGKILL
    assert child.poll() is None
    Path(folder.path, "lock").unlink()
    folder.kill_holders()


def test_uninspectable_process_raises_an_error(folder, lock, monkeypatch):
    """Without a free descriptor, the holder may be missed."""
    listed = os.listdir

    def refuse(path):
        if str(path) == f"/proc/{os.getppid()}/fd":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return listed(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        folder.kill_holders()


def test_folder_is_released_with_its_files_once_unlocked(folder, lock):
    for name in ("order", "marker", "out.url"):
        Path(folder.path, name).touch()
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert not folder.release()
    assert len(list(Path(folder.path).iterdir())) == 4
    fcntl.flock(lock, fcntl.LOCK_UN)
    assert folder.release()
    assert not folder.exists()
    assert folder.release()


def test_folders_made_by_the_step_are_cleared_separately(folder, tmp_path):
    """Folders may be large, so the caller decides when to remove them."""
    kept = tmp_path / "kept"
    kept.mkdir()
    locked = Path(folder.path, "made", "locked")
    locked.mkdir(parents=True)
    locked.joinpath("module").touch()
    locked.chmod(0o500)
    Path(folder.path, "link").symlink_to(kept)
    with pytest.raises(IsADirectoryError):
        folder.release()
    folder.clear()
    assert folder.release()
    assert (folder.exists(), kept.exists()) == (False, True)


@pytest.mark.parametrize("name", ["make", "db/make", "fork:shop/app", "db/make.it"])
def test_folders_and_logs_name_their_units(folder, place, name):
    one = AttemptFolder(place, "run", name, 12)
    one.write_order(b"order")
    one.append_log_line("nothing")
    Path(place.steps).mkdir()
    Path(place.logs, "run", "notes.txt").touch()
    Path(place.work, "epoch").touch()
    assert list_attempts(place) == [("run", name, 12)]
    assert list_logs(place, "run") == [(name, 12)]
    assert (one.log_size(), one.read_log(1, 6)) == (18, b"dayfly")
    assert list_logs(place, "other") == []
    assert (folder.log_size(), folder.read_log(0, 1)) == (None, None)
    delete_logs(place, "run")
    assert list_logs(place, "run") == []


def test_files_of_a_step_are_private(folder, place):
    folder.write_order(b"secret")
    folder.append_log_line("nothing")
    folder.fence()
    assert {Path(each).stat().st_mode & 0o777 for each in (folder.path, place.logs, folder.logs)} == {0o700}
    files = (f"{folder.path}/order", f"{folder.path}/marker", folder.log)
    assert {Path(each).stat().st_mode & 0o777 for each in files} == {0o600}
    with pytest.raises(FileExistsError):
        folder.write_order(b"another")


@pytest.mark.parametrize(("number", "kept"), [(20, [1, 2, 20]), (21, [2, 21])])
def test_newest_logs_of_a_unit_are_kept(place, number, kept):
    for unit, each in (("a", 1), ("a", 2), ("other", 1)):
        AttemptFolder(place, "run", unit, each).append_log_line("nothing")
    newest = AttemptFolder(place, "run", "a", number)
    newest.append_log_line("it begins")
    newest.drop_older_logs()
    assert [each for unit, each in list_logs(place, "run") if unit == "a"] == kept
    assert ("other", 1) in list_logs(place, "run")
    said = newest.read_log(0, 1_000).decode().splitlines()
    gone = "[dayfly: the last 20 logs are kept; logs before attempt 2 are deleted]"
    assert said == ["[dayfly: it begins]", *([gone] if number > 20 else [])]


def test_private_directories_are_declared_and_usual_paths(tmp_path):
    (tmp_path / "there").mkdir()
    declared = Unit(
        name="a",
        kind="exec",
        inputs=(
            UnitInput(name="i", value="1", as_=As(path=f"{tmp_path}/there/deep/er/in")),
            UnitInput(name="e", value="1"),
        ),
        outputs=(UnitOutput(name="o", path=f"{tmp_path}/out"), UnitOutput(name="p", path="/tmp/out")),
    )
    assert private_directories(declared) == tuple(sorted({f"{tmp_path}/there", str(tmp_path), "/tmp", "/var/tmp"}))
    assert declared_paths(declared) == {f"{tmp_path}/there/deep/er/in", f"{tmp_path}/out", "/tmp/out"}


class TestObserving:
    """Facts of attempts that are alive according to the ledger, after files were removed."""

    UNIT = Unit(name="a", kind="exec", timeouts=UnitTimeouts(schedule_ms=1, pull_ms=20, run_ms=300, grace_ms=4_000))
    HERE = "boot 1"

    def seen(self, folder, ref=HERE, **more):
        record = UnitRecord(attempt=1, state=State.CLAIMED, ref=ref, claimed_at=3, **more)
        return folder.observe(record, unit=self.UNIT, nonce="n", now=9)

    def left(self, folder, *what):
        """Create the remaining files of a removed folder."""
        folder.write_order(b"order")
        if "folder" not in what:
            shutil.rmtree(folder.path)
        if "trace" not in what:
            shutil.rmtree(Path(folder.logs).parent / ".begun")
        if "log" in what:
            folder.append_log_line("begun")

    def test_step_has_ended_after_a_reboot(self, folder):
        fact = self.seen(folder, "another 1")
        assert isinstance(fact, Unclear)
        assert (fact.reason, fact.since, fact.dead_by) == ("MachineRestarted", 3, 9)

    @pytest.mark.parametrize("what", [(), ("folder", "trace"), ("folder", "trace", "log")])
    def test_attempt_without_marker_or_removal_is_stalled(self, folder, what):
        if what:
            self.left(folder, *what)
        assert self.seen(folder) == Stalled(since=3)

    @pytest.mark.parametrize("what", [("trace",), ("log",), ("trace", "log")])
    def test_attempt_with_a_removed_folder_is_unclear_until_its_end(self, folder, what):
        """The step has certainly ended after its deadline."""
        self.left(folder, *what)
        fact = self.seen(folder)
        assert isinstance(fact, Unclear)
        assert (fact.reason, fact.since, fact.dead_by) == ("FolderLost", 3, 3 + 1 + 20 + 300 + 4_000 + MARGIN_MS)

    def test_removed_work_folder_makes_attempts_unclear(self, folder):
        """The work folder is not the one in which it was claimed."""
        assert self.seen(folder, "boot 2").reason == "FolderLost"

    def test_kept_attempt_with_a_removed_folder_is_stalled(self, folder):
        self.left(folder, "trace")
        assert self.seen(folder, generation="g") == Stalled(since=3)

    def test_started_attempt_without_receipt_is_lost(self, folder, lock):
        begun_here(folder)
        fact = self.seen(folder)
        assert isinstance(fact, Ended)
        assert (fact.result.reason, fact.result.message) == ("ResultLost", "its runner ended without a receipt")
        assert (fact.result.started_at, fact.result.ended_at) == (3, 9)

    def test_receipt_written_before_the_unlock_is_found(self, folder, lock, monkeypatch):
        begun_here(folder)

        def sealed():
            Path(folder.path, "receipt").write_bytes(b"cut")
            return False

        monkeypatch.setattr(folder, "is_locked", sealed)
        assert self.seen(folder).result.message != "its runner ended without a receipt"


def test_usual_folders_are_those_that_exist(monkeypatch):
    for there in ({"/tmp", "/var/tmp"}, {"/tmp"}):
        monkeypatch.setattr("os.path.isdir", there.__contains__)
        assert set(usual_folders()) == there
