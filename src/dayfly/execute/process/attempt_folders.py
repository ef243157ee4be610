"""The folders in which steps begin: on the home's disk, empty, each for one attempt."""

import contextlib
import os
import stat

from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.files import remove_tree
from dayfly.execute.process.run import Folder

# One that no step has touched becomes the next step's: a disk that has just forgotten many folders is slow to make new
# ones (ext4 steps over each inode that was freed within the last minutes).
_SPARE = ".spare-"
_MOST_SPARE = 64


class Beginnings:
    """Makes them, and takes them back."""

    def __init__(self, place: AttemptStorage) -> None:
        self._place = place
        self._spare: list[str] = []
        self._numbers = 0
        # By path, what a folder looked like when it was handed out; of one that another server made nothing is known.
        self._handed: dict[str, tuple[int, ...]] = {}
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(place.steps):
                if entry.name.startswith(_SPARE):
                    # Of a server that was killed. It is empty, or somebody has put something there.
                    with contextlib.suppress(OSError):
                        os.rmdir(entry.path)

    def make(self, folder: Folder) -> str:
        """The empty folder in which the attempt begins; returns its path.

        Raises:
            OSError: the disk refuses.
        """
        path = folder.begins
        if not self._reuse(path):
            for each in (self._place.steps, path):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(each, 0o700)
        self._handed[path] = _looks(path)
        return path

    def leave(self, folder: Folder, *, again: bool) -> bool:
        """Remove the one of an attempt that has been released if it is empty; false if it is not, or cannot be.

        `again` says that nothing of a step outlives it, so that a folder it has not touched may serve once more.
        """
        path = folder.begins
        handed = self._handed.pop(path, None)
        try:
            if again and len(self._spare) < _MOST_SPARE and _looks(path) == handed:
                self._numbers += 1
                spare = f"{self._place.steps}/{_SPARE}{self._numbers}"
                os.rename(path, spare)
                self._spare.append(spare)
            else:
                os.rmdir(path)
        except FileNotFoundError:
            pass
        except OSError:
            return False  # something is in it, mounted there, or the disk refuses: whoever clears it says what
        return True

    def close(self) -> None:
        """Remove those that wait for a step."""
        for path in self._spare:
            with contextlib.suppress(OSError):
                os.rmdir(path)

    def _reuse(self, path: str) -> bool:
        # One that is there already is of an attempt that an older ledger knows nothing of: it may be running there.
        if not self._spare or os.path.lexists(path):
            return False
        try:
            os.rename(self._spare.pop(), path)
        except FileNotFoundError:
            # Somebody has removed it, or all of them.
            return False
        return True


def clear(folder: Folder) -> None:
    """Remove what the step of a released attempt left in the folder in which it began; that may take long.

    Raises:
        OSError: not all of it can be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        remove_tree(folder.begins)


def _looks(path: str) -> tuple[int, ...]:
    """Changed by whatever is done to the folder: its mode, owner or attributes, an entry that comes or goes."""
    seen = os.lstat(path)
    return seen.st_ino, stat.S_IFMT(seen.st_mode), seen.st_nlink, seen.st_ctime_ns
