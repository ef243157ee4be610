"""A home is the folder of one independent Dayfly: its key, where its server listens, its ledger and logs."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from dayfly.client.errors import DayflyError, Exit

_LOOK_AGAIN_S = 0.01
_LOOKS = 100


class Home(NamedTuple):
    """The files of one home by name. Nothing is created by naming it."""

    path: Path

    @classmethod
    def find(cls) -> Home:
        """`$DAYFLY_HOME`, else `dayfly` in the platform's place for state."""
        if named := os.environ.get("DAYFLY_HOME"):
            return cls(Path(named).absolute())
        state = os.environ.get("XDG_STATE_HOME", "")
        base = Path(state) if state.startswith("/") else Path(os.path.expanduser("~/.local/state"))  # noqa: PTH111 # Path.expanduser raises where there is no home
        return cls(base / "dayfly")

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Home:
        """The home in a folder."""
        return cls(Path(path).absolute())

    @property
    def key(self) -> Path:
        """The API key, readable by its owner alone."""
        return self.path / "key"

    @property
    def url(self) -> Path:
        """`scheme://host:port` of the running server; absent when none runs."""
        return self.path / "url"

    @property
    def servers(self) -> Path:
        """Other servers that somebody has logged in to, with their keys; readable by its owner alone."""
        return self.path / "servers"

    @property
    def users(self) -> Path:
        """The file that each process locks while it uses a server that was started for such processes."""
        return self.path / "with.lock"

    @property
    def server_store(self) -> Path:
        """The database of `dayfly server`, where no other is named."""
        return self.path / "server.db"

    @property
    def store(self) -> Path:
        """The server's database."""
        return self.path / "control.db"

    @property
    def log(self) -> Path:
        """What a detached server has to say."""
        return self.path / "server.log"

    def read(self, file: Path) -> str:
        """The one line of a small file; empty if it is not there.

        Raises:
            DayflyError: it is there and may not be read, or not be trusted.
        """
        self.check()
        try:
            with file.open(encoding="utf-8", errors="replace") as source:
                _check(str(file), os.fstat(source.fileno()), secret=file in (self.key, self.servers))
                return source.read().strip()
        except FileNotFoundError:
            return ""
        except OSError as fault:
            reason = (fault.strerror or "cannot be read").lower()
            advice = "run it as the user who owns it, or set DAYFLY_HOME"
            raise DayflyError(Exit.DENIED, f"{file}: {reason}", advice) from None

    def check(self) -> None:
        """See that the folder is ours: whoever owns it, or may write in it, says where our key and wishes go.

        Raises:
            DayflyError: it is there and somebody else's.
        """
        try:
            link, found = self.path.lstat(), self.path.stat()
        except OSError:
            return  # it is not there, or whoever wants something of it is told why not
        _check(str(self.path), found)
        if stat.S_ISLNK(link.st_mode):
            _check(f"the link {self.path}", link)

    def make(self) -> None:
        """Create the folder, for its owner alone.

        Raises:
            DayflyError: it cannot be made, or is there and somebody else's.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            reason = (fault.strerror or "cannot be made").lower()
            raise DayflyError(Exit.DENIED, f"{self.path}: {reason}", "set DAYFLY_HOME to a folder of yours") from None
        self.check()

    def make_key(self) -> str:
        """The key, drawn now if there is none yet. Two servers that start at once agree on one."""
        import secrets

        self.make()
        fresh = secrets.token_urlsafe(32)
        try:
            handle = os.open(self.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return self._drawn_by_another()
        try:
            with os.fdopen(handle, "w") as file:
                file.write(fresh + "\n")
        except OSError:
            self.key.unlink(missing_ok=True)  # half a key, or none, would stand in the way of the next start
            raise
        return fresh

    def _drawn_by_another(self) -> str:
        import time

        for _ in range(_LOOKS):  # it may have made the file and not yet written into it
            if key := self.read(self.key):
                return key
            time.sleep(_LOOK_AGAIN_S)
        raise DayflyError(Exit.FAILED, f"{self.key} is empty", "remove it and try again")

    def server_process(self) -> int | None:
        """Return the process that holds this home; None if there is none.

        Its number is in the lock file. It is read while the lock is held, because otherwise it is out of date.

        Raises:
            DayflyError: the folder cannot be read, or is not to be trusted.
        """
        import fcntl

        self.check()
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as fault:
            reason = (fault.strerror or "cannot be read").lower()
            raise DayflyError(Exit.DENIED, f"{self.path}: {reason}", "set DAYFLY_HOME to a folder of yours") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            number = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            return int(number) if number.isdigit() else None
        finally:
            os.close(descriptor)

    def is_left_behind(self) -> bool:
        """Whether its address is that of a killed server. Another program may answer there."""
        return bool(self.read(self.url)) and self.server_process() is None


def _check(what: str, found: os.stat_result, *, secret: bool = False) -> None:
    """Refuse what belongs to neither us nor root, who may do anything anyway, or lies open to everybody."""
    if found.st_uid not in (os.geteuid(), 0):
        message = f"{what} belongs to another user ({_name(found.st_uid)}), who could use what you do there"
        raise DayflyError(Exit.DENIED, message, "run it as that user, or set DAYFLY_HOME to a folder of yours")
    opened = stat.S_IROTH | stat.S_IWOTH if secret else stat.S_IWOTH
    if found.st_mode & opened and not stat.S_ISLNK(found.st_mode):
        may = "read or change it" if secret else "write there" if stat.S_ISDIR(found.st_mode) else "change it"
        advice = f"close it with: chmod o-{'rw' if secret else 'w'} {what}, or set DAYFLY_HOME to a folder of yours"
        raise DayflyError(Exit.DENIED, f"{what} is open to everybody, who could {may}", advice)


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
