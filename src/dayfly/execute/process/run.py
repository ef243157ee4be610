"""The folder of an attempt, through which its processes are started, fenced, observed and cancelled."""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import signal

from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.files import create_file, is_locked, private, read_file, remove_tree
from dayfly.execute.process.log_times import LogTimes, entry_now
from dayfly.execute.process.processes import has_open, state_and_start
from dayfly.execute.receipt import lost_receipt, read_receipt
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, NeverRan, Running, Stalled, Unclear
from dayfly.spec.lifecycle import Unit
from dayfly.spec.run import UnitRecord

AttemptFact = Ended | NeverRan | Running | Stalled | Unclear
# Maximum time between a deadline of the runner and the end of the last process that it kills.
MARGIN_MS = 60_000
# Number of logs that are kept for each unit, so that endless retries do not fill the disk.
KEPT_LOGS = 20
# The line of the marker with the start time of the step's first process; markers of older runners lack it.
_START_LINE = 6
_PROCESS = re.compile("[1-9][0-9]{0,8}")
_UNIX_MS = re.compile("[1-9][0-9]{0,14}")
_FOLDER = re.compile(r"(?P<run>[^.]+)\.(?P<unit>.+)\.(?P<number>[1-9][0-9]*)")
_RUN = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOG = re.compile(r"(?P<unit>[^.].*)\.(?P<number>[1-9][0-9]*)\.log")


class AttemptFolder:
    """The folder of one attempt. Its name is derived from the attempt, so no index is needed."""

    def __init__(self, place: AttemptStorage, run: str, unit: str, number: int) -> None:
        self._name = f"{slug(unit)}.{number}"
        self.path = f"{place.work}/{run}.{self._name}"
        self._place = place
        self._run, self._unit, self._number = run, unit, number

    @property
    def logs(self) -> str:
        """The folder of the run's logs."""
        return f"{self._place.logs}/{self._run}"

    @property
    def log(self) -> str:
        """The attempt's log, if it has printed anything."""
        return f"{self._place.logs}/{self._run}/{self._name}.log"

    @property
    def times(self) -> str:
        """The print times of the log, if they were recorded."""
        return f"{self._place.logs}/{self._run}/{self._name}.times"

    @property
    def step_folder(self) -> str:
        """The working directory of the step."""
        return f"{self._place.steps}/{self._run}.{self._name}"

    @property
    def starter_output(self) -> str:
        """The output of the starter, if it has printed anything."""
        return f"{self.path}/said"

    @property
    def _existence_mark(self) -> str:
        """File that proves that the folder existed. It is on disk, so it survives a removal of the work folder."""
        return f"{self._place.existence_marks}/{self._run}.{self._name}"

    def write_order(self, order: bytes) -> None:
        """Create the folder with its work order.

        Raises:
            OSError: The write failed. Nothing can start from an incomplete order.
        """
        self._create()
        self._mark_existence()
        create_file(f"{self.path}/order", order)

    def exists(self) -> bool:
        """Return whether the folder exists."""
        return os.path.isdir(self.path)

    def append_log_line(self, sentence: str) -> None:
        """Append a line of Dayfly to the log, before the step starts."""
        self.make_logs()
        with open(self.log, "ab", opener=private) as file, open(self.times, "ab", opener=private) as times:
            times.write(entry_now(file.tell()))  # reaches the disk first, because it is closed first
            file.write(f"[dayfly: {sentence}]\n".encode())

    def drop_older_logs(self) -> None:
        """Delete old logs of the unit, and record that in this attempt's log."""
        kept = kept_logs(self._number)
        if kept.start <= 1:
            return
        for unit, number in list_logs(self._place, self._run):
            if unit == self._unit and number not in kept:
                old = AttemptFolder(self._place, self._run, unit, number)
                for path in (old.log, old.times):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
        self.append_log_line(f"the last {KEPT_LOGS} logs are kept; logs before attempt {kept.start} are deleted")

    def starter_error(self) -> str:
        """Return the last line of the starter's output, usually its error; empty if there is none."""
        lines = read_file(self.starter_output).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def fence(self) -> bool:
        """Link a marker `void`; return false if the step's marker exists. After true, the step can never start."""
        self._create()
        draft = f"{self.path}/void.tmp"
        with open(draft, "wb", opener=private) as file:
            file.write(b"void\n")
        try:
            os.link(draft, f"{self.path}/marker")
        except FileExistsError:
            return read_file(f"{self.path}/marker").startswith(b"void")
        finally:
            os.unlink(draft)
        return True

    def _create(self) -> None:
        self._place.ensure_exists()
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)

    def _mark_existence(self) -> None:
        with contextlib.suppress(FileExistsError):
            try:
                self._link_mark()
            except FileNotFoundError:
                _create_folders(self._place.logs, self._place.existence_marks)
                os.close(private(f"{self._place.existence_marks}/none", os.O_WRONLY | os.O_CREAT))
                self._link_mark()

    def _link_mark(self) -> None:
        """Hard-link one empty file, which is faster than creating a file, if the file system supports it."""
        try:
            os.link(f"{self._place.existence_marks}/none", self._existence_mark)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            create_file(self._existence_mark, b"")

    def make_logs(self) -> None:
        """Create the folder of the run's logs. A runner outside of a container creates it together with its log."""
        _create_folders(self._place.logs, self.logs)

    def observe(self, record: UnitRecord, *, unit: Unit, nonce: str, now: int) -> AttemptFact:
        """Return a fact on an attempt that is alive according to the ledger, also if an earlier server started it."""
        for _ in range(2):
            if data := read_file(f"{self.path}/receipt"):
                return read_receipt(data, nonce=nonce, unit=unit)
            marker = self._marker()
            if marker[0] == "void":
                return NeverRan(reason=Reason.NEVER_RAN, message="it was fenced before it started")
            if marker[0] != "started":
                return self._unmarked_fact(record, unit, now)
            if self.is_locked():
                since = "".join(marker[4:5])  # a step can change this file
                return Running(since=int(since) if _UNIX_MS.fullmatch(since) else record.claimed_at)
            # The receipt is written before the lock is released: read it once more.
        return lost_receipt("its runner ended without a receipt", started_at=record.claimed_at, ended_at=now)

    def _unmarked_fact(self, record: UnitRecord, unit: Unit, now: int) -> AttemptFact:
        if record.ref.split()[0] != self._place.boot:
            message = "the machine was restarted, so the step has ended"
            return Unclear(since=record.claimed_at, reason=Reason.MACHINE_RESTARTED, message=message, dead_by=now)
        # Dayfly creates and removes the folder before its mark. So a mark or a log without a folder means that someone
        # else removed the folder.
        has_existed = os.path.lexists(self._existence_mark) or self.log_size() is not None
        was_removed = not record.is_kept and not self.exists() and has_existed
        if record.ref == self._place.ref and not was_removed:
            return Stalled(since=record.claimed_at)
        return self.removed_fact(record, unit)

    def removed_fact(self, record: UnitRecord, unit: Unit) -> Unclear:
        """Return the fact for an attempt whose folder is gone: it may be running until its deadline."""
        limits = unit.timeouts
        start = record.claimed_at + limits.schedule_ms + limits.pull_ms
        return Unclear(
            since=record.claimed_at,
            reason=Reason.FOLDER_LOST,
            message="its folder was removed while it may have been running",
            dead_by=start + limits.run_ms + limits.grace_ms + MARGIN_MS,
        )

    def is_locked(self) -> bool:
        """Return whether any process of the step may still run."""
        return is_locked(f"{self.path}/lock") or self._is_dying()

    def _is_dying(self) -> bool:
        """Return whether the step's first process exists. With a free lock this means that it is being killed.

        It releases the lock before the kernel kills processes of its namespace that have closed the lock. It is dead
        only after them (`do_exit` in Linux calls `exit_files` before `exit_notify`).
        """
        marker = self._marker()
        if len(marker) < _START_LINE + 1 or marker[3] != self._place.boot or not _PROCESS.fullmatch(marker[2]):
            return False
        state, start = state_and_start(marker[2])
        return state not in ("", "Z", "X") and start == marker[_START_LINE]

    def _marker(self) -> list[str]:
        return read_file(f"{self.path}/marker").decode(errors="replace").split("\n")

    def open_runner_pidfd(self) -> int | None:
        """Return a pidfd of the runner that holds the lock, readable once it has ended; None if there is none."""
        marker = self._marker()
        if marker[0] != "started" or not _PROCESS.fullmatch("".join(marker[1:2])):
            return None
        try:
            descriptor = os.pidfd_open(int(marker[1]))
        except ProcessLookupError:
            return None
        try:
            # The process ID may have been reused: the runner is the process with the lock file open.
            is_runner = self.is_locked() and self._is_holder(marker[1])
        except OSError:
            os.close(descriptor)
            raise
        if not is_runner:
            os.close(descriptor)
            return None
        return descriptor

    def _is_holder(self, process: str) -> bool:
        """Return whether the process has the lock file open, and true if that cannot be read."""
        lock = os.stat(f"{self.path}/lock")
        try:
            return has_open(process, lock)
        except PermissionError:
            return True
        except OSError:
            return False

    def kill_holders(self) -> None:
        """Kill all processes that hold the lock: those of a step whose runner was killed.

        Raises:
            OSError: Some processes cannot be read now.
        """
        try:
            lock = os.stat(f"{self.path}/lock")
        except FileNotFoundError:
            return  # the next observation finds that the folder is gone
        for process in os.listdir("/proc"):
            if not process.isdigit() or int(process) == os.getpid():
                continue
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if has_open(process, lock):
                    os.kill(int(process), signal.SIGKILL)

    def read_output(self, output: str, digest: str) -> bytes:
        """Return the bytes of an output.

        Raises:
            ValueError: The bytes differ from those in the sealed receipt.
        """
        data = read_file(f"{self.path}/out.{output}")
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise ValueError(f"the bytes of output {output} differ from those in the receipt")
        return data

    def release(self) -> bool:
        """Remove the folder after the result is recorded; return false while a process holds the lock.

        The log is elsewhere. This holds the lock during the removal, so a late runner finds the lock taken or the order
        gone, and never an order without its marker.

        Raises:
            IsADirectoryError: The step has created folders in it; `clear` removes them.
        """
        try:
            descriptor = os.open(f"{self.path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            self._remove_mark()
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(self.path):
                if name != "lock":
                    os.unlink(f"{self.path}/{name}")
            os.unlink(f"{self.path}/lock")
            os.rmdir(self.path)
            self._remove_mark()
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.ENOTEMPTY):
                raise
            return False
        finally:
            os.close(descriptor)
        return True

    def clear(self) -> None:
        """Remove the folders that the step has created next to its script; this may take long.

        Raises:
            OSError: Some of them cannot be removed.
        """
        for entry in os.scandir(self.path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)

    def _remove_mark(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._existence_mark)

    def log_size(self) -> int | None:
        """Return the size of the log in bytes; None if there is none."""
        try:
            return os.stat(self.log).st_size
        except FileNotFoundError:
            return None

    def read_log(self, offset: int, limit: int) -> bytes | None:
        """Return up to `limit` bytes of the log from `offset`; None if there is no log."""
        try:
            with open(self.log, "rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return None

    def log_times(self) -> LogTimes:
        """Return the print times of the log; empty if they were not recorded, as in older releases."""
        try:
            return LogTimes(read_file(self.times))
        except OSError:  # users and steps can replace the file by anything
            return LogTimes(b"")


def list_attempts(place: AttemptStorage) -> list[tuple[str, str, int]]:
    """Return run, unit and number of each attempt that has a folder, a working directory or an existence mark."""
    names = {entry.name for path in (place.work, place.steps) for entry in os.scandir(path) if entry.is_dir()}
    with contextlib.suppress(FileNotFoundError):
        names |= {entry.name for entry in os.scandir(place.existence_marks)}
    found = filter(None, map(_FOLDER.fullmatch, sorted(names)))
    return [(match["run"], unslug(match["unit"]), int(match["number"])) for match in found]


def slug(unit: str) -> str:
    """Return a unit's name as a unique file name: `db.seed` for `db/seed`, `fork@demo.app` for `fork:demo/app`."""
    return unit.replace("/", ".").replace(":", "@")


def unslug(name: str) -> str:
    """Return the unit for a file name of `slug`."""
    return name.replace("@", ":").replace(".", "/", 1)


def list_logs(place: AttemptStorage, run: str) -> list[tuple[str, int]]:
    """Return the units and attempts with logs, sorted."""
    try:
        names = [entry.name for entry in os.scandir(f"{place.logs}/{run}")]
    except FileNotFoundError:
        return []
    # The folder may contain files of editors and copies of logs.
    found = filter(None, map(_LOG.fullmatch, names))
    return sorted((unslug(match["unit"]), int(match["number"])) for match in found)


def list_runs_logged_before(place: AttemptStorage, before: int) -> set[str]:
    """Return the runs whose newest log was created before that time (unix milliseconds).

    Folders without the name of a run are ignored.
    """
    found = set()
    with contextlib.suppress(FileNotFoundError):  # a user may have deleted all logs to free space
        for entry in os.scandir(place.logs):
            if _RUN.fullmatch(entry.name) and entry.stat().st_mtime_ns // 1_000_000 < before:
                found.add(entry.name)
    return found


def kept_logs(newest: int) -> range:
    """Return the attempts of a unit whose logs are kept, by its newest attempt."""
    return range(newest - KEPT_LOGS + 1, newest + 1)


def delete_logs(place: AttemptStorage, run: str) -> None:
    """Delete the logs of a run."""
    shutil.rmtree(f"{place.logs}/{run}", ignore_errors=True)


def _create_folders(*paths: str) -> None:
    # A user may have deleted the logs to free space. The home is not created: without it there is no ledger.
    for path in paths:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
