"""The working directories of steps: one empty folder on the home's disk for each attempt."""

import contextlib
import os
import stat

from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.files import remove_tree
from dayfly.execute.process.run import AttemptFolder

# An unused folder is reused for the next step, because ext4 is slow to create folders after it has deleted many: it
# skips each inode that was freed within the last minutes.
_SPARE = ".spare-"
_MAX_SPARE = 64


class StepFolders:
    """Creates and removes the working directories of steps."""

    def __init__(self, place: AttemptStorage) -> None:
        self._place = place
        self._spare: list[str] = []
        self._numbers = 0
        # The state of each folder when it was created. It lacks folders that another server process created.
        self._created: dict[str, tuple[int, ...]] = {}
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(place.steps):
                if entry.name.startswith(_SPARE):
                    # From a server process that was killed. The folder may not be empty.
                    with contextlib.suppress(OSError):
                        os.rmdir(entry.path)

    def make(self, folder: AttemptFolder) -> str:
        """Create the attempt's empty working directory and return its path.

        Raises:
            OSError: The folder cannot be created.
        """
        path = folder.step_folder
        if not self._reuse(path):
            for each in (self._place.steps, path):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(each, 0o700)
        self._created[path] = _fingerprint(path)
        return path

    def remove(self, folder: AttemptFolder, *, can_reuse: bool) -> bool:
        """Remove the folder of a released attempt if it is empty; return false if it cannot be removed.

        With `can_reuse`, no process of a step outlives it, so an unchanged folder may be used for another step.
        """
        path = folder.step_folder
        created = self._created.pop(path, None)
        try:
            if can_reuse and len(self._spare) < _MAX_SPARE and _fingerprint(path) == created:
                self._numbers += 1
                spare = f"{self._place.steps}/{_SPARE}{self._numbers}"
                os.rename(path, spare)
                self._spare.append(spare)
            else:
                os.rmdir(path)
        except FileNotFoundError:
            pass
        except OSError:
            return False  # not empty, a mount point, or a disk error: `clear_step_folder` reports it
        return True

    def close(self) -> None:
        """Remove the spare folders."""
        for path in self._spare:
            with contextlib.suppress(OSError):
                os.rmdir(path)

    def _reuse(self, path: str) -> bool:
        # An existing folder may be in use by an attempt that a restored, older ledger does not contain.
        if not self._spare or os.path.lexists(path):
            return False
        try:
            os.rename(self._spare.pop(), path)
        except FileNotFoundError:
            return False  # a user has removed it
        return True


def clear_step_folder(folder: AttemptFolder) -> None:
    """Remove the working directory of a released attempt with its content; this may take long.

    Raises:
        OSError: Some entries cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        remove_tree(folder.step_folder)


def _fingerprint(path: str) -> tuple[int, ...]:
    """Return a value that changes with the mode, owner, attributes and entries of the folder."""
    seen = os.lstat(path)
    return seen.st_ino, stat.S_IFMT(seen.st_mode), seen.st_nlink, seen.st_ctime_ns
