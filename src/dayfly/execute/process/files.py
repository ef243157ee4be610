"""Small files by the kernel's own calls: read, put in place whole, locked."""

import fcntl
import os
import secrets
from pathlib import Path

_CHUNK = 1 << 16


def locked(path: str) -> bool:
    """Whether somebody holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def slurp(path: str) -> bytes:
    """The bytes of a plain file; none if it is not there. By the kernel's own calls: each step has a few of them."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        data = chunk = os.read(descriptor, _CHUNK)
        while len(chunk) == _CHUNK:
            chunk = os.read(descriptor, _CHUNK)
            data += chunk
    finally:
        os.close(descriptor)
    return data


def make(path: str, data: bytes) -> None:
    """Make a file of ours with these bytes.

    Raises:
        FileExistsError: there is one.
        OSError: the disk refuses; some of the bytes may be there.
    """
    descriptor = private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def put(path: str, text: str) -> None:
    """Write it whole or not at all, whenever we are killed: a path that is cut short names another folder."""
    draft = f"{path}.tmp"
    with open(draft, "w", encoding="utf-8", errors="surrogateescape", opener=private) as file:
        file.write(text)
    Path(draft).replace(path)


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it, however deep that is; it may take long.

    Raises:
        OSError: not all of it can be removed.
    """
    name, found = f"{path}/.{secrets.token_hex(8)}-", [Path(path)]
    found[0].chmod(0o700)
    for folder in found:  # which grows meanwhile
        for entry in list(folder.iterdir()):
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
                continue
            # A step may have locked its own folders, as Go does with its modules.
            entry.chmod(0o700)
            # To the top with it: neither calls nor paths go as deep as folders can.
            found.append(entry.rename(f"{name}{len(found)}"))
        if folder != found[0]:
            folder.rmdir()
    found[0].rmdir()


def private(path: str, flags: int) -> int:
    """An opener (see `open`) of files for nobody but us."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
