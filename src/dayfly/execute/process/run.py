"""The attempt's folder: the only place where processes are started, fenced, cancelled and looked at."""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import signal

from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.files import locked, make, private, remove_tree, slurp
from dayfly.execute.process.log_times_file import LogTimes, entry_now
from dayfly.execute.process.processes import opens, standing
from dayfly.execute.receipt import lost, receipt
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, NeverRan, Running, Stalled, Unclear
from dayfly.spec.lifecycle import Unit
from dayfly.spec.run import UnitRecord

Seen = Ended | NeverRan | Running | Stalled | Unclear
# What may pass between a deadline of the runner and the end of the last process it ended.
MARGIN_MS = 60_000
# So many logs of one unit are kept: one that is tried again and again must not fill the disk.
KEPT_LOGS = 20
# The marker's line that tells when the step's first process began; markers of older runners have none.
_BEGAN = 6
_PROCESS = re.compile("[1-9][0-9]{0,8}")
_MOMENT = re.compile("[1-9][0-9]{0,14}")
_FOLDER = re.compile(r"(?P<run>[^.]+)\.(?P<unit>.+)\.(?P<number>[1-9][0-9]*)")
_RUN = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOG = re.compile(r"(?P<unit>[^.].*)\.(?P<number>[1-9][0-9]*)\.log")


class Folder:
    """One attempt's folder. Names are derived, so finding it again needs no index."""

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
        """The attempt's log, if it has said anything."""
        return f"{self._place.logs}/{self._run}/{self._name}.log"

    @property
    def times(self) -> str:
        """When the log was printed, if anybody has noted it."""
        return f"{self._place.logs}/{self._run}/{self._name}.times"

    @property
    def begins(self) -> str:
        """The folder in which its step begins."""
        return f"{self._place.steps}/{self._run}.{self._name}"

    @property
    def said(self) -> str:
        """Where the starter's own words go, if it has any."""
        return f"{self.path}/said"

    @property
    def _trace(self) -> str:
        """That there has been a folder: on the disk, where who clears the work folder away does not come."""
        return f"{self._place.traces}/{self._run}.{self._name}"

    def write_order(self, order: bytes) -> None:
        """Make the folder with its work order.

        Raises:
            OSError: the disk refuses; nothing can start from what was written.
        """
        self._make()
        self._leave_trace()
        make(f"{self.path}/order", order)

    def exists(self) -> bool:
        """Whether the folder is there."""
        return os.path.isdir(self.path)

    def say(self, sentence: str) -> None:
        """Begin the log with a line of our own."""
        self.make_logs()
        with open(self.log, "ab", opener=private) as file, open(self.times, "ab", opener=private) as times:
            times.write(entry_now(file.tell()))  # and is written first: files are closed from the last on
            file.write(f"[dayfly: {sentence}]\n".encode())

    def drop_older_logs(self) -> None:
        """Keep the newest logs of the unit, this attempt's among them, and let this one say that others are gone."""
        kept = kept_logs(self._number)
        if kept.start <= 1:
            return
        for unit, number in logged(self._place, self._run):
            if unit == self._unit and number not in kept:
                old = Folder(self._place, self._run, unit, number)
                for path in (old.log, old.times):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
        self.say(f"the last {KEPT_LOGS} logs are kept; those before attempt {kept.start} are gone")

    def complaint(self) -> str:
        """The last line of what the starter said, or nothing."""
        lines = slurp(self.said).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def fence(self) -> bool:
        """Link `void` into the marker's place; false if the step was first. After true it can never start."""
        self._make()
        draft = f"{self.path}/void.tmp"
        with open(draft, "wb", opener=private) as file:
            file.write(b"void\n")
        try:
            os.link(draft, f"{self.path}/marker")
        except FileExistsError:
            return slurp(f"{self.path}/marker").startswith(b"void")
        finally:
            os.unlink(draft)
        return True

    def _make(self) -> None:
        self._place.keep()
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)

    def _leave_trace(self) -> None:
        with contextlib.suppress(FileExistsError):
            try:
                self._name_none()
            except FileNotFoundError:
                _make_all(self._place.logs, self._place.traces)
                os.close(private(f"{self._place.traces}/none", os.O_WRONLY | os.O_CREAT))
                self._name_none()

    def _name_none(self) -> None:
        """One more name of one empty file: a disk is slow to make files and quick to name them, where it can."""
        try:
            os.link(f"{self._place.traces}/none", self._trace)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            make(self._trace, b"")

    def make_logs(self) -> None:
        """Make the folder of the run's logs: a runner makes it with its log, where it sees more than this folder."""
        _make_all(self._place.logs, self.logs)

    def observe(self, record: UnitRecord, *, unit: Unit, nonce: str, now: int) -> Seen:
        """Look at an attempt that the ledger believes alive, whoever started it."""
        for _ in range(2):
            if data := slurp(f"{self.path}/receipt"):
                return receipt(data, nonce=nonce, unit=unit)
            marker = self._marker()
            if marker[0] == "void":
                return NeverRan(reason=Reason.NEVER_RAN, message="it was fenced before it started")
            if marker[0] != "started":
                return self._unmarked(record, unit, now)
            if self.locked():
                told = "".join(marker[4:5])  # by a file that a step can reach
                return Running(since=int(told) if _MOMENT.fullmatch(told) else record.claimed_at)
            # The receipt is written before the lock is freed: look for it once more.
        return lost("its runner ended without a receipt", started_at=record.claimed_at, ended_at=now)

    def _unmarked(self, record: UnitRecord, unit: Unit, now: int) -> Seen:
        if record.ref.split()[0] != self._place.boot:
            message = "the machine was restarted; what ran then has ended"
            return Unclear(since=record.claimed_at, reason=Reason.MACHINE_RESTARTED, message=message, dead_by=now)
        # The folder comes before its trace and goes before it: a trace without a folder is what somebody who removed
        # the folder left. So is a log.
        was_removed = not record.kept and not self.exists() and (os.path.lexists(self._trace) or self._has_log())
        if record.ref == self._place.ref and not was_removed:
            return Stalled(since=record.claimed_at)
        return self.removed(record, unit)

    def removed(self, record: UnitRecord, unit: Unit) -> Unclear:
        """What is known of an attempt that may be running and whose folder is gone: when it must have ended."""
        limits = unit.timeouts
        start = record.claimed_at + limits.schedule_ms + limits.pull_ms
        return Unclear(
            since=record.claimed_at,
            reason=Reason.FOLDER_LOST,
            message="its folder was removed while it may have been running",
            dead_by=start + limits.run_ms + limits.grace_ms + MARGIN_MS,
        )

    def locked(self) -> bool:
        """Whether anything of the step may still live."""
        return locked(f"{self.path}/lock") or self._dying()

    def _dying(self) -> bool:
        """Whether the step's first process is there, with the lock free: it is being killed.

        It lets go of the lock before the kernel kills what is left in its namespace and had closed the lock's
        descriptor; it is itself dead only after them (`do_exit` in Linux: `exit_files` comes before `exit_notify`).
        """
        marker = self._marker()
        if len(marker) < _BEGAN + 1 or marker[3] != self._place.boot or not _PROCESS.fullmatch(marker[2]):
            return False
        state, began = standing(marker[2])
        return state not in ("", "Z", "X") and began == marker[_BEGAN]

    def _marker(self) -> list[str]:
        return slurp(f"{self.path}/marker").decode(errors="replace").split("\n")

    def watch(self) -> int | None:
        """A pidfd of the runner that holds the lock, ready to read once it has ended; None if none does."""
        marker = self._marker()
        if marker[0] != "started" or not _PROCESS.fullmatch("".join(marker[1:2])):
            return None
        try:
            descriptor = os.pidfd_open(int(marker[1]))
        except ProcessLookupError:
            return None
        try:
            # The id could be another process's by now: the runner is the one that has the lock's file open.
            is_runner = self.locked() and self._is_holder(marker[1])
        except OSError:
            os.close(descriptor)
            raise
        if not is_runner:
            os.close(descriptor)
            return None
        return descriptor

    def _is_holder(self, process: str) -> bool:
        """Whether it has the lock's file open; where we may not look, it is taken to be what it says."""
        lock = os.stat(f"{self.path}/lock")
        try:
            return opens(process, lock)
        except PermissionError:
            return True
        except OSError:
            return False

    def kill_holders(self) -> None:
        """Kill whatever still holds the lock: the processes of a step whose runner was killed.

        Raises:
            OSError: not all processes can be looked at now.
        """
        try:
            lock = os.stat(f"{self.path}/lock")
        except FileNotFoundError:
            return  # whoever looks again finds the folder gone
        for process in os.listdir("/proc"):
            if not process.isdigit() or int(process) == os.getpid():
                continue
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if opens(process, lock):
                    os.kill(int(process), signal.SIGKILL)

    def value(self, output: str, digest: str) -> bytes:
        """An output's bytes.

        Raises:
            ValueError: they are not those that the receipt was sealed over.
        """
        data = slurp(f"{self.path}/out.{output}")
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise ValueError(f"the bytes of output {output} differ from those in the receipt")
        return data

    def release(self) -> bool:
        """Remove the folder: the ledger has its result, and the log lies elsewhere. False while somebody is at it.

        The lock is held meanwhile, so a runner that comes as late as this finds the lock taken or the order gone, never
        an order without its marker.

        Raises:
            IsADirectoryError: its step has made folders in it; `clear` removes them.
        """
        try:
            descriptor = os.open(f"{self.path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            self._wipe_trace()
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(self.path):
                if name != "lock":
                    os.unlink(f"{self.path}/{name}")
            os.unlink(f"{self.path}/lock")
            os.rmdir(self.path)
            self._wipe_trace()
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.ENOTEMPTY):
                raise
            return False
        finally:
            os.close(descriptor)
        return True

    def clear(self) -> None:
        """Remove the folders that its step has made beside its script; that may take long.

        Raises:
            OSError: not all of them can be removed.
        """
        for entry in os.scandir(self.path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)

    def _wipe_trace(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._trace)

    def _has_log(self) -> bool:
        return self.log_size() is not None

    def log_size(self) -> int | None:
        """Bytes in the log; None if there is none."""
        try:
            return os.stat(self.log).st_size
        except FileNotFoundError:
            return None

    def read_log(self, offset: int, limit: int) -> bytes | None:
        """Bytes of the log from `offset`; None if there is none."""
        try:
            with open(self.log, "rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return None

    def log_times(self) -> LogTimes:
        """When the log was printed; empty where nobody has noted it, as of logs of older releases."""
        try:
            return LogTimes(slurp(self.times))
        except OSError:  # people and steps can put anything there
            return LogTimes(b"")


def folders(place: AttemptStorage) -> list[tuple[str, str, int]]:
    """Run, unit and number of each attempt that has left a folder, its own or the one in which it began, or a trace."""
    names = {entry.name for path in (place.work, place.steps) for entry in os.scandir(path) if entry.is_dir()}
    with contextlib.suppress(FileNotFoundError):
        names |= {entry.name for entry in os.scandir(place.traces)}
    found = filter(None, map(_FOLDER.fullmatch, sorted(names)))
    return [(match["run"], unslug(match["unit"]), int(match["number"])) for match in found]


def slug(unit: str) -> str:
    """A unit's name as one folder name: `db/seed` is `db.seed`, `fork:demo/app` is `fork@demo.app`; none collide."""
    return unit.replace("/", ".").replace(":", "@")


def unslug(name: str) -> str:
    """The unit a folder is named after."""
    return name.replace("@", ":").replace(".", "/", 1)


def logged(place: AttemptStorage, run: str) -> list[tuple[str, int]]:
    """Units and attempts of which there are logs, in that order."""
    try:
        names = [entry.name for entry in os.scandir(f"{place.logs}/{run}")]
    except FileNotFoundError:
        return []
    # People look at logs where they lie, and leave editors' files and copies beside them.
    found = filter(None, map(_LOG.fullmatch, names))
    return sorted((unslug(match["unit"]), int(match["number"])) for match in found)


def runs_logged(place: AttemptStorage, before: int) -> set[str]:
    """The runs whose newest log was begun before that moment (unix milliseconds).

    Of another name than a sandbox's UID is what people have put there.
    """
    found = set()
    with contextlib.suppress(FileNotFoundError):  # all may have been removed to make room
        for entry in os.scandir(place.logs):
            if _RUN.fullmatch(entry.name) and entry.stat().st_mtime_ns // 1_000_000 < before:
                found.add(entry.name)
    return found


def kept_logs(newest: int) -> range:
    """The attempts of a unit whose logs are kept, when the newest is this one."""
    return range(newest - KEPT_LOGS + 1, newest + 1)


def forget(place: AttemptStorage, run: str) -> None:
    """Remove the logs of a run."""
    shutil.rmtree(f"{place.logs}/{run}", ignore_errors=True)


def _make_all(*paths: str) -> None:
    # All may have been removed to make room. The home is not made anew: with it the ledger is gone.
    for path in paths:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
