"""A home is the folder of one independent Dayfly: its key, where its server listens, its ledger and logs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dayfly.cli.exits import CliError, Exit

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

    @property
    def key(self) -> Path:
        """The API key, readable by its owner alone."""
        return self.path / "key"

    @property
    def url(self) -> Path:
        """`scheme://host:port` of the running server; absent when none runs."""
        return self.path / "url"

    @property
    def store(self) -> Path:
        """The control plane's database."""
        return self.path / "control.db"

    @property
    def log(self) -> Path:
        """What a detached server has to say."""
        return self.path / "server.log"

    def read(self, file: Path) -> str:
        """The one line of a small file; empty if it is not there.

        Raises:
            CliError: it is there and may not be read.
        """
        try:
            return file.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return ""
        except OSError as fault:
            reason = (fault.strerror or "cannot be read").lower()
            advice = "run it as the user who owns it, or set DAYFLY_HOME"
            raise CliError(Exit.DENIED, f"{file}: {reason}", advice) from None

    def make(self) -> None:
        """Create the folder, for its owner alone."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            reason = (fault.strerror or "cannot be made").lower()
            raise CliError(Exit.DENIED, f"{self.path}: {reason}", "set DAYFLY_HOME to a folder of yours") from None

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
        raise CliError(Exit.FAILED, f"{self.key} is empty", "remove it and try again")
