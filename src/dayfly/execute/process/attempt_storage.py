"""The work folder for the attempts of a home, in memory or on disk. The home records its path."""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from dayfly.execute.process.files import is_locked, read_file, replace_file
from dayfly.spec.scalars.numbers import MAX_INTEGER, parse_whole

SHARED = "/dev/shm"  # noqa: S108 - folders have mode 0700, and those of other users are refused
_OWN_FILES = {"epoch", "home"}


class AttemptStorage(NamedTuple):
    """The paths for attempts and their logs.

    `ref` identifies this boot and this work folder, and each claim records it. If either has changed since the claim, a
    missing marker proves nothing.
    """

    work: str
    logs: str
    boot: str
    ref: str
    steps: str
    """Parent of the working directories of steps. On disk, because steps may download and build large files."""

    @property
    def existence_marks(self) -> str:
        """Folder with one file for each attempt that has had a folder. No run can have this name."""
        return f"{self.logs}/.begun"

    def write_number(self, name: str, number: int) -> None:
        """Store a number until the machine restarts."""
        self.ensure_exists()
        replace_file(f"{self.work}/{name}", str(number))

    def read_number(self, name: str) -> int:
        """Return a stored number; 0 if there is none, or a crash of the machine has damaged it."""
        return parse_whole(read_file(f"{self.work}/{name}").decode(errors="replace"), MAX_INTEGER) or 0

    def ensure_exists(self) -> None:
        """Create the work folder again if it is gone: systemd deletes the memory files of a user at logout.

        The new folder has no epoch, so the next server process treats it as another folder.

        Raises:
            OSError: The folder cannot be created, or belongs to another user.
        """
        try:
            _check_owner(self.work)
        except FileNotFoundError:
            Path(self.work).mkdir(mode=0o700)
            replace_file(f"{self.work}/home", str(Path(self.logs).parent.resolve()))


def open_storage(home: Path, shared: str = SHARED) -> AttemptStorage:
    """Open the storage that the home has recorded, or choose one: in memory if programs can run there, else on disk.

    An attempt's folder has a dozen short-lived files that need not survive a restart of the machine, so memory is
    faster. Logs must survive and are on disk.

    Args:
        home: The existing home.
        shared: The folder in memory.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    work = os.fsdecode(read_file(f"{home}/place"))
    if not Path(work).is_absolute():
        # Not recorded yet, or truncated by a crash of the machine.
        work = _choose(home, shared)
    Path(work).mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(work)
    epoch = read_file(f"{work}/epoch").decode(errors="replace")
    if not epoch:
        epoch = secrets.token_hex(8)
        replace_file(f"{work}/epoch", epoch)
    _write_if_changed(f"{work}/home", str(home.resolve()))
    _write_if_changed(f"{home}/place", work)
    for name in ("logs", "steps"):
        (home / name).mkdir(mode=0o700, exist_ok=True)
    return AttemptStorage(work, f"{home}/logs", boot, f"{boot} {epoch}", f"{home}/steps")


def remove_storage(place: AttemptStorage) -> None:
    """Remove the work folder of a home without runs, unless it still contains attempts."""
    if {entry.name for entry in os.scandir(place.work)} <= _OWN_FILES:
        shutil.rmtree(place.work)


def sweep_storage(shared: str = SHARED) -> None:
    """Remove work folders in memory (`shared`) whose home is gone, unless a step may still run in them.

    Errors are ignored: no server depends on the folders of others, and some containers have no such folder.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir(shared):
            if entry.name.startswith(f"dayfly-{os.geteuid()}-"):
                # Its own server has just removed it, or the path of its home cannot be read now.
                with contextlib.suppress(OSError):
                    _sweep_folder(entry.path)


def _sweep_folder(path: str) -> None:
    if not _is_ours(path):
        return
    home = os.fsdecode(read_file(f"{path}/home"))
    attempts = [folder.path for folder in os.scandir(path) if folder.is_dir()]
    if home and not Path(home).is_dir() and not any(is_locked(f"{each}/lock") for each in attempts):
        shutil.rmtree(path, ignore_errors=True)


def _write_if_changed(path: str, text: str) -> None:
    # An unchanged file needs no space, so a server can start on a full disk.
    if read_file(path) != os.fsencode(text):
        replace_file(path, text)


def _choose(home: Path, memory: str) -> str:
    name = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]
    shared = Path(f"{memory}/dayfly-{os.geteuid()}-{name}")
    with contextlib.suppress(OSError):
        shared.mkdir(mode=0o700)
        room = os.statvfs(shared)
        if not room.f_flag & os.ST_NOEXEC and room.f_bavail * room.f_frsize >= 64 << 20:
            return str(shared)
        shared.rmdir()
    return f"{home}/attempts"


def _check_owner(work: str) -> None:
    if not _is_ours(work):
        raise OSError(errno.EPERM, "belongs to another user or has the wrong mode; remove it", work)


def _is_ours(path: str) -> bool:
    seen = os.lstat(path)
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o077
