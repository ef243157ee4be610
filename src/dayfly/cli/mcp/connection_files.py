"""Files with the outputs of sandboxes, for programs that an agent starts. The agent gets only their paths."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from dayfly.client.errors import DayflyError, Exit


class ConnectionFiles:
    """A private folder, created by the first file and deleted at the end."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._is_closed = False

    def write(self, name: str, content: str) -> Path:
        """Write a file that only the user can read. An existing one is replaced.

        Args:
            name: The name of a sandbox, which contains no slash.
            content: The content.

        Raises:
            DayflyError: after `close`. A call that ends after it must leave no file behind.
        """
        if self._is_closed:
            raise DayflyError(Exit.FAILED, "dayfly mcp is ending, so no file was written")
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="dayfly-mcp-"))  # only the user can enter it
        path = self._folder / f"{name}.env"
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        fresh.replace(path)
        return path

    def remove(self, name: str) -> None:
        """Delete the file of a sandbox, if there is one."""
        if self._folder is not None:
            (self._folder / f"{name}.env").unlink(missing_ok=True)

    def close(self) -> None:
        """Delete the folder. It is not created again."""
        self._is_closed = True
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
