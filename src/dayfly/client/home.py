"""The home: the folder of one independent Dayfly, with its key, the server's URL, its ledger and logs."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from dayfly.client.errors import DayflyError, Exit

_READ_INTERVAL_S = 0.01
_MAX_READS = 100


class Home(NamedTuple):
    """The files of one home. Creating this object does not create any file."""

    path: Path

    @classmethod
    def find(cls) -> Home:
        """Return the home at `$DAYFLY_HOME`, otherwise `dayfly` in the user's state directory."""
        if named := os.environ.get("DAYFLY_HOME"):
            return cls(Path(named).absolute())
        state = os.environ.get("XDG_STATE_HOME", "")
        base = Path(state) if state.startswith("/") else Path(os.path.expanduser("~/.local/state"))  # noqa: PTH111 # Path.expanduser raises where there is no home
        return cls(base / "dayfly")

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Home:
        """Return the home in a folder."""
        return cls(Path(path).absolute())

    @property
    def key(self) -> Path:
        """The API key; readable only by its owner."""
        return self.path / "key"

    @property
    def url(self) -> Path:
        """`scheme://host:port` of the running server; absent if none runs."""
        return self.path / "url"

    @property
    def servers(self) -> Path:
        """The servers of `dayfly login`, with their keys; readable only by its owner."""
        return self.path / "servers"

    @property
    def users(self) -> Path:
        """The file that each `dayfly with` locks while it uses a server that was started for such commands."""
        return self.path / "with.lock"

    @property
    def server_store(self) -> Path:
        """The default database of `dayfly server`."""
        return self.path / "server.db"

    @property
    def store(self) -> Path:
        """The database of the home's server."""
        return self.path / "control.db"

    @property
    def log(self) -> Path:
        """The log of a detached server."""
        return self.path / "server.log"

    def read(self, file: Path) -> str:
        """Return the content of a small file; empty if it does not exist.

        Raises:
            DayflyError: the file cannot be read, or other users could have changed it.
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
        """Check the owner and mode of the folder: a user who can write to it can redirect our key and requests.

        Raises:
            DayflyError: it exists and belongs to another user, or is writable by others.
        """
        try:
            link, found = self.path.lstat(), self.path.stat()
        except OSError:
            return  # it does not exist, or the next access reports the error
        _check(str(self.path), found)
        if stat.S_ISLNK(link.st_mode):
            _check(f"the link {self.path}", link)

    def make(self) -> None:
        """Create the folder with access only for its owner.

        Raises:
            DayflyError: it cannot be created, or it exists and is not trusted.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            reason = (fault.strerror or "cannot be created").lower()
            raise DayflyError(Exit.DENIED, f"{self.path}: {reason}", "set DAYFLY_HOME to your own folder") from None
        self.check()

    def make_key(self) -> str:
        """Return the key; create it if there is none. Two servers that start at once use the same key."""
        import secrets

        self.make()
        fresh = secrets.token_urlsafe(32)
        try:
            handle = os.open(self.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return self._read_key_of_other_process()
        try:
            with os.fdopen(handle, "w") as file:
                file.write(fresh + "\n")
        except OSError:
            self.key.unlink(missing_ok=True)  # a partial key would block the next start
            raise
        return fresh

    def _read_key_of_other_process(self) -> str:
        import time

        for _ in range(_MAX_READS):  # the other process may have created the file without writing it yet
            if key := self.read(self.key):
                return key
            time.sleep(_READ_INTERVAL_S)
        raise DayflyError(Exit.FAILED, f"{self.key} is empty", "remove it and try again")

    def server_process(self) -> int | None:
        """Return the process ID of the server of this home; None if there is none.

        The ID in the lock file is only valid while the lock is held.

        Raises:
            DayflyError: the folder cannot be read, or is not trusted.
        """
        try:
            import fcntl
        except ImportError:
            return None  # the server of a home needs Linux

        self.check()
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as fault:
            reason = (fault.strerror or "cannot be read").lower()
            raise DayflyError(Exit.DENIED, f"{self.path}: {reason}", "set DAYFLY_HOME to your own folder") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            number = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            return int(number) if number.isdigit() else None
        finally:
            os.close(descriptor)

    def is_left_behind(self) -> bool:
        """Return whether the URL is that of a killed server; another program may use its port now."""
        return bool(self.read(self.url)) and self.server_process() is None


def _check(what: str, found: os.stat_result, *, secret: bool = False) -> None:
    """Refuse a file that belongs to another user (except root), or that other users can change or read."""
    if not hasattr(os, "geteuid"):
        return  # Windows has access control lists, and protects the folder of a user
    if found.st_uid not in (os.geteuid(), 0):
        message = f"{what} belongs to another user ({_name(found.st_uid)}), who could misuse it"
        raise DayflyError(Exit.DENIED, message, "run it as that user, or set DAYFLY_HOME to your own folder")
    opened = stat.S_IROTH | stat.S_IWOTH if secret else stat.S_IWOTH
    if found.st_mode & opened and not stat.S_ISLNK(found.st_mode):
        may = "read or change it" if secret else "write there" if stat.S_ISDIR(found.st_mode) else "change it"
        advice = f"close it with: chmod o-{'rw' if secret else 'w'} {what}, or set DAYFLY_HOME to your own folder"
        raise DayflyError(Exit.DENIED, f"{what} is accessible to all users, who could {may}", advice)


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
