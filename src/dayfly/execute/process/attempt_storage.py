"""Where the attempts of one home work: a folder in memory or on disk that the home remembers."""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from dayfly.execute.process.files import locked, put, slurp
from dayfly.spec.scalars.numbers import MAX_INTEGER, whole

SHARED = "/dev/shm"  # noqa: S108 - folders there are made with 0700, and refused if another's
_OWN = {"epoch", "home"}


class AttemptStorage(NamedTuple):
    """Where attempts work and where their logs stay.

    `ref` names this boot and this very folder: a claim binds it. If either is another one later, that a marker is not
    there proves nothing.
    """

    work: str
    logs: str
    boot: str
    ref: str
    steps: str
    """Where steps begin, each in a folder of its own: on the disk, since what they fetch and build may be large."""

    @property
    def traces(self) -> str:
        """Where it is noted of which attempts there is a folder. No run is named like this."""
        return f"{self.logs}/.begun"

    def note(self, name: str, number: int) -> None:
        """Remember a number as long as this boot lasts."""
        self.keep()
        put(f"{self.work}/{name}", str(number))

    def noted(self, name: str) -> int:
        """What `note` kept; 0 if nothing, or not what it wrote: as the end of a machine may leave it."""
        return whole(slurp(f"{self.work}/{name}").decode(errors="replace"), MAX_INTEGER) or 0

    def keep(self) -> None:
        """Make the work folder anew if it is gone: systemd takes away what a user has in memory when they log out.

        What it remembered is gone with it: for the next server it is another folder.

        Raises:
            OSError: it cannot be made, or somebody else has made it meanwhile.
        """
        try:
            _refuse_anothers(self.work)
        except FileNotFoundError:
            Path(self.work).mkdir(mode=0o700)
            put(f"{self.work}/home", str(Path(self.logs).parent.resolve()))


def open_place(home: Path, shared: str = SHARED) -> AttemptStorage:
    """The home's place: remembered, or chosen now. Memory serves if programs may be started there, else the disk.

    An attempt's folder sees a dozen small files come and go and need not survive the machine's end, so it is not worth
    a journal; logs are.

    Args:
        home: The home; it exists.
        shared: The folder in memory, in which a new place is made if that can be.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    work = os.fsdecode(slurp(f"{home}/place"))
    if not Path(work).is_absolute():
        # Not remembered yet, or cut short by the end of a machine whose disk had not heard of it.
        work = _choose(home, shared)
    Path(work).mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_anothers(work)
    epoch = slurp(f"{work}/epoch").decode(errors="replace")
    if not epoch:
        epoch = secrets.token_hex(8)
        put(f"{work}/epoch", epoch)
    _note(f"{work}/home", str(home.resolve()))
    _note(f"{home}/place", work)
    for name in ("logs", "steps"):
        (home / name).mkdir(mode=0o700, exist_ok=True)
    return AttemptStorage(work, f"{home}/logs", boot, f"{boot} {epoch}", f"{home}/steps")


def leave_place(place: AttemptStorage) -> None:
    """Remove the work folder of a home without runs. One in which something is left stays."""
    if {entry.name for entry in os.scandir(place.work)} <= _OWN:
        shutil.rmtree(place.work)


def sweep_places(shared: str = SHARED) -> None:
    """Remove work folders in memory (`shared`) whose home is gone, as long as nothing in them may still live.

    It is about tidiness: no server needs the folders of others, or the memory itself, which some containers have not.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir(shared):
            if entry.name.startswith(f"dayfly-{os.geteuid()}-"):
                # Its own server has just left it, or nobody can tell now whether its home is there.
                with contextlib.suppress(OSError):
                    _sweep_place(entry.path)


def _sweep_place(path: str) -> None:
    if not _is_ours(path):
        return
    home = os.fsdecode(slurp(f"{path}/home"))
    attempts = [folder.path for folder in os.scandir(path) if folder.is_dir()]
    if home and not Path(home).is_dir() and not any(locked(f"{each}/lock") for each in attempts):
        shutil.rmtree(path, ignore_errors=True)


def _note(path: str, text: str) -> None:
    # What stands there already needs no room: on a full disk the next server is to begin as well.
    if slurp(path) != os.fsencode(text):
        put(path, text)


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


def _refuse_anothers(work: str) -> None:
    if not _is_ours(work):
        raise OSError(errno.EPERM, "belongs to somebody else; remove it", work)


def _is_ours(path: str) -> bool:
    seen = os.lstat(path)
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o077
